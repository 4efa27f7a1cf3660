"""The probability integral transform (PIT) of observations, for any kind of forecast.

F(y) is uniform if y is drawn from F. Where F jumps at y, the PIT is a random number between F(y-)
and F(y) (Czado et al. 2009, doi:10.1111/j.1541-0420.2009.01191.x), which keeps it uniform. The
random number depends on the seed and the point's coordinates, not on chunks, blocks or order.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import ndtr, ndtri

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._dispatch import Array, common_dtype, fill_masked
from ens10.metrics._kernels_numpy import check_sigma
from ens10.metrics._labels import check_alike
from ens10.metrics._ops import NUMPY, standardise
from ens10.metrics._point_random import draws
from ens10.metrics.calibration.histograms import members_below
from ens10.metrics.calibration.quantiles import Levels, check_levels

__all__ = ["pit_ensemble", "pit_normal", "pit_quantiles", "pit_values"]

Tails = Literal["random", "normal"]
PitNan = Literal["propagate", "skip-members"]
_PIT = "probability integral transform"


def pit_normal(mu: Any, sigma: Any, y: Any) -> Any:
    """Return the PIT of normal forecasts, Phi((y - mu) / sigma), elementwise.

    Where sigma is 0 it is 0, 1/2 or 1 for an observation below, on or above the mean.

    Args:
        mu: means, any shape.
        sigma: standard deviations, 0 or more.
        y: observations.

    Returns:
        Values in [0, 1], NaN where an input is, as an array of the input's type; of tensors
        without gradient.

    Examples:
        >>> from ens10.metrics import pit_normal
        >>> round(float(pit_normal(280.0, 1.0, 281.0)), 4)
        0.8413

    Raises:
        ArgumentError: a negative sigma (on lazy arrays when computed), units or coordinates that
            differ.
    """
    arrays = _detach({"mu": mu, "sigma": sigma, "y": y})
    check_alike(arrays, list(arrays))
    return apply(Score("pit", _PIT, _pit_normal, units=False), arrays)


def _pit_normal(mu: Any, sigma: Any, y: Any) -> Array:
    check_sigma(np.asarray(sigma))
    with np.errstate(over="ignore", invalid="ignore"):
        probability: Array = ndtr(standardise(NUMPY, mu, sigma, y))
    return probability


def pit_ensemble(
    members: Any, y: Any, *, member_dim: Dim, seed: int, nan: str = "propagate"
) -> Any:
    """Return the randomised PIT of ensembles, (rank + u) / (M + 1) with u uniform in (0, 1).

    The rank is that of `rank_histogram`. Values of ensembles of different size M may be pooled,
    because the PIT of each is uniform if it is calibrated.

    Args:
        members: the ensemble.
        y: observations: the members' shape, or dimensions, without the member axis.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        seed: seed of the random numbers.
        nan: "propagate", or "skip-members" to use the M members that are present at each point.

    Returns:
        Values in (0, 1), as an array of the input's type; of tensors without gradient.

    Raises:
        ArgumentError: observations with a member axis, arrays that do not match, a seed that is
            not a whole number.
        UnknownNameError: an unknown policy for NaN.
    """
    if nan not in get_args(PitNan):
        raise UnknownNameError("nan", nan, get_args(PitNan))
    arrays = _detach({"members": members, "y": y})
    random = draws(arrays, {"members": {"__core__": member_dim}}, seed)
    score = Score("pit", _PIT, partial(_pit_ensemble, skip=nan == "skip-members"), units=False)
    return apply(score, {**arrays, "random": random}, {"members": [member_dim]})


def _pit_ensemble(x: Array, y: Array, random: Array, skip: bool) -> Array:
    below, equal, present = members_below(x, y)
    short = present < (1 if skip else x.shape[0])
    values = (below + random * (equal + 1)) / (np.maximum(present, 1) + 1)
    return np.where(short, np.nan, values).astype(x.dtype)


def pit_quantiles(
    values: Any,
    y: Any,
    *,
    levels: Sequence[float],
    quantile_dim: Dim,
    seed: int,
    tails: str = "random",
    support: tuple[float | None, float | None] = (None, None),
) -> Any:
    """Return the PIT of quantile forecasts, linear in y between neighbouring quantiles.

    Where y equals several quantiles, the PIT is drawn between the levels of the first and the
    last. Beyond the outermost quantiles `tails` decides, unless `support` bounds the variable
    there: a bound is a quantile of level 0 or 1.

    Args:
        values: quantiles, ascending along `quantile_dim`.
        y: observations, without that axis.
        levels: probabilities of the quantiles, ascending, inside (0, 1).
        quantile_dim: their axis: a number for arrays, a dimension name for DataArrays.
        seed: seed of the random numbers.
        tails: "random" draws uniformly between 0 and the lowest level (between the highest and
            1): no shape is assumed, and it is uniform if the outermost quantiles are calibrated.
            "normal" extrapolates the normal distribution through the two outermost quantiles.
        support: the bounds of the variable, such as (0, None) for precipitation.

    Returns:
        Values in [0, 1], NaN where an input is, as an array of the input's type; of tensors
        without gradient.

    Raises:
        ArgumentError: levels that do not rise, lie outside (0, 1) or are not as many as the
            quantiles; quantiles that cross, or values beyond `support` (of lazy arrays when
            computed); arrays that do not match; "normal" tails of one quantile.
        UnknownNameError: unknown tails.
    """
    if tails not in get_args(Tails):
        raise UnknownNameError("tails", tails, get_args(Tails))
    checked = check_levels(values, levels, quantile_dim)
    if tails == "normal" and checked.size < 2:
        raise ArgumentError("tails", "a normal tail needs two quantiles, and there is one")
    arrays = _detach({"values": values, "y": y})
    random = draws(arrays, {"values": {"__core__": quantile_dim}}, seed)
    kernel = partial(_pit_quantiles, levels=checked, tails=tails, support=support)
    score = Score("pit", _PIT, kernel, units=False)
    return apply(score, {**arrays, "random": random}, {"values": [quantile_dim]})


def _pit_quantiles(
    q: Array, y: Array, random: Array, levels: Levels, tails: str, support: Any
) -> Array:
    y = np.asarray(y, dtype=q.dtype)
    _check_quantiles(q, y, support)
    q, y = np.broadcast_arrays(q, y[None])[0], np.broadcast_to(y, q.shape[1:])
    lower, upper = _tails(q, y, random, levels, tails)
    for bound, level, end in ((support[0], 0.0, 0), (support[1], 1.0, len(levels))):
        if bound is not None:
            q = np.insert(q, end if level == 0 else len(q), bound, axis=0)
            levels = np.insert(levels, 0 if level == 0 else len(levels), level)
    first = (q < y).sum(axis=0)  # the place of y among the quantiles
    after = (q <= y).sum(axis=0)
    low, high = np.clip(first - 1, 0, None), np.clip(first, None, len(q) - 1)
    a, b = (np.take_along_axis(q, i[None], axis=0)[0] for i in (low, high))
    share = (y - a) / np.where(b > a, b - a, 1)
    value = levels[low] + share * (levels[high] - levels[low])
    on = after > first
    last = levels[np.clip(after - 1, 0, None)]
    value = np.where(on, levels[high] + random * (last - levels[high]), value)
    value = np.where(after == 0, lower, np.where(first == len(q), upper, value))
    missing = np.isnan(y) | np.isnan(q).any(axis=0)
    return np.where(missing, np.nan, value).astype(y.dtype)


def _tails(q: Array, y: Array, random: Array, levels: Levels, tails: str) -> tuple[Array, Array]:
    """Return the PIT of observations below and above all quantiles."""
    if tails == "random":
        return random * levels[0], levels[-1] + random * (1 - levels[-1])
    z = ndtri(levels)
    ends = []
    for inner, outer in ((1, 0), (-2, -1)):
        width = np.abs(q[inner] - q[outer])
        rise = abs(z[inner] - z[outer]) / np.where(width > 0, width, np.nan)
        beyond = np.where(width > 0, (y - q[outer]) * rise, np.inf * np.sign(y - q[outer]))
        ends.append(ndtr(z[outer] + beyond))
    return ends[0], ends[1]


def _check_quantiles(q: Array, y: Array, support: tuple[float | None, float | None]) -> None:
    crossing = (q[1:] < q[:-1]).any(axis=0)
    if crossing.any():
        raise ArgumentError(
            "values", f"quantiles cross at {int(crossing.sum())} of {crossing.size} points",
            "Sort them along quantile_dim",
        )  # fmt: skip
    for bound, below in ((support[0], True), (support[1], False)):
        for name, array in (("values", q), ("y", y)):
            if bound is not None and ((array < bound) if below else (array > bound)).any():
                raise ArgumentError(name, f"some lie beyond the support's bound {bound:g}")


def pit_values(
    cdf: Any | Callable[[Any], Any],
    y: Any,
    *,
    left: Any | Callable[[Any], Any] | None = None,
    seed: int | None = None,
) -> Any:
    """Return the PIT of any distribution function F: F(y), randomised where F jumps.

    Args:
        cdf: F at the observations, or a function that returns it for them.
        y: observations, for functions and for missing values.
        left: F(y-), the limit from below, in the same form; None for a continuous F. Where it is
            below F(y), such as at 0 of a distribution censored there, the value is drawn
            uniformly between both.
        seed: seed of the random numbers; needed with `left`.

    Returns:
        Values in [0, 1], NaN where an input is, as an array of the input's type; of tensors
        without gradient.

    Raises:
        ArgumentError: values outside [0, 1], or F(y-) above F(y) (of lazy arrays when computed);
            arrays that do not match; `left` without a seed.
    """
    if left is not None and seed is None:
        raise ArgumentError(
            "seed", "a distribution with point masses needs one", "Pass a whole number"
        )
    y = fill_masked(y)  # the functions could drop a mask
    upper = cdf(y) if callable(cdf) else cdf
    arrays = _detach({"cdf": upper, "y": y})
    if left is None or seed is None:
        return apply(Score("pit", _PIT, _pit_continuous, units=False), arrays)
    arrays |= _detach({"left": left(y) if callable(left) else left})
    arrays["random"] = draws({"cdf": arrays["cdf"], "y": arrays["y"]}, {}, seed, ["cdf"])
    return apply(Score("pit", _PIT, _pit_jumping, units=False), arrays)


def _pit_continuous(cdf: Array, y: Array) -> Array:
    cdf, y = (np.asarray(a, dtype=common_dtype(cdf, y)) for a in (cdf, y))
    if ((cdf < 0) | (cdf > 1)).any():
        raise ArgumentError(
            "cdf", f"between {np.nanmin(cdf):g} and {np.nanmax(cdf):g}, not 0 and 1"
        )
    return np.where(np.isnan(y), y.dtype.type(np.nan), cdf)


def _pit_jumping(cdf: Array, y: Array, left: Array, random: Array) -> Array:
    upper, lower = _pit_continuous(cdf, y), _pit_continuous(left, y)
    if (lower > upper).any():
        raise ArgumentError("left", "F(y-) is above F(y)")
    return lower + random * (upper - lower)


def _detach(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.detach() if hasattr(v, "detach") else v for k, v in arrays.items()}
