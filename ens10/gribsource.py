"""A set of GRIB files as one lazy dataset, with everything that is missing from it listed."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import dask.array as da
import numpy as np
import numpy.typing as npt
import xarray as xr
from dask.base import tokenize

from ens10.catalog import VARIABLES
from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.grib import LatLonGrid, Message, decode, scan

Missing = Literal["error", "nan", "skip"]
_PRESSURE = {"isobaricInhPa": 1.0, "isobaricInPa": 0.01}


class _Cell(NamedTuple):
    """Where a field stands in the cube of one variable; level 0 for surface fields."""

    time: np.datetime64
    step: int
    level: float
    number: int

    def __str__(self) -> str:
        level = f" at {self.level:g} hPa" if self.level else ""
        return f"{str(self.time)[:13]}, step {self.step} h, number {self.number}{level}"


@dataclass(frozen=True)
class _Axes:
    times: list[np.datetime64]
    steps: list[int]
    numbers: list[int]
    grid: LatLonGrid


def grib_dataset(paths: Sequence[Path], missing: Missing = "error") -> xr.Dataset:
    """The fields of GRIB files, lazily decoded: a dask chunk for each date, step and level.

    Args:
        paths: the files, in any order, with their messages in any order.
        missing: what to do where fields are missing: "error" to refuse, "nan" to fill with NaN,
            "skip" to leave out the start dates concerned.

    Returns:
        Variables by cfgrib's name over (time, step[, level], number, latitude, longitude), float32.
        The attribute `levels_hpa` of a variable tells which levels it has.

    Raises:
        MissingDataError: fields are missing; all of them are listed.
        FileError: two messages hold the same field, or lie on different grids.
    """
    messages = [message for path in paths for message in scan(path)]
    axes = _Axes(
        sorted({m.time for m in messages}),
        sorted({m.step for m in messages}),
        sorted({m.number or 0 for m in messages}),
        _one_grid(messages),
    )
    cubes = _cubes(messages)
    if missing != "nan":
        axes = _without_gaps(paths, cubes, axes, missing)
    levels = sorted({cell.level for cube in cubes.values() for cell in cube if cell.level})
    return xr.Dataset(
        {name: _variable(name, cube, axes, levels) for name, cube in sorted(cubes.items())},
        coords=_coordinates(axes, levels),
    )


def _coordinates(axes: _Axes, levels: Sequence[float]) -> dict[str, Any]:
    coordinates: dict[str, Any] = {
        "time": np.array(axes.times, dtype="datetime64[ns]"),
        "step": ("step", np.array(axes.steps), {"units": "h"}),
        "number": np.array(axes.numbers),
        "latitude": ("latitude", axes.grid.latitude(), {"units": "degrees_north"}),
        "longitude": ("longitude", axes.grid.longitude(), {"units": "degrees_east"}),
    }
    if levels:
        coordinates["level"] = ("level", _tidy(levels), {"units": "hPa"})
    return coordinates


def _tidy(levels: Sequence[float]) -> npt.NDArray[Any]:
    """Levels as integers where all of them are whole hPa."""
    array = np.array(levels)
    return array.astype(np.int64) if np.all(array == array.round()) else array


def _one_grid(messages: Sequence[Message]) -> LatLonGrid:
    first = messages[0]
    for other in messages:
        if other.grid != first.grid:
            raise FileError(
                other.path,
                f"the message at byte {other.offset} lies on the grid {other.grid}, that of "
                f"{first.place} on {first.grid}",
                "Prepare files on different grids into different stores",
            )
    return first.grid


def _cubes(messages: Iterable[Message]) -> dict[str, dict[_Cell, Message]]:
    """The messages by variable and place in its cube."""
    cubes: dict[str, dict[_Cell, Message]] = defaultdict(dict)
    for m in messages:
        level = m.level * _PRESSURE.get(m.level_type, 0.0)
        cell = _Cell(m.time, m.step, level, m.number or 0)
        twin = cubes[m.name].setdefault(cell, m)
        if twin is not m:
            raise FileError(
                m.path,
                f"the message at byte {m.offset} holds {m.name} of {cell} a second time, after "
                f"{twin.place}",
                "Remove one of the two",
            )
    return cubes


def _without_gaps(
    paths: Sequence[Path], cubes: dict[str, dict[_Cell, Message]], axes: _Axes, missing: Missing
) -> _Axes:
    """The axes if nothing is missing, else an error, or the axes without the dates concerned."""
    gaps = _gaps(cubes, axes)
    if gaps and missing == "error":
        fields = sum(len({cell.level for cell in cube}) for cube in cubes.values())
        raise MissingDataError(
            paths[0] if len(paths) == 1 else paths[0].parent,
            _described(gaps, fields, len(axes.numbers)),
            "Fetch the files again, or accept the gaps with --missing nan or --missing skip",
        )
    holed = {cell.time for cell in gaps}
    whole = [time for time in axes.times if time not in holed]
    if not whole:
        raise MissingDataError(
            paths[0].parent, ["something at every date"], "Fetch the files again"
        )
    return replace(axes, times=whole)


def _gaps(cubes: dict[str, dict[_Cell, Message]], axes: _Axes) -> dict[_Cell, list[str]]:
    """The fields that lack at each (time, step, number)."""
    gaps: dict[_Cell, list[str]] = defaultdict(list)
    places = list(product(axes.times, axes.steps, axes.numbers))
    for name, cube in cubes.items():
        for level in sorted({cell.level for cell in cube}):
            label = f"{name} {level:g} hPa" if level else name
            for time, step, number in places:
                if _Cell(time, step, level, number) not in cube:
                    gaps[_Cell(time, step, 0.0, number)].append(label)
    return gaps


def _described(gaps: dict[_Cell, list[str]], fields: int, members: int) -> list[str]:
    """One line for each gap; a member, or a date, that lacks altogether takes one line."""
    by_date: dict[tuple[Any, int], list[tuple[int, str]]] = defaultdict(list)
    for cell, names in sorted(gaps.items()):
        what = "all fields" if len(names) == fields else ", ".join(names)
        by_date[cell.time, cell.step].append((cell.number, what))
    lines = []
    for (time, step), lacking in by_date.items():
        when = f"time {str(time)[:13]} step {step} h"
        if len(lacking) == members and all(what == "all fields" for _, what in lacking):
            lines.append(f"{when}: all members")
        else:
            lines += [f"{when} number {number}: {what}" for number, what in lacking]
    return lines


def _variable(
    name: str, cube: dict[_Cell, Message], axes: _Axes, levels: Sequence[float]
) -> xr.Variable:
    own = sorted({cell.level for cell in cube})
    if 0.0 in own and len(own) > 1:
        raise ArgumentError(
            "variables",
            f"{name} is given both at the surface and on pressure levels",
            "Prepare the two kinds of field separately",
        )
    upper = bool(own[0])
    cells = product(axes.times, axes.steps, levels if upper else [0.0], axes.numbers)
    table = np.array([None, *(cube.get(_Cell(*cell)) for cell in cells)], dtype=object)[1:]
    message = next(iter(cube.values()))
    attributes: dict[str, Any] = {"units": message.units}
    if name in VARIABLES:
        attributes = dict(VARIABLES[name].attributes)
    if upper:
        attributes["levels_hpa"] = _tidy(own).tolist()
    outer = ("time", "step", "level", "number") if upper else ("time", "step", "number")
    sizes = {"time": len(axes.times), "step": len(axes.steps), "number": len(axes.numbers)}
    shape = tuple({**sizes, "level": len(levels)}[dim] for dim in outer)
    data = _lazy(name, table.reshape(shape), axes.grid)
    return xr.Variable((*outer, "latitude", "longitude"), data, attributes)


def _lazy(name: str, table: npt.NDArray[np.object_], grid: LatLonGrid) -> da.Array:
    """Messages (..., number) as an array (..., number, rows, columns), chunked by `...`."""
    outer, members = table.shape[:-1], table.shape[-1]
    chunks = (*((1,) * size for size in outer), (members,), (grid.rows,), (grid.columns,))
    places = [None if m is None else (str(m.path), m.offset, m.length) for m in table.ravel()]
    return da.map_blocks(  # type: ignore[no-any-return, no-untyped-call]
        _Reader(table, grid),
        chunks=chunks,
        dtype=np.float32,
        meta=np.empty((0,) * len(chunks), dtype=np.float32),
        name=f"grib-{name}-{tokenize(places)}",
    )


@dataclass(frozen=True)
class _Reader:
    """Decodes the members of one chunk."""

    table: npt.NDArray[np.object_]
    grid: LatLonGrid

    def __call__(self, block_id: tuple[int, ...] | None = None) -> npt.NDArray[np.float32]:
        index = (block_id or (0,) * (self.table.ndim + 2))[: self.table.ndim - 1]
        messages = self.table[index]
        members = np.full(
            (len(messages), self.grid.rows, self.grid.columns), np.nan, dtype=np.float32
        )
        with ExitStack() as files:
            opened: dict[Path, BinaryIO] = {}
            for member, message in zip(members, messages, strict=True):
                if message is None:
                    continue
                if message.path not in opened:
                    opened[message.path] = files.enter_context(message.path.open("rb"))
                member[:] = decode(message, opened[message.path])
        return members[(None,) * len(index)]
