"""The climatology that anomalies refer to, aligned with a forecast and read block by block."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.climate import FieldSums
from ens10.errors import ArgumentError, MissingDataError
from ens10.metrics._dispatch import Array
from ens10.metrics.distributions.forecast_dataset import GRID, STEP_AND_LEVEL
from ens10.metrics.verification.alignment import MatchedForecast, check_same_grid, valid_times
from ens10.stations import as_row

_PERIODS = ("time", "month", "dayofyear")  # at most one of them is a dimension of a climatology
_LEAP_DAY = 366


Climate = Mapping[str | float, "AlignedClimatology"]  # "mean", and quantiles by their level


@dataclass(frozen=True)
class AlignedClimatology:
    """A climatology, and the position of each date of a forecast in it.

    Attributes:
        field: over (period, step, level, latitude, longitude), each of the first three of length
            1 where the climatology does not depend on it.
        positions: positions along its first dimension, shape (dates, steps).
        levels: number of levels of the forecast.
    """

    field: xr.DataArray
    positions: npt.NDArray[np.int64]
    levels: int

    @property
    def size(self) -> int:
        """Return the number of values that depend on the number of dates; 0 without `time`."""
        return self.field.size if self.field.dims[0] == "time" else 0

    def part(self, dates: slice) -> "AlignedClimatology":
        """Return the climatology of some of the dates."""
        unique_positions, inverse = np.unique(self.positions[dates], return_inverse=True)
        field = self.field.isel({self.field.dims[0]: unique_positions})
        return replace(self, field=field, positions=inverse.reshape(self.positions[dates].shape))

    def load(self) -> Array:
        """Read the values, (dates, steps, levels, latitude, longitude)."""
        values = self.field.to_numpy()
        dates, steps = self.positions.shape
        fields: Array = np.empty((dates, steps, self.levels, *values.shape[3:]), values.dtype)
        for step in range(steps):
            fields[:, step] = values[self.positions[:, step], min(step, values.shape[1] - 1)]
        return fields


def align_climatology(match: MatchedForecast, climatology: Any) -> AlignedClimatology:
    """Validate a climatology and align it with a forecast.

    Args:
        match: the forecast and its truth.
        climatology: a DataArray over latitude, longitude and any of step, level and one of time
            (the forecast's start), month (1 to 12) and dayofyear (1 to 366) of the valid date.

    Raises:
        ArgumentError: not a DataArray, wrong dimensions, or units that differ from the truth's.
        MissingDataError: dates, months, steps, levels or grid points that it lacks.
    """
    if not isinstance(climatology, xr.DataArray):
        reason = f"expected a DataArray, not a {type(climatology).__name__}"
        raise ArgumentError("climatology", reason, "Pass the mean state over the grid")
    climatology = as_row(climatology)
    periods = [dim for dim in _PERIODS if dim in climatology.dims]
    extra = set(climatology.dims) - {*_PERIODS, *STEP_AND_LEVEL, *GRID}
    if extra or len(periods) > 1 or not set(GRID) <= set(climatology.dims):
        raise ArgumentError(
            "climatology",
            f"dimensions {climatology.dims}",
            "Use latitude, longitude and any of step, level and one of time, month, dayofyear",
        )
    forecast = match.forecast
    check_same_grid("climatology", forecast, climatology)
    truth_units, units = (array.attrs.get("units") for array in (match.truth, climatology))
    if truth_units and units and truth_units != units:
        reason = f"in {units}, the truth in {truth_units}"
        raise ArgumentError("climatology", reason, "Convert both to one unit")
    for dim in STEP_AND_LEVEL:
        if dim in climatology.dims:
            climatology = _select(climatology, dim, forecast)
    period = periods[0] if periods else "month"
    positions = np.zeros((forecast.sizes["time"], forecast.sizes.get("step", 1)), np.int64)
    if periods:
        labels = climatology[period].to_numpy()
        labels = labels.astype("M8[ns]") if period == "time" else labels
        positions += _positions(labels, _labels(forecast, period))
    order = (period, *STEP_AND_LEVEL, *GRID)
    field = climatology.expand_dims([dim for dim in order if dim not in climatology.dims])
    return AlignedClimatology(field.transpose(*order), positions, forecast.sizes.get("level", 1))


def quantile_of_climate(thresholds: Any, level: float) -> Any:
    """Return the quantile of one level.

    Args:
        thresholds: quantiles over `quantile_level`, as of `monthly_quantiles`.
        level: of the quantile.

    Raises:
        ArgumentError: no DataArray over `quantile_level`.
        MissingDataError: another level.
    """
    if not isinstance(thresholds, xr.DataArray) or "quantile_level" not in thresholds.coords:
        reason = "expected a DataArray over quantile_level"
        raise ArgumentError("thresholds", reason, "Pass the result of monthly_quantiles")
    levels = thresholds["quantile_level"].to_numpy()
    place = np.flatnonzero(np.isclose(levels, level, rtol=0, atol=1e-9))
    if not place.size:
        raise MissingDataError("thresholds", [f"quantile_level {level:g}"])
    return thresholds.isel(quantile_level=int(place[0]), drop=True)


def _select(climatology: xr.DataArray, dim: str, forecast: xr.Dataset) -> xr.DataArray:
    """Select the steps or levels of the forecast."""
    labels = np.atleast_1d(forecast[dim].to_numpy()) if dim in forecast.coords else np.empty(0)
    missing = np.setdiff1d(labels, climatology[dim].to_numpy())
    if missing.size or not labels.size:
        raise MissingDataError("climatology", [f"{dim} {value}" for value in missing] or [dim])
    return climatology.sel({dim: labels})


def _labels(forecast: xr.Dataset, period: str) -> npt.NDArray[Any]:
    """Return the time, month or day of the year of each date and step."""
    if period == "time":
        return forecast["time"].to_numpy().astype("M8[ns]")[:, None]
    valid = valid_times(forecast)
    labels = getattr(xr.DataArray(valid).dt, period).to_numpy()
    return np.asarray(labels, dtype=np.int64)


def _positions(available: npt.NDArray[Any], labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    at = {label: place for place, label in enumerate(available.tolist())}
    at.setdefault(_LEAP_DAY, at.get(_LEAP_DAY - 1, -1))
    requested: Sequence[Any] = labels.ravel().tolist()
    missing = sorted({str(label) for label in requested if at.get(label, -1) < 0})
    if missing:
        raise MissingDataError("climatology", missing, "Pass one that covers all dates")
    return np.array([at[label] for label in requested], np.int64).reshape(labels.shape)


def monthly_climatology(truth: xr.DataArray, *, without_years: Iterable[int] = ()) -> xr.DataArray:
    """Return the mean of the truth at each grid point in each calendar month.

    Dates are read one by one. Exclude the years that are scored: anomalies from a climatology
    that contains them are too small.

    Args:
        truth: over time [, step], latitude, longitude.
        without_years: years (of the valid date) to exclude.

    Returns:
        Means over (month, latitude, longitude), for the months 1 to 12 that have dates; NaN at
        points without a value.

    Raises:
        MissingDataError: no date is left.
    """
    sums: dict[int, FieldSums] = {}
    for month, sample in _fields_by_month(truth, without_years):
        sums.setdefault(month, FieldSums(sample.shape)).add(sample)
    if not sums:
        raise MissingDataError("truth", ["dates in other years than those that are scored"])
    names = sorted(sums)
    with np.errstate(invalid="ignore"):
        means = np.stack([sums[month].total / sums[month].count for month in names])
    return _by_month(truth, means, names)


def monthly_quantiles(
    truth: xr.DataArray, levels: Sequence[float], *, without_years: Iterable[int] = ()
) -> xr.DataArray:
    """Return quantiles of the truth at each grid point in each calendar month.

    The thresholds of local extremes. The dates of one month are in memory at a time.

    Args:
        truth: over time [, step], latitude, longitude.
        levels: of the quantiles, between 0 and 1.
        without_years: years (of the valid date) to exclude, such as those that are scored.

    Returns:
        Quantiles over (month, latitude, longitude, quantile_level), linear between the ordered
        values (numpy's default), for the months 1 to 12 that have dates; gaps do not count, and a
        point without a value is NaN.

    Raises:
        MissingDataError: no date is left.
    """
    months = sorted(set(_months_of(truth, without_years).values()))
    if not months:
        raise MissingDataError("truth", ["dates in other years than those that are scored"])
    quantiles = []
    for month in months:
        fields = [field for _, field in _fields_by_month(truth, without_years, only=month)]
        quantiles.append(quantiles_of_dates(np.stack(fields), levels))
    found = _by_month(truth, np.moveaxis(np.stack(quantiles), 1, -1), months, "quantile_level")
    return found.assign_coords(quantile_level=list(levels))


def quantiles_of_dates(
    values: npt.NDArray[np.floating], levels: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Return quantiles (L, H, W) of the dates (D, H, W) with a value at each point."""
    values = values.astype(np.float64)
    quantiles: npt.NDArray[np.float64] = np.quantile(values, levels, axis=0)
    gaps = np.isnan(values).any(0)  # nanquantile takes a Python call at each point
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # points without any value
        quantiles[:, gaps] = np.nanquantile(values[:, gaps], levels, axis=0)
    return quantiles


def _by_month(
    truth: xr.DataArray, values: npt.NDArray[Any], months: list[int], *more: str
) -> xr.DataArray:
    grid = [dim for dim in truth.dims if dim not in ("time", "step")]
    coords = {dim: truth[dim] for dim in grid if dim in truth.coords}
    attrs = {k: v for k, v in truth.attrs.items() if k == "units"}
    return xr.DataArray(
        values, dims=("month", *grid, *more), coords={"month": months, **coords}, attrs=attrs
    )


def _months_of(truth: xr.DataArray, without_years: Iterable[int]) -> dict[tuple[int, int], int]:
    """Return the month of the date and step of each field of other years."""
    valid = xr.DataArray(valid_times(truth))
    months = valid.dt.month.to_numpy()
    places = np.argwhere(~np.isin(valid.dt.year.to_numpy(), list(without_years)))
    return {(int(date), int(step)): int(months[date, step]) for date, step in places}


def _fields_by_month(
    truth: xr.DataArray, without_years: Iterable[int], only: int | None = None
) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield the month and the values of each field of other years, read one by one."""
    grid = [dim for dim in truth.dims if dim not in ("time", "step")]
    for (date, step), month in _months_of(truth, without_years).items():
        if only in (None, month):
            place = {"time": date} | ({"step": step} if "step" in truth.dims else {})
            yield month, truth.isel(place).transpose(*grid).to_numpy()
