"""Table rows of netCDF files, and of Zarr stores that ens10 did not write."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, Ens10Error, FileError, MissingDataError
from ens10.inspection.rows import FieldStatistics, Row, format_count, format_places, format_status
from ens10.progress import track
from ens10.source import names, open_source
from ens10.source.names import NAMES_OPTION, TRUTH_OPTION
from ens10.source.netcdf_length import SIGNATURES
from ens10.source.stores import check_group, is_reference, store_of, unreadable_store
from ens10.source.tables import is_table
from ens10.source.zarr_chunks import open_zarr
from ens10.stations import STATION
from ens10.untrusted import error_text

_SUFFIXES = (".nc", ".nc4")
_OUTER = ("time", "step")
_PROGRESS_MINIMUM = 50  # dates and steps from which a progress bar is worth it
_LATITUDES = ("latitude", "lat")
_LONGITUDES = ("longitude", "lon")


def is_netcdf(file: Path) -> bool:
    """Return True if the file's signature is that of netCDF, or its suffix, but for archives."""
    with file.open("rb") as stream:
        magic = stream.read(4)
    return magic in SIGNATURES or (file.suffix in _SUFFIXES and not magic.startswith(b"PK"))


def zarr_rows(path: Path, values: bool, progress: bool, group: str = "") -> list[Row]:
    """Return one row for each variable and level of a netCDF file, Zarr store or table of stations.

    Raises:
        FileError: it cannot be read.
    """
    raw = xr.Dataset() if is_table(path) else _open_raw(path, group)
    notes = list(_orientation_notes(raw))
    try:
        dataset = open_source(path, names.Names(group=group))
    except (MissingDataError, ArgumentError) as error:
        return _raw_rows(raw, values, path, str(error))
    rows = []
    for name in dataset.data_vars:
        rows += _variable_rows(dataset[name], values, path, notes, progress)
    return rows


def _open_raw(path: Path, group: str) -> xr.Dataset:
    """Open a netCDF file or Zarr store as it is, with undecoded times."""
    is_stored = path.is_dir() or is_reference(path)
    options: dict[str, Any] = {"decode_times": False, "chunks": {}}
    try:
        if is_stored:
            return open_zarr(store_of(path), group, **options)
        return xr.open_dataset(path, engine="netcdf4", group=group or None, **options)
    except Ens10Error:
        raise
    except Exception as error:  # of damaged metadata, of a dozen kinds
        check_group(path, group, None)
        if is_stored:
            raise unreadable_store(path, error) from error
        reason = f"no netCDF file that can be read ({error_text(error)})"
        raise FileError(path, reason, "Fetch or write it again") from error


def _orientation_notes(raw: xr.Dataset) -> Iterator[str]:
    """Yield notes if the grid in the file is not in this package's orientation."""
    for name in (*_LATITUDES, *_LONGITUDES):
        if name not in raw.coords or raw[name].dims != (name,) or raw[name].size < 2:
            continue
        points = raw[name].to_numpy()
        if name in _LATITUDES and points[0] < points[-1]:
            yield "rows run south to north, put right"
        if name in _LONGITUDES and points[0] < 0 < points[-1] and np.ptp(points) > 180:
            yield f"columns begin at {points[0]:g} E, put right"


def _variable_rows(
    variable: xr.DataArray, values: bool, path: Path, notes: list[str], progress: bool
) -> list[Row]:
    """Return the rows of one variable, read once for all its levels."""
    name = str(variable.name)
    levels = variable["level"].to_numpy().tolist() if "level" in variable.dims else [None]
    statistics = [FieldStatistics(name) for _ in levels]
    outer = [dim for dim in _OUTER if dim in variable.dims]
    places = list(product(*(range(variable.sizes[dim]) for dim in outer))) if values else []
    show_bar = progress and len(places) > _PROGRESS_MINIMUM
    for place in track(places, f"inspect {name}", len(places), show_bar):
        part = variable.isel(dict(zip(outer, place, strict=True)))
        _add_fields(part, statistics, f"{path}: {name} {_format_position(part, outer, place)}")
    if "converted_from" in variable.attrs:
        notes = [f"converted from {variable.attrs['converted_from']}", *notes]
    return [_row(variable, level, s, notes) for level, s in zip(levels, statistics, strict=True)]


def _format_position(part: xr.DataArray, outer: list[str], place: tuple[int, ...]) -> str:
    """Format a position, such as "time 2016-01-04T00 step 48 (index 0, 2)"."""
    words = [f"{dim} {str(part[dim].to_numpy())[:13]}" for dim in outer]
    return " ".join(words) + f" (index {', '.join(map(str, place))})" if words else ""


def _add_fields(part: xr.DataArray, statistics: list[FieldStatistics], where: str) -> None:
    """Add the fields of one date and step to the statistics of their levels."""
    try:
        fields = part.to_numpy().astype(np.float32, copy=False)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        failure = error if isinstance(error, FileError) else _read_error(where, error)
        for level_statistics in statistics:
            level_statistics.read_errors.add(failure)
        return
    by_level = fields if "level" in part.dims else fields[None]
    for values, level_statistics in zip(by_level, statistics, strict=True):
        numbers = np.atleast_1d(part["number"].to_numpy()) if "number" in part.dims else [None]
        for number, member in zip(numbers, values.reshape(-1, *values.shape[-2:]), strict=True):
            level_statistics.add(member, where if number is None else f"{where} number {number}")


def _read_error(where: str, error: Exception) -> FileError:
    return FileError(where, f"the values cannot be read ({error})", "Fetch or write the file again")


def _row(variable: xr.DataArray, level: Any, statistics: FieldStatistics, notes: list[str]) -> Row:
    name = "surface" if level is None else f"{level:g} hPa"
    row = variable_row(variable, name, statistics, statistics.problems())
    row.note = "; ".join(notes)
    return row


def variable_row(
    variable: xr.DataArray, level: str, statistics: FieldStatistics, problems: list[str]
) -> Row:
    """Return the row of a variable on one level.

    Args:
        variable: with its coordinates.
        level: in words.
        statistics: of its fields.
        problems: descriptions of all problems but empty fields.
    """
    times, empty = variable["time"].to_numpy(), statistics.empty_fields
    if empty:
        fields = format_count(len(empty), "field")
        problems = [*problems, f"{fields} missing (without any value): {format_places(empty)}"]
    steps = np.atleast_1d(variable["step"].to_numpy()).tolist() if "step" in variable.coords else []
    row = Row(str(variable.name), level, len(times), steps=steps, missing=len(empty))
    row.first_date, row.last_date = str(times.min())[:13], str(times.max())[:13]
    row.members = int(variable.sizes.get("number", 1))
    row.units, row.grid = str(variable.attrs.get("units", "")), format_points(variable)
    row.status = format_status(problems)
    return statistics.fill(row)


def format_points(variable: xr.DataArray) -> str:
    """Format the grid of a variable, or the number of its stations."""
    if STATION in variable.coords:
        return format_count(variable[STATION].size, "station")
    return format_grid(variable["latitude"].to_numpy(), variable["longitude"].to_numpy())


def format_grid(latitude: Any, longitude: Any) -> str:
    """Format a grid, such as "361 x 720, 90 to -90 N, 0 to 359.5 E"."""
    return (
        f"{len(latitude)} x {len(longitude)}, {latitude[0]:g} to {latitude[-1]:g} N, "
        f"{longitude[0]:g} to {longitude[-1]:g} E"
    )


def _raw_rows(raw: xr.Dataset, values: bool, path: Path, reason: str) -> list[Row]:
    """Return rows of the variables of a dataset with unknown dimensions."""
    rows = []
    remedy = names.missing_grid_reason(raw) or (
        f"to prepare it, map them with {NAMES_OPTION} FILE, or as truth with {TRUTH_OPTION} FILE"
    )
    for name, variable in raw.data_vars.items():
        if variable.ndim < 2 or not np.issubdtype(variable.dtype, np.number):
            continue
        statistics = FieldStatistics("")
        row = Row(str(name), level="?", units=str(variable.attrs.get("units", "?")))
        row.note = ", ".join(f"{dim} {size}" for dim, size in variable.sizes.items())
        row.note = f"dimensions {row.note} ({remedy})"
        first = range(variable.shape[0]) if values else ()
        for n in first:
            where = f"{path}: {name} {variable.dims[0]} {n}"
            try:
                statistics.add(variable[n].to_numpy().astype(np.float32, copy=False), where)
            except (OSError, RuntimeError, TypeError, ValueError) as error:
                statistics.read_errors.add(_read_error(where, error))
        row.status = format_status(statistics.problems())
        rows.append(statistics.fill(row))
    return rows or [Row(path.name, status=reason)]
