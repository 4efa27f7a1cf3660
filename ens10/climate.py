"""Normalisation statistics from additive sums, exact for any choice of training years.

`prepare` keeps sums over dates at every grid point. Dates are grouped into blocks that share the
year of their valid date at every step, so that the statistics of any set of years, at any target
step, are sums over whole blocks, without another pass over the data.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError

Epsilon = Literal["relative", "paper"]
# Points whose deviation is far below that of the field (sea surface temperature under ice, rain in
# a desert) are scaled by this share of the field's root mean square deviation instead.
_RELATIVE_FLOOR = 0.05
# A deviation below this share of the mean is what rounding leaves of a constant.
_ROUNDING = 1e-6
_PAPER_EPSILON = 0.1  # in the units of the variable, as in the ENS-10 authors' code


def years_of(times: npt.NDArray[np.datetime64]) -> npt.NDArray[np.int64]:
    """Return the calendar year of each time, in the same shape."""
    return times.astype("datetime64[Y]").astype(np.int64) + 1970


def blocks(valid_time: npt.NDArray[np.datetime64]) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Group dates by the years of their valid dates at every step.

    Args:
        valid_time: shape (time, step).

    Returns:
        The years of each block, shape (block, step), in order of first appearance, and the block
        of each date.
    """
    years = years_of(valid_time)
    block_of_years: dict[tuple[int, ...], int] = {}
    rows = map(tuple, years.tolist())
    block_of_date = [block_of_years.setdefault(row, len(block_of_years)) for row in rows]
    return np.array(list(block_of_years), dtype=np.int64), block_of_date


class FieldSums:
    """Count, sum and sum of squares over dates at every point, in float64, of finite values.

    Args:
        shape: shape of one sample.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.count = np.zeros(shape, dtype=np.int64)
        self.total = np.zeros(shape)
        self.square = np.zeros(shape)

    def add(self, sample: npt.NDArray[np.floating]) -> None:
        """Add the values of one date."""
        valid = np.isfinite(sample)
        value = np.where(valid, sample, 0.0).astype(np.float64)
        self.count += valid
        self.total += value
        self.square += value * value


@dataclass(frozen=True)
class Normaliser:
    """Standardisation of features at every grid point, (x - mean) / scale, with 0 at gaps.

    A value that is NaN or infinite is a gap.

    Attributes:
        channels: names of the features, in order.
        mean: shape (C, H, W), float32; (lead, C, H, W) for several lead times.
        scale: positive, of the shape of `mean`.
    """

    channels: tuple[str, ...]
    mean: npt.NDArray[np.float32]
    scale: npt.NDArray[np.float32]

    def at(self, lead: int) -> "Normaliser":
        """Return the normaliser of one lead time, by its position among several."""
        if self.mean.ndim == 3:
            return self
        return Normaliser(self.channels, self.mean[lead], self.scale[lead])

    def apply(self, features: npt.NDArray[np.float32]) -> None:
        """Normalise features (..., C, H, W) in place.

        Raises:
            ArgumentError: features on a different grid.
        """
        if features.shape[-3:] != self.mean.shape:
            shape = f"shape {features.shape[-3:]} (channels, rows, columns)"
            reason = f"does not fit the normalisation statistics, which have {self.mean.shape}"
            remedy = "Use data on the grid, and with the inputs, of the training"
            raise ArgumentError("features", f"{shape} {reason}", remedy)
        features -= self.mean
        features /= self.scale
        np.nan_to_num(features, copy=False, nan=0.0, posinf=0.0, neginf=0.0)


def normaliser(
    channels: Iterable[str],
    count: npt.NDArray[np.int64],
    total: npt.NDArray[np.float64],
    square: npt.NDArray[np.float64],
    epsilon: Epsilon = "relative",
) -> Normaliser:
    """Return the normaliser (mean and scale) from sums over the training dates.

    Args:
        channels: names of the features.
        count: shape (C, H, W), number of dates with a value.
        total: shape (C, H, W), sum of the values.
        square: shape (C, H, W), sum of their squares.
        epsilon: "relative" divides by at least 5 % of the channel's root mean square deviation
            over the grid; "paper" adds 0.1 (in the channel's unit) to the standard deviation.
    """
    dates = np.maximum(count, 1)
    mean = total / dates
    deviation = np.sqrt(np.maximum(square / dates - mean**2, 0.0))
    deviation[deviation < _ROUNDING * np.abs(mean)] = 0.0
    if epsilon == "paper":
        scale = deviation + _PAPER_EPSILON
    else:
        present = count > 0
        points = np.maximum(present.sum(axis=(1, 2), keepdims=True), 1)
        typical = np.sqrt((deviation**2).sum(axis=(1, 2), keepdims=True) / points)
        typical = np.where(typical > 0, typical, 1.0)
        scale = np.maximum(deviation, _RELATIVE_FLOOR * typical)
    return Normaliser(tuple(channels), mean.astype(np.float32), scale.astype(np.float32))


def sums_of_years(
    statistics: xr.Dataset, years: Iterable[int], target_step: float, step: float, kind: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return count, sum and sum of squares over dates whose target is valid in some years.

    Args:
        statistics: `open_store(path, "statistics")`.
        years: years of the target's valid date.
        target_step: step of the target, which decides the valid date.
        step: step of the features.
        kind: "mean" or "std", of the ensemble.

    Returns:
        Three arrays of shape (channel, latitude, longitude).
    """
    is_in_years = np.isin(statistics["valid_year"].sel(step=target_step), list(years))
    part = statistics.sel(step=step).isel(block=is_in_years)
    count, total, square = (
        part[f"{kind}_{name}"].sum("block").to_numpy() for name in ("count", "sum", "square_sum")
    )
    return count, total, square
