"""Quantiles of the model climate of any dates: computed lazily, or read from a store."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import xarray as xr
from dask.base import tokenize

from ens10.channels import resolve
from ens10.climate import years_of
from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.protocol import Protocol, check_window, protocol_of
from ens10.quantiles.members import Members, members_of, quantiles_of
from ens10.quantiles.options import ANY_YEAR, ClimateDates, month_days_of, quantile_levels
from ens10.stations import coordinates
from ens10.store import open_store


def stored_climate(
    store: Path | str, channel: str, dates: npt.ArrayLike, *, step: float
) -> xr.DataArray:
    """Read the model-climate quantiles of start dates from STORE/climate, lazily.

    Args:
        store: a store prepared with climate.
        channel: such as "t2m" or "z500".
        dates: start dates.
        step: lead time of the forecasts.

    Returns:
        Quantiles over (time, quantile, latitude, longitude), as `model_climate` computes them.

    Raises:
        MissingDataError: the store has no climate, or none for these dates.
        UnknownNameError: no such channel or step.
        ArgumentError: dates in the climate years, which would be compared with themselves; or a
            step that is not in hours.
    """
    climate = open_store(store, "climate")
    field = climate[resolve(channel, [str(name) for name in climate.data_vars])]
    steps = climate["step"].to_numpy().tolist()
    if step not in steps:
        raise UnknownNameError("step", step, steps)
    start: npt.NDArray[np.datetime64] = np.atleast_1d(np.asarray(dates)).astype("M8[s]")
    valid: npt.NDArray[Any] = start + np.timedelta64(_seconds(climate["step"], step), "s")
    month_days = climate["month_day"].to_numpy().tolist()
    names = month_days_of(start)
    missing = sorted({name for name in names if name not in month_days})
    if missing:
        remedy = "Prepare the store again"
        raise MissingDataError(store, [f"the climate of {d}" for d in missing], remedy)
    year = _judged_year_positions(store, climate, years_of(valid).tolist())
    selection = field.isel(
        step=steps.index(step),
        month_day=xr.DataArray([month_days.index(name) for name in names], dims="time"),
        judged_year=xr.DataArray(year, dims="time"),
    )
    quantiles = selection.drop_vars(["month_day", "judged_year", "step"])
    return quantiles.assign_coords(time=("time", start.astype("M8[ns]")))


def _seconds(steps: xr.DataArray, step: float) -> int:
    units = steps.attrs.get("units", "h")
    if units != "h":
        raise ArgumentError("step", f"in {units}, not hours", "Use model_climate")
    return round(step * 3600)


def _judged_year_positions(store: Path | str, climate: xr.Dataset, years: list[int]) -> list[int]:
    """Return the position along `judged_year` of the climate for each valid year."""
    judged = climate["judged_year"].to_numpy().tolist()
    if judged == [ANY_YEAR]:
        shared_years = sorted(set(years) & set(np.atleast_1d(climate.attrs["years"]).tolist()))
        if shared_years:
            reason = f"{shared_years} are among the climate years"
            raise ArgumentError("dates", reason, "Use model_climate, which leaves them out")
        return [0] * len(years)
    missing = sorted({year for year in years if year not in judged})
    if missing:
        remedy = "Use model_climate"
        raise MissingDataError(store, [f"the climate for {year}" for year in missing], remedy)
    return [judged.index(year) for year in years]


_BLOCK_BYTES = 128 << 20  # of members in a task


def model_climate(
    source: Path | str | xr.DataArray,
    channel: str | None = None,
    *,
    step: float | None = None,
    dates: npt.ArrayLike | None = None,
    protocol: str | Protocol = "clean",
    levels: int | None = None,
    window: int | None = None,
) -> xr.DataArray:
    """Return model-climate quantiles of start dates, by the rules of `ens10.quantiles.options`.

    Nothing is read until the result is computed; each task then reads some rows of the members of
    one window, at most 128 MiB (or one row).

    Args:
        source: a store, or its members as an array over (time[, step], number, latitude,
            longitude) with the coordinate `valid_time`.
        channel: channel of the store, such as "t2m" or "z500".
        step: lead time; optional if there is only one.
        dates: start dates whose climate is computed; None for all of the data. They need not be
            in the data, but the data's calendar must have their month-days.
        protocol: "clean", "paper", a YAML file, or a `Protocol`.
        levels: number of evenly spaced levels from 0 to 1; None for the protocol's.
        window: dates of the calendar, an odd number; None for the protocol's.

    Returns:
        Quantiles over (time, quantile, latitude, longitude), float32, in the units of the members;
        NaN members are left out. The coordinate `members` is the sample size of each date.

    Raises:
        ArgumentError: dates that have no climate.
        UnknownNameError: no such channel, step or protocol.
    """
    members = members_of(source, channel, step)
    rules = protocol_of(protocol)
    level_values = quantile_levels(levels, rules)
    window = rules.efi.window if window is None else window
    check_window(window)
    field = members.field
    starts, valid = (field[name].to_numpy().astype("M8[s]") for name in ("time", "valid_time"))
    climate = ClimateDates(starts, valid, rules, window)
    judged = starts if dates is None else np.atleast_1d(np.asarray(dates)).astype("M8[s]")
    positions = [climate.climate_dates(s, _valid_date(s, field, starts, valid)) for s in judged]
    data = _lazy_quantiles(members, positions, level_values)
    counts = [len(indices) * field.sizes["number"] for indices in positions]
    dims = ("time", "quantile", "latitude", "longitude")
    axes = (judged.astype("M8[ns]"), level_values, field["latitude"], field["longitude"])
    coords = {**dict(zip(dims, axes, strict=True)), "members": ("time", counts)}
    attributes = {**field.attrs, "protocol": rules.name, "window": window, "method": "linear"}
    name = str(field.name or "members")
    return xr.DataArray(data, {**coords, **coordinates(field)}, dims, name, attributes)


def _valid_date(
    start: np.datetime64, field: xr.DataArray, starts: npt.NDArray[Any], valid: npt.NDArray[Any]
) -> np.datetime64:
    """Return the valid date of a start date, which need not be in the data."""
    matches = np.flatnonzero(starts == start)
    if matches.size:
        valid_date: np.datetime64 = valid[matches[0]]
        return valid_date
    lead_times = np.unique(valid - starts)
    if lead_times.size > 1:
        name = str(field.name or "the data")
        reason = f"{name} has no {str(start)[:10]}, and steps of changing length"
        raise ArgumentError("dates", reason, "Leave it out")
    shifted_date: np.datetime64 = start + lead_times[0]
    return shifted_date


def _block(
    members: Members, positions: Sequence[npt.NDArray[np.int64]],
    levels: npt.NDArray[np.float64], height: int, block_info: Any = None,
) -> npt.NDArray[np.float32]:  # fmt: skip
    """Compute one date and some rows of the result; shape (1, quantiles, rows, columns)."""
    date, _, n, _ = block_info[None]["chunk-location"]
    shape = block_info[None]["chunk-shape"]
    rows = slice(n * height, n * height + shape[2])
    parts = [members.read(int(position), rows) for position in positions[date]]
    return quantiles_of(parts, levels).reshape(shape)


def _lazy_quantiles(
    members: Members, positions: Sequence[npt.NDArray[np.int64]], levels: npt.NDArray[np.float64]
) -> da.Array:
    sizes = members.field.sizes
    max_members = max(len(indices) for indices in positions) * sizes["number"]
    rows = rows_within(_BLOCK_BYTES, max_members * sizes["longitude"] * 4, sizes["latitude"])
    heights = [min(rows, sizes["latitude"] - first) for first in range(0, sizes["latitude"], rows)]
    chunks = ((1,) * len(positions), (levels.size,), tuple(heights), (sizes["longitude"],))
    name = "climate-" + tokenize(members.token, positions, levels)
    meta = np.empty((0, 0, 0, 0), np.float32)
    block = partial(_block, members, positions, levels, rows)
    array: da.Array = da.map_blocks(  # type: ignore[no-untyped-call]
        block, chunks=chunks, dtype=np.float32, meta=meta, name=name
    )
    return array


def rows_within(budget: int, row_bytes: int, rows: int) -> int:
    """Return the number of rows that fit a budget of bytes: at least one, at most all."""
    return max(1, min(rows, budget // max(row_bytes, 1)))
