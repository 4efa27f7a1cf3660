"""A set of GRIB files as one lazy dataset, with everything that is missing from it listed."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import dask.array as da
import numpy as np
import numpy.typing as npt
import xarray as xr
from dask.base import tokenize

from ens10.catalog import VARIABLES
from ens10.cubes import Axes, Cell, Missing, axes_of, cubes_of, levels_of, without_gaps
from ens10.errors import ArgumentError
from ens10.grib import LatLonGrid, Message, decode, scan

__all__ = ["Missing", "grib_dataset"]


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
    axes, cubes = axes_of(messages), cubes_of(messages)
    if missing != "nan":
        axes = without_gaps(paths, cubes, axes, missing)
    levels = sorted({level for cube in cubes.values() for level in levels_of(cube) if level})
    return xr.Dataset(
        {name: _variable(name, cube, axes, levels) for name, cube in sorted(cubes.items())},
        coords=_coordinates(axes, levels),
    )


def _coordinates(axes: Axes, levels: Sequence[float]) -> dict[str, Any]:
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


def _variable(
    name: str, cube: dict[Cell, Message], axes: Axes, levels: Sequence[float]
) -> xr.Variable:
    own = levels_of(cube)
    if 0.0 in own and len(own) > 1:
        raise ArgumentError(
            "variables",
            f"{name} is given both at the surface and on pressure levels",
            "Prepare the two kinds of field separately",
        )
    upper = bool(own[0])
    attributes: dict[str, Any] = {"units": next(iter(cube.values())).units}
    if name in VARIABLES:
        attributes = dict(VARIABLES[name].attributes)
    if upper:
        attributes["levels_hpa"] = _tidy(own).tolist()
    outer = ("time", "step", "level", "number") if upper else ("time", "step", "number")
    data = _lazy(name, _table(cube, axes, levels if upper else None), axes.grid)
    return xr.Variable((*outer, "latitude", "longitude"), data, attributes)


def _table(
    cube: dict[Cell, Message], axes: Axes, levels: Sequence[float] | None
) -> npt.NDArray[np.object_]:
    """The messages as an array (time, step[, level], number), None where there is none."""
    shape = [len(axes.times), len(axes.steps), len(axes.numbers)]
    if levels is not None:
        shape.insert(2, len(levels))
    table = np.empty(int(np.prod(shape)), dtype=object)
    for n, cell in enumerate(product(axes.times, axes.steps, levels or [0.0], axes.numbers)):
        table[n] = cube.get(Cell(*cell))
    return table.reshape(shape)


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
