"""Errors of the mean and the median, and how the predicted spread compares with the error."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply, on_tensors
from ens10.metrics._dispatch import Array
from ens10.metrics._reduce import EnsembleNan, Over, mean_over
from ens10.metrics._tables import as_labelled
from ens10.metrics.states import (
    Floats,
    Part,
    Statistic,
    checked_edges,
    checked_sums,
    edges_of,
    edges_to_text,
    present_and_missing,
    sums_by_bin,
)

SKIP = "skip-members"
_TORCH = "ens10.metrics.calibration._torch"
_BIN_SUMS = ("weight", "variance_sum", "error2_sum", "points")


def bias(
    forecast: Any, y: Any, *, dim: Over = None, weights: Any = None, nan: str = "propagate"
) -> Any:
    """Mean error: forecast - y.

    Args:
        forecast: of any kind that is one number for each point, such as a mean.
        y: observations.
        dim: of the mean; None for the errors of the points.
        weights: of the mean, such as area weights.
        nan: "propagate" or "omit", in the mean.

    Returns:
        The error in the unit of the forecast, as the kind of array that was given.

    Raises:
        ArgumentError: shapes, coordinates or units that differ.
    """
    score = Score("bias", "mean error", _difference, _difference)
    return mean_over(apply(score, {"forecast": forecast, "y": y}), dim, weights, nan)


def mae(
    forecast: Any, y: Any, *, dim: Over = None, weights: Any = None, nan: str = "propagate"
) -> Any:
    """Mean absolute error; the arguments are those of `bias`. A median minimises it."""
    score = Score("mae", "mean absolute error", _absolute, _absolute)
    return mean_over(apply(score, {"forecast": forecast, "y": y}), dim, weights, nan)


def rmse(
    mean: Any, y: Any, *, dim: Over = "all", weights: Any = None, nan: str = "propagate"
) -> Any:
    """Root of the weighted mean squared error.

    Args:
        mean: the forecast's mean. Of an ensemble in float32 give `ensemble_error` as `mean` and 0
            as `y`, which loses no digits.
        y: observations.
        dim: of the mean under the root; "all" by default.
        weights: what broadcasts to the points, such as area weights.
        nan: "propagate", or "omit" points without a value.

    Returns:
        In the unit of `mean`, as the kind of array that was given.

    Raises:
        ArgumentError: shapes, coordinates or units that differ.
    """
    squares = Score("rmse", "root mean squared error", _square, _square)
    found = mean_over(apply(squares, {"mean": mean, "y": y}), dim, weights, nan)
    return _root(found)


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
    """Root of the mean variance over the root mean squared error; 1 for a calibrated forecast.

    The mean of M exchangeable members has an expected squared error of (M + 1) / M times their
    variance (Fortin et al. 2014, doi:10.1175/JHM-D-14-0008.1), so the variance of an ensemble,
    which must be the unbiased one, takes that factor.

    Args:
        mean: the forecast's mean.
        variance: the predicted variance; of members `ensemble_variance`.
        y: observations.
        members: M of an ensemble; None for a distribution such as a normal.
        dim: what both means are over; "all" by default.
        weights: what broadcasts to the points, such as area weights.
        nan: "propagate", or "omit" points where one of the three is missing.

    Returns:
        The ratio, as the kind of array that was given.

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
    """The factor (M + 1) / M of an ensemble's variance, 1 for None (a distribution).

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
    """Mean absolute error of the median of an ensemble.

    The median of an even number of members is the mean of the two in the middle.

    Args:
        members: the ensemble.
        y: observations: the members' shape, or dimensions, without the member axis.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        dim: of the mean; None for the errors of the points.
        weights: of the mean.
        nan: "propagate", "omit" (in the mean), or "skip-members": the median of those there are.

    Returns:
        The error in the unit of the members, as the kind of array that was given; tensors are
        differentiable.

    Raises:
        ArgumentError: no such axis, observations with a member axis, units that differ.
        UnknownNameError: another policy.
    """
    arrays = {"members": members, "y": y}
    errors = _of_members(_MEDIAN_ERROR, arrays, member_dim, nan)
    return mean_over(errors, dim, weights, nan, policies=EnsembleNan)


def ensemble_error(
    members: Any, y: Any, *, member_dim: Dim, dim: Over = None, weights: Any = None,
    nan: str = "propagate",
) -> Any:  # fmt: skip
    """Error of the ensemble mean, from members less the observation: as exact at 5e4 as at 0.

    The arguments are those of `mae_median`.
    """
    errors = _of_members(_MEAN_ERROR, {"members": members, "y": y}, member_dim, nan)
    return mean_over(errors, dim, weights, nan, policies=EnsembleNan)


def ensemble_variance(
    members: Any, *, member_dim: Dim, dim: Over = None, weights: Any = None,
    nan: str = "propagate",
) -> Any:  # fmt: skip
    """Unbiased variance of the members (divisor M - 1).

    The arguments are those of `mae_median`; "skip-members" divides by the members that are there
    less 1, and gives NaN where there is only one.

    Raises:
        ArgumentError: fewer than two members.
    """
    found = _of_members(_ENSEMBLE_VARIANCE, {"members": members}, member_dim, nan)
    units = getattr(members, "attrs", {}).get("units")
    if units is not None:
        found.attrs["units"] = f"({units})2"
    return mean_over(found, dim, weights, nan, policies=EnsembleNan)


def spread_error_ensemble(
    members: Any,
    y: Any,
    *,
    member_dim: Dim,
    dim: Over = "all",
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """`spread_error_ratio` of an ensemble, with its factor (M + 1) / M.

    Args:
        members: the ensemble.
        y: observations: the members' shape, or dimensions, without the member axis.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        dim: what both means are over; "all" by default.
        weights: what broadcasts to the points, such as area weights.
        nan: "propagate", "omit", or "skip-members": each point has the M of the members that are
            there, in the variance and in the factor; points with fewer than two are left out.

    Returns:
        The ratio, as the kind of array that was given.

    Raises:
        ArgumentError: fewer than two members, observations with a member axis, arrays that do not
            fit.
        UnknownNameError: another policy.
    """
    arrays = {"members": members, "y": y}
    error = _of_members(_MEAN_ERROR, arrays, member_dim, nan)
    inflated = _of_members(_INFLATED, arrays, member_dim, nan)
    mean_over(error, dim, weights, nan, policies=EnsembleNan)  # refuses other policies by name
    policy = "omit" if nan == SKIP else nan
    zero = error * 0.0
    return spread_error_ratio(error, inflated, zero, dim=dim, weights=weights, nan=policy)


def _of_members(score: Score, arrays: dict[str, Any], member_dim: Dim, nan: str) -> Any:
    """A score of the points of an ensemble, with or without its missing members."""
    return apply(score, arrays, {"members": [member_dim]}, options={"skip": nan == SKIP})


def _counted(x: Array, skip: bool) -> tuple[Any, Any]:
    """Members with 0 for the missing ones if they are skipped, and how many there are."""
    if not skip:
        return x, x.dtype.type(x.shape[0])
    there = ~np.isnan(x)
    count = there.sum(axis=0).astype(x.dtype)
    return np.where(there, x, 0), np.where(count > 0, count, np.nan)


def _mean_error(members: Array, y: Array, skip: bool) -> Array:
    x, count = _counted(members - y, skip)
    total: Array = x.sum(axis=0) / count
    return total


def _median_error(members: Array, y: Array, skip: bool) -> Array:
    x = np.sort(members - y, axis=0)  # NaN goes last
    if not skip:
        middle = (x[(len(x) - 1) // 2] + x[len(x) // 2]) / 2
        return np.where(np.isnan(x[-1]), np.nan, np.abs(middle)).astype(x.dtype)
    count = (~np.isnan(x)).sum(axis=0)[None]
    places = np.maximum((count - 1) // 2, 0), count // 2
    low, high = (np.take_along_axis(x, place, axis=0)[0] for place in places)
    error: Array = np.abs((low + high) / 2)
    return error


def _ensemble_variance(members: Array, skip: bool) -> Array:
    """Twice through the deviations, so that the rounding of the mean cancels."""
    if len(members) < 2:
        raise ArgumentError("members", f"a variance needs two or more, got {len(members)}")
    shift = members[0] if not skip else _first_there(members)
    x, count = _counted(members - shift, skip)
    deviation = x - x.sum(axis=0) / count
    if skip:
        deviation = np.where(np.isnan(members), 0, deviation)
    left = deviation.sum(axis=0) ** 2 / count
    found = ((deviation**2).sum(axis=0) - left) / np.where(count > 1, count - 1, np.nan)
    return np.asarray(found, dtype=members.dtype)


def _first_there(members: Array) -> Array:
    first = np.argmax(~np.isnan(members), axis=0)
    found: Array = np.take_along_axis(members, first[None], axis=0)[0]
    return found


def _inflated(members: Array, y: Array, skip: bool) -> Array:
    variance = _ensemble_variance(members, skip)
    count = (~np.isnan(members)).sum(axis=0) if skip else len(members)
    factor = np.asarray((count + 1) / np.maximum(count, 1), dtype=members.dtype)
    return variance * factor + 0 * y


def spread_edges(variance: Any, bins: int = 10) -> Floats:
    """Edges between equally populated bins of the spread (the standard deviation).

    They need all values at once: of a large forecast give a part, such as some dates. They are
    not additive, so that blocks are summed over the same, given edges.

    Args:
        variance: predicted variances; NaN is left out. Lazy ones are computed.
        bins: how many.

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
    """Sums of variance and squared error in bins of the predicted spread; those of blocks add.

    Args:
        mean: the forecast's mean. Of an ensemble in float32 give `ensemble_error` as `mean` and 0
            as `y`, which loses no digits.
        variance: the predicted variance; of members the unbiased one (`ensemble_variance`).
        y: observations.
        edges: n edges between n + 1 bins of the spread sqrt(variance), in its unit, open at both
            ends; a bin has its lower edge.
        members: M of an ensemble, whose variance takes the factor (M + 1) / M; None for a
            distribution.
        dim: what is summed over; other dimensions are kept.
        weights: of points, such as area weights.
        nan: "propagate" makes the sums NaN where a point has one; "omit" leaves it out.

    Returns:
        `weight`, `variance_sum` (with the factor), `error2_sum` and `points` over `spread_bin`;
        `count` and `missing`. Lazy if an array is.

    Raises:
        ArgumentError: edges that do not rise, fewer than two members, a negative variance (lazy
            ones when computed), arrays that do not fit.
        UnknownNameError: another policy.
    """
    of_bins, factor = checked_edges(edges), spread_inflation(members)
    bins = {"spread_bin": np.arange(of_bins.size + 1)}
    units = getattr(mean, "attrs", {}).get("units")
    squared = {"units": f"({units})2"} if units else {}
    statistic = Statistic(
        "spread_bin_sums",
        partial(_bin_kernel, edges=of_bins, factor=factor),
        tuple(Part(n, bins, squared if n.endswith("_sum") else {}) for n in _BIN_SUMS),
    )
    arrays = {"mean": mean, "variance": variance, "y": y}
    sums = statistic.sums(arrays, dim=dim, weights=weights, nan=nan, unlike=["variance"])
    return sums.assign_attrs(edges=edges_to_text(of_bins))


def _bin_kernel(
    mean: Array, variance: Array, y: Array, w: Array, *, edges: Floats, factor: float
) -> Floats:
    error, predicted = (mean - y).astype(np.float64), variance.astype(np.float64)
    there = ~np.isnan(error) & ~np.isnan(predicted) & ~np.isnan(w)
    error, predicted = np.where(there, error, 0), np.where(there, predicted, 0)
    _check_variance(predicted)
    used = np.where(there, w, 0.0)
    index = np.searchsorted(edges, np.sqrt(predicted), side="right")
    values = (used, used * predicted * factor, used * error**2, there.astype(np.float64))
    return np.concatenate(
        [sums_by_bin(index, edges.size + 1, *values), present_and_missing(there)], axis=1
    )


def _check_variance(values: Floats) -> None:
    if (values < 0).any():
        raise ArgumentError("variance", f"some are negative, the lowest is {values.min():.6g}")


def spread_error_by_bins(sums: xr.Dataset) -> xr.Dataset:
    """The binned spread-error relation, from `spread_bin_sums` added over blocks.

    Of a calibrated forecast the error equals the spread in each bin (Leutbecher and Palmer 2008,
    doi:10.1016/j.jcp.2007.02.014).

    Args:
        sums: of `spread_bin_sums`.

    Returns:
        Over `spread_bin`: `spread` (root of the mean variance, with the factor (M + 1) / M),
        `rmse`, their `ratio` and `points`, with the coordinates `lower` and `upper` of the bins;
        NaN where a bin is empty.

    Raises:
        ArgumentError: other sums.
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
_MEAN_ERROR = Score(
    "error", "error of the ensemble mean", _mean_error, on_tensors(_TORCH, "mean_error")
)
_MEDIAN_ERROR = Score(
    "mae",
    "mean absolute error of the median",
    _median_error,
    on_tensors(_TORCH, "median_error"),
)
_ENSEMBLE_VARIANCE = Score(
    "variance",
    "variance of the members",
    _ensemble_variance,
    on_tensors(_TORCH, "variance"),
    units=False,
)
_INFLATED = Score(
    "variance", "inflated variance", _inflated, on_tensors(_TORCH, "inflated"), units=False
)
