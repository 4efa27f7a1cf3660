"""Scores of the mean and of the spread."""

from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._dispatch import Array


def rmse(mean: Any, y: Any, *, weights: Any = 1.0) -> Any:
    """Root of the weighted mean squared error over all points; NaN propagates.

    Args:
        mean: the forecast's mean; a numpy array or a DataArray (lazy on dask).
        y: observations, of the same shape or dimensions and coordinates.
        weights: what broadcasts to them, such as area weights.

    Returns:
        One number in the unit of `mean`; a DataArray without dimensions for DataArrays.
    """
    return _weighted_mean((mean - y) ** 2, weights) ** 0.5


def spread_error_ratio(
    mean: Any, variance: Any, y: Any, *, members: int | None = None, weights: Any = 1.0
) -> Any:
    """Root of the mean variance over the root mean squared error; 1 for a calibrated forecast.

    The mean of M exchangeable members has an expected squared error of (M + 1) / M times their
    variance (Fortin et al. 2014, doi:10.1175/JHM-D-14-0008.1), so the variance of an ensemble,
    which must be the unbiased one, takes that factor.

    Args:
        mean: the forecast's mean; a numpy array or a DataArray (lazy on dask).
        variance: the predicted variance; of members with the divisor M - 1.
        y: observations.
        members: M of an ensemble; None for a distribution such as a normal.
        weights: what broadcasts to the points, such as area weights.

    Raises:
        ArgumentError: fewer than two members.
    """
    factor = spread_inflation(members)
    ratio = _weighted_mean(variance, weights) / _weighted_mean((mean - y) ** 2, weights)
    return (factor * ratio) ** 0.5


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


def _weighted_mean(values: Any, weights: Any) -> Any:
    if isinstance(values, xr.DataArray):
        total = (values.astype(np.float64) * weights).sum(skipna=False)
        return total / (xr.ones_like(values, dtype=np.float64) * weights).sum(skipna=False)
    array: Array = np.asarray(values)
    w = np.broadcast_to(weights, array.shape)
    return np.sum(array * w, dtype=np.float64) / np.sum(w, dtype=np.float64)
