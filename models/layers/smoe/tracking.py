"""The loss scale for the backward pass of mixture-of-experts layers, and their recorded loss."""

import torch
from torch import Tensor, nn


class RoutingState(nn.Module):
    """A submodule of a layer, by which the training step finds the layer within any network.

    Attributes:
        loss_scale: the gradient with which a backward pass entered the loss, a scalar tensor, or
            None before the first backward pass of a tracked loss.
        record: True if backward passes keep the value of the routing classification loss. It costs
            another pass over the gate's map.
        classification_loss: that value in the last recorded backward pass, a scalar tensor, not
            multiplied by the scale of the loss; None if there was none.
    """

    splittable = True
    loss_scale: Tensor | None
    classification_loss: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.loss_scale = self.classification_loss = None
        self.record = False


def track_loss(loss: Tensor, network: nn.Module) -> Tensor:
    """Register a loss so that mixture-of-experts layers get its scale in the backward pass.

    Call it with the loss in the training step, before it is scaled for mixed precision or divided
    for accumulation. When the backward pass reaches the loss, its gradient there is that scale: the
    layers multiply the routing classification gradient and the margins of their routing rule by it.

    Args:
        loss: the scalar from which backward starts or through which it goes.
        network: its layers may be anywhere within.

    Returns:
        `loss` itself.
    """
    states = _states(network)

    def keep(gradient: Tensor) -> None:
        for state in states:
            state.loss_scale = gradient.detach()

    if states and loss.requires_grad:
        loss.register_hook(keep)  # type: ignore[no-untyped-call]
    return loss


def record_routing_loss(network: nn.Module, record: bool = True) -> None:
    """Switch recording of the routing classification loss on or off for later backward passes.

    Args:
        network: its layers may be anywhere within.
        record: False stops recording and discards the values.
    """
    for state in _states(network):
        state.record, state.classification_loss = record, None


def recorded_routing_loss(network: nn.Module) -> Tensor | None:
    """Return the routing classification loss of the last backward pass, the mean over layers.

    Args:
        network: its layers may be anywhere within.

    Returns:
        A scalar, or None if no layer recorded one: see `record_routing_loss`.
    """
    values = [state.classification_loss for state in _states(network)]
    recorded = [value for value in values if value is not None]
    return torch.stack(recorded).mean() if recorded else None


def _states(network: nn.Module) -> list[RoutingState]:
    return [module for module in network.modules() if isinstance(module, RoutingState)]
