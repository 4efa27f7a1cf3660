"""Scores of events on tensors, members or categories first; gradients are finite beside NaN too.

A NaN is replaced before the arithmetic and put back after it, because the gradient of a masked
NaN is a NaN.
"""

import math

import torch

from ens10.metrics.events._kernels import (
    check_categories,
    check_estimator,
    check_event,
    check_probability,
    check_rising,
)

Tensor = torch.Tensor


def exceedance(members: Tensor, threshold: Tensor, *, strict: bool, nan: str) -> Tensor:
    """Return the share of members above the threshold; no gradient."""
    return _share_above(members.detach(), threshold.detach(), strict, nan)[0]


def _share_above(
    members: Tensor, threshold: Tensor, strict: bool, nan: str
) -> tuple[Tensor, Tensor]:
    above = members > threshold if strict else members >= threshold
    present = (~members.isnan()).sum(0).to(members.dtype)
    undefined = present == 0 if nan == "skip-members" else present < len(members)
    undefined = undefined | threshold.isnan()
    present = torch.where(undefined, torch.nan, present)
    return above.sum(0).to(members.dtype) / present, present


def event_indicator(y: Tensor, threshold: Tensor, *, strict: bool) -> Tensor:
    """Return 1 where y is above the threshold, 0 elsewhere, NaN where one of them is NaN."""
    above = (y > threshold if strict else y >= threshold).to(y.dtype)
    return above.masked_fill(y.isnan() | threshold.isnan(), torch.nan)


def brier(probability: Tensor, event: Tensor, *, check: bool = True) -> Tensor:
    """Return the Brier score (p - o)^2."""
    if check:
        check_probability("probability", probability.detach())
        check_event("event", event.detach())
    missing = probability.isnan() | event.isnan()
    error = probability.masked_fill(missing, 0.0) - event.masked_fill(missing, 0.0)
    return (error**2).masked_fill(missing, torch.nan)


def brier_of_members(
    members: Tensor, y: Tensor, threshold: Tensor, *, estimator: str, strict: bool, nan: str
) -> Tensor:
    """Return (p - o)^2, p the share of members above, less p (1 - p) / (M - 1) if fair."""
    check_estimator(estimator, len(members), nan)
    members, y, threshold = members.detach(), y.detach(), threshold.detach()
    p, present = _share_above(members, threshold, strict, nan)
    score = (p - event_indicator(y, threshold, strict=strict)) ** 2
    if estimator == "plain":
        return score
    return score - p * (1 - p) / torch.where(present > 1, present - 1, torch.nan)


def rps_of_members(
    members: Tensor,
    y: Tensor,
    thresholds: Tensor,
    *,
    normalised: bool,
    estimator: str,
    strict: bool,
    nan: str,
) -> Tensor:
    """Return the sum of the Brier scores over the thresholds, which are the first axis."""
    check_rising(thresholds)
    scores = [
        brier_of_members(members, y, t, estimator=estimator, strict=strict, nan=nan)
        for t in thresholds
    ]
    return torch.stack(scores).sum(0) / (len(scores) if normalised else 1)


def rps_of_probabilities(
    probabilities: Tensor, category: Tensor, *, normalised: bool, check: bool
) -> Tensor:
    """Return the sum over categories of squared differences of cumulative probabilities."""
    if check:
        check_categories(probabilities.detach(), category.detach())
    missing = probabilities.isnan().any(0) | category.isnan()
    forecast_cdf = probabilities.masked_fill(missing, 0.0)[:-1].cumsum(0)
    k = torch.arange(len(forecast_cdf), device=category.device)
    observed_cdf = category <= k.reshape(-1, *(1,) * (probabilities.ndim - 1))
    score = ((forecast_cdf - observed_cdf.to(forecast_cdf.dtype)) ** 2).sum(0)
    return score.masked_fill(missing, torch.nan) / (len(forecast_cdf) if normalised else 1)


def logarithmic(
    probability: Tensor, event: Tensor, *, clip: float, base: float, check: bool
) -> Tensor:
    """Return minus the logarithm of the probability of the observed outcome."""
    if check:
        check_probability("probability", probability.detach())
        check_event("event", event.detach())
    missing = probability.isnan() | event.isnan()
    p = probability.clamp(clip, 1 - clip) if clip else probability
    came = event == 1
    # the branch that is not taken would have an infinite gradient at 0 or 1, and 0 times it is NaN
    happened = torch.where(came & ~missing, p, 1.0).log()
    failed = torch.where(came | missing, 0.0, p).neg().log1p()
    score = -(happened + failed) / math.log(base)
    return score.masked_fill(missing, torch.nan)
