"""Combine the datasets of several files to one, with checks for missing and duplicate fields."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ens10.catalog import ACCUMULATED
from ens10.errors import FileError, MissingDataError
from ens10.identity import SINCE_START, Method, Window, parse_windows
from ens10.source.gribs import Missing
from ens10.source.layouts.level_names import expand_levels, union_of
from ens10.source.units import unit_of
from ens10.source.windows import in_seconds, stated_window
from ens10.stations import coordinates, has_stations, station_columns

_Parts = dict[str, list[tuple[Path, xr.DataArray]]]
_GRID = ("latitude", "longitude")
_CONCATENATED_DIMS = ("time", "step", "level", "number")
_OUTER_DIMS = ("time", "step", "number")
_TOLERANCE_DEGREES = 1e-3


def combine(
    parts: Sequence[xr.Dataset], sources: Sequence[Path], missing: Missing, path: Path
) -> xr.Dataset:
    """Combine datasets of several files to one dataset.

    Args:
        parts: in the layout of `ens10.source.layout.tidy`.
        sources: path of each part.
        missing: "error" if all variables must have the same dates, steps and members, "nan" to
            fill gaps with NaN, "skip" to leave out dates with gaps. Levels may differ: the
            attribute `levels_hpa` of a variable lists those that it has.
        path: folder of all parts, for errors.

    Returns:
        The dataset, with `valid_time` where the parts have it.

    Raises:
        FileError: the parts lie on different grids, or hold the same field twice.
        MissingDataError: fields are missing, all of which are listed.
    """
    parts = _align_grids(parts, sources)
    holders: _Parts = defaultdict(list)
    for part, source in zip(parts, sources, strict=True):
        for name, field in part.data_vars.items():
            holders[str(name)].append((source, _select_present_levels(field)))
    axes = {dim: union_of(f[dim] for f in _fields(holders) if dim in f.dims) for dim in _OUTER_DIMS}
    fields = []
    for name, parts_with_field in holders.items():
        _refuse_duplicates(name, parts_with_field)
        field = _concatenate([field for _, field in _with_one_window(name, parts_with_field)])
        fields.append(_with_start(field, axes["step"]))
    gaps = _gaps(holders, axes)
    result = _merge_variables(fields, path)
    times = result["time"].to_numpy().astype(axes["time"].dtype).tolist()
    complete = [n for n, time in enumerate(times) if time not in gaps]
    if gaps and (missing == "error" or (missing == "skip" and not complete)):
        remedy = "Complete them, or accept the gaps with --missing nan or --missing skip"
        raise MissingDataError(path, [line for lines in gaps.values() for line in lines], remedy)
    return result.isel(time=complete) if gaps and missing == "skip" else result


def _with_one_window(
    name: str, parts: list[tuple[Path, xr.DataArray]]
) -> list[tuple[Path, xr.DataArray]]:
    """Return the parts of a variable with one attribute `window` that holds for all of them.

    Raises:
        FileError: parts of one lead time, or of truth, have different windows, or parts have
            different units.
    """
    first_path, first = parts[0]
    for path, field in parts:
        if unit_of(str(field.attrs.get("units"))) != unit_of(str(first.attrs.get("units"))):
            reason = f"{name} has the units {field.attrs.get('units')!r}, in {first_path}"
            remedy = "Convert one of them"
            raise FileError(path, f"{reason} {first.attrs.get('units')!r}", remedy)
    texts = {stated_window(field) for _, field in parts}
    if len(texts) == 1:
        return parts
    begins: dict[int, int] = {}
    for path, field in parts:
        if "step" not in field.coords or name not in ACCUMULATED:
            reason = f"{name} is of the windows {', '.join(map(str, texts))} in different files"
            raise FileError(path, reason, "Prepare them into different stores")
        ends = in_seconds(np.atleast_1d(field["step"].to_numpy()))
        for window in parse_windows(stated_window(field) or SINCE_START, ends, Method.SUM):
            if begins.setdefault(window.end, window.begin) != window.begin:
                reason = f"{name} at step {window.step} h is of another window than in other files"
                raise FileError(path, reason, "Prepare them into different stores")
    spans = (Window(Method.SUM, begin, end).hours for end, begin in sorted(begins.items()))
    text = f"{', '.join(spans)} h"
    return [(path, field.assign_attrs(window=text)) for path, field in parts]


def _fields(holders: _Parts) -> Iterable[xr.DataArray]:
    return (field for parts in holders.values() for _, field in parts)


def _gaps(holders: _Parts, axes: dict[str, Any]) -> dict[Any, list[str]]:
    """Return the missing fields in words, by start date."""
    gaps: dict[Any, list[str]] = defaultdict(list)
    for name, parts in holders.items():
        fields = [field for _, field in parts]
        own = axes | {"level": union_of(f["level"] for f in fields if "level" in f.dims)}
        dims = [dim for dim in _CONCATENATED_DIMS if own[dim].size and dim in fields[0].dims]
        present = np.zeros([own[dim].size for dim in dims], dtype=bool)
        for field in fields:
            places = [
                np.searchsorted(own[dim], field[dim]) if dim in field.dims else range(own[dim].size)
                for dim in dims
            ]
            present[np.ix_(*places)] = True
        if name in ACCUMULATED and "step" in dims:  # 0 at the start, with or without a field
            present[(slice(None),) * dims.index("step") + (own["step"] == 0,)] = True
        numbers: dict[tuple[Any, ...], list[str]] = defaultdict(list)
        for place in np.argwhere(~present).tolist():
            cell = {dim: own[dim][n] for dim, n in zip(dims, place, strict=True)}
            number = cell.pop("number", None)
            numbers[tuple(cell.items())].append(str(number))
        for items, members in numbers.items():
            time = dict(items).get("time")
            where = _describe(dict(items)).removeprefix(" of ").replace(",", "")
            every = len(members) == own["number"].size or members == ["None"]
            text = "all members" if every else f"number {', '.join(members)}"
            key = None if time is None else np.datetime64(time).astype(own["time"].dtype).item()
            gaps[key].append(f"{name}: {where}, {text}")
    return gaps


def _align_grids(parts: Sequence[xr.Dataset], sources: Sequence[Path]) -> list[xr.Dataset]:
    """Assign the grid of the first part to all parts, whose coordinates may be rounded.

    Raises:
        FileError: a part lies on another grid.
        ArgumentError: stations beside a grid.
        MissingDataError: a part lacks stations of the first.
    """
    first = parts[0]
    aligned = []
    for part, source in zip(parts, sources, strict=True):
        if has_stations(first) or has_stations(part):
            part = part.isel(longitude=station_columns(first, part, str(source)))
            names = [*_GRID, *coordinates(first)]
            aligned.append(part.assign_coords({name: first[name] for name in names}))
            continue
        for dim in _GRID:
            expected, points = first[dim].to_numpy(), part[dim].to_numpy()
            if expected.size != points.size or np.abs(expected - points).max() > _TOLERANCE_DEGREES:
                raise FileError(
                    source,
                    f"its {dim}s ({points[0]:g} to {points[-1]:g}, {points.size}) are not those of "
                    f"{sources[0]} ({expected[0]:g} to {expected[-1]:g}, {expected.size})",
                    "Prepare files on different grids into different stores",
                )
        aligned.append(part.assign_coords({dim: first[dim] for dim in _GRID}))
    return aligned


def _select_present_levels(field: xr.DataArray) -> xr.DataArray:
    """Drop the levels that a field lacks, by its attribute `levels_hpa`."""
    levels = field.attrs.get("levels_hpa")
    if levels is None or "level" not in field.dims:
        return field
    part = field.sel(level=np.atleast_1d(levels))
    return part.drop_attrs(deep=False).assign_attrs(
        {key: value for key, value in field.attrs.items() if key != "levels_hpa"}
    )


def _refuse_duplicates(name: str, parts: Sequence[tuple[Path, xr.DataArray]]) -> None:
    """Refuse a variable that two parts contain for the same time, step, level and member."""
    by_time: dict[Any, list[int]] = defaultdict(list)
    for n, (_, field) in enumerate(parts):
        for time in field["time"].to_numpy() if "time" in field.dims else (None,):
            by_time[time].append(n)
    pairs = {(a, b) for places in by_time.values() for a in places for b in places if a < b}
    for a, b in sorted(pairs):
        first, second = parts[a][1], parts[b][1]
        shared = {
            dim: np.intersect1d(first[dim].to_numpy(), second[dim].to_numpy())
            for dim in _CONCATENATED_DIMS
            if dim in first.dims and dim in second.dims
        }
        if all(values.size for values in shared.values()):
            cell = {dim: values[0] for dim, values in shared.items()}
            raise FileError(
                parts[b][0],
                f"holds {name}{_describe(cell)} a second time, after {parts[a][0]}, "
                f"{_compare_values(first.sel(cell), second.sel(cell))}",
                "Remove one of the two",
            )


def _describe(cell: dict[str, Any]) -> str:
    parts = [
        f"{dim} {value:g}" if isinstance(value, np.number) else f"{dim} {str(value)[:13]}"
        for dim, value in cell.items()
    ]
    return f" of {', '.join(parts)}" if parts else ""


def _compare_values(first: xr.DataArray, second: xr.DataArray) -> str:
    difference = float(np.abs(first.astype(np.float64) - second.astype(np.float64)).max())
    return f"with values up to {difference:g} apart" if difference > 0 else "with the same values"


def _concatenate(fields: list[xr.DataArray]) -> xr.DataArray:
    """Concatenate the fields of one variable along one dimension after the other.

    Holes are filled with NaN.
    """
    for dim in reversed(_CONCATENATED_DIMS):
        groups: dict[Any, list[xr.DataArray]] = defaultdict(list)
        for field in fields:
            others = [other for other in field.dims if other not in (dim, *_GRID)]
            key = tuple((other, tuple(field[other].to_numpy().tolist())) for other in others)
            groups[(dim in field.dims, key)].append(field)
        fields = [_concatenate_along(dim, group) for group in groups.values()]
    return reduce(lambda left, right: left.combine_first(right), fields)


def _with_start(field: xr.DataArray, steps: np.ndarray[Any, Any]) -> xr.DataArray:
    """Return precipitation with the step 0, where it is 0, if other variables have that step."""
    lacks_start = "step" in field.dims and 0 not in field["step"].to_numpy() and 0 in steps
    if field.name not in ACCUMULATED or not lacks_start:
        return field
    dry = xr.zeros_like(field.isel(step=[0])).assign_coords(step=field["step"][:1] * 0)
    result: xr.DataArray = xr.concat(
        [dry, field], "step", coords="minimal", compat="override", combine_attrs="override"
    )
    return result.transpose(*field.dims)


def _concatenate_along(dim: str, fields: list[xr.DataArray]) -> xr.DataArray:
    if len(fields) == 1:
        return fields[0]
    result: xr.DataArray = xr.concat(
        fields, dim, coords="minimal", compat="equals", join="exact", combine_attrs="override"
    )
    return result if result.indexes[dim].is_monotonic_increasing else result.sortby(dim)


def _merge_variables(fields: Sequence[xr.DataArray], path: Path) -> xr.Dataset:
    """Merge variables, each with NaN at levels, dates, steps and members that only others have."""
    levels = union_of(field["level"] for field in fields if "level" in field.dims)
    arrays = [expand_levels(field, levels) for field in fields]
    try:
        return xr.merge(arrays, join="outer", compat="no_conflicts", combine_attrs="override")
    except ValueError as error:
        raise FileError(
            path, f"its files do not make one whole dataset ({error})", "Complete them"
        ) from error
