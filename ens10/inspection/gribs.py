"""Table rows of GRIB files: one for each variable and level, with gaps, damage and data type."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ens10.catalog import ACCUMULATED, VARIABLES
from ens10.errors import FileError, listing
from ens10.grib import Meaning, MessageList, unpack
from ens10.identity import Method
from ens10.inspection.rows import FieldStatistics, Row, format_count, format_places, format_status
from ens10.machine_errors import read_failure
from ens10.progress import track
from ens10.source.grib_kinds import are_forecasts, check_agreement, with_own_names
from ens10.source.gribs import conversion_of, difference

# Below this share of dates x steps x members the fields may never have been meant to fill the
# whole cube: the members of a lagged ensemble have start dates and steps of their own.
_SPARSE = 0.5
_TYPES = {"an": "analysis", "fc": "single forecast", "fcmean": "forecast means"}
_SCANS: tuple[tuple[str, Callable[[Meaning], bool]], ...] = (
    ("scanned south to north", lambda m: m.scan.northward),
    ("scanned east to west", lambda m: m.scan.westward),
    ("scanned along meridians", lambda m: m.scan.by_column),
)


def is_lagged(present: npt.NDArray[np.bool_]) -> bool:
    """Return True for a lagged ensemble, in which each member starts at one of several times.

    The sets of members of any two starts are then equal or disjoint, and most fields are missing.

    Args:
        present: True where there is a field, (starts, steps, members).
    """
    if present.mean() >= _SPARSE:
        return False
    members = np.unique(present.any(axis=1), axis=0)
    return len(members) > 1 and bool((members.sum(axis=0) == 1).all())


def notes_of(group: MessageList, lagged: bool) -> Iterator[str]:
    """Yield notes on the messages of one row.

    Args:
        group: the messages.
        lagged: True if they are a lagged ensemble.
    """
    if lagged:
        yield "lagged: members of different start dates"
    yield from _member_notes(group)
    yield from _hindcast_notes(group)
    if group.meanings[0].level_type == "isobaricInPa":
        yield f"level in Pa ({group.meanings[0].level / 100:g} hPa)"
    yield from _orientation_notes(group)


def _member_notes(group: MessageList) -> Iterator[str]:
    first = group.meanings[0]
    if not first.kind.is_forecast:
        yield "no member: `ens10 prepare` leaves it out"
        return
    kinds = np.array([meaning.data_type for meaning in group.meanings])[group.records["meaning"]]
    numbers = {
        str(kind): len(np.unique(group.records["number"][kinds == kind]))
        for kind in np.unique(kinds)
    }
    perturbed = numbers.pop("pf", 0)
    if "cf" in numbers:
        del numbers["cf"]
        yield f"control and {perturbed} perturbed" if perturbed else "control only"
    elif perturbed == 1:
        yield f"perturbed member {group.records['number'].max()} only"
    elif perturbed:
        yield f"{perturbed} perturbed members, no control"
    for kind in numbers:
        yield _TYPES.get(kind, f"dataType {kind}")


def _hindcast_notes(group: MessageList) -> Iterator[str]:
    models = sorted({m.model_date for m in group.meanings if m.model_date is not None})
    if not models:
        return
    mask = np.array([m.model_date is not None for m in group.meanings])[group.records["meaning"]]
    times = np.unique(group.records["time"][mask]).astype("datetime64[s]")
    dates = " to ".join(dict.fromkeys(_day(str(date)) for date in (models[0], models[-1])))
    if len(times) == 1:
        yield f"hindcast of {str(times[0])[:10]} by the model of {dates}"
    else:
        yield f"hindcasts of {str(times[0])[:10]} to {str(times[-1])[:10]} by the model of {dates}"


def _day(date: str) -> str:
    return f"{date[:4]}-{date[4:6]}-{date[6:]}"


def _orientation_notes(group: MessageList) -> Iterator[str]:
    """Yield a note if messages are scanned in another order than this package's layout."""
    ids = group.records["meaning"]
    for words, holds in _SCANS:
        matches = np.array([holds(meaning) for meaning in group.meanings])[ids]
        if matches.all():
            yield f"{words}, put right"
        elif matches.any():
            first = group[int(matches.argmax())]
            yield f"{matches.sum()} of {len(group)} fields {words}, put right; first: {first.place}"
    begins = Counter(_first_column(m) for m in group.meanings if m.scan.roll)
    if begins:
        degrees = ", ".join(f"{west:g}" for west in sorted(begins))
        yield f"columns begin at {degrees} E, put right"


def _first_column(meaning: Meaning) -> float:
    west = meaning.grid.west - meaning.scan.roll * meaning.grid.spacing
    return round(west, 3) + 0.0


# Name, kind of a product and which it is, hPa, type of level, level, grid
_Key = tuple[str, str, str, float, str, int, str]
_PROGRESS_MINIMUM = 2000  # messages from which a progress bar is worth it
_MIN_LEVEL_SHARE = 0.1  # of the fields of other levels; a level with fewer is reported as wrong


def grib_rows(messages: MessageList, source: str, values: bool, progress: bool) -> list[Row]:
    """Return one row for each variable, level and grid, and one for inconsistencies.

    Args:
        messages: of all files.
        source: name of the file or folder, for the row about inconsistencies.
        values: True to decode all values.
        progress: show a progress bar.
    """
    messages = with_own_names(messages)
    groups = _groups(messages)
    # the values of a spread or a probability have no plausible range
    statistics = {key: FieldStatistics("" if key[1] else key[0]) for key in groups}
    if values:
        _measure(groups, statistics, progress)
    max_fields: dict[tuple[str, str], int] = defaultdict(int)
    for (name, *_, grid), group in groups.items():
        max_fields[name, grid] = max(max_fields[name, grid], len(group))
    rows = [
        _row(key, group, statistics[key], max_fields[key[0], key[-1]])
        for key, group in sorted(groups.items())
    ]
    _note_steps(rows)
    is_forecast = are_forecasts(messages.meanings)
    try:
        if is_forecast.any():
            check_agreement(messages.take(is_forecast[messages.records["meaning"]]))
    except FileError as error:
        rows.append(Row(source, status=str(error)))
    return rows


def _groups(messages: MessageList) -> dict[_Key, MessageList]:
    keys = [_key(meaning) for meaning in messages.meanings]
    ids = messages.records["meaning"]
    return {
        key: messages.take(np.isin(ids, [n for n, k in enumerate(keys) if k == key]))
        for key in dict.fromkeys(keys)
    }


def _key(meaning: Meaning) -> _Key:
    return (
        meaning.name,
        "" if meaning.kind.is_forecast else meaning.kind,
        meaning.product,
        meaning.pressure or 0.0,
        meaning.level_type,
        meaning.level,
        str(meaning.grid),
    )


def _measure(
    groups: dict[_Key, MessageList], statistics: dict[_Key, FieldStatistics], progress: bool
) -> None:
    total = sum(map(len, groups.values()))
    fields = ((key, message) for key, group in groups.items() for message in group)
    path: Path | None = None  # of the file that is open: the one that was read last
    with ExitStack() as stack:
        for key, message in track(fields, "inspect", total, progress and total > _PROGRESS_MINIMUM):
            try:
                if message.path != path:
                    path = None
                    stack.close()
                    file = stack.enter_context(message.path.open("rb"))
                    path = message.path
                values = unpack(message, file)
                factor, offset = _conversion(message.meaning)
                if (factor, offset) != (1.0, 0.0):
                    values = (values * np.float64(factor) + offset).astype(np.float32)
                statistics[key].add(values, message.place)
            except FileError as error:
                statistics[key].read_errors.add(error)
            except OSError as error:
                statistics[key].read_errors.add(read_failure(message.path, error))


def _conversion(meaning: Meaning) -> tuple[float, float]:
    """Return factor and offset to the catalogue's units; (1, 0) for products and unknown units."""
    conversion = conversion_of(meaning.name, meaning) if meaning.kind.is_forecast else None
    return conversion or (1.0, 0.0)


def _note_steps(rows: Sequence[Row]) -> None:
    """Note the steps that a variable lacks and others have."""
    steps = sorted({step for row in rows for step in row.steps})
    for row in rows:
        lacking = [f"{step:g}" for step in steps if step not in row.steps]
        if lacking and len(row.steps) > 1:
            text = f"no step {','.join(lacking)} h, which other variables have"
            row.note = f"{row.note}; {text}" if row.note else text


def _row(key: _Key, group: MessageList, statistics: FieldStatistics, max_fields: int) -> Row:
    name, kind, product, _, level_type, level, grid = key
    cube = _Cube(group)
    units = {"isobaricInhPa": "hPa", "isobaricInPa": "Pa"}.get(level_type)
    problems = [*statistics.problems(), *cube.problems()]
    if statistics.empty_fields:
        empty = format_count(len(statistics.empty_fields), "field")
        problems.append(f"{empty} without any value: {format_places(statistics.empty_fields)}")
    problems += _level_problems(key, group, max_fields)
    row = Row(
        name=" ".join(filter(None, (f"{name}," if kind else name, kind, product))),
        level=f"{level} {units}" if units else level_type,
        dates=len(cube.times),
        first_date=str(cube.times[0].astype("datetime64[s]"))[:13],
        last_date=str(cube.times[-1].astype("datetime64[s]"))[:13],
        steps=cube.steps,
        members=len(cube.numbers),
        missing=len(cube.gaps),
        units=_units(group.meanings[0]),
        grid=grid,
        status=format_status(problems),
        note="; ".join([*notes_of(group, cube.lagged), *_unit_notes(group)]),
    )
    return statistics.fill(row)


def _units(meaning: Meaning) -> str:
    """Return the units of the values as they are shown."""
    variable = VARIABLES.get(meaning.name)
    if (
        variable is None
        or not meaning.kind.is_forecast
        or conversion_of(meaning.name, meaning) is None
    ):
        return meaning.units
    is_rate = meaning.name in ACCUMULATED and meaning.window.method == Method.MEAN
    return f"{variable.units} s-1" if is_rate else variable.units


def _unit_notes(group: MessageList) -> Iterator[str]:
    units = sorted({m.units for m in group.meanings if _conversion(m) != (1.0, 0.0)})
    if units:
        yield f"converted from {', '.join(units)}"
    windows = sorted({m.window for m in group.meanings if m.window.method != Method.POINT})
    if windows:
        methods = " and ".join(dict.fromkeys(window.method for window in windows))
        yield f"{methods} of {listing([window.hours for window in windows])} h"


def _level_problems(key: _Key, group: MessageList, max_fields: int) -> Iterator[str]:
    """Describe implausible levels: in few messages only, or impossible values."""
    name, first = key[0], group[0]
    if len(group) < _MIN_LEVEL_SHARE * max_fields:
        fields = format_count(len(group), "field")
        yield (
            f"only {fields} of {name} on this level, and {max_fields} on others: a wrong level? "
            f"The first is {first.place}; mend its level or remove it"
        )
    variable = VARIABLES.get(name)
    if variable and variable.kind == "sfc" and first.meaning.pressure is not None:
        yield (
            f"{variable.long_name} lies at the surface, not on a pressure level: a wrong level? "
            f"The first is {first.place}; mend its level or remove it"
        )


class _Cube:
    """The positions of one row's fields along start, step and member.

    Attributes:
        group: the messages of the row.
        times: start times, sorted.
        steps: in hours, sorted.
        numbers: members, sorted.
        lagged: True for a lagged ensemble, see `is_lagged`.
        gaps: positions of the missing fields, shape (missing fields, 3).
    """

    def __init__(self, group: MessageList) -> None:
        self.group = group
        records = group.records
        windows = sorted({meaning.window for meaning in group.meanings})
        place_of = {window: n for n, window in enumerate(windows)}
        places = np.array([place_of[m.window] for m in group.meanings])[records["meaning"]]
        columns = (records["time"], places, np.maximum(records["number"], 0))
        axes = [np.unique(column, return_inverse=True) for column in columns]
        self.times = axes[0][0].astype("datetime64[s]")
        self._windows, self.numbers = windows, axes[2][0].tolist()
        self.steps = sorted({window.step for window in windows})
        self._shape = tuple(len(values) for values, _ in axes)
        self._place = np.ravel_multi_index([index for _, index in axes], self._shape)
        present = np.zeros(self._shape, dtype=bool)
        present.reshape(-1)[self._place] = True
        self.lagged = is_lagged(present)
        self.gaps = np.argwhere(~present & _expected_fields(present) if self.lagged else ~present)

    def problems(self) -> Iterator[str]:
        """Yield descriptions of missing and duplicate fields."""
        if len(self.gaps):
            paths = {self.group.paths[n] for n in np.unique(self.group.records["file"])}
            where = f"in {paths.pop()}" if len(paths) == 1 else f"in {len(paths)} files"
            fields = format_count(len(self.gaps), "field")
            yield (
                f"{fields} missing {where}: {format_places(self._gap_places())}; "
                f"fetch the files again, or accept the gaps with `ens10 prepare --missing nan`"
            )
        yield from self._duplicates()

    def _gap_places(self) -> list[str]:
        """Return one description for each start and step with gaps."""
        numbers: dict[tuple[int, int], list[int]] = defaultdict(list)
        for time, step, number in self.gaps.tolist():
            numbers[time, step].append(self.numbers[number])
        return [
            f"{str(self.times[time])[:13]} step {self._windows[step].step} h "
            + (
                "all members"
                if len(members) == self._shape[2]
                else f"number {_format_ranges(members)}"
            )
            for (time, step), members in numbers.items()
        ]

    def _duplicates(self) -> Iterator[str]:
        """Yield a description of the fields with two messages, by their difference."""
        order = np.argsort(self._place, kind="stable")
        duplicates = np.flatnonzero(np.diff(self._place[order]) == 0)
        places_by_difference: dict[str, list[str]] = defaultdict(list)
        for n in duplicates.tolist():
            one, other = (self.group[int(order[m])] for m in (n, n + 1))
            places_by_difference[difference(one, other)].append(f"{one.place} and {other.place}")
        for text, places in places_by_difference.items():
            fields = format_count(len(places), "field")
            yield (
                f"{fields} duplicated with {text}: {format_places(places)}; remove one of the two"
            )


def _expected_fields(present: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the expected fields of a lagged ensemble: all members of each start at all its steps.

    Args:
        present: fields of the messages, (starts, steps, members).
    """
    steps: npt.NDArray[np.bool_] = np.asarray(present.any(axis=2))
    numbers: npt.NDArray[np.bool_] = np.asarray(present.any(axis=1))
    both: npt.NDArray[np.bool_] = steps[:, :, None] & numbers[:, None, :]
    return both


def _format_ranges(numbers: Sequence[int]) -> str:
    """Format numbers as ranges: "1-3, 7" for 1, 2, 3, 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
