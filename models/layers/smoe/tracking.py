"""How layers get to know the scale of their loss."""

from torch import Tensor, nn


class LossScale(nn.Module):
    """The gradient with which a backward pass entered the loss, as part of the layer that asks.

    Attributes:
        value: a scalar tensor, or None before the first backward pass of a tracked loss.
    """

    value: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.value = None


def track_loss(loss: Tensor, network: nn.Module) -> Tensor:
    """Lets the mixture-of-experts layers of a network know the scale of their loss.

    Call it with the loss as the training step has it, before it is scaled for mixed precision or
    divided for accumulation. When the backward pass enters the loss, the gradient found there is
    that scale, and the layers multiply the routing classification gradient by it.

    Args:
        loss: the scalar from which backward starts or through which it goes.
        network: its layers may be anywhere within.

    Returns:
        `loss` itself.
    """
    scales = [module for module in network.modules() if isinstance(module, LossScale)]

    def tell(gradient: Tensor) -> None:
        for scale in scales:
            scale.value = gradient.detach()

    if scales and loss.requires_grad:
        loss.register_hook(tell)  # type: ignore[no-untyped-call]
    return loss
