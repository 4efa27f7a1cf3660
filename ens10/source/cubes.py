"""GRIB messages as cubes (date, step, level, member) of each variable, and the gaps in them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ens10.errors import DamagedFileError, FileError, MissingDataError
from ens10.grib import LatLonGrid, Message, MessageList, decode
from ens10.source.agreement import check_agreement
from ens10.source.selection import level_of

Missing = Literal["error", "nan", "skip"]
_EMPTIEST = 0.05  # share of places with a message below which the messages make no cube
_SPARSE = 0.5  # share below which files may be whole and yet fill no cube
_LAGGED = "The members may be lagged; choose dates, steps or members that belong together"
_SMALL = 1_000_000  # places; a cube of so many may be as empty as it likes


class Cell(NamedTuple):
    """Where a field stands in the cube of one variable; no level off pressure levels."""

    time: np.datetime64
    step: int
    level: float | None
    number: int

    def __str__(self) -> str:
        level = "" if self.level is None else f" at {self.level:g} hPa"
        return f"{str(self.time)[:13]}, step {self.step} h, number {self.number}{level}"


@dataclass(frozen=True)
class Axes:
    """What the cubes of a set of files span, all axes sorted."""

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
        table: shape (time, step, level, number), the number of each field's message, -1 for none;
            one level off pressure levels.
    """

    name: str
    messages: MessageList
    levels: list[float]
    table: npt.NDArray[np.int32]

    def members(self, time: int, step: int, level: int) -> list[Message | None]:
        """The messages of all members."""
        return [None if n < 0 else self.messages[n] for n in self.table[time, step, level].tolist()]


def axes_of(messages: MessageList) -> Axes:
    """The dates, steps and members that appear in any message, and their common grid.

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
    """The cube of each variable, by name.

    Raises:
        FileError: two messages hold the same field.
        MissingDataError: the fields are so few that they make no cube.
    """
    names, of_meaning = np.unique([m.name for m in messages.meanings], return_inverse=True)
    which = of_meaning.astype(np.int16)[messages.records["meaning"]]
    return {
        str(name): _cube(str(name), messages.take(np.flatnonzero(which == n)), axes)
        for n, name in enumerate(names)
    }


def _cube(name: str, messages: MessageList, axes: Axes) -> Cube:
    of_meaning = [level_of(meaning) for meaning in messages.meanings]
    levels = sorted({level for level in of_meaning if level is not None})
    records, ids = messages.records, messages.records["meaning"]
    shape = (*axes.shape[:2], len(levels) or 1, axes.shape[2])
    if len(messages) < _EMPTIEST * np.prod(shape) > _EMPTIEST * _SMALL:
        raise _no_cube(name, messages, int(np.prod(shape)))
    level = [0 if one is None else levels.index(one) for one in of_meaning]
    place = np.ravel_multi_index(
        (
            np.searchsorted(axes.times.astype(np.int64), records["time"]),
            np.array([axes.steps.index(meaning.step) for meaning in messages.meanings])[ids],
            np.array(level)[ids],
            np.searchsorted(axes.numbers, np.maximum(records["number"], 0)),
        ),
        shape,
    )
    table = np.full(shape, -1, np.int32)
    table.reshape(-1)[place] = np.arange(len(messages), dtype=np.int32)
    if np.count_nonzero(table >= 0) < len(messages):
        raise _given_twice(messages, place)
    return Cube(name, messages, levels, table)


def _no_cube(name: str, messages: MessageList, size: int) -> MissingDataError:
    return MissingDataError(
        messages.paths[0].parent,
        [f"{size - len(messages)} of {size} fields of {name} at all dates, steps and members"],
        _LAGGED,
    )


def _given_twice(messages: MessageList, place: npt.NDArray[np.int64]) -> FileError:
    order = np.argsort(place, kind="stable")
    twice = np.flatnonzero(np.diff(place[order]) == 0)
    again = int(order[twice + 1].min())  # the first in the order of the files
    at = int(np.flatnonzero(order == again)[0])
    first, second = messages[int(order[at - 1])], messages[again]
    cell = Cell(second.time, second.step, level_of(second.meaning), second.number or 0)
    more = f" ({len(twice)} fields are given more than once)" if len(twice) > 1 else ""
    return FileError(
        second.path,
        f"the message at byte {second.offset} holds {second.name} of {cell} a second time, after "
        f"{first.place}, with {_difference(first, second)}{more}",
        "Remove one of the two",
    )


def _difference(first: Message, second: Message) -> str:
    """What tells two messages of one field apart."""
    told = [
        f"{label} {mine} and {theirs}"
        for label, mine, theirs in (
            ("dataType", first.data_type, second.data_type),
            ("model version", first.meaning.model_date, second.meaning.model_date),
        )
        if mine != theirs
    ]
    try:
        with first.path.open("rb") as file, second.path.open("rb") as other:
            same = np.array_equal(decode(first, file), decode(second, other), equal_nan=True)
        values = "the same values" if same else "different values"
    except DamagedFileError as error:
        values = f"values that cannot be compared ({error})"
    return ", ".join([values, *told])


def without_gaps(
    paths: Sequence[Path], cubes: dict[str, Cube], axes: Axes, missing: Missing
) -> tuple[dict[str, Cube], Axes]:
    """Cubes and axes if nothing is missing, or without the dates that lack fields if skipped.

    Raises:
        MissingDataError: fields are missing, or all dates would be skipped; all gaps are listed.
    """
    whole = np.ones(len(axes.times), dtype=bool)
    for cube in cubes.values():
        whole &= (cube.table >= 0).all(axis=(1, 2, 3))
    if whole.all():
        return cubes, axes
    if missing == "error" or not whole.any():
        fields = sum(cube.table.shape[2] for cube in cubes.values())
        raise MissingDataError(
            paths[0] if len(paths) == 1 else paths[0].parent,
            _described(_gaps(cubes, axes), fields, len(axes.numbers)),
            _remedy(cubes, bool(whole.any())),
        )
    kept = {name: replace(cube, table=cube.table[whole]) for name, cube in cubes.items()}
    return kept, replace(axes, times=axes.times[whole])


def _remedy(cubes: dict[str, Cube], some_whole: bool) -> str:
    there = float(np.mean([np.mean(cube.table >= 0) for cube in cubes.values()]))
    if there < _SPARSE:
        return f"The fields fill {there:.0%} of their cube. {_LAGGED}"
    if not some_whole:
        return "No date is complete"
    return "Fetch the files again, or accept the gaps with --missing nan or --missing skip"


def _gaps(cubes: dict[str, Cube], axes: Axes) -> dict[Cell, list[str]]:
    """The fields that lack at each (time, step, number)."""
    gaps: dict[Cell, list[str]] = defaultdict(list)
    for name, cube in cubes.items():
        labels = [f"{name} {level:g} hPa" for level in cube.levels] or [name]
        for time, step, level, number in np.argwhere(cube.table < 0).tolist():
            cell = Cell(axes.times[time], axes.steps[step], None, axes.numbers[number])
            gaps[cell].append(labels[level])
    return gaps


def _described(gaps: dict[Cell, list[str]], fields: int, members: int) -> list[str]:
    """One line for each gap; a member, or a date, that lacks altogether takes one line."""
    by_date: dict[tuple[Any, int], list[tuple[int, str]]] = defaultdict(list)
    for cell in sorted(gaps, key=lambda cell: (cell.time, cell.step, cell.number)):
        names = gaps[cell]
        what = "all fields" if len(names) == fields else ", ".join(names)
        by_date[cell.time, cell.step].append((cell.number, what))
    lines = []
    for (time, step), lacking in by_date.items():
        when = f"time {str(time)[:13]} step {step} h"
        alike = {what for _, what in lacking}
        if len(lacking) == members and len(alike) == 1:
            what = alike.pop()
            lines.append(f"{when}: all members" + ("" if what == "all fields" else f" of {what}"))
        else:
            lines += [f"{when} number {number}: {what}" for number, what in lacking]
    return lines
