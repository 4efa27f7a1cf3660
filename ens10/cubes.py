"""GRIB messages as cubes (date, step, level, member) of each variable, and the gaps in them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ens10.errors import FileError, MissingDataError
from ens10.grib import LatLonGrid, Message

Missing = Literal["error", "nan", "skip"]
_HECTOPASCAL = {"isobaricInhPa": 1, "isobaricInPa": 100}  # units of the level type in one hPa


class Cell(NamedTuple):
    """Where a field stands in the cube of one variable; level 0 for surface fields."""

    time: np.datetime64
    step: int
    level: float
    number: int

    def __str__(self) -> str:
        level = f" at {self.level:g} hPa" if self.level else ""
        return f"{str(self.time)[:13]}, step {self.step} h, number {self.number}{level}"


Cubes = dict[str, dict[Cell, Message]]


@dataclass(frozen=True)
class Axes:
    """What the cubes of a set of files span, all axes sorted."""

    times: list[np.datetime64]
    steps: list[int]
    numbers: list[int]
    grid: LatLonGrid


def axes_of(messages: Sequence[Message]) -> Axes:
    """The dates, steps and members that appear in any message, and their common grid.

    Raises:
        FileError: messages lie on different grids.
    """
    first = messages[0]
    for other in messages:
        if other.grid != first.grid:
            raise FileError(
                other.path,
                f"the message at byte {other.offset} lies on the grid {other.grid}, that of "
                f"{first.place} on {first.grid}",
                "Prepare files on different grids into different stores",
            )
    return Axes(
        sorted({m.time for m in messages}),
        sorted({m.step for m in messages}),
        sorted({m.number or 0 for m in messages}),
        first.grid,
    )


def cubes_of(messages: Iterable[Message]) -> Cubes:
    """The messages by variable and place in its cube.

    Raises:
        FileError: two messages hold the same field.
    """
    cubes: Cubes = defaultdict(dict)
    for m in messages:
        units = _HECTOPASCAL.get(m.level_type)
        cell = Cell(m.time, m.step, m.level / units if units else 0.0, m.number or 0)
        twin = cubes[m.name].setdefault(cell, m)
        if twin is not m:
            raise FileError(
                m.path,
                f"the message at byte {m.offset} holds {m.name} of {cell} a second time, after "
                f"{twin.place}",
                "Remove one of the two",
            )
    return cubes


def without_gaps(paths: Sequence[Path], cubes: Cubes, axes: Axes, missing: Missing) -> Axes:
    """The axes if nothing is missing, or without the dates that lack fields if those are skipped.

    Raises:
        MissingDataError: fields are missing, or all dates would be skipped; all gaps are listed.
    """
    gaps = _gaps(cubes, axes)
    holed = {cell.time for cell in gaps}
    whole = [time for time in axes.times if time not in holed]
    if gaps and (missing == "error" or not whole):
        fields = sum(len(levels_of(cube)) for cube in cubes.values())
        remedy = "accept the gaps with --missing nan or --missing skip"
        raise MissingDataError(
            paths[0] if len(paths) == 1 else paths[0].parent,
            _described(gaps, fields, len(axes.numbers)),
            f"Fetch the files again, or {remedy}" if whole else "No date is complete",
        )
    return replace(axes, times=whole)


def levels_of(cube: dict[Cell, Message]) -> list[float]:
    """The levels of one variable, sorted."""
    return sorted({cell.level for cell in cube})


def _gaps(cubes: Cubes, axes: Axes) -> dict[Cell, list[str]]:
    """The fields that lack at each (time, step, number)."""
    gaps: dict[Cell, list[str]] = defaultdict(list)
    full = len(axes.times) * len(axes.steps) * len(axes.numbers)
    for name, cube in cubes.items():
        levels = levels_of(cube)
        if len(cube) == full * len(levels):
            continue
        for time, step, level, number in product(axes.times, axes.steps, levels, axes.numbers):
            if (time, step, level, number) not in cube:
                label = f"{name} {level:g} hPa" if level else name
                gaps[Cell(time, step, 0.0, number)].append(label)
    return gaps


def _described(gaps: dict[Cell, list[str]], fields: int, members: int) -> list[str]:
    """One line for each gap; a member, or a date, that lacks altogether takes one line."""
    by_date: dict[tuple[Any, int], list[tuple[int, str]]] = defaultdict(list)
    for cell, names in sorted(gaps.items()):
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
