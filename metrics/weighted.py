"""Weighted CRPS: threshold-weighted, outcome-weighted and quantile-weighted."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._dispatch import fill_masked
from ens10.metrics._kernels_numpy import owcrps_between, owcrps_weighted
from ens10.metrics._ops import for_any_library
from ens10.metrics._reduce import EnsembleNan, Over, mean_over
from ens10.metrics._thresholds import checked_thresholds
from ens10.metrics.calibration.level_weights import check_emphasis, slopes_of_steps
from ens10.metrics.crps import crps_ensemble, spread_factor
from ens10.metrics.distributions.normal import twcrps_normal
from ens10.metrics.multivariate._variables import size_of

__all__ = ["owcrps_ensemble", "qwcrps_ensemble", "twcrps_ensemble", "twcrps_normal"]


def _score(name: str, long_name: str, function: Callable[..., Any]) -> Score:
    kernel = for_any_library(function)
    return Score(name, long_name, kernel, kernel)


def twcrps_ensemble(
    members: Any,
    y: Any,
    *,
    estimator: str,
    member_dim: Dim,
    lower: Any = -math.inf,
    upper: Any = math.inf,
    chaining: Callable[[Any], Any] | None = None,
    alpha: float = 0.95,
    check: bool = True,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the threshold-weighted CRPS of ensembles.

    The CRPS of v(x_i) against v(y), with the chaining function v(z) = min(max(z, lower), upper):
    the integral of (F(z) - 1{y <= z})^2 over z from `lower` to `upper` (Gneiting and Ranjan 2011,
    doi:10.1198/jbes.2010.08110; Allen, Ginsbourger and Ziegel 2023, doi:10.1137/22M1532184). It
    is proper, unlike the mean CRPS over extreme outcomes only. The fair estimator is unbiased here
    too. A NaN in members, `y` or thresholds gives NaN.

    Args:
        members: the ensemble; any shape with a member axis.
        y: observations: the members' shape without the member axis, or what broadcasts to it.
        estimator: "plain", "fair" or "almost_fair".
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        lower: lower thresholds in the unit of `members`: a number, or an array that broadcasts to
            the scores, such as a climate quantile of each grid point.
        upper: upper thresholds, likewise.
        chaining: v instead of thresholds: an elementwise, non-decreasing function of arrays of the
            input's type. Its derivative is the weight of each outcome.
        alpha: weight of the fair score in "almost_fair"; unused otherwise.
        check: True to refuse lower > upper; a training loss passes False, because the check
            synchronises with the GPU.
        dim: dimensions of a weighted mean of scores: axis numbers or names without members; "all";
            None for the scores of all points.
        weights: weights of the mean.
        nan: "propagate", "omit" or "skip-members", as in `crps_ensemble`.

    Returns:
        The scores in the unit of `members` (of v with `chaining`), as an array of the input's type.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import twcrps_ensemble
        >>> members = np.array([1.0, 3.0])
        >>> float(twcrps_ensemble(members, 2.0, estimator="plain", member_dim=0, lower=2.0))
        0.25

    Raises:
        UnknownNameError: an unknown estimator or NaN policy.
        ArgumentError: thresholds together with `chaining`, or the lower above the upper (on lazy
            arrays when computed); no such axis; arrays that do not match.
    """
    thresholds = {"lower": lower, "upper": upper}
    members, y = fill_masked(members), fill_masked(y)  # `chaining` could drop a mask
    if chaining is not None:
        refuse_thresholds("chaining", lower, upper)
        members, y = chaining(members), chaining(y)
    else:
        thresholds["upper"] = checked_thresholds(lower, upper, check)
    check_members(members, member_dim, estimator, alpha)
    score = apply(
        TWCRPS,
        {"members": members, "y": y, **thresholds},
        {"members": [member_dim]},
        options={"estimator": estimator, "alpha": alpha, "nan": members_nan(nan)},
        attrs={"estimator": estimator},
    )
    return mean_over(score, dim, weights, nan, policies=EnsembleNan)


def refuse_thresholds(alternative: str, lower: Any, upper: Any) -> None:
    """Refuse thresholds together with a function that replaces them.

    Raises:
        ArgumentError: a threshold is passed.
    """
    for name, value, free in (("lower", lower, -math.inf), ("upper", upper, math.inf)):
        if not np.isscalar(value) or value != free:
            raise ArgumentError(name, f"passed together with {alternative}", "Pass one of the two")


def members_nan(nan: str) -> str:
    """Return the NaN policy within a point; "omit" applies to the mean only."""
    return nan if nan == "skip-members" else "propagate"


def check_members(members: Any, member_dim: Dim, estimator: str, alpha: float) -> None:
    """Check the estimator and the number of members before lazy arrays are built.

    Raises:
        UnknownNameError: an unknown estimator.
        ArgumentError: too few members.
    """
    try:
        M = size_of(members, member_dim)
    except (IndexError, ValueError, TypeError):
        M = 0
    spread_factor(M or 2, estimator, alpha)  # an axis that is not there is `apply`'s to refuse


def _twcrps(ops: Any, members: Any, y: Any, lower: Any, upper: Any, **options: Any) -> Any:
    x, observed = ops.clip(members, lower, upper), ops.clip(y, lower, upper)
    return crps_ensemble(x, observed, member_dim=0, **options)


TWCRPS = _score("twcrps", "threshold-weighted CRPS", _twcrps)


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
    members, y = fill_masked(members), fill_masked(y)  # `weight` could drop a mask
    share = {"plain": 0.0, "fair": 1.0}.get(estimator, alpha)
    arrays, core = {"members": members, "y": y}, {"members": [member_dim]}
    options: dict[str, Any] = {"share": share, "skip": nan == "skip-members"}
    attrs = {"estimator": estimator}
    if weight is None:
        arrays |= {"lower": lower, "upper": checked_thresholds(lower, upper, check)}
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


BETWEEN = _score("owcrps", "outcome-weighted CRPS", owcrps_between)
WEIGHTED = _score("owcrps", "outcome-weighted CRPS", owcrps_weighted)


def qwcrps_ensemble(
    members: Any,
    y: Any,
    *,
    emphasis: str,
    member_dim: Dim,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the quantile-weighted CRPS of ensembles of M members.

    2 int_0^1 (1{y < q(p)} - p) (q(p) - y) v(p) dp with the members' step quantile function q: the
    i-th lowest member for (i - 1) / M < p <= i / M (Gneiting and Ranjan 2011,
    doi:10.1198/jbes.2010.08110, table 4). With v = 1 it is the plain CRPS; no fair form is known.
    For quantile forecasts pass `emphasis` to `crps_quantiles`. Tensors are differentiable.

    Args:
        members: the ensemble; any shape with a member axis.
        y: observations: the members' shape without the member axis, or what broadcasts to it.
        emphasis: weight v(p) of the levels: "centre" p (1 - p), "tails" (2 p - 1)^2, "left"
            (1 - p)^2 or "right" p^2.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean; a NaN among the members gives NaN.

    Returns:
        The scores, in the unit of `members`, as an array of the input's type.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import qwcrps_ensemble
        >>> members = np.array([1.0, 3.0])
        >>> round(float(qwcrps_ensemble(members, 2.0, emphasis="right", member_dim=0)), 4)
        0.1458

    Raises:
        UnknownNameError: an unknown emphasis or NaN policy.
        ArgumentError: no such axis; arrays that do not match.
    """
    check_emphasis(emphasis)
    function = partial(_quantile_weighted, emphasis=emphasis)
    score = _score("qwcrps", "quantile-weighted CRPS", function)
    attrs = {"emphasis": emphasis, "estimator": "plain"}
    scores = apply(score, {"members": members, "y": y}, {"members": [member_dim]}, attrs=attrs)
    return mean_over(scores, dim, weights, nan)


def _quantile_weighted(ops: Any, members: Any, y: Any, *, emphasis: str) -> Any:
    x = ops.sort(members - y, 0)  # NaN goes last, and makes the sum NaN
    levels = np.linspace(0, 1, len(x) + 1).tolist()
    slopes = slopes_of_steps(ops, ops.detach(x), emphasis, levels)
    return ops.cast(sum(slope * value for slope, value in zip(slopes, x, strict=True)), x)
