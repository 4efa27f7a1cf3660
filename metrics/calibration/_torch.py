"""Moments of members and the CRPS of quantiles on tensors, core axis first."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.errors import ArgumentError
from ens10.metrics.calibration.quantiles import crps_weights

Tensor = torch.Tensor


def _zeros_and_count(x: Tensor, skip: bool) -> tuple[Tensor, Any]:
    """Return members with 0 in place of missing ones (if `skip`), and the number present."""
    if not skip:
        return x, float(x.shape[0])
    present = ~x.isnan()
    count = present.sum(dim=0).to(x.dtype)
    return x.masked_fill(~present, 0.0), count.masked_fill(count == 0, torch.nan)


def mean_error(members: Tensor, y: Tensor, skip: bool) -> Tensor:
    """Return the ensemble mean less the observation."""
    x, count = _zeros_and_count(members - y, skip)
    error: Tensor = x.sum(dim=0) / count
    return error


def median_error(members: Tensor, y: Tensor, skip: bool) -> Tensor:
    """Return the absolute error of the ensemble median."""
    x = torch.sort(members - y, dim=0).values  # NaN goes last
    if not skip:
        middle = (x[(len(x) - 1) // 2] + x[len(x) // 2]) / 2
        return torch.where(x[-1].isnan(), torch.nan, middle.abs())
    count = (~x.isnan()).sum(dim=0)[None]
    places = ((count - 1) // 2).clamp(min=0), count // 2
    low, high = (x.gather(0, place)[0] for place in places)
    return ((low + high) / 2).abs()


def unbiased_variance(members: Tensor, skip: bool) -> Tensor:
    """Return the unbiased variance, by two passes over the deviations."""
    if len(members) < 2:
        raise ArgumentError("members", f"a variance needs two or more, got {len(members)}")
    missing = members.isnan()
    first = (~missing).to(torch.uint8).argmax(dim=0)[None] if skip else None
    shift = members[0] if first is None else members.gather(0, first)[0]
    x, count = _zeros_and_count(members - shift.detach(), skip)
    deviation = x - x.sum(dim=0) / count
    if skip:
        deviation = deviation.masked_fill(missing, 0.0)
    correction = deviation.sum(dim=0) ** 2 / count
    unbiased: Tensor = ((deviation**2).sum(dim=0) - correction) / _degrees_of_freedom(count)
    return unbiased


def _degrees_of_freedom(count: Any) -> Any:
    return count - 1 if isinstance(count, float) else torch.where(count > 1, count - 1, torch.nan)


def inflated_variance(members: Tensor, y: Tensor, skip: bool) -> Tensor:
    """Return the variance times (M + 1) / M; NaN where y is NaN."""
    count: Any = members.shape[0]
    if skip:  # in the members' dtype: torch divides whole numbers in float32
        count = (~members.isnan()).sum(dim=0).clamp(min=1).to(members.dtype)
    result: Tensor = unbiased_variance(members, skip) * ((count + 1) / count) + 0 * y
    return result


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
