"""Parts of a dataset, each from a file of its own, as one dataset: GRIB and netCDF, mixed.

The parts are in this package's layout already, so that files may differ in the names and the
direction of their dimensions. Each variable is put together from the parts that hold it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from ens10.errors import FileError

Missing = Literal["error", "nan", "skip"]
_GRID = ("latitude", "longitude")
_OUTER = ("time", "step", "level", "number")
_TOLERANCE_DEGREES = 1e-3


def combined(
    parts: Sequence[xr.Dataset], sources: Sequence[Path], missing: Missing, whole: Path
) -> xr.Dataset:
    """The parts as one dataset.

    Args:
        parts: in the layout of `ens10.source.layout.tidy`.
        sources: where each of them comes from.
        missing: "error" if all variables must have the same dates, steps and members, "nan" to
            fill what one lacks, "skip" to leave out the dates that not all of them have. Levels
            may differ: the attribute `levels_hpa` of a variable tells which it has.
        whole: where all of them come from, for errors.

    Returns:
        The dataset, with `valid_time` where the parts have it.

    Raises:
        FileError: the parts lie on different grids, hold the same field twice, or leave holes.
    """
    parts = _on_one_grid(parts, sources)
    holders: dict[str, list[tuple[Path, xr.DataArray]]] = defaultdict(list)
    for part, source in zip(parts, sources, strict=True):
        for name, field in part.data_vars.items():
            holders[str(name)].append((source, _own_levels(field)))
    fields = []
    for name, held in holders.items():
        _refuse_twice(name, held)
        fields.append(_joined(name, [field for _, field in held], missing, whole))
    return _merged(fields, missing, whole)


def _on_one_grid(parts: Sequence[xr.Dataset], sources: Sequence[Path]) -> list[xr.Dataset]:
    """The parts with the very coordinates of the first, which others may hold rounded."""
    first = parts[0]
    aligned = []
    for part, source in zip(parts, sources, strict=True):
        for dim in _GRID:
            ours, theirs = first[dim].to_numpy(), part[dim].to_numpy()
            if ours.size != theirs.size or np.abs(ours - theirs).max() > _TOLERANCE_DEGREES:
                raise FileError(
                    source,
                    f"its {dim}s ({theirs[0]:g} to {theirs[-1]:g}, {theirs.size}) are not those of "
                    f"{sources[0]} ({ours[0]:g} to {ours[-1]:g}, {ours.size})",
                    "Prepare files on different grids into different stores",
                )
        aligned.append(part.assign_coords({dim: first[dim] for dim in _GRID}))
    return aligned


def _own_levels(field: xr.DataArray) -> xr.DataArray:
    """The field on the levels that it has, which may be fewer than those of its file."""
    levels = field.attrs.get("levels_hpa")
    if levels is None or "level" not in field.dims:
        return field
    kept = field.sel(level=np.atleast_1d(levels))
    return kept.drop_attrs(deep=False).assign_attrs(
        {key: value for key, value in field.attrs.items() if key != "levels_hpa"}
    )


def _refuse_twice(name: str, held: Sequence[tuple[Path, xr.DataArray]]) -> None:
    """Refuses a variable that two parts hold for the same time, step, level and member."""
    by_time: dict[Any, list[int]] = defaultdict(list)
    for n, (_, field) in enumerate(held):
        for time in field["time"].to_numpy() if "time" in field.dims else (None,):
            by_time[time].append(n)
    pairs = {(a, b) for places in by_time.values() for a in places for b in places if a < b}
    for a, b in sorted(pairs):
        first, second = held[a][1], held[b][1]
        shared = {
            dim: np.intersect1d(first[dim].to_numpy(), second[dim].to_numpy())
            for dim in _OUTER
            if dim in first.dims and dim in second.dims
        }
        if all(values.size for values in shared.values()):
            cell = {dim: values[0] for dim, values in shared.items()}
            raise FileError(
                held[b][0],
                f"holds {name}{_described(cell)} a second time, after {held[a][0]}, "
                f"{_compared(first.sel(cell), second.sel(cell))}",
                "Remove one of the two",
            )


def _described(cell: dict[str, Any]) -> str:
    parts = [
        f"{dim} {str(value)[:13] if dim == 'time' else f'{value:g}'}" for dim, value in cell.items()
    ]
    return f" of {', '.join(parts)}" if parts else ""


def _compared(first: xr.DataArray, second: xr.DataArray) -> str:
    apart = float(np.abs(first.astype(np.float64) - second.astype(np.float64)).max())
    return f"with values up to {apart:g} apart" if apart > 0 else "with the same values"


def _joined(name: str, fields: list[xr.DataArray], missing: Missing, whole: Path) -> xr.DataArray:
    """One variable from its pieces, laid side by side along one dimension after the other."""
    for dim in reversed(_OUTER):
        alike: dict[Any, list[xr.DataArray]] = defaultdict(list)
        for field in fields:
            others = [other for other in field.dims if other not in (dim, *_GRID)]
            key = tuple((other, tuple(field[other].to_numpy().tolist())) for other in others)
            alike[(dim in field.dims, key)].append(field)
        fields = [_laid_along(dim, group) for group in alike.values()]
    if len(fields) == 1:
        return fields[0]
    if missing != "nan" or len({field.dims for field in fields}) > 1:
        raise FileError(
            whole,
            f"its files do not make one whole dataset of {name}: they leave holes",
            "Complete them, or accept the gaps with --missing nan",
        )
    return reduce(lambda left, right: left.combine_first(right), fields)


def _laid_along(dim: str, fields: list[xr.DataArray]) -> xr.DataArray:
    if len(fields) == 1:
        return fields[0]
    joined: xr.DataArray = xr.concat(
        fields, dim, coords="minimal", compat="equals", join="exact", combine_attrs="override"
    )
    return joined if joined.indexes[dim].is_monotonic_increasing else joined.sortby(dim)


def _merged(fields: Sequence[xr.DataArray], missing: Missing, whole: Path) -> xr.Dataset:
    """The variables side by side, each with NaN at the levels that only others have."""
    levels = _union(field["level"].to_numpy() for field in fields if "level" in field.dims)
    spread = [_on_levels(field, levels) for field in fields]
    for dim in ("time", "step", "number"):
        held = [set(f[dim].to_numpy().tolist()) for f in spread if dim in f.dims]
        if missing == "error" and any(values != held[0] for values in held):
            have = "; ".join(f"{f.name}: {f.sizes[dim]}" for f in spread if dim in f.dims)
            raise FileError(
                whole,
                f"its files do not make one whole dataset: its variables differ in {dim} ({have})",
                "Complete them, or accept the gaps with --missing nan or --missing skip",
            )
    if missing == "skip":
        spread = list(xr.align(*spread, join="inner", exclude={"step", "level", "number", *_GRID}))
    try:
        return xr.merge(
            spread,
            join="outer" if missing == "nan" else "exact",
            compat="no_conflicts",
            combine_attrs="override",
        )
    except ValueError as error:
        raise FileError(
            whole, f"its files do not make one whole dataset ({error})", "Complete them"
        ) from error


def _union(values: Iterable[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    levels = [level for held in values for level in held.tolist()]
    return np.unique(np.array(levels)) if levels else np.array([])


def _on_levels(field: xr.DataArray, levels: np.ndarray[Any, Any]) -> xr.DataArray:
    if "level" not in field.dims or np.array_equal(field["level"].to_numpy(), levels):
        return field
    own = np.sort(field["level"].to_numpy()).tolist()
    spread = field.reindex(level=levels)
    return spread if own == levels.tolist() else spread.assign_attrs(levels_hpa=own)
