"""A set of GRIB files as cubes of fields, with everything that is missing from it listed."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import dask.array as da
import numpy as np
import numpy.typing as npt
import xarray as xr
from dask.base import tokenize

from ens10.catalog import VARIABLES
from ens10.errors import ArgumentError, UnknownNameError
from ens10.grib import LatLonGrid, Message, MessageList, scan, unpack
from ens10.source.cubes import Cube, Missing, axes_of, cubes_of, without_gaps
from ens10.source.selection import MessageSelection

__all__ = ["GribFields", "MessageSelection", "Missing", "grib_dataset"]


class GribFields:
    """The fields of GRIB files, by variable, date, step, level and member.

    Args:
        files: the files, in any order, with their messages in any order; or what `ens10.grib.scan`
            found in them.
        missing: what to do where fields are missing: "error" to refuse, "nan" to leave gaps,
            "skip" to leave out the start dates concerned.
        selection: the fields asked for; what was not asked for cannot be missing.

    Attributes:
        paths: the files.
        times: start times, shape (time,), datetime64[s], sorted.
        steps: hours, sorted.
        numbers: members, sorted; a message that names no member is member 0.
        grid: of all fields.
        variables: cfgrib's names, sorted.
        levels: by variable, in hPa, sorted; empty off pressure levels.
        skipped: start times left out because they lack fields, shape (skipped,).

    Raises:
        MissingDataError: fields are missing; all of them are listed.
        FileError: two messages hold the same field, or do not agree in grid, units or levels.
        UnknownNameError: something selected is in none of the files.
    """

    def __init__(
        self,
        files: Sequence[Path | MessageList],
        missing: Missing = "error",
        selection: MessageSelection | None = None,
    ) -> None:
        if not files:
            raise ArgumentError("files", "none are given", "Give at least one GRIB file")
        lists = (file if isinstance(file, MessageList) else scan(file) for file in files)
        messages = (selection or MessageSelection()).of(MessageList.joined(lists))
        axes = axes_of(messages)
        cubes, found = cubes_of(messages, axes), axes.times
        if missing != "nan":
            cubes, axes = without_gaps(messages.paths, cubes, axes, missing)
        self.paths, self._cubes = messages.paths, cubes
        self.times, self.steps, self.numbers = axes.times, axes.steps, axes.numbers
        self.grid = axes.grid
        self.skipped = np.setdiff1d(found, axes.times)
        self.variables = list(cubes)
        self.levels = {name: cube.levels for name, cube in cubes.items()}

    def messages(
        self, variable: str, time_index: int, step_index: int, level_index: int = 0
    ) -> list[Message | None]:
        """The messages of all members of one field, None where there is none.

        Args:
            variable: cfgrib's name.
            time_index: along `times`.
            step_index: along `steps`.
            level_index: along `levels[variable]`; 0 off pressure levels.
        """
        return self._cube(variable).members(time_index, step_index, level_index)

    def attributes(self, variable: str) -> dict[str, Any]:
        """CF attributes of a variable, and `levels_hpa` on pressure levels."""
        cube = self._cube(variable)
        meaning = cube.messages.meanings[0]
        # A variable that the catalogue lacks needs its number to be written as GRIB again.
        attributes: dict[str, Any] = {"units": meaning.units, "paramId": meaning.param_id}
        if variable in VARIABLES:
            attributes = dict(VARIABLES[variable].attributes)
        if cube.levels:
            attributes["levels_hpa"] = tidy_levels(cube.levels).tolist()
        return attributes

    def coordinates(self) -> dict[str, Any]:
        """The coordinates of all variables together, as xarray takes them."""
        coordinates: dict[str, Any] = {
            "time": self.times.astype("datetime64[ns]"),
            "step": ("step", np.array(self.steps), {"units": "h"}),
            "number": np.array(self.numbers),
            "latitude": ("latitude", self.grid.latitude(), {"units": "degrees_north"}),
            "longitude": ("longitude", self.grid.longitude(), {"units": "degrees_east"}),
        }
        levels = sorted({level for own in self.levels.values() for level in own})
        if levels:
            coordinates["level"] = ("level", tidy_levels(levels), {"units": "hPa"})
        return coordinates

    def dataset(self) -> xr.Dataset:
        """All fields, lazily decoded: a dask chunk for each date, step and level."""
        coordinates = self.coordinates()
        levels = coordinates["level"][1] if "level" in coordinates else []
        variables = {name: self._variable(name, levels) for name in self.variables}
        return xr.Dataset(variables, coords=coordinates)

    def _variable(self, name: str, levels: Sequence[float]) -> xr.Variable:
        cube = self._cubes[name]
        outer = ["time", "step", "level", "number"]
        table = cube.table
        if cube.levels:
            table = np.full((*table.shape[:2], len(levels), table.shape[3]), -1, np.int32)
            table[:, :, np.searchsorted(levels, cube.levels)] = cube.table
        else:
            outer.remove("level")
            table = table[:, :, 0]
        data = _lazy(cube, table, self.grid)
        return xr.Variable((*outer, "latitude", "longitude"), data, self.attributes(name))

    def _cube(self, variable: str) -> Cube:
        if variable not in self._cubes:
            raise UnknownNameError("variable", variable, self.variables)
        return self._cubes[variable]


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
        FileError: two messages hold the same field, or do not agree in grid, units or levels.
    """
    return GribFields(paths, missing).dataset()


def tidy_levels(levels: Sequence[float]) -> npt.NDArray[Any]:
    """Levels as integers where all of them are whole hPa."""
    array = np.array(levels)
    return array.astype(np.int64) if np.all(array == array.round()) else array


def _lazy(cube: Cube, table: npt.NDArray[np.int32], grid: LatLonGrid) -> da.Array:
    """Messages (..., number) as an array (..., number, rows, columns), chunked by `...`."""
    outer, members = table.shape[:-1], table.shape[-1]
    chunks = (*((1,) * size for size in outer), (members,), (grid.rows,), (grid.columns,))
    paths = [str(path) for path in cube.messages.paths]
    return da.map_blocks(  # type: ignore[no-any-return, no-untyped-call]
        _Reader(cube.messages, table, grid),
        chunks=chunks,
        dtype=np.float32,
        meta=np.empty((0,) * len(chunks), dtype=np.float32),
        name=f"grib-{cube.name}-{tokenize(paths, cube.messages.records, table)}",
    )


@dataclass(frozen=True)
class _Reader:
    """Decodes the members of one chunk."""

    messages: MessageList
    table: npt.NDArray[np.int32]
    grid: LatLonGrid

    def __call__(self, block_id: tuple[int, ...] | None = None) -> npt.NDArray[np.float32]:
        index = (block_id or (0,) * (self.table.ndim + 2))[: self.table.ndim - 1]
        which = self.table[index].tolist()
        shape = (len(which), self.grid.rows, self.grid.columns)
        members = np.full(shape, np.nan, dtype=np.float32)
        with ExitStack() as files:
            opened: dict[Path, BinaryIO] = {}
            for member, n in zip(members, which, strict=True):
                if n < 0:
                    continue
                message = self.messages[n]
                if message.path not in opened:
                    opened[message.path] = files.enter_context(message.path.open("rb"))
                member[:] = unpack(message, opened[message.path])
        return members[(None,) * len(index)]
