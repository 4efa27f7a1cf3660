"""Bias, MAE and RMSE, ensemble mean and variance, and the spread-error relation."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._dispatch import Array, cast, detached, library_of, sorted_first
from ens10.metrics._reduce import EnsembleNan, Over, mean_over
from ens10.metrics._tables import as_labelled
from ens10.metrics.statistic import (
    Floats,
    StateVariable,
    Statistic,
    checked_edges,
    checked_sums,
    edges_of,
    edges_to_text,
    present_and_missing,
    sums_by_bin,
)

__all__ = [
    "bias",
    "ensemble_error",
    "ensemble_variance",
    "mae",
    "mae_median",
    "rmse",
    "spread_bin_sums",
    "spread_edges",
    "spread_error_by_bins",
    "spread_error_ensemble",
    "spread_error_ratio",
]

SKIP = "skip-members"
_BIN_SUMS = ("weight", "variance_sum", "error2_sum", "points")


def bias(
    forecast: Any, y: Any, *, dim: Over = None, weights: Any = None, nan: str = "propagate"
) -> Any:
    """Return the (mean) error forecast - y.

    Args:
        forecast: one number for each point, such as the ensemble mean.
        y: observations.
        dim: dimensions of the mean; None for the errors of the points.
        weights: weights of the mean, such as area weights.
        nan: "propagate" or "omit", in the mean.

    Returns:
        The error in the unit of the forecast, as an array of the input's type.

    Raises:
        ArgumentError: shapes, coordinates or units that differ.
    """
    score = Score("bias", "mean error", _difference, _difference)
    return mean_over(apply(score, {"forecast": forecast, "y": y}), dim, weights, nan)


def mae(
    forecast: Any, y: Any, *, dim: Over = None, weights: Any = None, nan: str = "propagate"
) -> Any:
    """Return the (mean) absolute error, which the median minimises; arguments as in `bias`."""
    score = Score("mae", "mean absolute error", _absolute, _absolute)
    return mean_over(apply(score, {"forecast": forecast, "y": y}), dim, weights, nan)


def rmse(
    mean: Any, y: Any, *, dim: Over = "all", weights: Any = None, nan: str = "propagate"
) -> Any:
    """Return the root of the weighted mean squared error.

    Args:
        mean: the forecast's mean. For an ensemble in float32 pass `ensemble_error` as `mean` and 0
            as `y`, which avoids cancellation.
        y: observations.
        dim: dimensions of the mean under the root; "all" by default.
        weights: weights that broadcast to the points, such as area weights.
        nan: "propagate", or "omit" points without a value.

    Returns:
        The error in the unit of `mean`, as an array of the input's type.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import rmse
        >>> round(float(rmse(np.array([281.0, 279.0, 283.0]), np.full(3, 280.0))), 4)
        1.9149

    Raises:
        ArgumentError: shapes, coordinates or units that differ.
    """
    squares = Score("rmse", "root mean squared error", _square, _square)
    mean_square = mean_over(apply(squares, {"mean": mean, "y": y}), dim, weights, nan)
    return _root(mean_square)


def spread_error_ratio(
    mean: Any,
    variance: Any,
    y: Any,
    *,
    members: int | None = None,
    dim: Over = "all",
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the spread-error ratio: root mean variance over RMSE; 1 if calibrated.

    The mean of M exchangeable members has an expected squared error of (M + 1) / M times their
    variance (Fortin et al. 2014, doi:10.1175/JHM-D-14-0008.1), so the variance of an ensemble,
    which must be the unbiased one, takes that factor.

    Args:
        mean: the forecast's mean.
        variance: the predicted variance; for members that of `ensemble_variance`.
        y: observations.
        members: ensemble size M; None for a distribution such as a normal.
        dim: dimensions of both means; "all" by default.
        weights: weights that broadcast to the points, such as area weights.
        nan: "propagate", or "omit" points where one of the three is missing.

    Returns:
        The ratio, as an array of the input's type.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import spread_error_ratio
        >>> y = np.array([1.0, -2.0, 2.0])
        >>> float(spread_error_ratio(np.zeros(3), np.ones(3), y).round(4))  # spread 1, RMSE sqrt(3)
        0.5774

    Raises:
        ArgumentError: fewer than two members; shapes, coordinates or units that differ.
    """
    factor = spread_inflation(members)
    arrays = {"mean": mean, "variance": variance, "y": y}
    means = [
        mean_over(apply(score, arrays, unlike=["variance"]), dim, weights, nan)
        for score in (_VARIANCE, _ERROR2)
    ]
    ratio = (factor * means[0] / means[1]) ** 0.5
    if hasattr(ratio, "rename"):
        text = "spread over error"
        ratio = ratio.rename("spread_error").assign_attrs(long_name=text, units="1")
    return ratio


def spread_inflation(members: int | None) -> float:
    """Return the factor (M + 1) / M of an ensemble's variance; 1 for None (a distribution).

    Raises:
        ArgumentError: fewer than two members, which have no variance.
    """
    if members is None:
        return 1.0
    if members < 2:
        raise ArgumentError("members", f"a spread needs two or more, got {members}")
    return (members + 1) / members


def _difference(forecast: Any, y: Any) -> Any:
    return forecast - y


def _absolute(forecast: Any, y: Any) -> Any:
    return abs(forecast - y)


def _square(mean: Any, y: Any) -> Any:
    return (mean - y) ** 2


def _root(mean: Any) -> Any:
    root = mean**0.5
    return root.assign_attrs(mean.attrs) if hasattr(root, "assign_attrs") else root


def _variance(mean: Any, variance: Any, y: Any) -> Any:
    return variance + 0.0 * (mean - y)  # missing where the error is


def _error2(mean: Any, variance: Any, y: Any) -> Any:
    return (mean - y) ** 2 + 0.0 * variance


def mae_median(
    members: Any,
    y: Any,
    *,
    member_dim: Dim,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the (mean) absolute error of the ensemble median.

    The median of an even number of members is the mean of the two in the middle.

    Args:
        members: the ensemble.
        y: observations: the members' shape, or dimensions, without the member axis.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        dim: dimensions of the mean; None for the errors of the points.
        weights: weights of the mean.
        nan: "propagate", "omit" (in the mean), or "skip-members": the median of those present.

    Returns:
        The error in the unit of the members, as an array of the input's type; tensors are
        differentiable.

    Raises:
        ArgumentError: no such axis, observations with a member axis, units that differ.
        UnknownNameError: an unknown policy for NaN.
    """
    arrays = {"members": members, "y": y}
    errors = _score_members(_MEDIAN_ERROR, arrays, member_dim, nan)
    return mean_over(errors, dim, weights, nan, policies=EnsembleNan)


def ensemble_error(
    members: Any, y: Any, *, member_dim: Dim, dim: Over = None, weights: Any = None,
    nan: str = "propagate",
) -> Any:  # fmt: skip
    """Return the error of the ensemble mean, computed from members less the observation.

    So no digits are lost where values are large (geopotential). Arguments as in `mae_median`.
    """
    errors = _score_members(_MEAN_ERROR, {"members": members, "y": y}, member_dim, nan)
    return mean_over(errors, dim, weights, nan, policies=EnsembleNan)


def ensemble_variance(
    members: Any, *, member_dim: Dim, dim: Over = None, weights: Any = None,
    nan: str = "propagate",
) -> Any:  # fmt: skip
    """Return the unbiased variance of the members (divisor M - 1).

    The arguments are those of `mae_median`; "skip-members" uses the M members present at each
    point, and returns NaN where there is only one.

    Raises:
        ArgumentError: fewer than two members.
    """
    result = _score_members(_ENSEMBLE_VARIANCE, {"members": members}, member_dim, nan)
    units = getattr(members, "attrs", {}).get("units")
    if units is not None:
        result.attrs["units"] = f"({units})2"
    return mean_over(result, dim, weights, nan, policies=EnsembleNan)


def spread_error_ensemble(
    members: Any,
    y: Any,
    *,
    member_dim: Dim,
    dim: Over = "all",
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the spread-error ratio of an ensemble, with the factor (M + 1) / M.

    Args:
        members: the ensemble.
        y: observations: the members' shape, or dimensions, without the member axis.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        dim: dimensions of both means; "all" by default.
        weights: weights that broadcast to the points, such as area weights.
        nan: "propagate", "omit", or "skip-members": variance and factor use the M members present
            at each point; points with fewer than two are left out.

    Returns:
        The ratio, as an array of the input's type.

    Raises:
        ArgumentError: fewer than two members, observations with a member axis, arrays that do not
            fit.
        UnknownNameError: an unknown policy for NaN.
    """
    arrays = {"members": members, "y": y}
    error = _score_members(_MEAN_ERROR, arrays, member_dim, nan)
    inflated = _score_members(_INFLATED, arrays, member_dim, nan)
    mean_over(error, dim, weights, nan, policies=EnsembleNan)  # refuses other policies by name
    policy = "omit" if nan == SKIP else nan
    zero = error * 0.0
    return spread_error_ratio(error, inflated, zero, dim=dim, weights=weights, nan=policy)


def _score_members(score: Score, arrays: dict[str, Any], member_dim: Dim, nan: str) -> Any:
    """Compute a score of an ensemble at each point, with or without its missing members."""
    return apply(score, arrays, {"members": [member_dim]}, options={"skip": nan == SKIP})


def _zeros_and_count(x: Any, skip: bool) -> tuple[Any, Any]:
    """Return members with 0 in place of missing ones (if `skip`), and the number present."""
    if not skip:
        return x, float(len(x))
    xp = library_of(x)
    present = ~xp.isnan(x)
    count = cast(present.sum(0), x)
    return xp.where(present, x, 0.0), xp.where(count > 0, count, np.nan)


def _mean_error(members: Any, y: Any, skip: bool) -> Any:
    x, count = _zeros_and_count(members - y, skip)
    return x.sum(0) / count


def _median_error(members: Any, y: Any, skip: bool) -> Any:
    xp, x = library_of(members), sorted_first(members - y)
    if not skip:
        middle = (x[(len(x) - 1) // 2] + x[len(x) // 2]) / 2
        return xp.where(xp.isnan(x[-1]), np.nan, abs(middle))
    count = (~xp.isnan(x)).sum(0)
    low, high = (_member(x, place) for place in (xp.clip((count - 1) // 2, 0, None), count // 2))
    return abs((low + high) / 2)


def _ensemble_variance(members: Any, skip: bool) -> Any:
    """Compute the variance in two passes, so that the rounding of the mean cancels."""
    if len(members) < 2:
        raise ArgumentError("members", f"a variance needs two or more, got {len(members)}")
    xp = library_of(members)
    missing = xp.isnan(members)
    shift = members[0] if not skip else _member(members, (~missing * 1).argmax(0))  # one present
    x, count = _zeros_and_count(members - detached(shift), skip)
    deviation = x - x.sum(0) / count
    if skip:
        deviation = xp.where(missing, 0.0, deviation)
        degrees_of_freedom = xp.where(count > 1, count - 1, np.nan)
    else:
        degrees_of_freedom = count - 1
    correction = deviation.sum(0) ** 2 / count
    return ((deviation**2).sum(0) - correction) / degrees_of_freedom


def _member(members: Any, index: Any) -> Any:
    """Return the member of a number at each point."""
    xp = library_of(members)
    take = xp.take_along_axis if xp is np else xp.take_along_dim
    return take(members, index[None], 0)[0]


def _inflated_variance(members: Any, y: Any, skip: bool) -> Any:
    xp, count = library_of(members), float(len(members))
    if skip:
        count = xp.clip(cast((~xp.isnan(members)).sum(0), members), 1, None)
    return _ensemble_variance(members, skip) * ((count + 1) / count) + 0 * y


def spread_edges(variance: Any, bins: int = 10) -> Floats:
    """Return edges between equally populated bins of the spread (the standard deviation).

    All values are needed at once; for a large forecast pass a part, such as some dates. Compute
    the edges once, and sum all blocks over the same edges.

    Args:
        variance: predicted variances; NaN is left out. Lazy ones are computed.
        bins: number of bins.

    Returns:
        The bins - 1 edges; fewer where many values are alike.

    Raises:
        ArgumentError: fewer than two bins, a negative variance, or no values.
    """
    if bins < 2:
        raise ArgumentError("bins", f"expected two or more, got {bins}")
    values = as_labelled({"variance": variance})["variance"].to_numpy().ravel()
    values = values[~np.isnan(values)].astype(np.float64)
    if not values.size:
        raise ArgumentError("variance", "it has no values")
    _check_variance(values)
    edges: Floats = np.unique(np.quantile(np.sqrt(values), np.arange(1, bins) / bins))
    return edges


def spread_bin_sums(
    mean: Any,
    variance: Any,
    y: Any,
    *,
    edges: Sequence[float] | Floats,
    members: int | None = None,
    dim: Over = "all",
    weights: Any = None,
    nan: str = "propagate",
) -> xr.Dataset:
    """Return additive sums of variance and squared error in bins of the predicted spread.

    Args:
        mean: the forecast's mean. For an ensemble in float32 pass `ensemble_error` as `mean` and 0
            as `y`, which avoids cancellation.
        variance: the predicted variance; for members the unbiased one (`ensemble_variance`).
        y: observations.
        edges: n edges between n + 1 bins of the spread sqrt(variance), in its unit, open at both
            ends; a bin contains its lower edge.
        members: ensemble size M, for the factor (M + 1) / M of the variance; None for a
            distribution.
        dim: dimensions that are summed over; the others are kept.
        weights: weights of the points, such as area weights.
        nan: "propagate" returns NaN sums if a point is NaN; "omit" leaves such points out.

    Returns:
        `weight`, `variance_sum` (with the factor), `error2_sum` and `points` over `spread_bin`;
        `count` and `missing`. Lazy if an array is.

    Raises:
        ArgumentError: edges that do not rise, fewer than two members, a negative variance (lazy
            ones when computed), arrays that do not match.
        UnknownNameError: an unknown policy for NaN.
    """
    of_bins, factor = checked_edges(edges), spread_inflation(members)
    bins = {"spread_bin": np.arange(of_bins.size + 1)}
    units = getattr(mean, "attrs", {}).get("units")
    squared = {"units": f"({units})2"} if units else {}
    statistic = Statistic(
        "spread_bin_sums",
        partial(_bin_kernel, edges=of_bins, factor=factor),
        tuple(StateVariable(n, bins, squared if n.endswith("_sum") else {}) for n in _BIN_SUMS),
    )
    arrays = {"mean": mean, "variance": variance, "y": y}
    sums = statistic.sums(arrays, dim=dim, weights=weights, nan=nan, unlike=["variance"])
    return sums.assign_attrs(edges=edges_to_text(of_bins))


def _bin_kernel(
    mean: Array, variance: Array, y: Array, w: Array, *, edges: Floats, factor: float
) -> Floats:
    error, predicted = (mean - y).astype(np.float64), variance.astype(np.float64)
    valid = ~np.isnan(error) & ~np.isnan(predicted) & ~np.isnan(w)
    error, predicted = np.where(valid, error, 0), np.where(valid, predicted, 0)
    _check_variance(predicted)
    weights = np.where(valid, w, 0.0)
    index = np.searchsorted(edges, np.sqrt(predicted), side="right")
    values = (weights, weights * predicted * factor, weights * error**2, valid.astype(np.float64))
    return np.concatenate(
        [sums_by_bin(index, edges.size + 1, *values), present_and_missing(valid)], axis=1
    )


def _check_variance(values: Floats) -> None:
    if (values < 0).any():
        raise ArgumentError("variance", f"some are negative, the lowest is {values.min():.6g}")


def spread_error_by_bins(sums: xr.Dataset) -> xr.Dataset:
    """Return the binned spread-error relation from the sums of `spread_bin_sums`.

    For a calibrated forecast the RMSE equals the spread in each bin (Leutbecher and Palmer 2008,
    doi:10.1016/j.jcp.2007.02.014).

    Args:
        sums: result of `spread_bin_sums`, or several of them added.

    Returns:
        Over `spread_bin`: `spread` (root of the mean variance, with the factor (M + 1) / M),
        `rmse`, their `ratio` and `points`, with the coordinates `lower` and `upper` of the bins;
        NaN where a bin is empty.

    Raises:
        ArgumentError: `sums` lacks variables of that function.
    """
    checked_sums(sums, _BIN_SUMS, "spread_bin_sums")
    weight = sums["weight"].where(sums["weight"] > 0)
    spread, error = ((sums[f"{name}_sum"] / weight) ** 0.5 for name in ("variance", "error2"))
    units = str(sums["error2_sum"].attrs.get("units", ""))
    unit = {"units": units.removeprefix("(").removesuffix(")2")} if units else {}
    edges = edges_of(sums)
    return xr.Dataset(
        {
            "spread": spread.assign_attrs(long_name="predicted spread", **unit),
            "rmse": error.assign_attrs(long_name="root mean squared error", **unit),
            "ratio": (spread / error).assign_attrs(long_name="spread over error", units="1"),
            "points": sums["points"].assign_attrs(long_name="number of points", units="1"),
        },
        coords={
            "lower": ("spread_bin", np.r_[0.0, edges], unit),
            "upper": ("spread_bin", np.r_[edges, np.inf], unit),
        },
    )


_VARIANCE = Score("variance", "predicted variance", _variance, _variance)
_ERROR2 = Score("error2", "squared error", _error2, _error2)
_MEAN_ERROR = Score("error", "error of the ensemble mean", _mean_error, _mean_error)
_MEDIAN_ERROR = Score(
    "mae",
    "mean absolute error of the median",
    _median_error,
    _median_error,
)
_ENSEMBLE_VARIANCE = Score(
    "variance",
    "variance of the members",
    _ensemble_variance,
    _ensemble_variance,
    units=False,
)
_INFLATED = Score(
    "variance",
    "inflated variance",
    _inflated_variance,
    _inflated_variance,
    units=False,
)
