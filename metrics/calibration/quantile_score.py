"""Scores of quantile forecasts: the quantile (pinball) score, and the CRPS that they amount to."""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import UnknownNameError
from ens10.metrics._call import Dim, Score, apply, checked_axes
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.calibration.levels import along, levels_of

Rule = Literal["linear", "mean"]


def quantile_score(
    values: Any,
    y: Any,
    *,
    levels: Sequence[float],
    quantile_dim: Dim,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Quantile (pinball) score of each level p: (p - 1{y < q}) (y - q).

    It is proper for the quantile (Gneiting 2011, doi:10.1198/jasa.2011.r10138). Half of the
    absolute error for the median.

    Args:
        values: quantiles q.
        y: observations, without the quantile axis.
        levels: of the quantiles, rising, inside (0, 1).
        quantile_dim: their axis: a number for arrays, a dimension name for DataArrays.
        dim: of the mean: axes of `values` or names; "all" means all but `quantile_dim`. None for
            the scores of the points.
        weights: of the mean, what broadcasts to `values`.
        nan: "propagate" or "omit", in the mean.

    Returns:
        Scores in the unit of the quantiles, with the axes of `values` that were not averaged, as
        the kind of array that was given; tensors are differentiable.

    Raises:
        ArgumentError: levels that do not rise, lie outside (0, 1), are not as many as the
            quantiles or not what their coordinate says; observations with a quantile axis; arrays
            that do not fit.
    """
    found = levels_of(values, levels, quantile_dim)
    observed, shaped = along(values, y, found, quantile_dim)
    score = Score("quantile_score", "quantile score", _pinball, _pinball_torch)
    arrays = {"values": values, "y": observed, "levels": shaped}
    scores = apply(score, arrays, unlike=["levels"])
    if isinstance(scores, xr.DataArray):
        dims = [*values.dims, *(d for d in scores.dims if d not in values.dims)]
        scores = scores.transpose(*dims)
    return mean_over(scores, _all_but(scores, dim, quantile_dim), weights, nan)


def _all_but(scores: Any, dim: Over, quantile_dim: Dim) -> Over:
    if dim != "all":
        return dim
    if isinstance(scores, xr.DataArray):
        return [str(d) for d in scores.dims if d != quantile_dim]
    axis = checked_axes("values", scores, [quantile_dim])[0]
    return [i for i in range(scores.ndim) if i != axis]


def _pinball(values: Any, y: Any, levels: Any) -> Any:
    d = y - values
    return np.maximum(levels * d, (levels - 1) * d)


def _pinball_torch(values: Any, y: Any, levels: Any) -> Any:
    d = y - values
    return levels * d + (-d).clamp(min=0)


def crps_quantiles(
    values: Any,
    y: Any,
    *,
    levels: Sequence[float],
    quantile_dim: Dim,
    rule: str,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """CRPS of a quantile forecast, 2 int_0^1 QS_p(q(p), y) dp with the quantile score QS.

    Args:
        values: quantiles q_1 .. q_K. Where they cross the integral below is still what is given,
            but no CRPS of a distribution.
        y: observations, without the quantile axis.
        levels: p_1 .. p_K of the quantiles, rising, inside (0, 1).
        quantile_dim: their axis: a number for arrays, a dimension name for DataArrays.
        rule: what stands for the integral; there is no default. "linear": exact for the quantile
            function that is linear between the levels and constant beyond them (so the
            distribution has the atoms p_1 at q_1 and 1 - p_K at q_K). "mean": twice the plain
            mean of the K quantile scores, whatever the levels; with p_k = (k - 1/2) / K it is the
            plain CRPS of the ensemble of the quantiles (Brocker 2012, doi:10.1002/qj.1891).
        dim: of the mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.

    Returns:
        Scores in the unit of the quantiles, as the kind of array that was given; tensors are
        differentiable, with finite gradients also where quantiles are equal.

    Raises:
        ArgumentError: as for `quantile_score`.
        UnknownNameError: another rule.
    """
    if rule not in get_args(Rule):
        raise UnknownNameError("rule", rule, get_args(Rule))
    found = tuple(levels_of(values, levels, quantile_dim).tolist())
    score = Score(
        "crps",
        "continuous ranked probability score of quantiles",
        partial(_crps, levels=found, rule=rule),
        partial(_crps_torch, levels=found, rule=rule),
    )
    arrays = {"values": values, "y": y}
    scores = apply(score, arrays, {"values": [quantile_dim]}, attrs={"rule": rule})
    return mean_over(scores, dim, weights, nan)


def _crps(values: Any, y: Any, levels: Sequence[float], rule: str) -> Any:
    x = values - y
    total = np.zeros_like(x[0])
    for weight, member in zip(crps_weights(np, x, levels, rule), x, strict=True):
        total += weight * member
    return total


def _crps_torch(values: Any, y: Any, levels: Sequence[float], rule: str) -> Any:
    from ens10.metrics.calibration._quantile_torch import crps

    return crps(values, y, levels, rule)


def crps_weights(xp: Any, x: Any, levels: Sequence[float], rule: str) -> list[Any]:
    """The derivatives of the CRPS by each quantile.

    The CRPS is homogeneous of degree 1 in the quantiles less the observation, so it is the sum of
    the quantiles times their derivatives 2 int (1{y < q(p)} - p) h_k(p) dp, with the share h_k
    that quantile k has in q(p).

    Args:
        xp: numpy or torch.
        x: quantiles less the observation, quantiles first.
        levels: of the quantiles.
        rule: "linear" or "mean".
    """
    K = len(levels)
    if rule == "mean":
        return [(2 / K) * (_above(xp, q) - p) for q, p in zip(x, levels, strict=True)]
    first, last = levels[0], 1 - levels[-1]
    found: list[Any] = [0.0] * K
    found[0] = 2 * first * _above(xp, x[0]) - first**2
    found[-1] = found[-1] + 2 * last * _above(xp, x[-1]) - (1 - levels[-1] ** 2)
    for j, (p, next_p) in enumerate(itertools.pairwise(levels)):
        width = next_p - p
        left, right = _shares(xp, x[j], x[j + 1])
        found[j] = found[j] + width * (2 * left - p - width / 3)
        found[j + 1] = found[j + 1] + width * (2 * right - p - 2 * width / 3)
    return found


def _above(xp: Any, x: Any) -> Any:
    """1 above the observation, 0 below, NaN where missing."""
    return xp.where(x > 0, xp.ones_like(x), 0 * x)


def _shares(xp: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Integrals of 1{q(s) > 0} times 1 - s and s over a segment q(s) = a + s (b - a), s in [0, 1].

    They are those from the crossing on where q rises, and those up to it where q falls.
    """
    apart = a != b
    crossing = xp.clip(-a / xp.where(apart, b - a, xp.ones_like(a)), 0, 1)
    before = crossing - crossing**2 / 2, crossing**2 / 2
    after = (1 - crossing) ** 2 / 2, (1 - crossing**2) / 2
    above = _above(xp, a) / 2
    falling, rising = (
        xp.where(apart, xp.where(b > a, up, down), above)
        for up, down in zip(after, before, strict=True)
    )
    return falling, rising
