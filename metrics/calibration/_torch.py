"""The CRPS of quantiles on tensors, core axis first."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.metrics.calibration.quantiles import crps_weights

Tensor = torch.Tensor


class _QuantileCRPS(torch.autograd.Function):
    """CRPS of quantiles less the observation (first axis): the sum of x times dCRPS/dx."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, levels: Sequence[float], rule: str, emphasis: str | None
    ) -> Tensor:
        by_x = torch.stack(crps_weights(torch, x, levels, rule, emphasis))
        ctx.save_for_backward(by_x.nan_to_num(nan=0.0))  # or points left out spoil the rest
        return (by_x * x).sum(dim=0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (by_x,) = ctx.saved_tensors
        return grad * by_x, None, None, None


def crps_of_quantiles(
    values: Tensor, y: Tensor, levels: Sequence[float], rule: str, emphasis: str | None = None
) -> Tensor:
    """Return the CRPS of quantile forecasts, (K, ...), with gradients."""
    score: Tensor = _QuantileCRPS.apply(values - y, levels, rule, emphasis)  # type: ignore[no-untyped-call]
    return score
