"""The outcome-weighted CRPS: forecasts conditional on outcomes of interest."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._reduce import EnsembleNan, Over, mean_over
from ens10.metrics.weighted._thresholds import ordered
from ens10.metrics.weighted.threshold import check_members, refuse_thresholds


def owcrps_ensemble(
    members: Any,
    y: Any,
    *,
    estimator: str,
    member_dim: Dim,
    lower: Any = -math.inf,
    upper: Any = math.inf,
    weight: Callable[[Any], Any] | None = None,
    alpha: float = 0.95,
    check: bool = True,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the outcome-weighted CRPS of ensembles.

    w(y) times the CRPS of the conditional forecast, in which member i has the weight
    p_i = w(x_i) / sum_j w(x_j): sum_i p_i |x_i - y| - a sum_{i<j} p_i p_j |x_i - x_j|
    (Holzmann and Klar 2017, doi:10.1214/16-AOAS1086). w is 1 from `lower` to `upper`, both
    included, and 0 elsewhere, or `weight`. It is proper, but does not depend on the forecast
    probability of the event: report it with a score of that, such as the Brier score.

    a = 1 is "plain". Between thresholds, K members inside are a sample of the forecast given the
    event, so a = K / (K - 1) is unbiased for it ("fair"; "almost_fair" as in `crps_ensemble`).
    With other weights no unbiased form is known, and only "plain" is taken.

    NaN where no member has weight (for the fair estimators, fewer than two), whatever `y` is,
    because the conditional forecast is undefined there; omitting these points favours forecasts
    with many of them. A NaN in members, `y` or thresholds gives NaN.

    Args:
        members: the ensemble; any shape with a member axis.
        y: observations: the members' shape without the member axis, or what broadcasts to it.
        estimator: "plain"; between thresholds also "fair" or "almost_fair".
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        lower: lower thresholds in the unit of `members`: a number, or an array that broadcasts to
            the scores.
        upper: upper thresholds, likewise.
        weight: w instead of thresholds: an elementwise function of arrays of the input's type that
            returns 0 or more. The gradient of tensors goes through it.
        alpha: weight of the fair score in "almost_fair"; unused otherwise.
        check: True to refuse lower > upper and negative weights, which synchronises with the GPU
            for tensors.
        dim: dimensions of a weighted mean of scores: axis numbers or names without members; "all";
            None for the scores of all points.
        weights: weights of the mean.
        nan: "propagate"; "omit" to leave NaN scores out of the mean; "skip-members" to leave out
            members that are NaN as well.

    Returns:
        The scores, in the unit of `members`, as an array of the input's type.

    Raises:
        UnknownNameError: an unknown estimator or NaN policy.
        ArgumentError: thresholds together with `weight`, or the lower above the upper; negative
            weights (both on lazy arrays when computed); a fair estimator with `weight`; no such
            axis; arrays that do not match.
    """
    check_members(members, member_dim, estimator, alpha)
    share = {"plain": 0.0, "fair": 1.0}.get(estimator, alpha)
    arrays, core = {"members": members, "y": y}, {"members": [member_dim]}
    options: dict[str, Any] = {"share": share, "skip": nan == "skip-members"}
    attrs = {"estimator": estimator}
    if weight is None:
        arrays |= {"lower": lower, "upper": ordered(lower, upper, check)}
        score = apply(BETWEEN, arrays, core, options=options, attrs=attrs)
    else:
        refuse_thresholds("weight", lower, upper)
        if share:
            raise ArgumentError(
                "estimator", f"{estimator!r} is not known for a weight function", "Take 'plain'"
            )
        arrays |= {"weight of members": weight(members), "weight of y": weight(y)}
        core["weight of members"] = [member_dim]
        unlike = list(arrays)[2:]
        options = {"check": check, "skip": nan == "skip-members"}
        score = apply(WEIGHTED, arrays, core, options=options, attrs=attrs, unlike=unlike)
    return mean_over(score, dim, weights, nan, policies=EnsembleNan)


def refuse_negative(*weights: Any) -> None:
    """Refuse weights below 0.

    Raises:
        ArgumentError: there are some.
    """
    if any(bool((w < 0).any()) for w in weights):
        raise ArgumentError("weight", "returns negative weights", "Return 0 or more")


def _between(members: Any, y: Any, lower: Any, upper: Any, *, share: float, skip: bool) -> Any:
    inside = ((members >= lower) & (members <= upper)).astype(members.dtype)
    mark = ((y >= lower) & (y <= upper)).astype(members.dtype)
    unknown = np.isnan(lower) | np.isnan(upper)
    return np.where(unknown, np.nan, _score(members - y, inside, mark, share, skip))


def _weighted(
    members: Any, y: Any, member_weight: Any, y_weight: Any, *, check: bool, skip: bool
) -> Any:
    if check:
        refuse_negative(member_weight, y_weight)
    return _score(members - y, member_weight, y_weight, 0.0, skip)


def _score(x: Any, w: Any, mark: Any, share: float, skip: bool) -> Any:
    """Return scores of weighted members less the observation; `share` of the fair factor."""
    absent = np.isnan(x)
    if skip:
        x, w = np.where(absent | (w == 0), 0, x), np.where(absent, 0, w)
    else:
        x, w = np.broadcast_arrays(np.where((w == 0) & ~absent, 0, x), w)
    undefined = w.sum(axis=0) <= (1 if share else 0)
    # Only ratios count: the greatest weight becomes 1, so that weights of 1 and 0 stay exact
    w = np.where(undefined, 1, w / np.where(undefined, 1, w.max(axis=0)))
    order = np.argsort(x, axis=0)
    x, w = np.take_along_axis(x, order, 0), np.take_along_axis(w, order, 0)
    before = np.cumsum(w, axis=0)
    total = before[-1]
    distance = (w * np.abs(x)).sum(axis=0) / total
    spread = (w * x * (2 * before - w - total)).sum(axis=0) / total**2
    factor = share * total / (total - 1) + (1 - share) if share else 1.0
    return np.where(undefined, np.nan, mark * (distance - factor * spread))


def _between_of_tensors(*tensors: Any, share: float, skip: bool) -> Any:
    from ens10.metrics.weighted._outcome_torch import between

    return between(*tensors, share=share, skip=skip)


def _weighted_of_tensors(*tensors: Any, check: bool, skip: bool) -> Any:
    from ens10.metrics.weighted._outcome_torch import weighted

    return weighted(*tensors, check=check, skip=skip)


BETWEEN = Score("owcrps", "outcome-weighted CRPS", _between, _between_of_tensors)
WEIGHTED = Score("owcrps", "outcome-weighted CRPS", _weighted, _weighted_of_tensors)
