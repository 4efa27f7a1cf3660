"""The CRPS of quantiles on tensors, with its gradient written out."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.metrics.calibration.quantile_score import crps_weights

Tensor = torch.Tensor


class _QuantileCRPS(torch.autograd.Function):
    """From quantiles less the observation, first axis, to their sum times their derivatives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, levels: Sequence[float], rule: str) -> Tensor:
        by_x = torch.stack(crps_weights(torch, x, levels, rule))
        ctx.save_for_backward(by_x.nan_to_num(nan=0.0))  # or points left out spoil the rest
        return (by_x * x).sum(dim=0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (by_x,) = ctx.saved_tensors
        return grad * by_x, None, None


def crps(values: Tensor, y: Tensor, levels: Sequence[float], rule: str) -> Tensor:
    """See `ens10.metrics.calibration.crps_quantiles`."""
    score: Tensor = _QuantileCRPS.apply(values - y, levels, rule)  # type: ignore[no-untyped-call]
    return score
