"""The mean, the median and the variance of ensembles against observations."""

from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._dispatch import Array
from ens10.metrics._reduce import EnsembleNan, Over, mean_over
from ens10.metrics.calibration.moments import spread_error_ratio

SKIP = "skip-members"


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
    score = Score("mae", "mean absolute error of the median", _median_error, _median_error_torch)
    errors = apply(
        score,
        {"members": members, "y": y},
        {"members": [member_dim]},
        options={"skip": nan == SKIP},
    )
    return mean_over(errors, dim, weights, nan, policies=EnsembleNan)


def ensemble_error(
    members: Any, y: Any, *, member_dim: Dim, dim: Over = None, weights: Any = None,
    nan: str = "propagate",
) -> Any:  # fmt: skip
    """Error of the ensemble mean, from members less the observation: as exact at 5e4 as at 0.

    The arguments are those of `mae_median`.
    """
    score = Score("error", "error of the ensemble mean", _mean_error, _mean_error_torch)
    errors = apply(
        score,
        {"members": members, "y": y},
        {"members": [member_dim]},
        options={"skip": nan == SKIP},
    )
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
    score = Score("variance", "variance of the members", _variance, _variance_torch, units=False)
    found = apply(
        score, {"members": members}, {"members": [member_dim]}, options={"skip": nan == SKIP}
    )
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
    arrays, core = {"members": members, "y": y}, {"members": [member_dim]}
    options = {"skip": nan == SKIP}
    error = apply(
        Score("error", "error of the mean", _mean_error, _mean_error_torch), arrays, core,
        options=options,
    )  # fmt: skip
    inflated = apply(
        Score("variance", "inflated variance", _inflated, _inflated_torch, units=False),
        arrays, core, options=options,
    )  # fmt: skip
    mean_over(error, dim, weights, nan, policies=EnsembleNan)  # refuses other policies by name
    policy = "omit" if nan == SKIP else nan
    zero = error * 0.0
    return spread_error_ratio(error, inflated, zero, dim=dim, weights=weights, nan=policy)


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


def _variance(members: Array, skip: bool) -> Array:
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
    variance = _variance(members, skip)
    count = (~np.isnan(members)).sum(axis=0) if skip else len(members)
    factor = np.asarray((count + 1) / np.maximum(count, 1), dtype=members.dtype)
    return variance * factor + 0 * y


def _mean_error_torch(members: Any, y: Any, skip: bool) -> Any:
    from ens10.metrics.calibration._moments_torch import mean_error

    return mean_error(members, y, skip)


def _median_error_torch(members: Any, y: Any, skip: bool) -> Any:
    from ens10.metrics.calibration._moments_torch import median_error

    return median_error(members, y, skip)


def _variance_torch(members: Any, skip: bool) -> Any:
    from ens10.metrics.calibration._moments_torch import variance

    return variance(members, skip)


def _inflated_torch(members: Any, y: Any, skip: bool) -> Any:
    from ens10.metrics.calibration._moments_torch import inflated

    return inflated(members, y, skip)
