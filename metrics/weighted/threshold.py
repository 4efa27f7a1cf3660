"""The threshold-weighted CRPS: forecasts and outcomes are clipped to thresholds."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._reduce import EnsembleNan, Over, mean_over
from ens10.metrics.crps import crps_ensemble, spread_factor
from ens10.metrics.multivariate._variables import size_of
from ens10.metrics.weighted._thresholds import ordered


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
    if chaining is not None:
        refuse_thresholds("chaining", lower, upper)
        members, y = chaining(members), chaining(y)
    else:
        thresholds["upper"] = ordered(lower, upper, check)
    check_members(members, member_dim, estimator, alpha)
    score = apply(
        TWCRPS,
        {"members": members, "y": y, **thresholds},
        {"members": [member_dim]},
        options={"estimator": estimator, "alpha": alpha, "nan": members_nan(nan)},
        attrs={"estimator": estimator},
    )
    return mean_over(score, dim, weights, nan, policies=EnsembleNan)


def refuse_thresholds(instead: str, lower: Any, upper: Any) -> None:
    """Refuse thresholds together with a function that replaces them.

    Raises:
        ArgumentError: a threshold is passed.
    """
    for name, value, free in (("lower", lower, -math.inf), ("upper", upper, math.inf)):
        if not np.isscalar(value) or value != free:
            raise ArgumentError(name, f"passed together with {instead}", "Pass one of the two")


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


def _on_numpy(members: Any, y: Any, lower: Any, upper: Any, **options: Any) -> Any:
    x, observed = np.clip(members, lower, upper), np.clip(y, lower, upper)
    return crps_ensemble(x, observed, member_dim=0, **options)


def _on_tensors(members: Any, y: Any, lower: Any, upper: Any, **options: Any) -> Any:
    x, observed = members.clamp(min=lower, max=upper), y.clamp(min=lower, max=upper)
    return crps_ensemble(x, observed, member_dim=0, **options)


TWCRPS = Score("twcrps", "threshold-weighted CRPS", _on_numpy, _on_tensors)
