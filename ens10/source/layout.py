"""One layout for all gridded data: names and order of dimensions, orientation, valid times."""

from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.catalog import ACCUMULATED, VARIABLES
from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError
from ens10.identity import LEVELS_OF_AIR, level_in_name
from ens10.source.cf_times import with_cf_times
from ens10.source.kinds import without_products
from ens10.source.layouts import with_layout
from ens10.source.layouts.level_names import with_levels_of_names
from ens10.source.names import (
    NAMES_OPTION,
    TRUTH_OPTION,
    Names,
    missing_grid_reason,
    recognise_dimensions,
    recognise_variables,
    with_levels_in_hpa,
)
from ens10.source.times import (
    STORED_DATES,
    with_month_times,
    with_starts_of_hindcasts,
    with_step_numbers,
    with_valid_time,
)
from ens10.source.units import in_catalogue_units, note_assumed_units
from ens10.source.windows import with_methods_in_names, with_sums, with_windows_of_bounds
from ens10.stations import COORDINATES, SINGLE_LEVELS, has_stations, recognise_stations
from ens10.untrusted import UNREADABLE, readable

FORECAST_DIMS = ("time", "step", "level", "number", "latitude", "longitude")
_HORIZONTAL = ("latitude", "longitude")
_STANDARD_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")
_REMEDY = "Write them in units such as 'hours since 1900-01-01' of the standard calendar"
_COORDINATE_NAMES = (*FORECAST_DIMS, "valid_time", *COORDINATES)


def with_forecast_dims(dataset: xr.Dataset) -> xr.Dataset:
    """Return forecasts with the dimensions `number` and `step`, of size 1 if they lack them."""
    for dim in ("number", "step"):
        if dim not in dataset.dims:
            dataset = dataset.expand_dims({dim: [0]})
    dataset = dataset.transpose(*FORECAST_DIMS, missing_dims="ignore")
    if "step" not in dataset["valid_time"].dims:
        valid = dataset["valid_time"].expand_dims(step=[0], axis=1)
        dataset = dataset.assign_coords(valid_time=valid)
    return dataset


def read_values(dataset: xr.Dataset, where: str) -> xr.Dataset:
    """Compute lazy fields in this thread, all at once: a chunk may hold several of them.

    Args:
        dataset: the fields.
        where: source, date and step, for errors.

    Raises:
        FileError: the values of a variable cannot be read; it is named.
        ResourceError: memory or open files do not suffice.
    """
    try:
        return dataset.compute(scheduler="synchronous")
    except Exception:
        for name, field in dataset.data_vars.items():
            with readable(f"{where}, {name}", UNREADABLE, "Fetch or write it again"):
                field.compute(scheduler="synchronous")
        raise


def tidy(
    dataset: xr.Dataset,
    names: Names,
    source: Path | str,
    *,
    optional_dimensions: bool = False,
    variables: Sequence[str] | None = None,
    is_part: bool = False,
) -> xr.Dataset:
    """Convert a dataset to this package's names, order of dimensions and orientation.

    Rows run north to south, columns eastward: a round grid from the first column at or east of
    Greenwich, a regional one from its western edge, in [0, 360), or negative where it crosses 0.
    Stations are one row, see `ens10.stations`. Levels are in hPa. Variables of the catalogue are in
    its units, and precipitation is the sum since the start where the file's windows allow it. A
    warning names the variables whose units the file does not state.

    Args:
        dataset: fields over at least latitude and longitude; other variables are left out.
        names: mapping of the dataset's names to ours; well-known names that it does not contain
            are recognised, see `ens10.source.names`.
        source: where it comes from, for errors.
        optional_dimensions: True for truth, which need not have members or steps: accept a mapping
            of dimensions that the dataset lacks, name the truth's mapping in errors, and leave
            units and order of dimensions to `ens10.source.pairing.pair_truth`, which converts only
            the selected fields.
        variables: the variables to keep, so that no other is converted; None for all.
        is_part: True for a file of several, whose members with names are numbered, and whose
            precipitation is summed and converted, when they are combined (`finish`).

    Raises:
        MissingDataError: names of the mapping, or dimensions or their coordinates, are missing.
        ArgumentError: unknown dimensions, a mapping of two names to one, times that are no dates,
            or unknown units of the lead times.
        FileError: a coordinate has duplicate or missing values, units cannot be converted, or the
            dataset holds products of an ensemble alone.
    """
    with readable(source, UNREADABLE, "Fetch or write it again"):  # of what counts months
        dataset = with_month_times(dataset)
    dataset = with_layout(dataset, names)
    option = TRUTH_OPTION if optional_dimensions else NAMES_OPTION
    dataset = with_windows_of_bounds(without_products(dataset, source, names.variables), source)
    renamed = _rename(dataset, names, source, optional_dimensions)
    renamed = with_cf_times(with_starts_of_hindcasts(renamed, source), names, source)
    renamed = recognise_stations(renamed, source, require_location=not optional_dimensions)
    renamed = _rename_recognised(renamed, names)
    mapped = set(names.variables.values())
    renamed = with_methods_in_names(_with_levels_in_names(renamed, mapped), mapped)
    renamed = _select_variables(renamed, variables)
    gridded = _with_all_dims(_fields(renamed, names, source, option), names, source, option)
    _check_axes(gridded, source)
    result = with_valid_time(_orient(gridded, source), names)
    if not optional_dimensions:
        result = result.transpose(*FORECAST_DIMS, missing_dims="ignore")
        fields = {name: f for name, f in result.data_vars.items() if name not in ACCUMULATED}
        result = result.assign({n: in_catalogue_units(f, source) for n, f in fields.items()})
    result = result if is_part else finish(result, source, is_truth=optional_dimensions)
    result.encoding["source"] = str(source)
    return result


def finish(dataset: xr.Dataset, source: Path | str, *, is_truth: bool) -> xr.Dataset:
    """Sum and convert precipitation, number members that have names, and note assumed units."""
    dataset = number_members(dataset)
    if is_truth:
        return dataset
    summed = with_sums(dataset, source).data_vars
    amounts = [name for name in dataset.data_vars if name in ACCUMULATED]
    dataset = dataset.assign({name: in_catalogue_units(summed[name], source) for name in amounts})
    note_assumed_units(dataset, source)
    return dataset


def _select_variables(dataset: xr.Dataset, variables: Sequence[str] | None) -> xr.Dataset:
    """Drop all other variables, if the dataset has any of the selected ones."""
    short_names = {v.short_name: v.name for v in VARIABLES.values()}
    selected = {name for one in variables or () for name in (one, short_names.get(one, one))}
    if not selected & set(map(str, dataset.data_vars)):
        return dataset  # `Selection` raises the error
    return _drop_variables(dataset, set(dataset.data_vars) - selected - set(_COORDINATE_NAMES))


def _rename_recognised(dataset: xr.Dataset, names: Names) -> xr.Dataset:
    """Rename the well-known names of other packages to those of this package."""
    table = recognise_dimensions(dataset)
    level_alias = {dim: alias for alias, dim in (names.dimensions | table).items()}.get("level", "")
    dataset = with_levels_in_hpa(dataset.rename(table), level_alias)
    dataset = with_levels_of_names(dataset, names.variables.values())
    if names.variables:  # the mapping names all variables that are kept
        return dataset
    return dataset.rename(recognise_variables(dataset))


def _with_levels_in_names(dataset: xr.Dataset, mapped: Collection[str]) -> xr.Dataset:
    """Return a dataset whose upper-air fields off pressure levels have the level in their names.

    The level is that of cfgrib's attribute `GRIB_typeOfLevel`, or of a coordinate of one height.
    """
    table = {}
    for name, field in dataset.data_vars.items():
        if name in mapped or "level" in field.coords or "latitude" not in field.dims:
            continue
        stated = field.attrs.get("GRIB_typeOfLevel")
        levels = [stated] if stated else [c for c in LEVELS_OF_AIR if c in field.coords]
        if levels and (stated or name in VARIABLES):
            value = field.coords.get(levels[0], xr.DataArray(0.0))
            text = level_in_name(str(name), levels[0], float(value.max()))
            table[name] = f"{name}{text}"
    return dataset.rename({old: new for old, new in table.items() if new != old})


def _rename(
    dataset: xr.Dataset, names: Names, source: Path | str, optional_dimensions: bool
) -> xr.Dataset:
    for dim in names.dimensions.values():
        if dim not in _COORDINATE_NAMES:
            raise UnknownNameError("names: dimension", dim, _COORDINATE_NAMES)
    check_mapping(names, _all_names(dataset), source, optional_dimensions=optional_dimensions)
    if names.variables:
        dropped_names = set(dataset.data_vars) - set(names.variables) - set(names.dimensions)
    else:
        dropped_names = set(dataset.data_vars) & set(names.truth)
    reduced = _drop_variables(dataset, dropped_names)
    remaining = _all_names(reduced)
    table = {
        old: new for old, new in {**names.variables, **names.dimensions}.items() if old in remaining
    }
    new_names = [table.get(name, name) for name in sorted(remaining)]
    duplicates = sorted({name for name in new_names if new_names.count(name) > 1})
    if duplicates:
        aliases = [name for name in sorted(remaining) if table.get(name, name) == duplicates[0]]
        raise ArgumentError(
            "names",
            f"{' and '.join(aliases)} of {source} would both be {duplicates[0]}",
            "Map one of them alone",
        )
    return reduced.rename({old: new for old, new in table.items() if old != new})


def check_mapping(
    names: Names, present: Collection[str], source: Path | str, *, optional_dimensions: bool
) -> None:
    """Refuse a mapping of names that are not present; new forecasts need no truth.

    Raises:
        MissingDataError: the names are listed.
    """
    dimensions = {} if optional_dimensions else names.dimensions
    missing = [n for n in {**names.variables, **dimensions} if n not in present]
    if missing:
        raise MissingDataError(source, missing, f"It holds {', '.join(sorted(present))}")


def _drop_variables(dataset: xr.Dataset, variables: Iterable[Hashable]) -> xr.Dataset:
    """Drop variables, and the dimensions that only they have.

    Truth in the file of the forecasts may have another time axis, which the mapping also renames
    to `time`.
    """
    reduced = dataset.drop_vars(variables)
    field_dims = {dim for field in reduced.data_vars.values() for dim in field.dims}
    unused_dims = {dim for name in variables for dim in dataset[name].dims} - field_dims
    return reduced.drop_dims(unused_dims & set(reduced.dims))


def _all_names(dataset: xr.Dataset) -> set[str]:
    return {str(name) for name in (*dataset.variables, *dataset.dims)}


def _fields(dataset: xr.Dataset, names: Names, source: Path | str, option: str) -> xr.Dataset:
    """Return the variables over latitude and longitude, without coordinates of unknown names.

    A variable that has a dimension twice, such as a covariance, is left out.

    Raises:
        MissingDataError: latitude or longitude is missing, or no variable lies over both.
        ArgumentError: the variables have unknown dimensions.
    """
    dataset = dataset.set_coords([name for name in _COORDINATE_NAMES if name in dataset.data_vars])
    dataset = dataset.drop_vars([name for name in dataset.coords if name not in _COORDINATE_NAMES])
    remedy = f"Map the file's dimensions with {option} FILE"
    missing_dims = [d for d in _HORIZONTAL if d not in dataset.dims]
    if missing_dims:
        reason = missing_grid_reason(dataset)
        raise MissingDataError(source, missing_dims, reason or remedy)
    off_grid = [
        str(name)
        for name, field in dataset.data_vars.items()
        if not set(_HORIZONTAL) <= set(field.dims) or len(set(field.dims)) < field.ndim
    ]
    requested = [name for name in off_grid if name in names.variables.values()]
    if requested or len(off_grid) == len(dataset.data_vars):
        missing = [f"latitude or longitude of {name}" for name in requested] or [
            "fields over the grid"
        ]
        raise MissingDataError(source, missing, remedy)
    fields = dataset.drop_vars(off_grid)
    field_dims = {dim for field in fields.data_vars.values() for dim in field.dims}
    fields = fields.drop_dims(set(fields.dims) - field_dims)  # of variables that were left out
    single_levels = [name for name in SINGLE_LEVELS if fields.sizes.get(name) == 1]
    fields = fields.squeeze(single_levels, drop=True)
    unknown_dims = [str(d) for d in fields.dims if d not in FORECAST_DIMS]
    if unknown_dims:
        raise ArgumentError(
            "names",
            f"{source} has dimensions that mean nothing here: {', '.join(unknown_dims)}",
            f"Map them to {', '.join(FORECAST_DIMS)} with {option} FILE",
        )
    return fields


def _with_all_dims(
    dataset: xr.Dataset, names: Names, source: Path | str, option: str
) -> xr.Dataset:
    """Expand scalar coordinates to dimensions, number members, convert steps to numbers."""
    if "level" in dataset.coords and "level" not in dataset.dims:
        dataset = _expand_single_level(dataset)
    for dim in ("time", "step", "number"):
        if dim in dataset.coords and dim not in dataset.dims:
            dataset = dataset.expand_dims(dim)
    if "number" in dataset.dims and "number" not in dataset.coords:
        dataset = dataset.assign_coords(number=np.arange(1, dataset.sizes["number"] + 1))
    required = ("time", *(d for d in FORECAST_DIMS if d in dataset.dims))
    missing_dims = [
        d for d in dict.fromkeys(required) if d not in dataset.coords or dataset[d].dims != (d,)
    ]
    if missing_dims:
        remedy = f"Map the file's dimensions with {option} FILE"
        raise MissingDataError(source, [f"the coordinate {d}" for d in missing_dims], remedy)
    if not np.issubdtype(dataset["time"].dtype, np.datetime64):
        raise ArgumentError("time", f"the times of {source} are {_unusable(dataset)}", _REMEDY)
    if "step" not in dataset.dims:
        return dataset
    return with_step_numbers(dataset, names, source)


def _unusable(dataset: xr.Dataset) -> str:
    """Return why times are no dates of xarray, in words."""
    dates = dataset["time"].to_numpy().ravel()
    calendar = dataset["time"].encoding.get("calendar")
    if calendar is None and dates.size:  # the file states none; xarray's objects may
        calendar = getattr(dates[0], "calendar", None)
    if calendar in _STANDARD_CALENDARS and dates.size:
        ends = " to ".join(dict.fromkeys(str(date)[:10] for date in (dates[0], dates[-1])))
        return f"{ends}, and must lie in {STORED_DATES}"
    return "no dates of the standard calendar" + (f", but of {calendar!r}" if calendar else "")


def _expand_single_level(dataset: xr.Dataset) -> xr.Dataset:
    """Expand the scalar coordinate `level` to a dimension of all fields but surface fields."""
    level = dataset["level"]
    bare = dataset.drop_vars("level")
    upper = [
        name
        for name in bare.data_vars
        if name not in VARIABLES or VARIABLES[str(name)].kind == "pl"
    ]
    if not upper:
        return bare
    level_fields = {name: bare[name].expand_dims(level=[level.item()]) for name in upper}
    result = bare.assign(level_fields)
    return result.assign_coords(level=result["level"].assign_attrs(level.attrs))


def _check_axes(dataset: xr.Dataset, source: Path | str) -> None:
    for dim in dataset.dims:
        if dataset[dim].isnull().any():
            raise FileError(source, f"{dim} holds missing values", "Correct the coordinate")
        if dim in _HORIZONTAL and dataset[dim].dtype.kind not in "iuf":
            kind = {"M": "dates", "m": "durations"}.get(dataset[dim].dtype.kind, "no numbers")
            raise FileError(source, f"{dim} holds {kind}, not degrees", "Correct it or its units")
        values, counts = np.unique(dataset[dim].to_numpy(), return_counts=True)
        if (counts > 1).any():
            duplicates = ", ".join(str(value) for value in values[counts > 1][:5])
            raise FileError(
                source, f"{dim} holds {duplicates} more than once", "Remove one of the two"
            )


def number_members(dataset: xr.Dataset) -> xr.Dataset:
    """Number members that have names: 1 to n in their order; `labels` are their names."""
    if "number" not in dataset.coords or dataset["number"].dtype.kind not in "OSUT":
        return dataset
    labels = [str(label) for label in dataset["number"].to_numpy().tolist()]
    numbers = np.arange(1, len(labels) + 1)
    return dataset.assign_coords(number=("number", numbers, {"labels": labels}))


def _without_repeated_columns(dataset: xr.Dataset, source: Path | str) -> xr.Dataset:
    """Drop columns at the place of another one, as at 0 and 360 E, whose values must be equal.

    Values of dask arrays are compared when they are computed, those in a file at the first date.

    Raises:
        FileError: the values differ.
    """
    east = dataset["longitude"].to_numpy().astype(np.float64).round(6) % 360.0
    _, first, place = np.unique(east, return_index=True, return_inverse=True)
    repeated = [n for n in range(east.size) if first[place[n]] != n]
    if not repeated:
        return dataset
    kept = dataset.isel(longitude=[n for n in range(east.size) if n not in repeated])
    for n in repeated:
        pair = dataset.isel(longitude=[int(first[place[n]]), n])
        check = partial(_check_equal, source, pair["longitude"].to_numpy().tolist())
        kept = kept.assign(
            {
                name: _with_check(kept[name], pair[name], check)
                for name in kept.data_vars
                if "longitude" in kept[name].dims
            }
        )
    return kept


def _with_check(field: xr.DataArray, pair: xr.DataArray, check: Any) -> xr.DataArray:
    if field.chunks is None:
        dims = () if field.variable._in_memory else ("time", "step")
        first = pair.isel({dim: 0 for dim in dims if dim in pair.dims})
        check(field, *(first.isel(longitude=n).to_numpy() for n in (0, 1)))
        return field
    columns = [pair.isel(longitude=n, drop=True) for n in (0, 1)]
    bare = field.drop_vars("longitude")
    checked = xr.apply_ufunc(
        check, bare, *columns, dask="parallelized", output_dtypes=[field.dtype]
    )
    return field.copy(data=checked.transpose(*field.dims).data)


def _check_equal(
    source: Path | str, longitudes: list[float], field: Any, column: Any, other: Any
) -> Any:
    """Return `field` if two columns are equal, missing values included."""
    if not np.array_equal(column, other, equal_nan=True):
        first, second = longitudes
        raise FileError(
            source,
            f"its columns at {first:g} and {second:g} E are one place, and their values differ",
            "Correct them, or drop one of the two",
        )
    return field


def _orient(dataset: xr.Dataset, source: Path | str) -> xr.Dataset:
    """Sort times and steps in ascending order, rows north to south and columns eastward."""
    for dim in ("time", "step"):
        if dim in dataset.dims and not dataset.indexes[dim].is_monotonic_increasing:
            dataset = dataset.sortby(dim)
    if has_stations(dataset):
        return dataset
    if not dataset.indexes["latitude"].is_monotonic_decreasing:
        southward = dataset.isel(latitude=slice(None, None, -1))  # reads faster than a list
        rising = dataset.indexes["latitude"].is_monotonic_increasing
        dataset = southward if rising else dataset.sortby("latitude", ascending=False)
    dataset = _without_repeated_columns(dataset, source)
    old_longitude = dataset["longitude"].to_numpy()
    order, longitude = eastward(old_longitude)
    if not np.array_equal(order, np.arange(order.size)):
        dataset = dataset.isel(longitude=order)
    if np.array_equal(longitude, old_longitude):
        return dataset
    return dataset.assign_coords(longitude=("longitude", longitude, dataset["longitude"].attrs))


def eastward(longitude: npt.ArrayLike) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return the order of columns from west to east, and their longitudes in that order.

    Args:
        longitude: shape (W,), degrees east, in any order and counted from anywhere.

    Returns:
        Indices, shape (W,), and rising longitudes, shape (W,); see `tidy` for where they begin.
    """
    degrees = np.asarray(longitude)
    east = degrees.astype(np.float64).round(6) % 360.0
    order = np.argsort(east)
    gaps = np.diff(east[order], append=east[order[0]] + 360.0)
    target = east[order]
    if gaps.max() > 1.5 * gaps.min() or gaps.size == 1:
        first = (int(gaps.argmax()) + 1) % gaps.size
        target[first:] -= 360.0 if first else 0.0
        order, target = np.roll(order, -first), np.roll(target, -first)
    turns = np.round((target - degrees[order]) / 360.0)
    return order, degrees[order] + (360.0 * turns).astype(degrees.dtype)


def as_truth(dataset: xr.Dataset) -> xr.Dataset:
    """Drop the dimensions step and number, if of size 1, from a dataset of truth.

    Raises:
        ArgumentError: the dataset holds several members.
    """
    if dataset.sizes.get("number", 1) > 1:
        raise ArgumentError(
            "truth",
            f"it holds {dataset.sizes['number']} members, and truth is one field",
            "Pass an analysis, or choose one member",
        )
    drop: Sequence[str] = [d for d in ("step", "number") if dataset.sizes.get(d) == 1]
    return dataset.squeeze(drop, drop=True) if drop else dataset
