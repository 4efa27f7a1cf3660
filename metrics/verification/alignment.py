"""Match forecasts with the truth at the same valid times and grid points."""

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, DataNote, MissingDataError, UnknownNameError, listing
from ens10.metrics._dispatch import fill_masked
from ens10.metrics.distributions.forecast_dataset import GRID, checked_forecast
from ens10.metrics.distributions.registry import kind_of
from ens10.stations import STATION, as_row

Join = Literal["exact", "inner"]
_CLOSE_DEGREES = 1e-4  # float32 coordinates of the same grid


class LeftOutWarning(DataNote):
    """Dates were left out of a comparison, as join="inner" allows."""


@dataclass(frozen=True)
class MatchedForecast:
    """A forecast, and the positions of its valid times in the truth.

    Attributes:
        forecast: result of `checked_forecast`, restricted to the dates that have truth.
        truth: the truth, dimensions in order.
        positions: shape (dates, steps, 2), along the truth's time and step (0 without step).
    """

    forecast: xr.Dataset
    truth: xr.DataArray
    positions: npt.NDArray[np.int64]

    def observations(self, dates: slice) -> npt.NDArray[Any]:
        """Return the truth of dates, (dates, steps, levels, H, W); missing axes of length 1."""
        positions = self.positions[dates]
        n, steps = positions.shape[:2]
        level = self.forecast.sizes.get("level", 1)
        shape = (n, steps, level, *(self.forecast.sizes[d] for d in GRID))
        values: npt.NDArray[Any] = np.empty(shape, self.truth.dtype)
        for at in range(steps):
            for step in np.unique(positions[:, at, 1]):
                rows = positions[:, at, 1] == step
                when: dict[Hashable, Any] = {"time": _as_slice(positions[rows, at, 0])}
                if "step" in self.truth.dims:
                    when["step"] = int(step)
                values[rows, at] = self.truth.isel(when).to_numpy().reshape(-1, *shape[2:])
        return values

    def part(self, dates: slice) -> "MatchedForecast":
        """Return the forecast of some of the dates, with its truth."""
        return MatchedForecast(self.forecast.isel(time=dates), self.truth, self.positions[dates])


def _as_slice(positions: npt.NDArray[np.int64]) -> Any:
    """Convert consecutive positions to a slice, which is read faster than a list."""
    first = int(positions[0])
    consecutive = bool(np.array_equal(positions, np.arange(first, first + positions.size)))
    return slice(first, first + positions.size) if consecutive else positions


def match_truth(
    forecast: xr.Dataset, truth: xr.DataArray, join: Join = "exact", name: str = "forecast"
) -> MatchedForecast:
    """Match a forecast with the truth at its valid times, without reading values.

    Times are matched exactly: the forecast's `valid_time` (its `time` if it has none) with the
    truth's `valid_time` (its `time` if it has none). The truth may hold more times, in any order.

    Args:
        forecast: forecast of any kind.
        truth: over time [, step] [, level], latitude, longitude.
        join: "exact" refuses a date without truth; "inner" leaves it out and warns.
        name: name of the forecast, for errors.

    Raises:
        MissingDataError: dates, levels, or rows and columns of the grid, that the truth lacks.
        ArgumentError: wrong dimensions, units that differ, or no date in common.
        UnknownNameError: an unknown join.
    """
    if join not in get_args(Join):
        raise UnknownNameError("join", join, get_args(Join))
    checked = checked_forecast(forecast, name)
    observed = _checked_truth(checked, truth)
    _check_units(checked, observed, name)
    positions = _positions(checked, observed)
    with_truth = (positions >= 0).all(axis=(1, 2))
    missing = [str(t)[:19] for t in _valid_dates(checked)[~with_truth]]
    if missing and join == "exact":
        raise MissingDataError(
            "truth",
            missing,
            'The truth has to cover the valid date of every forecast; join="inner" leaves out '
            "the dates that it does not cover",
        )
    if not with_truth.any():
        raise ArgumentError(name, _without_truth(missing, observed))
    if missing:
        warn_left_out(len(missing), with_truth.size, "without truth", missing)
        checked, positions = checked.isel(time=with_truth), positions[with_truth]
    return MatchedForecast(checked, observed, positions)


def _without_truth(missing: list[str], truth: xr.DataArray) -> str:
    """Return why no date of a forecast is left."""
    if not missing:
        return "it holds no dates"
    if not truth.sizes["time"]:
        return "no date has truth: the truth holds no dates"
    last = str(valid_times(truth).max())[:19]
    return f"no date has truth: they are {missing[0]} to {missing[-1]}, the truth ends {last}"


def warn_left_out(number: int, total: int, reason: str, dates: list[str]) -> None:
    """Issue a `LeftOutWarning` that lists the dates left out."""
    message = f"{number} of {total} dates left out ({reason}): {listing(dates)}"
    warnings.warn(message, LeftOutWarning, stacklevel=4)


def _checked_truth(forecast: xr.Dataset, truth: xr.DataArray) -> xr.DataArray:
    truth = as_row(fill_masked(truth))
    allowed = ("time", "step", *(("level",) if "level" in forecast.dims else ()), *GRID)
    least = {d for d in allowed if d != "step"}
    if not least <= set(truth.dims) <= set(allowed):
        raise ArgumentError("truth", f"dimensions {truth.dims} instead of {('time', *GRID)}")
    check_same_grid("truth", forecast, truth)
    if "level" in forecast.dims:
        truth = truth.sel(level=_levels(forecast, truth))
    return truth.transpose(*(d for d in allowed if d in truth.dims))


def _levels(forecast: xr.Dataset, truth: xr.DataArray) -> xr.DataArray:
    missing = np.setdiff1d(forecast["level"].to_numpy(), truth["level"].to_numpy())
    if missing.size:
        raise MissingDataError("truth", [f"level {level:g}" for level in missing])
    return forecast["level"]


def _check_units(forecast: xr.Dataset, truth: xr.DataArray, name: str) -> None:
    kind = kind_of(forecast)
    arrays = {k: forecast[k] for k in kind.target_unit_variables(forecast)} | {"truth": truth}
    units = {k: v.attrs["units"] for k, v in arrays.items() if "units" in v.attrs}
    if len(set(units.values())) > 1:
        pairs = ", ".join(f"{k} in {unit}" for k, unit in units.items())
        raise ArgumentError(name, f"units differ: {pairs}", "Bring all to one unit")


def _valid_dates(forecast: xr.Dataset) -> npt.NDArray[np.datetime64]:
    """Return the dates for messages: valid dates if there is a single step, else start dates."""
    valid = valid_times(forecast)
    return valid[:, 0] if valid.shape[1] == 1 else forecast["time"].to_numpy()


def valid_times(data: xr.Dataset | xr.DataArray) -> npt.NDArray[np.datetime64]:
    """Return valid times, shape (dates, steps), in nanoseconds."""
    steps = data.sizes.get("step", 1)
    when = data["valid_time" if "valid_time" in data.coords else "time"]
    if "step" in data.dims and "valid_time" not in data.coords:
        when = when + _as_time(data["step"])
    valid = when.transpose("time", ...).to_numpy().astype("datetime64[ns]")
    rows = valid if valid.ndim == 2 else valid[:, None]
    return np.broadcast_to(rows, (len(rows), steps))


def _as_time(step: xr.DataArray) -> xr.DataArray:
    """Convert a step to a time difference; numbers are hours."""
    if step.dtype.kind == "m":
        return step
    return step.copy(data=(step.to_numpy() * 3.6e12).astype("timedelta64[ns]"))


def _positions(forecast: xr.Dataset, truth: xr.DataArray) -> npt.NDArray[np.int64]:
    truth_times = valid_times(truth)
    steps = truth_times.shape[1]
    index_of_time = {moment: divmod(i, steps) for i, moment in enumerate(truth_times.ravel())}
    forecast_times = valid_times(forecast)
    positions = [index_of_time.get(moment, (-1, -1)) for moment in forecast_times.ravel()]
    return np.array(positions, dtype=np.int64).reshape(*forecast_times.shape, 2)


def check_same_grid(
    argument: str, coordinates: xr.Dataset | Mapping[str, xr.DataArray], other: xr.DataArray
) -> None:
    """Refuse fields on different grids.

    Raises:
        MissingDataError: rows and columns that the other lacks.
        ArgumentError: other stations, or stations and a grid.
    """
    missing = []
    names = [
        [str(name) for name in one[STATION].to_numpy().tolist()] if STATION in one else None
        for one in (coordinates, other.coords)
    ]
    if names[0] != names[1]:
        places, other_places = ("a grid" if ids is None else listing(ids) for ids in names)
        remedy = "Bring both to the same stations, in one order"
        raise ArgumentError(
            argument, f"it has {other_places}, and the forecast has {places}", remedy
        )
    for name in GRID:
        values, other_values = coordinates[name].to_numpy(), other[name].to_numpy()
        if values.shape == other_values.shape and np.allclose(
            values, other_values, rtol=0, atol=_CLOSE_DEGREES
        ):
            continue
        near = np.abs(values[:, None] - other_values).min(axis=1, initial=np.inf) <= _CLOSE_DEGREES
        absent = [f"{name} {value:g}" for value in values[~near]]
        missing += absent or [f"{name} in the forecast's order and number"]
    if missing:
        raise MissingDataError(argument, missing, "Bring both to one grid")
