"""Calibration: where the observation falls in the forecast, and how often.

A calibrated forecast has a flat histogram: U-shaped means too little spread, a dome too much,
a slope a bias.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import ndtr

from ens10.errors import ArgumentError
from ens10.metrics._dispatch import Array, backend_of, common_dtype
from ens10.metrics._kernels_numpy import check_sigma, standardised
from ens10.metrics.crps import check_observations, member_axis

Counts = npt.NDArray[np.int64]


def pit_normal(mu: Any, sigma: Any, y: Any) -> Any:
    """Probability integral transform Phi((y - mu) / sigma) of normals, elementwise.

    Where sigma is 0 it is 0, 1/2 or 1: the observation below, on or above the mean.

    Args:
        mu: means; numpy arrays or DataArrays (lazy on dask), any shape.
        sigma: standard deviations, 0 or more.
        y: observations.

    Returns:
        Values in [0, 1], NaN where an input is, as the kind of array that was given.

    Raises:
        ArgumentError: a negative sigma, or tensors.
    """
    _refuse_tensors({"mu": mu, "sigma": sigma, "y": y})
    dtype = common_dtype(mu, sigma, y)
    return xr.apply_ufunc(
        _pit_normal,
        *(mu, sigma, y),
        join="exact",
        dask="parallelized",
        output_dtypes=[dtype],
    )


def _pit_normal(mu: Any, sigma: Any, y: Any) -> Array:
    dtype = common_dtype(mu, sigma, y)
    mu, sigma, y = (np.asarray(a, dtype=dtype) for a in (mu, sigma, y))
    check_sigma(sigma)
    probability: Array = ndtr(standardised(*np.broadcast_arrays(y - mu, sigma)))
    return probability


def pit_histogram(values: Any, bins: int = 20) -> Counts:
    """Counts of PIT values in equal bins of [0, 1].

    Args:
        values: PIT values, any shape; NaN is left out. 1 falls into the last bin.
        bins: number of bins.

    Returns:
        Shape (bins,), int64.

    Raises:
        ArgumentError: values outside [0, 1], or no bins.
    """
    if bins < 1:
        raise ArgumentError("bins", f"expected one or more, got {bins}")
    flat = np.asarray(values).ravel()
    flat = flat[~np.isnan(flat)]
    if flat.size and not 0.0 <= flat.min() <= flat.max() <= 1.0:
        raise ArgumentError("values", f"between {flat.min():.6g} and {flat.max():.6g}, not 0 and 1")
    index = np.minimum((flat * bins).astype(np.int64), bins - 1)
    return np.bincount(index, minlength=bins).astype(np.int64)


def rank_histogram(members: Any, y: Any, *, member_dim: int | str, seed: int) -> Any:
    """Counts of the rank of the observation among the M members (Talagrand diagram).

    Rank 0 is below all members and M above all; an observation that equals k members takes one
    of the k + 1 possible ranks at random, each alike. Points with a NaN are left out.

    Args:
        members: the ensemble; a numpy array or a DataArray (which is computed).
        y: observations: the members' shape, or dimensions, without the member axis.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        seed: of the random ranks among ties.

    Returns:
        Shape (M + 1,), int64; for DataArrays with the dimension `rank`.

    Raises:
        ArgumentError: as for `crps_ensemble`, or tensors.
    """
    _refuse_tensors({"members": members, "y": y})
    if isinstance(members, xr.DataArray):
        others = [d for d in members.dims if d != member_dim]
        if len(others) == members.ndim or not isinstance(y, xr.DataArray):
            raise ArgumentError("member_dim", f"no dimension {member_dim!r} in {members.dims}")
        if set(y.dims) != set(others):
            raise ArgumentError("y", f"dimensions {y.dims} instead of {tuple(others)}")
        members, y = xr.align(members, y, join="exact")
        first = members.transpose(member_dim, *others).to_numpy()
        observed = y.transpose(*others).to_numpy()
        counts = rank_histogram(first, observed, member_dim=0, seed=seed)
        return xr.DataArray(counts, dims="rank", coords={"rank": np.arange(counts.size)})
    members, observed = np.asarray(members), np.asarray(y)
    axis = member_axis(members, member_dim)
    check_observations(members.shape, observed.shape, axis)
    x = np.moveaxis(members, axis, 0)
    ranks = observation_ranks(x, observed, np.random.default_rng(seed).random(x.shape[1:]))
    return np.bincount(ranks[ranks >= 0], minlength=x.shape[0] + 1).astype(np.int64)


def observation_ranks(x: Array, y: Array, uniform: npt.NDArray[np.float64]) -> Counts:
    """Rank of each observation among its members, -1 where one of them is NaN.

    Args:
        x: members first, (M, ...).
        y: observations, what broadcasts to (...).
        uniform: (...), numbers in [0, 1) that choose among ties.
    """
    below = np.zeros(x.shape[1:], dtype=np.int64)
    equal, missing = np.zeros_like(below), np.broadcast_to(np.isnan(y), below.shape).copy()
    for member in x:
        below += member < y
        equal += member == y
        missing |= np.isnan(member)
    return np.where(missing, -1, below + (uniform * (equal + 1)).astype(np.int64))


def _refuse_tensors(arrays: dict[str, Any]) -> None:
    if backend_of(arrays) == "torch":
        raise ArgumentError(next(iter(arrays)), "tensors are not taken here", "Give .numpy()")
