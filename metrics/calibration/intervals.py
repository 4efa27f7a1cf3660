"""Central prediction intervals: coverage, width and interval score."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._dispatch import common_dtype, library_of, on_host, sorted_first
from ens10.metrics._kernels_numpy import check_sigma
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.calibration.quantiles import check_levels

__all__ = [
    "interval_coverage",
    "interval_ensemble",
    "interval_normal",
    "interval_quantiles",
    "interval_score",
    "interval_width",
    "nominal_coverage",
]


def interval_normal(mu: Any, sigma: Any, *, level: float) -> tuple[Any, Any]:
    """Return the central prediction interval of normal distributions, mu -+ z sigma.

    Args:
        mu: means.
        sigma: standard deviations, 0 or more.
        level: nominal coverage (probability of the interval), inside (0, 1).

    Returns:
        The lower and the upper end, as an array of the input's type.

    Raises:
        ArgumentError: another level, a negative sigma (on lazy arrays when computed), arrays that
            do not fit.
    """
    z = float(ndtri(0.5 + checked_level(level) / 2))
    low, high = (
        Score("bound", f"{side} end of the interval", _end, _end) for side in ("lower", "upper")
    )
    arrays = {"mu": mu, "sigma": sigma}
    return apply(low, arrays, options={"z": -z}), apply(high, arrays, options={"z": z})


def interval_ensemble(members: Any, *, member_dim: Dim, outer: int = 1) -> tuple[Any, Any]:
    """Return the interval from the k-th lowest to the k-th highest of M members, k = `outer`.

    If members and observation are drawn from one distribution without ties, it covers the
    observation with probability (M + 1 - 2k) / (M + 1); see `nominal_coverage`.

    Args:
        members: the ensemble; a NaN member gives NaN.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        outer: k; 1 for the interval from the lowest to the highest member.

    Returns:
        The lower and the upper end, as an array of the input's type.

    Raises:
        ArgumentError: no such axis, fewer than 2k members.
    """
    ends = []
    for side, place in (("lower", outer - 1), ("upper", -outer)):
        score = Score("bound", f"{side} end of the interval", _member, _member)
        options = {"place": place, "outer": outer}
        ends.append(apply(score, {"members": members}, {"members": [member_dim]}, options=options))
    return ends[0], ends[1]


def nominal_coverage(members: int, outer: int = 1) -> float:
    """Return the nominal coverage (M + 1 - 2k) / (M + 1) of `interval_ensemble`, k = `outer`.

    Raises:
        ArgumentError: no such interval: k below 1, or fewer than 2k members.
    """
    if outer < 1:
        raise ArgumentError("outer", f"expected 1 or more, got {outer}")
    if members < 2 * outer:
        raise ArgumentError(
            "members", f"an interval from number {outer} of both ends needs {2 * outer} or more, "
            f"got {members}",
        )  # fmt: skip
    return (members + 1 - 2 * outer) / (members + 1)


def interval_quantiles(
    values: Any, *, levels: Sequence[float], quantile_dim: Dim, level: float
) -> tuple[Any, Any]:
    """Return the central interval between the quantiles of (1 - level) / 2 and (1 + level) / 2.

    Args:
        values: quantiles.
        levels: probabilities of the quantiles, ascending, inside (0, 1).
        quantile_dim: their axis: a number for arrays, a dimension name for DataArrays.
        level: nominal coverage, inside (0, 1).

    Returns:
        The lower and the upper end, as an array of the input's type.

    Raises:
        ArgumentError: these two levels are not among `levels`; levels that do not rise, or are
            not as many as the quantiles.
    """
    checked, half = check_levels(values, levels, quantile_dim), checked_level(level) / 2
    ends = []
    for side, end_level in (("lower", 0.5 - half), ("upper", 0.5 + half)):
        place = int(np.argmin(np.abs(checked - end_level)))
        if abs(checked[place] - end_level) > 1e-6:
            raise ArgumentError(
                "level", f"no quantile of level {end_level:g}, only {checked.tolist()}",
                "Take a level whose two ends are there",
            )  # fmt: skip
        score = Score("bound", f"{side} end of the interval", _pick, _pick)
        options = {"place": place}
        ends.append(apply(score, {"values": values}, {"values": [quantile_dim]}, options=options))
    return ends[0], ends[1]


def interval_coverage(
    lower: Any, upper: Any, y: Any, *, dim: Over = None, weights: Any = None,
    nan: str = "propagate",
) -> Any:  # fmt: skip
    """Return 1 where lower <= y <= upper, else 0; with `dim` the observed coverage.

    Args:
        lower: lower ends of intervals.
        upper: upper ends.
        y: observations.
        dim: dimensions of the mean; None for the values of the points.
        weights: weights of the mean, such as area weights.
        nan: "propagate" or "omit", in the mean.

    Returns:
        An array of the input's type; NaN where an input is NaN.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import interval_coverage
        >>> y = np.array([0.5, 2.0, 3.5, 9.0])
        >>> float(interval_coverage(np.zeros(4), np.full(4, 4.0), y, dim="all"))
        0.75

    Raises:
        ArgumentError: ends in the wrong order (on lazy arrays when computed), arrays that do not
            fit.
    """
    score = Score("coverage", "share of observations in the interval", _coverage)
    arrays = {"lower": lower, "upper": upper, "y": y}
    inside = apply(score, {k: v.detach() if hasattr(v, "detach") else v for k, v in arrays.items()})
    if hasattr(inside, "attrs"):
        inside.attrs["units"] = "1"
    return mean_over(inside, dim, weights, nan)


def interval_width(
    lower: Any, upper: Any, *, dim: Over = None, weights: Any = None, nan: str = "propagate"
) -> Any:
    """Return the width upper - lower of intervals, with the arguments of `interval_coverage`."""
    score = Score("width", "width of the interval", _width, _width)
    return mean_over(apply(score, {"lower": lower, "upper": upper}), dim, weights, nan)


def interval_score(
    lower: Any, upper: Any, y: Any, *, level: float, dim: Over = None, weights: Any = None,
    nan: str = "propagate",
) -> Any:  # fmt: skip
    """Return the interval (Winkler) score of central intervals of coverage `level` = 1 - a.

    (u - l) + 2/a (l - y) where y < l, and + 2/a (y - u) where y > u (Gneiting and Raftery 2007,
    doi:10.1198/016214506000001437, eq. 43). It is proper for the two quantiles; tensors are
    differentiable. The other arguments are those of `interval_coverage`.

    Examples:
        >>> from ens10.metrics import interval_score
        >>> round(float(interval_score(280.0, 284.0, 285.0, level=0.8)), 6)  # 4 + 2 / 0.2 * 1
        14.0
    """
    score = Score("interval_score", "interval score", _interval_score, _interval_score)
    arrays = {"lower": lower, "upper": upper, "y": y}
    factor = 2 / (1 - checked_level(level))
    return mean_over(apply(score, arrays, options={"factor": factor}), dim, weights, nan)


def checked_level(level: float) -> float:
    """Check and return the nominal coverage of an interval.

    Raises:
        ArgumentError: the coverage is not inside (0, 1).
    """
    if not 0 < level < 1:
        raise ArgumentError("level", f"expected a coverage between 0 and 1, got {level!r}")
    return float(level)


def _end(mu: Any, sigma: Any, z: float) -> Any:
    check_sigma(on_host(sigma) if hasattr(sigma, "detach") else np.asarray(sigma))
    return mu + sigma * z


def _member(x: Any, place: int, outer: int) -> Any:
    nominal_coverage(len(x), outer)
    xp, sorted_x = library_of(x), sorted_first(x)
    return xp.where(xp.isnan(sorted_x[-1]), np.nan, sorted_x[place])


def _pick(values: Any, place: int) -> Any:
    return values[place]


def _check_order(lower: Any, upper: Any) -> None:
    wrong = lower > upper
    many = int(wrong) if isinstance(wrong, bool) else int(wrong.sum())
    if many:
        raise ArgumentError("lower", f"it lies above upper at {many} points")


def _width(lower: Any, upper: Any) -> Any:
    _check_order(lower, upper)
    return upper - lower


def _coverage(lower: Any, upper: Any, y: Any) -> Any:
    _check_order(lower, upper)
    dtype = common_dtype(lower, upper, y)
    inside = (lower <= y) & (y <= upper)
    return np.where(np.isnan(lower + upper + y), np.nan, inside).astype(dtype)


def _interval_score(lower: Any, upper: Any, y: Any, factor: float) -> Any:
    beyond = (lower - y).clip(0, None) + (y - upper).clip(0, None)
    return _width(lower, upper) + factor * beyond
