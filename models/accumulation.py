"""Gradients of a batch that is trained in parts, equal to those of the whole batch."""

from collections.abc import Iterable

from pytorch_lightning.strategies import Strategy
from torch import Tensor, nn

_LEAST = 1e-24  # share of a part: of one without truth


class AccumulatedParts:
    """The weights of the parts of a batch whose gradients Lightning accumulates.

    Lightning divides the loss of a part by the number k of parts, and adds the gradients. That is
    the gradient of the whole batch only if all parts have the same sum of weights, which those with
    missing truth have not, and if the last batch of an epoch has k parts, too. Therefore the loss
    of a part is multiplied by its sum of weights T, relative to a constant number of points P, and
    the accumulated gradient by k over the sum of T / P, before the optimiser's step:

        sum_i (T_i / P) (grad L_i / k) * k / sum_i (T_i / P) = sum_i T_i grad L_i / sum_i T_i

    Of several processes, whose gradients are averaged, the sum is the mean over these. The share
    of parts without truth vanishes beside others, but keeps the gradient of the network's penalty
    where a whole batch is without truth.
    """

    def __init__(self) -> None:
        self._sum: Tensor | None = None

    def weighted(self, loss: Tensor, share: Tensor) -> Tensor:
        """Return the loss of a part times its `share`, T / P."""
        share = share.clamp(min=_LEAST)
        self._sum = share if self._sum is None else self._sum + share
        return loss * share

    def rescale(self, parameters: Iterable[nn.Parameter], parts: int, strategy: Strategy) -> None:
        """Scale the accumulated gradients to those of the whole batch, and begin the next batch."""
        if self._sum is None:
            return
        total: Tensor = strategy.reduce(self._sum, reduce_op="mean")
        self._sum = None
        factor = parts / total
        for parameter in parameters:
            if parameter.grad is not None:
                local_part(parameter.grad).mul_(factor)


def local_part(tensor: Tensor) -> Tensor:
    """Return the shard of a tensor that this process holds, or the whole tensor."""
    part: Tensor = getattr(tensor, "to_local", lambda: tensor)()
    return part
