"""GRIB files as cubes of fields, with checks for missing, duplicate and inconsistent fields."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeVar

import dask.array as da
import numpy as np
import numpy.typing as npt
import xarray as xr
from dask.base import tokenize

from ens10.catalog import VARIABLES
from ens10.errors import (
    ArgumentError,
    DamagedFileError,
    FileError,
    MissingDataError,
    UnknownNameError,
)
from ens10.grib import LatLonGrid, Meaning, Message, MessageList, decode, scan, unpack
from ens10.selection import Selection

_NEAR = 6e-4  # degrees; edition 1 keeps corners to a thousandth
_Counts = npt.NDArray[np.int64]
_Value = TypeVar("_Value", bound=Hashable)


def check_agreement(messages: MessageList) -> LatLonGrid:
    """Check that messages agree in grid, units and levels; return the grid.

    Raises:
        FileError: messages disagree in the grid, or messages of one variable in units, parameter or
            type of level. The error names the first message with the rarest value.
    """
    counts = np.bincount(messages.records["meaning"], minlength=len(messages.meanings))
    grid = _common_grid(messages, counts)
    for rule in _RULES:
        groups: dict[Hashable, dict[Hashable, list[int]]] = defaultdict(lambda: defaultdict(list))
        for n, meaning in enumerate(messages.meanings):
            group = (meaning.name, meaning.edition if rule.per_edition else 0)
            groups[group][rule.get_value(meaning)].append(n)
        for by_value in groups.values():
            if len(by_value) > 1:
                _refuse(rule, *_odd_and_common(messages, counts, by_value))
    return grid


class _Rule(NamedTuple):
    """A property in which the messages of one variable must agree.

    Attributes:
        key: GRIB key of the property.
        get_value: returns the value that must be equal.
        format_value: formats the value for error messages.
        per_edition: True if only messages of one edition must agree. Parameters and types of level
            differ between editions: ECMWF's 2 m temperature lies at the surface in edition 1, and
            2 m above ground in edition 2.
    """

    key: str
    get_value: Callable[[Meaning], Hashable]
    format_value: Callable[[Meaning], str]
    per_edition: bool


def _level(meaning: Meaning) -> str:
    return f"{meaning.level_type} {meaning.level}"


def _level_type(meaning: Meaning) -> str:
    """Return type and value of the level; an empty text for all pressure levels."""
    return "" if meaning.pressure is not None else _level(meaning)


_RULES = (
    _Rule("units", lambda m: m.units, lambda m: m.units, False),
    _Rule("paramId", lambda m: m.param_id, lambda m: str(m.param_id), True),
    _Rule("typeOfLevel", _level_type, _level, True),
    _Rule("typeOfLevel", lambda m: m.pressure is not None, _level, False),
)


def _refuse(rule: _Rule, odd: Message, common: Message) -> None:
    raise FileError(
        odd.path,
        f"the message at byte {odd.offset} gives {odd.name} with {rule.key} "
        f"{rule.format_value(odd.meaning)}, that at {common.place} with "
        f"{rule.format_value(common.meaning)}",
        "Correct or remove it, or prepare the two kinds of field separately",
    )


def _common_grid(messages: MessageList, counts: _Counts) -> LatLonGrid:
    by_grid: dict[LatLonGrid, list[int]] = defaultdict(list)
    for n, meaning in enumerate(messages.meanings):
        group_grid = next((grid for grid in by_grid if _is_near(grid, meaning.grid)), meaning.grid)
        by_grid[group_grid].append(n)
    if len(by_grid) == 1:
        return next(iter(by_grid))
    odd, common = _odd_and_common(messages, counts, by_grid)
    raise FileError(
        odd.path,
        f"the message at byte {odd.offset} lies on the grid {odd.grid}, that of {common.place} on "
        f"{common.grid} (Ni, Nj and corners)",
        "Correct or remove it, or prepare files on different grids into different stores",
    )


def _is_near(one: LatLonGrid, other: LatLonGrid) -> bool:
    if (one.rows, one.columns) != (other.rows, other.columns):
        return False
    offsets = (one.north - other.north, one.south - other.south, one.west - other.west)
    east_offset = (one.spacing - other.spacing) * one.columns
    return max(abs(offset) for offset in (*offsets, east_offset)) < _NEAR


def _odd_and_common(
    messages: MessageList, counts: _Counts, groups: Mapping[_Value, Sequence[int]]
) -> tuple[Message, Message]:
    """Return the first message of the smallest and of the largest group.

    Of two groups of the same size, the one that comes first in the files counts as the larger.
    """
    sizes = {value: int(counts[ids].sum()) for value, ids in groups.items()}
    largest = max(sizes, key=lambda value: sizes[value])
    others = [value for value in reversed(sizes) if value != largest]
    smallest = min(others, key=lambda value: sizes[value])
    return _first_message(messages, groups[smallest]), _first_message(messages, groups[largest])


def _first_message(messages: MessageList, meanings: Sequence[int]) -> Message:
    return messages[int(np.isin(messages.records["meaning"], meanings).argmax())]


Missing = Literal["error", "nan", "skip"]
_MIN_FILLED_SHARE = 0.05  # share of fields with a message below which a cube is not built
_SPARSE = 0.5  # share below which the files may be complete, but of a lagged ensemble
_LAGGED_REMEDY = "The members may be lagged; choose dates, steps or members that belong together"
_SMALL_CUBE = 1_000_000  # fields; cubes of at most so many are built however empty they are


class Cell(NamedTuple):
    """Position of a field in the cube of one variable; the level is None off pressure levels."""

    time: np.datetime64
    step: int
    level: float | None
    number: int

    def __str__(self) -> str:
        level = "" if self.level is None else f" at {self.level:g} hPa"
        return f"{str(self.time)[:13]}, step {self.step} h, number {self.number}{level}"


@dataclass(frozen=True)
class Axes:
    """The axes of the cubes of a set of files, all sorted."""

    times: npt.NDArray[np.datetime64]
    steps: list[int]
    numbers: list[int]
    grid: LatLonGrid

    @property
    def shape(self) -> tuple[int, int, int]:
        """Sizes of the axes."""
        return len(self.times), len(self.steps), len(self.numbers)


@dataclass(frozen=True)
class Cube:
    """The messages of one variable.

    Attributes:
        name: cfgrib's name.
        messages: of the variable, in the order of the files.
        levels: in hPa, sorted; empty off pressure levels.
        table: shape (time, step, level, number), the index in `messages` of each field's message,
            -1 for none; one level off pressure levels.
    """

    name: str
    messages: MessageList
    levels: list[float]
    table: npt.NDArray[np.int32]

    def members(self, time: int, step: int, level: int) -> list[Message | None]:
        """Return the messages of all members at a position, None where there is none."""
        return [None if n < 0 else self.messages[n] for n in self.table[time, step, level].tolist()]


def axes_of(messages: MessageList) -> Axes:
    """Return the dates, steps and members that appear in any message, and their common grid.

    Raises:
        FileError: messages do not agree in grid, units or levels.
    """
    grid = check_agreement(messages)
    records = messages.records
    return Axes(
        np.unique(records["time"]).astype("datetime64[s]"),
        sorted({meaning.step for meaning in messages.meanings}),
        np.unique(np.maximum(records["number"], 0)).tolist(),
        grid,
    )


def cubes_of(messages: MessageList, axes: Axes) -> dict[str, Cube]:
    """Return the cube of each variable, by name.

    Raises:
        FileError: two messages hold the same field.
        MissingDataError: the files hold less than 5 % of a large cube's fields.
    """
    names, name_of_meaning = np.unique([m.name for m in messages.meanings], return_inverse=True)
    name_of_message = name_of_meaning.astype(np.int16)[messages.records["meaning"]]
    return {
        str(name): _cube(str(name), messages.take(np.flatnonzero(name_of_message == n)), axes)
        for n, name in enumerate(names)
    }


def _cube(name: str, messages: MessageList, axes: Axes) -> Cube:
    pressures = [meaning.pressure for meaning in messages.meanings]
    levels = sorted({pressure for pressure in pressures if pressure is not None})
    records, ids = messages.records, messages.records["meaning"]
    shape = (*axes.shape[:2], len(levels) or 1, axes.shape[2])
    if len(messages) < _MIN_FILLED_SHARE * np.prod(shape) > _MIN_FILLED_SHARE * _SMALL_CUBE:
        raise _no_cube_error(name, messages, int(np.prod(shape)))
    level_indices = [0 if pressure is None else levels.index(pressure) for pressure in pressures]
    positions = np.ravel_multi_index(
        (
            np.searchsorted(axes.times.astype(np.int64), records["time"]),
            np.array([axes.steps.index(meaning.step) for meaning in messages.meanings])[ids],
            np.array(level_indices)[ids],
            np.searchsorted(axes.numbers, np.maximum(records["number"], 0)),
        ),
        shape,
    )
    table = np.full(shape, -1, np.int32)
    table.reshape(-1)[positions] = np.arange(len(messages), dtype=np.int32)
    if np.count_nonzero(table >= 0) < len(messages):
        raise _duplicate_error(messages, positions)
    return Cube(name, messages, levels, table)


def _no_cube_error(name: str, messages: MessageList, size: int) -> MissingDataError:
    return MissingDataError(
        messages.paths[0].parent,
        [f"{size - len(messages)} of {size} fields of {name} at all dates, steps and members"],
        _LAGGED_REMEDY,
    )


def _duplicate_error(messages: MessageList, positions: npt.NDArray[np.int64]) -> FileError:
    order = np.argsort(positions, kind="stable")
    duplicates = np.flatnonzero(np.diff(positions[order]) == 0)
    second_index = int(order[duplicates + 1].min())  # the first in the order of the files
    rank = int(np.flatnonzero(order == second_index)[0])
    first, second = messages[int(order[rank - 1])], messages[second_index]
    cell = Cell(second.time, second.step, second.meaning.pressure, second.number or 0)
    note = f" ({len(duplicates)} fields are given more than once)" if len(duplicates) > 1 else ""
    return FileError(
        second.path,
        f"the message at byte {second.offset} holds {second.name} of {cell} a second time, after "
        f"{first.place}, with {_difference(first, second)}{note}",
        "Remove one of the two",
    )


def _difference(first: Message, second: Message) -> str:
    """Describe the difference between two messages of one field."""
    differences = [
        f"{label} {first_value} and {second_value}"
        for label, first_value, second_value in (
            ("dataType", first.data_type, second.data_type),
            ("model version", first.meaning.model_date, second.meaning.model_date),
        )
        if first_value != second_value
    ]
    try:
        with first.path.open("rb") as file, second.path.open("rb") as other:
            same = np.array_equal(decode(first, file), decode(second, other), equal_nan=True)
        values = "the same values" if same else "different values"
    except DamagedFileError as error:
        values = f"values that cannot be compared ({error})"
    return ", ".join([values, *differences])


def without_gaps(
    paths: Sequence[Path], cubes: dict[str, Cube], axes: Axes, missing: Missing
) -> tuple[dict[str, Cube], Axes]:
    """Check for missing fields; remove the dates that lack fields if `missing` is "skip".

    Raises:
        MissingDataError: fields are missing, or all dates would be skipped; all gaps are listed.
    """
    complete = np.ones(len(axes.times), dtype=bool)
    for cube in cubes.values():
        complete &= (cube.table >= 0).all(axis=(1, 2, 3))
    if complete.all():
        return cubes, axes
    if missing == "error" or not complete.any():
        fields = sum(cube.table.shape[2] for cube in cubes.values())
        raise MissingDataError(
            paths[0] if len(paths) == 1 else paths[0].parent,
            _describe_gaps(_gaps(cubes, axes), fields, len(axes.numbers)),
            _remedy(cubes, bool(complete.any())),
        )
    complete_cubes = {
        name: replace(cube, table=cube.table[complete]) for name, cube in cubes.items()
    }
    return complete_cubes, replace(axes, times=axes.times[complete])


def _remedy(cubes: dict[str, Cube], any_complete: bool) -> str:
    share = float(np.mean([np.mean(cube.table >= 0) for cube in cubes.values()]))
    if share < _SPARSE:
        return f"The fields fill {share:.0%} of their cube. {_LAGGED_REMEDY}"
    if not any_complete:
        return "No date is complete"
    return "Fetch the files again, or accept the gaps with --missing nan or --missing skip"


def _gaps(cubes: dict[str, Cube], axes: Axes) -> dict[Cell, list[str]]:
    """Return the missing fields at each (time, step, number)."""
    gaps: dict[Cell, list[str]] = defaultdict(list)
    for name, cube in cubes.items():
        labels = [f"{name} {level:g} hPa" for level in cube.levels] or [name]
        for time, step, level, number in np.argwhere(cube.table < 0).tolist():
            cell = Cell(axes.times[time], axes.steps[step], None, axes.numbers[number])
            gaps[cell].append(labels[level])
    return gaps


def _describe_gaps(gaps: dict[Cell, list[str]], fields: int, members: int) -> list[str]:
    """Describe gaps, one per line; a member or date that is missing entirely takes one line."""
    by_date: dict[tuple[Any, int], list[tuple[int, str]]] = defaultdict(list)
    for cell in sorted(gaps, key=lambda cell: (cell.time, cell.step, cell.number)):
        names = gaps[cell]
        text = "all fields" if len(names) == fields else ", ".join(names)
        by_date[cell.time, cell.step].append((cell.number, text))
    lines = []
    for (time, step), entries in by_date.items():
        date = f"time {str(time)[:13]} step {step} h"
        texts = {text for _, text in entries}
        if len(entries) == members and len(texts) == 1:
            text = texts.pop()
            lines.append(f"{date}: all members" + ("" if text == "all fields" else f" of {text}"))
        else:
            lines += [f"{date} number {number}: {text}" for number, text in entries]
    return lines


__all__ = ["GribFields", "Missing", "grib_dataset"]


class GribFields:
    """The fields of GRIB files, by variable, date, step, level and member.

    Args:
        files: the files, or their messages as returned by `ens10.grib.scan`; in any order.
        missing: what to do about missing fields: "error" to raise an error, "nan" to leave gaps,
            "skip" to leave out the start dates concerned.
        selection: the fields to keep; None for all. Other fields are not checked for gaps.

    Attributes:
        paths: the files.
        times: start times, shape (time,), datetime64[s], sorted.
        steps: hours, sorted.
        numbers: members, sorted; a message that names no member is member 0.
        grid: of all fields.
        variables: cfgrib's names, sorted.
        levels: by variable, in hPa, sorted; empty off pressure levels.
        skipped_times: start times left out because they lack fields, shape (skipped,).

    Raises:
        MissingDataError: fields are missing; all of them are listed.
        FileError: two messages hold the same field, or do not agree in grid, units or levels.
        UnknownNameError: a selected item is in none of the files.
    """

    def __init__(
        self,
        files: Sequence[Path | MessageList],
        missing: Missing = "error",
        selection: Selection | None = None,
    ) -> None:
        if not files:
            raise ArgumentError("files", "none are given", "Choose at least one GRIB file")
        lists = (file if isinstance(file, MessageList) else scan(file) for file in files)
        messages = (selection or Selection()).of_messages(MessageList.concatenate(lists))
        axes = axes_of(messages)
        cubes, all_times = cubes_of(messages, axes), axes.times
        if missing != "nan":
            cubes, axes = without_gaps(messages.paths, cubes, axes, missing)
        self.paths, self._cubes = messages.paths, cubes
        self.times, self.steps, self.numbers = axes.times, axes.steps, axes.numbers
        self.grid = axes.grid
        self.skipped_times = np.setdiff1d(all_times, axes.times)
        self.variables = list(cubes)
        self.levels = {name: cube.levels for name, cube in cubes.items()}

    def messages(
        self, variable: str, time_index: int, step_index: int, level_index: int = 0
    ) -> list[Message | None]:
        """Return the messages of all members of one field, None where there is none.

        Args:
            variable: cfgrib's name.
            time_index: along `times`.
            step_index: along `steps`.
            level_index: along `levels[variable]`; 0 off pressure levels.
        """
        return self._cube(variable).members(time_index, step_index, level_index)

    def attributes(self, variable: str) -> dict[str, Any]:
        """Return CF attributes of a variable, and `levels_hpa` on pressure levels."""
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
        """Return the coordinates of the dataset of all variables, as `xr.Dataset` accepts them."""
        coordinates: dict[str, Any] = {
            "time": self.times.astype("datetime64[ns]"),
            "step": ("step", np.array(self.steps), {"units": "h"}),
            "number": np.array(self.numbers),
            "latitude": ("latitude", self.grid.latitude(), {"units": "degrees_north"}),
            "longitude": ("longitude", self.grid.longitude(), {"units": "degrees_east"}),
        }
        levels = sorted({level for values in self.levels.values() for level in values})
        if levels:
            coordinates["level"] = ("level", tidy_levels(levels), {"units": "hPa"})
        return coordinates

    def dataset(self) -> xr.Dataset:
        """Return all fields, lazily decoded: a dask chunk for each date, step and level."""
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
        data = _lazy_array(cube, table, self.grid)
        return xr.Variable((*outer, "latitude", "longitude"), data, self.attributes(name))

    def _cube(self, variable: str) -> Cube:
        if variable not in self._cubes:
            raise UnknownNameError("variable", variable, self.variables)
        return self._cubes[variable]


def grib_dataset(paths: Sequence[Path], missing: Missing = "error") -> xr.Dataset:
    """Open GRIB files lazily: a dask chunk for each date, step and level.

    Args:
        paths: the files, in any order, with their messages in any order.
        missing: what to do about missing fields: "error" to raise an error, "nan" to fill with NaN,
            "skip" to leave out the start dates concerned.

    Returns:
        Variables by cfgrib's name over (time, step[, level], number, latitude, longitude), float32.
        The attribute `levels_hpa` of a variable lists the levels that it has.

    Raises:
        MissingDataError: fields are missing; all of them are listed.
        FileError: two messages hold the same field, or do not agree in grid, units or levels.
    """
    return GribFields(paths, missing).dataset()


def tidy_levels(levels: Sequence[float]) -> npt.NDArray[Any]:
    """Return levels as integers if all of them are whole hPa, otherwise as floats."""
    array = np.array(levels)
    return array.astype(np.int64) if np.all(array == array.round()) else array


def _lazy_array(cube: Cube, table: npt.NDArray[np.int32], grid: LatLonGrid) -> da.Array:
    """Build a lazy array (..., number, rows, columns) from messages, chunked by `...`."""
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
    """Decodes the messages of one chunk of a lazy array.

    Attributes:
        messages: of the variable.
        table: shape (..., number), the index of each field's message, -1 for none.
        grid: of the fields.
    """

    messages: MessageList
    table: npt.NDArray[np.int32]
    grid: LatLonGrid

    def __call__(self, block_id: tuple[int, ...] | None = None) -> npt.NDArray[np.float32]:
        index = (block_id or (0,) * (self.table.ndim + 2))[: self.table.ndim - 1]
        message_ids = self.table[index].tolist()
        shape = (len(message_ids), self.grid.rows, self.grid.columns)
        members = np.full(shape, np.nan, dtype=np.float32)
        with ExitStack() as stack:
            open_files: dict[Path, BinaryIO] = {}
            for member, n in zip(members, message_ids, strict=True):
                if n < 0:
                    continue
                message = self.messages[n]
                if message.path not in open_files:
                    open_files[message.path] = stack.enter_context(message.path.open("rb"))
                member[:] = unpack(message, open_files[message.path])
        return members[(None,) * len(index)]
