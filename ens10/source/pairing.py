"""Pair forecasts with truth: the same valid dates, grid points, variables and levels."""

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, DataNote, FileError, MissingDataError, listing
from ens10.source.layout import as_truth
from ens10.source.names import TRUTH_OPTION
from ens10.source.regridding import Regrid, regrid_truth
from ens10.source.truth_windows import (
    at_positions,
    chunk_by_date,
    seconds_of,
    sums_of_truth,
    times_of_truth,
)
from ens10.source.units import in_catalogue_units
from ens10.stations import STATION, coordinates, has_stations, station_columns

_TOLERANCE_HPA = 1e-6


def select_truth_fields(
    forecasts: xr.Dataset, truth: xr.Dataset, source: str, variables: Sequence[str] | None
) -> xr.Dataset:
    """Return the variables and levels of the truth that the forecasts have too.

    Args:
        forecasts: in this package's layout.
        truth: likewise, without members.
        source: where the truth comes from, for errors.
        variables: names to keep; None for those that both have.

    Raises:
        MissingDataError: the truth lacks some of `variables`, or has none of the forecasts'.
        ArgumentError: only one of the two has levels, or they have none in common.
        FileError: a field has no dates.
    """
    names = _truth_names(forecasts, truth, source, variables)
    truth_fields = truth[names]
    dateless = [str(name) for name in names if "time" not in truth[name].dims]
    if dateless:
        raise FileError(
            source, f"{', '.join(dateless)} has no dates", "Pass truth with a time coordinate"
        )
    for name in names:
        if name in forecasts and ("level" in forecasts[name].dims) != (
            "level" in truth_fields[name].dims
        ):
            side = "the forecasts" if "level" in forecasts[name].dims else "the truth"
            raise ArgumentError(
                "truth",
                f"{name} has levels in {side} alone ({source})",
                f"Write its level as a coordinate in hPa, or map others with {TRUTH_OPTION} FILE",
            )
    return _select_common_levels(forecasts, truth_fields, source)


def _truth_names(
    forecasts: xr.Dataset, truth: xr.Dataset, source: str, variables: Sequence[str] | None
) -> list[Hashable]:
    fields = ", ".join(map(str, truth.data_vars))
    if variables is not None:
        missing_names = [name for name in variables if name not in truth.data_vars]
        if missing_names:
            raise MissingDataError(source, missing_names, f"The truth holds {fields}")
        return list(variables)
    names = [name for name in truth.data_vars if name in forecasts.data_vars]
    if not names:
        raise MissingDataError(
            source,
            [f"truth of any of {', '.join(map(str, forecasts.data_vars))}"],
            f"It holds {fields}; map their names with {TRUTH_OPTION} FILE",
        )
    return names


def _select_common_levels(forecasts: xr.Dataset, truth: xr.Dataset, source: str) -> xr.Dataset:
    if "level" not in truth.dims or "level" not in forecasts.dims:
        return truth
    truth_levels, forecast_levels = truth["level"].to_numpy(), forecasts["level"].to_numpy()
    distance = np.abs(forecast_levels[:, None].astype(np.float64) - truth_levels[None, :])
    is_common = distance.min(axis=1) <= _TOLERANCE_HPA
    if not is_common.any():
        raise _levels_error("levels", truth_levels, forecast_levels, source)
    places = distance.argmin(axis=1)[is_common]
    aligned = truth
    if not np.array_equal(places, np.arange(truth_levels.size)):
        aligned = truth.isel(level=places).assign_coords(level=forecasts["level"][is_common])
    levels_of = {name: _shared_levels(truth, forecasts, name, source) for name in aligned.data_vars}
    return aligned.assign(
        {name: aligned[name].assign_attrs(levels_hpa=own) for name, own in levels_of.items() if own}
    )


def _shared_levels(
    truth: xr.Dataset, forecasts: xr.Dataset, name: Hashable, source: str
) -> list[float]:
    """Return the levels that a variable has in both datasets; [] if it lacks none of their axes.

    Raises:
        ArgumentError: there are none.
    """
    sides = [
        side[name] for side in (truth, forecasts) if name in side and "level" in side[name].dims
    ]
    if not any("levels_hpa" in side.attrs for side in sides):
        return []
    levels_of = [
        np.atleast_1d(side.attrs.get("levels_hpa", side["level"].to_numpy())) for side in sides
    ]
    common = [level for level in levels_of[0].tolist() if level in levels_of[-1].tolist()]
    if not common:
        raise _levels_error(f"levels of {name}", levels_of[0], levels_of[-1], source)
    return common


def _levels_error(
    what: str, levels: npt.NDArray[Any], others: npt.NDArray[Any], source: str
) -> ArgumentError:
    own, of_forecasts = (", ".join(f"{level:g}" for level in side) for side in (levels, others))
    return ArgumentError(
        "truth",
        f"its {what} ({own} hPa, {source}) are none of the forecasts' ({of_forecasts} hPa)",
        f"Pass truth on these levels, or name what to take with {TRUTH_OPTION} FILE",
    )


_GRID = ("latitude", "longitude")
_TOLERANCE_DEGREES = 1e-3
# The truth covers a step if at least this share of the step's valid dates has truth. Valid dates of
# other steps coincide with a few dates of truth (31 December + 48 h, 1 January + 24 h).
_MIN_TRUTH_SHARE = 0.5


def pair_truth(
    forecasts: xr.Dataset,
    truth: xr.Dataset,
    missing: Literal["error", "nan", "skip"] = "error",
    variables: Sequence[str] | None = None,
    regrid: Regrid | None = None,
) -> xr.Dataset:
    """Return the truth at the forecasts' valid dates, grid points and levels.

    Only coordinates are read. Fields stay lazy, and are converted to the catalogue's units.

    Truth of precipitation, and of other means and sums of a window, is computed for exactly the
    forecasts' windows, see `ens10.source.truth_windows`.

    Args:
        forecasts: with `valid_time` over (time, step).
        truth: over (time, ...) with analysis times, or over (time, step, ...) as the forecasts.
        missing: what to do about valid dates without truth: "error", "nan" or "skip".
        variables: variables of the truth to keep; None for those that the forecasts have too.
            The levels are those that both have.
        regrid: "bilinear" or "conservative" to interpolate the truth to the forecasts' grid (see
            `ens10.source.regridding.regrid_truth`); None for truth at the forecasts' points.

    Returns:
        Dataset over (time, step[, level], latitude, longitude), with the steps that have truth and,
        if dates were skipped, the remaining times. Interpolated fields have the attribute
        `regridded`.

    Raises:
        MissingDataError: valid dates without truth, all of which are listed; or missing variables.
        ArgumentError: the truth's grid does not contain the forecasts' points, the truth has
            several members, none of its levels is one of the forecasts, precipitation is of an
            unknown period, or `regrid` is given for stations.
        FileError: units of the truth that cannot be converted.
    """
    source = truth.encoding.get("source", "truth")
    analyses = "step" in truth.coords and not truth["step"].to_numpy().any()
    truth = select_truth_fields(forecasts, as_truth(truth), source, variables)
    if regrid and (has_stations(forecasts) or has_stations(truth)):
        raise ArgumentError("regrid", "stations are not interpolated", "Omit the option")
    picks = {} if regrid else _grid_indices(truth, forecasts)
    position = _positions(forecasts, truth)
    has_truth = position >= 0
    sums = sums_of_truth(forecasts, truth, source, analyses=analyses)
    if len(sums) == len(truth.data_vars):  # no field of the valid time itself is needed
        has_truth = has_truth | np.any([one.has_windows for one in sums], axis=0)
    steps = _covered_steps(has_truth)
    has_truth &= np.all([one.has_windows for one in sums], axis=0)
    gaps = {place: text for one in sums for place, text in one.gaps.items()}
    times = _start_indices(forecasts, truth, has_truth, steps, missing, gaps)
    others = truth.drop_vars([one.name for one in sums])
    parts = [one.compute(times, steps) for one in sums]
    if others.data_vars:
        parts.append(_select_positions(others, position[np.ix_(times, steps)]))
    fields = xr.merge(parts, compat="override", join="override").isel(picks)
    if regrid:
        fields = regrid_truth(fields, forecasts, regrid)
    forecast_part = forecasts.isel(time=times, step=steps)
    names = ("latitude", "longitude", "time", "step", "valid_time", *coordinates(forecast_part))
    return _convert_to_catalogue(fields, source).assign_coords(
        {name: forecast_part[name] for name in names}
    )


def on_grid(truth: xr.Dataset, forecasts: xr.Dataset) -> xr.Dataset:
    """Return the truth at the forecasts' grid points, which must be among those of the truth."""
    result = truth.isel(_grid_indices(truth, forecasts))
    return result.assign_coords({dim: forecasts[dim] for dim in (*_GRID, *coordinates(forecasts))})


def _grid_indices(
    truth: xr.Dataset, forecasts: xr.Dataset
) -> dict[str, slice | npt.NDArray[np.int64]]:
    """Return rows and columns of the truth that are the forecasts' grid points or stations."""
    if has_stations(forecasts) or has_stations(truth):
        columns = station_columns(forecasts, truth, "truth")
        _note_other_stations(truth, columns)
        return {"longitude": _as_slice(columns)}
    picks: dict[str, slice | npt.NDArray[np.int64]] = {}
    for dim, period in (("latitude", None), ("longitude", 360.0)):
        targets, points = forecasts[dim].to_numpy(), truth[dim].to_numpy()
        distance = targets[:, None].astype(np.float64) - points[None, :]
        if period:
            distance = (distance + period / 2) % period - period / 2
        distance = np.abs(distance)
        if distance.min(axis=1).max() > _TOLERANCE_DEGREES:
            raise ArgumentError(
                "truth",
                f"its {dim}s ({points[0]:g} to {points[-1]:g}, {points.size}) do not contain those "
                f"of the forecasts ({targets[0]:g} to {targets[-1]:g}, {targets.size})",
                "Interpolate it with --regrid bilinear or conservative (`regrid=` in Python), or "
                "pass truth on the same grid or on one that contains its points",
            )
        picks[dim] = _as_slice(distance.argmin(axis=1))
    return picks


def _note_other_stations(truth: xr.Dataset, columns: npt.NDArray[np.int64]) -> None:
    """Name the stations of the truth that no forecast is for."""
    others = [str(name) for name in np.delete(truth[STATION].to_numpy(), columns).tolist()]
    if others:
        count = f"{len(others)} of {truth.sizes['longitude']} stations of the truth"
        note = f"{count} have no forecasts, and are left out: {listing(others)}"
        warnings.warn(note, DataNote, stacklevel=2)


def _as_slice(index: npt.NDArray[np.int64]) -> slice | npt.NDArray[np.int64]:
    """Return regular indices as a slice, which files read much faster than a list."""
    strides = np.unique(np.diff(index))
    if strides.size != 1 or strides[0] <= 0:
        return index
    return slice(int(index[0]), int(index[-1]) + 1, int(strides[0]))


def _positions(forecasts: xr.Dataset, truth: xr.Dataset) -> npt.NDArray[np.int64]:
    """Return the position of the truth of each valid time, shape (time, step), -1 for none.

    Positions count along time, or row by row over (time, step). A field of the forecast's own start
    and step has priority over other fields of the same valid time.
    """
    valid_times, available = (
        seconds_of(forecasts["valid_time"]),
        seconds_of(times_of_truth(truth)).ravel(),
    )
    position = _find_times(valid_times, available)
    if "step" in truth.dims:
        rows = truth.indexes["time"].get_indexer(forecasts.indexes["time"])[:, None]
        columns = truth.indexes["step"].get_indexer(forecasts.indexes["step"])[None, :]
        exact = np.where((rows >= 0) & (columns >= 0), rows * truth.sizes["step"] + columns, -1)
        is_exact = (exact >= 0) & (available[exact.clip(0)] == valid_times)
        position = np.where(is_exact, exact, position)
    return position


def _find_times(
    requested_times: npt.NDArray[np.int64], available: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the index of each requested time among those that are available, -1 for none."""
    order = np.argsort(available, kind="stable")
    place = np.searchsorted(available, requested_times, side="right", sorter=order) - 1
    position = order[place.clip(0)]
    return np.where((place >= 0) & (available[position] == requested_times), position, -1)


def _covered_steps(has_truth: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the indices of the steps that the truth covers; see `_MIN_TRUTH_SHARE`.

    If it covers no step, those with the largest share of valid dates with truth.

    Args:
        has_truth: shape (time, step).
    """
    share = has_truth.mean(axis=0)
    return np.flatnonzero(share >= min(_MIN_TRUTH_SHARE, share.max()))


def _start_indices(
    forecasts: xr.Dataset,
    truth: xr.Dataset,
    has_truth: npt.NDArray[np.bool_],
    steps: npt.NDArray[np.int64],
    missing: Literal["error", "nan", "skip"],
    gaps: Mapping[tuple[int, int], str],
) -> npt.NDArray[np.int64]:
    """Return the indices of the start dates to keep.

    Args:
        forecasts: with `valid_time` over (time, step).
        truth: for the error.
        has_truth: shape (time, step).
        steps: indices of the covered steps.
        missing: "error", "nan" or "skip".
        gaps: the first missing part of sums, by index of date and step, for the error.

    Raises:
        MissingDataError: valid dates without truth; all are listed.
    """
    complete = has_truth[:, steps].all(axis=1)
    if complete.all() or (missing == "nan" and has_truth.any()):
        return np.arange(len(has_truth))
    if missing == "skip" and complete.any():
        return np.flatnonzero(complete)
    names = forecasts["step"].to_numpy()[steps]
    dates = forecasts["valid_time"].to_numpy()[:, steps]
    units = forecasts["step"].attrs.get("units", "h")
    remedy = (
        "Add the truth of these valid dates, leave them out with --missing skip, or fill them with "
        "--missing nan"
    )
    if not has_truth.any() and not gaps:
        truth_dates = times_of_truth(truth).to_numpy()
        remedy = (
            f"The truth's own dates, {str(truth_dates.min())[:13]} to "
            f"{str(truth_dates.max())[:13]}, are none of them: give it a time dimension of valid "
            "dates, or the forecasts' start and lead dimensions both"
        )
    raise MissingDataError(
        "truth",
        [
            f"{str(dates[i, j])[:13]} (step {names[j]} {units}{gaps.get((i, int(steps[j])), '')})"
            for i, j in np.argwhere(~has_truth[:, steps]).tolist()
        ],
        remedy,
    )


def _select_positions(truth: xr.Dataset, position: npt.NDArray[np.int64]) -> xr.Dataset:
    """Return the truth at positions of shape (time, step), see `_positions`; NaN at -1.

    It is indexed step by step, so that each step is read in the order of the file.
    """
    bare = truth.drop_vars([c for c in truth.coords if c not in (*_GRID, "level")])
    parts = []
    for column in position.T:
        part = at_positions(bare, xr.DataArray(column.clip(0), dims="time")).map(chunk_by_date)
        has_truth = xr.DataArray(column >= 0, dims="time")
        parts.append(part if has_truth.all() else part.where(has_truth))
    result: xr.Dataset = xr.concat(parts, "step", coords="minimal", compat="override")
    return result


def _convert_to_catalogue(truth: xr.Dataset, source: str) -> xr.Dataset:
    """Convert to the catalogue's units, this package's order of dimensions, and float32."""
    fields = truth.data_vars
    converted = truth.assign(
        {name: in_catalogue_units(fields[name], source, TRUTH_OPTION) for name in fields}
    )
    order = ("time", "step", "level", *_GRID)
    return converted.transpose(*order, missing_dims="ignore").astype(np.float32)
