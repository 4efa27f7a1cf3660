"""GRIB files as cubes of fields, with checks for missing, duplicate and inconsistent fields."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import dask.array as da
import numpy as np
import numpy.typing as npt
import xarray as xr
from dask.base import tokenize

from ens10.catalog import ACCUMULATED, VARIABLES, variable_of_param
from ens10.errors import (
    ArgumentError,
    DamagedFileError,
    FileError,
    MissingDataError,
    UnknownNameError,
)
from ens10.grib import (
    LatLonGrid,
    Meaning,
    Message,
    MessageList,
    decode,
    pack,
    scan,
    to_float32,
    unpack,
)
from ens10.identity import Method, Window
from ens10.packed16.layout import Field
from ens10.selection import Selection
from ens10.source.grib_kinds import (
    are_forecasts,
    check_agreement,
    forecast_messages,
    window_of,
    with_own_names,
)
from ens10.source.times import in_nanoseconds
from ens10.source.units import amount_of_rate, conversion, unit_of, units_error
from ens10.source.windows import Recipe, in_seconds, recipes, window_text

Missing = Literal["error", "nan", "skip"]
_MIN_FILLED_SHARE = 0.05  # share of fields with a message below which a cube is not built
_SPARSE = 0.5  # share below which the files may be complete, but of a lagged ensemble
_LAGGED_REMEDY = "The members may be lagged; choose dates, steps or members that belong together"
_UNCHANGED = (1.0, 0.0)  # factor and offset of fields in the catalogue's units
_SMALL_CUBE = 1_000_000  # fields; cubes of at most so many are built however empty they are


class Cell(NamedTuple):
    """Position of a field in the cube of one variable; the level is None off pressure levels."""

    time: np.datetime64
    step: float
    level: float | None
    number: int

    def __str__(self) -> str:
        level = "" if self.level is None else f" at {self.level:g} hPa"
        return f"{str(self.time)[:13]}, step {self.step} h, number {self.number}{level}"


class GribPart(NamedTuple):
    """A message, and the factor and offset of its values in a field."""

    message: Message
    factor: float = 1.0
    offset: float = 0.0


# The parts whose sum is a field: 0 if there are none; None if the field is missing
Parts = tuple[GribPart, ...] | None


@dataclass(frozen=True)
class Axes:
    """The axes of the cubes of a set of files, all sorted."""

    times: npt.NDArray[np.datetime64]
    steps: list[float]
    numbers: list[int]
    grid: LatLonGrid


@dataclass(frozen=True)
class Cube:
    """The messages of one variable.

    Attributes:
        name: cfgrib's name.
        messages: of the variable, in the order of the files.
        levels: in hPa, sorted; empty off pressure levels.
        table: shape (time, window, level, number), the index in `messages` of each field's message,
            -1 for none; one level off pressure levels.
        recipes: how the field of each step is computed from those of the windows, None for a step
            that the variable does not have.
        conversions: factor and offset to the catalogue's units, by meaning of the messages.
        unused: messages of the variable whose windows no recipe needs.
    """

    name: str
    messages: MessageList
    levels: list[float]
    table: npt.NDArray[np.int32]
    recipes: list[Recipe | None]
    conversions: list[tuple[float, float]]
    unused: MessageList

    @cached_property
    def present(self) -> npt.NDArray[np.bool_]:
        """Which fields are complete, shape (time, step, level, number)."""
        shape = (self.table.shape[0], len(self.recipes), *self.table.shape[2:])
        present = np.zeros(shape, dtype=bool)
        for step, recipe in enumerate(self.recipes):
            if recipe is not None:
                places = [n for n, _ in recipe.parts if not self._is_zero(recipe)]
                present[:, step] = (self.table[:, places] >= 0).all(axis=1)
        return present

    def members(self, time: int, step: int, level: int) -> list[Parts]:
        """Return the parts of the fields of all members at a position."""
        recipe = self.recipes[step]
        if recipe is None:
            return [None] * self.table.shape[3]
        indices = self.table[time][[n for n, _ in recipe.parts], level].T.tolist()
        if self._is_zero(recipe):
            indices = [[n for n in member if n >= 0] for member in indices]
        factors = [factor for _, factor in recipe.parts]
        return [
            None if min(member, default=0) < 0 else
            tuple(self._part(n, factor) for n, factor in zip(member, factors, strict=False))
            for member in indices
        ]  # fmt: skip

    def _is_zero(self, recipe: Recipe) -> bool:
        """Return True for precipitation at the start, which is 0 if there is no message."""
        return self.name in ACCUMULATED and recipe.window.end == 0

    def _part(self, n: int, factor: float) -> GribPart:
        unit_factor, offset = self.conversions[self.messages.records["meaning"][n]]
        return GribPart(self.messages[n], factor * unit_factor, offset)


def conversion_of(name: str, meaning: Meaning) -> tuple[float, float] | None:
    """Return factor and offset to the catalogue's units; None if they cannot be converted."""
    variable, units = VARIABLES.get(name), meaning.units
    if variable is None or units in (variable.units, "unknown"):
        return _UNCHANGED
    if name in ACCUMULATED and meaning.window.method == Method.MEAN:
        amount, seconds = amount_of_rate(units) or (units, 1.0)
        factor, offset = conversion(variable, amount) or (None, 0.0)
        return None if factor is None else (factor / seconds, offset)
    return conversion(variable, units)


def axes_of(messages: MessageList, steps: list[float]) -> Axes:
    """Return the dates and members that appear in any message, the steps, and their common grid.

    Args:
        messages: of all variables.
        steps: the steps to keep.

    Raises:
        FileError: messages do not agree in grid or levels, or have units that cannot be converted.
    """
    grid = check_agreement(messages)
    for n, meaning in enumerate(messages.meanings):
        if conversion_of(meaning.name, meaning) is None:
            first = messages[int((messages.records["meaning"] == n).argmax())]
            raise units_error(VARIABLES[meaning.name], meaning.units, first.place)
    times = np.unique(messages.records["time"]).astype("datetime64[s]")
    return Axes(times, steps, np.unique(np.maximum(messages.records["number"], 0)).tolist(), grid)


def _steps(messages: MessageList) -> list[float]:
    return sorted({meaning.step for meaning in messages.meanings})


def _numbers(messages: MessageList) -> npt.NDArray[Any]:
    """Return the sorted members of all messages that are fields of forecasts."""
    is_forecast = are_forecasts(messages.meanings)[messages.records["meaning"]]
    return np.unique(np.maximum(messages.records["number"][is_forecast], 0))


def cubes_of(messages: MessageList, axes: Axes, *, join: bool = True) -> dict[str, Cube]:
    """Return the cube of each variable, by name.

    Args:
        messages: of all variables.
        axes: of the cubes.
        join: False to leave sums of intervals as they are, see `ens10.source.windows.recipes`.

    Raises:
        FileError: two messages hold the same field.
        MissingDataError: the files hold less than 5 % of a large cube's fields.
    """
    names, name_of_meaning = np.unique([m.name for m in messages.meanings], return_inverse=True)
    name_of_message = name_of_meaning.astype(np.int16)[messages.records["meaning"]]
    return {
        str(name): _cube(str(name), messages.take(np.flatnonzero(name_of_message == n)), axes, join)
        for n, name in enumerate(names)
    }


def _cube(name: str, messages: MessageList, axes: Axes, join: bool) -> Cube:
    windows = sorted({window_of(meaning) for meaning in messages.meanings})
    plan = recipes(name, windows, in_seconds(axes.steps), join=join)
    windows, plan = _used_windows(windows, plan)
    place_of = {window: n for n, window in enumerate(windows)}
    is_used = np.array([window_of(meaning) in place_of for meaning in messages.meanings])
    is_used = is_used[messages.records["meaning"]]
    unused, messages = messages.take(~is_used), messages.take(is_used)
    pressures = [meaning.pressure for meaning in messages.meanings]
    levels = sorted({pressure for pressure in pressures if pressure is not None})
    records, ids = messages.records, messages.records["meaning"]
    shape = (len(axes.times), len(windows), len(levels) or 1, len(axes.numbers))
    if len(messages) < _MIN_FILLED_SHARE * np.prod(shape) > _MIN_FILLED_SHARE * _SMALL_CUBE:
        raise _no_cube_error(name, messages, int(np.prod(shape)))
    level_indices = [0 if pressure is None else levels.index(pressure) for pressure in pressures]
    positions = np.ravel_multi_index(
        (
            np.searchsorted(axes.times.astype(np.int64), records["time"]),
            np.array([place_of[window_of(m)] for m in messages.meanings], np.int64)[ids],
            np.array(level_indices, np.int64)[ids],
            np.searchsorted(axes.numbers, np.maximum(records["number"], 0)),
        ),
        shape,
    )
    table = np.full(shape, -1, np.int32)
    table.reshape(-1)[positions] = np.arange(len(messages), dtype=np.int32)
    if np.count_nonzero(table >= 0) < len(messages):
        raise _duplicate_error(messages, positions)
    conversions = [conversion_of(name, meaning) or _UNCHANGED for meaning in messages.meanings]
    return Cube(name, messages, levels, table, plan, conversions, unused)


def _used_windows(
    windows: Sequence[Window], plan: Sequence[Recipe | None]
) -> tuple[list[Window], list[Recipe | None]]:
    """Return the windows that recipes use, and the recipes with positions among these."""
    used = sorted({n for recipe in plan if recipe is not None for n, _ in recipe.parts})
    place_of = {n: place for place, n in enumerate(used)}
    return [windows[n] for n in used], [
        recipe and Recipe(recipe.window, tuple((place_of[n], f) for n, f in recipe.parts))
        for recipe in plan
    ]


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
    cell = Cell(second.time, second.meaning.step, second.meaning.pressure, second.number or 0)
    note = f" ({len(duplicates)} fields are given more than once)" if len(duplicates) > 1 else ""
    return FileError(
        second.path,
        f"the message at byte {second.offset} holds {second.meaning.name} of {cell} a second time, "
        f"after {first.place}, with {difference(first, second)}{note}",
        "Remove one of the two",
    )


# What may differ between messages of one field
_ATTRIBUTES = {
    "dataType": "data_type", "model version": "model_date", "expver": "version",
    "units": "units", "paramId": "param_id", "edition": "edition", "centre": "centre",
    "packingType": "packing", "bits per value": "bits",
}  # fmt: skip


def difference(first: Message, second: Message) -> str:
    """Describe the difference between two messages of one field."""
    differences = [
        f"{label} {getattr(first.meaning, key)} and {getattr(second.meaning, key)}"
        for label, key in _ATTRIBUTES.items()
        if getattr(first.meaning, key) != getattr(second.meaning, key)
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
        FileError: in place of a missing field there is one of another window.
    """
    complete = np.ones(len(axes.times), dtype=bool)
    for cube in cubes.values():
        complete &= cube.present.all(axis=(1, 2, 3))
    if complete.all():
        return cubes, axes
    if missing == "error" or not complete.any():
        for name, cube in cubes.items():
            _refuse_other_windows(name, cube, axes)
        fields = sum(cube.present.shape[2] for cube in cubes.values())
        raise MissingDataError(
            paths[0] if len(paths) == 1 else paths[0].parent,
            _describe_gaps(_gaps(cubes, axes), fields, len(axes.numbers)),
            _remedy(cubes, axes, bool(complete.any())),
        )
    complete_cubes = {
        name: replace(cube, table=cube.table[complete]) for name, cube in cubes.items()
    }
    return complete_cubes, replace(axes, times=axes.times[complete])


def _refuse_other_windows(name: str, cube: Cube, axes: Axes) -> None:
    """Refuse a message in place of a missing field whose window is not that of the others."""
    for message in cube.unused:
        step, number = message.meaning.step, message.number or 0
        recipe = cube.recipes[axes.steps.index(step)] if step in axes.steps else None
        time = int(np.searchsorted(axes.times, message.time))
        if recipe is None or step == 0:
            continue
        present = cube.present[time, axes.steps.index(step), :, axes.numbers.index(number)]
        if not present.all():
            cell = Cell(message.time, step, message.meaning.pressure, number)
            reason = f"gives {name} of {cell} as {window_of(message.meaning)}, and at other dates"
            raise FileError(
                message.path,
                f"the message at byte {message.offset} {reason} or of other members it is "
                f"{recipe.window}",
                "Prepare fields of different windows into different stores",
            )


def _remedy(cubes: dict[str, Cube], axes: Axes, any_complete: bool) -> str:
    steps = [
        f"{step:g}"
        for n, step in enumerate(axes.steps)
        if all(cube.recipes[n] is not None for cube in cubes.values())
    ]
    if 0 < len(steps) < len(axes.steps):
        return (
            f"All variables have --steps {' '.join(steps)} alone; select these, or fewer variables "
            "with --variables, or accept the gaps with --missing nan"
        )
    members = {name: set(np.nonzero(cube.present)[3].tolist()) for name, cube in cubes.items()}
    alone = [n for n in members if all(n == m or not members[n] & members[m] for m in members)]
    if alone and len(members) > 1:
        name = min(alone, key=lambda name: len(members[name]))
        return f"{name} has no member that other variables have: leave it out with --variables"
    share = float(np.mean([np.mean(cube.present) for cube in cubes.values()]))
    if share < _SPARSE:
        return f"The fields fill {share:.0%} of their cube. {_LAGGED_REMEDY}"
    if not any_complete:
        return (
            "No date is complete: select fewer --variables or --steps, or accept the gaps with "
            "--missing nan"
        )
    return "Fetch the files again, or accept the gaps with --missing nan or --missing skip"


def _gaps(cubes: dict[str, Cube], axes: Axes) -> dict[Cell, list[str]]:
    """Return the missing fields at each (time, step, number)."""
    gaps: dict[Cell, list[str]] = defaultdict(list)
    for name, cube in cubes.items():
        labels = [f"{name} {level:g} hPa" for level in cube.levels] or [name]
        for time, step, level, number in np.argwhere(~cube.present).tolist():
            cell = Cell(axes.times[time], axes.steps[step], None, axes.numbers[number])
            gaps[cell].append(labels[level])
    return gaps


def _describe_gaps(gaps: dict[Cell, list[str]], fields: int, members: int) -> list[str]:
    """Describe gaps, one per line; a member or date that is missing entirely takes one line."""
    by_date: dict[tuple[Any, float], list[tuple[int, str]]] = defaultdict(list)
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


__all__ = ["GribFields", "Missing"]


class GribFields:
    """The fields of GRIB files, by variable, date, step, level and member.

    Args:
        files: the files, or their messages as returned by `ens10.grib.scan`; in any order.
        missing: what to do about missing fields: "error" to raise an error, "nan" to leave gaps,
            "skip" to leave out the start dates concerned.
        selection: the fields to keep; None for all. Other fields are not checked for gaps.
        join: False to leave sums of intervals as they are; otherwise precipitation is summed since
            the start (`ens10.source.windows`).

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
        *,
        join: bool = True,
    ) -> None:
        if not files:
            raise ArgumentError("files", "none are given", "Choose at least one GRIB file")
        lists = (file if isinstance(file, MessageList) else scan(file) for file in files)
        selection = selection or Selection()
        all_messages = with_own_names(MessageList.concatenate(lists))
        messages = forecast_messages(selection.of_variables(all_messages))
        steps = selection.of_steps(_steps(messages))
        messages = selection.of_messages(messages, _numbers(all_messages))
        axes = axes_of(messages, _steps(messages) if selection.steps is None else steps)
        cubes, all_times = cubes_of(messages, axes, join=join), axes.times
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
    ) -> list[Parts]:
        """Return the parts of the fields of all members, None where a field is missing.

        Args:
            variable: cfgrib's name.
            time_index: along `times`.
            step_index: along `steps`.
            level_index: along `levels[variable]`; 0 off pressure levels.
        """
        return self._cube(variable).members(time_index, step_index, level_index)

    def are_copies(self, variable: str) -> bool:
        """Return True if no field of a variable is converted or computed from several messages."""
        cube = self._cube(variable)
        is_plain = all(recipe is None or recipe.is_copy for recipe in cube.recipes)
        return is_plain and set(cube.conversions) == {_UNCHANGED}

    def attributes(self, variable: str) -> dict[str, Any]:
        """Return CF attributes of a variable, and `levels_hpa` on pressure levels.

        `window` is the time window of precipitation if the files state it, and that of means and
        extremes.
        """
        cube = self._cube(variable)
        meaning = cube.messages.meanings[0]
        # A variable that the catalogue lacks needs its number to be written as GRIB again.
        known = variable_of_param(meaning.param_id)
        same_units = known and unit_of(known.units) == unit_of(meaning.units)
        units = known.units if known and same_units else meaning.units
        attributes: dict[str, Any] = {"units": units}
        if variable in VARIABLES:
            attributes = dict(VARIABLES[variable].attributes)
        elif known is None or known.kind == "sfc":  # the number alone does not tell a height
            attributes["paramId"] = meaning.param_id
        if set(cube.conversions) != {_UNCHANGED}:
            attributes["converted_from"] = meaning.units
        if any(m.window.method != Method.POINT for m in cube.messages.meanings):
            attributes["window"] = window_text(cube.recipes)
        if cube.levels:
            attributes["levels_hpa"] = tidy_levels(cube.levels).tolist()
        return attributes

    def coordinates(self) -> dict[str, Any]:
        """Return the coordinates of the dataset of all variables, as `xr.Dataset` accepts them."""
        coordinates: dict[str, Any] = {
            "time": in_nanoseconds(self.times, "time"),
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
        """Return a lazy array (time, step[, level], number, rows, columns)."""
        cube, grid = self._cubes[name], self.grid
        outer, places = {"time": len(self.times), "step": len(self.steps)}, [0]
        if cube.levels:
            place_of = {level: n for n, level in enumerate(cube.levels)}
            outer["level"], places = len(levels), [place_of.get(level, -1) for level in levels]
        inner = {"number": cube.table.shape[3], "latitude": grid.rows, "longitude": grid.columns}
        paths = [str(path) for path in cube.messages.paths]
        token = tokenize(paths, cube.messages.records, cube.table, cube.recipes, places)
        data = da.map_blocks(  # type: ignore[no-untyped-call]
            partial(_read_block, cube, places, grid),
            chunks=(*((1,) * size for size in outer.values()), *((n,) for n in inner.values())),
            dtype=np.float32,
            meta=np.empty((0,) * (len(outer) + len(inner)), dtype=np.float32),
            name=f"grib-{name}-{token}",
        )
        return xr.Variable((*outer, *inner), data, self.attributes(name))

    def _cube(self, variable: str) -> Cube:
        if variable not in self._cubes:
            raise UnknownNameError("variable", variable, self.variables)
        return self._cubes[variable]


def tidy_levels(levels: Sequence[float]) -> npt.NDArray[Any]:
    """Return levels as integers if all of them are whole hPa, otherwise as floats."""
    array = np.array(levels)
    return array.astype(np.int64) if np.all(array == array.round()) else array


@contextmanager
def field_reader(
    grid: LatLonGrid, read: Callable[[Message, BinaryIO], Field] = pack
) -> Iterator[Callable[[Parts], Field]]:
    """Yield a function that reads a field from its parts; each file is opened once.

    The function returns the result of `read` for a field that is one unchanged message. Sums and
    converted fields are float32, computed in float64. A missing field is None.
    """
    shape = (grid.rows, grid.columns)
    with ExitStack() as stack:
        files: dict[Path, BinaryIO] = {}

        def read_message(message: Message) -> Field:
            if message.path not in files:
                files[message.path] = stack.enter_context(message.path.open("rb"))
            return read(message, files[message.path])

        def read_field(parts: Parts) -> Field:
            if parts is None:
                return None
            if is_copy(parts):
                return read_message(parts[0].message)
            total = np.zeros(shape)
            for message, factor, offset in parts:
                total += to_float32(read_message(message), shape) * np.float64(factor) + offset
            return None if np.isnan(total).all() else total.astype(np.float32)

        yield read_field


def is_copy(parts: Parts) -> bool:
    """Return True if a field is one message without a conversion."""
    return parts is not None and len(parts) == 1 and parts[0][1:] == _UNCHANGED


def _read_block(
    cube: Cube, levels: list[int], grid: LatLonGrid, block_id: tuple[int, ...] = (0,) * 6
) -> npt.NDArray[np.float32]:
    """Read the fields of one chunk of a lazy array.

    Args:
        cube: of the variable.
        levels: for each level of the array, its position in the cube; -1 if the cube lacks it.
        grid: of the fields.
        block_id: of the chunk.
    """
    time, step, *inner = block_id
    level = levels[inner[0] if cube.levels else 0]
    members: list[Parts] = [None] * cube.table.shape[3]
    if level >= 0:
        members = cube.members(time, step, level)
    with field_reader(grid, unpack) as read:
        values = np.stack([to_float32(read(one), (grid.rows, grid.columns)) for one in members])
    return values[(None,) * (3 if cube.levels else 2)]
