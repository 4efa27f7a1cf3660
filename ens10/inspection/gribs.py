"""GRIB messages as rows: gaps, messages given twice, strangers, and what kind of data they are."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ens10.catalog import VARIABLES
from ens10.errors import Ens10Error, FileError
from ens10.grib import Meaning, Message, MessageList, decode, unpack
from ens10.inspection.ensembles import is_lagged, notes_of
from ens10.inspection.rows import Moments, Row, counted, few, status_of
from ens10.progress import track
from ens10.source.agreement import check_agreement
from ens10.source.selection import HECTOPASCAL

_Key = tuple[str, float, str, int, str]  # name, hPa, type of level, level, grid
_LONG = 2000  # messages from which a progress bar is worth it
_FEW = 0.1  # share of the fields of the other levels below which a level is a stranger


def grib_rows(messages: MessageList, source: str, values: bool, progress: bool) -> list[Row]:
    """One row for each variable, level and grid, and one for what does not go together.

    Args:
        messages: of all files.
        source: name of the file or folder, for the row of what does not go together.
        values: whether to decode all values.
        progress: show a progress bar.
    """
    groups = _groups(messages)
    moments = {key: Moments(key[0]) for key in groups}
    if values:
        _measure(groups, moments, progress)
    most: dict[tuple[str, str], int] = defaultdict(int)
    for (name, *_, grid), group in groups.items():
        most[name, grid] = max(most[name, grid], len(group))
    rows = [
        _row(key, group, moments[key], most[key[0], key[-1]])
        for key, group in sorted(groups.items())
    ]
    try:
        if len(messages):
            check_agreement(messages)
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
    units = HECTOPASCAL.get(meaning.level_type)
    height = meaning.level / units if units else 0.0
    return meaning.name, height, meaning.level_type, meaning.level, str(meaning.grid)


def _measure(groups: dict[_Key, MessageList], moments: dict[_Key, Moments], progress: bool) -> None:
    total = sum(map(len, groups.values()))
    fields = ((key, message) for key, group in groups.items() for message in group)
    with closing(_Files()) as files:
        for key, message in track(fields, "inspect", total, progress and total > _LONG):
            try:
                moments[key].add(unpack(message, files.of(message.path)), message.place)
            except FileError as error:
                moments[key].wrong.add(error)


class _Files:
    """The file read last, kept open."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._file: BinaryIO | None = None

    def of(self, path: Path) -> BinaryIO:
        """The open file of a path."""
        if self._file is None or path != self._path:
            self.close()
            self._path, self._file = path, path.open("rb")
        return self._file

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()


def _row(key: _Key, group: MessageList, moments: Moments, most: int) -> Row:
    name, _, level_type, level, grid = key
    cube = _Cube(group)
    units = {"isobaricInhPa": "hPa", "isobaricInPa": "Pa"}.get(level_type)
    problems = [*moments.problems(), *cube.problems()]
    if moments.empty:
        empty = counted(len(moments.empty), "field")
        problems.append(f"{empty} without any value: {few(moments.empty)}")
    problems += _stranger(key, group, most)
    row = Row(
        name=name,
        level=f"{level} {units}" if units else level_type,
        dates=len(cube.times),
        first=str(cube.times[0].astype("datetime64[s]"))[:13],
        last=str(cube.times[-1].astype("datetime64[s]"))[:13],
        steps=cube.steps,
        members=len(cube.numbers),
        missing=len(cube.gaps),
        units=group.meanings[0].units,
        grid=grid,
        status=status_of(problems),
        note="; ".join(notes_of(group, cube.lagged)),
    )
    return moments.into(row)


def _stranger(key: _Key, group: MessageList, most: int) -> Iterator[str]:
    """What is odd about a row as a whole: a level that hardly any message has, or none can have."""
    name, _, level_type, _, _ = key
    first = group[0].place
    if len(group) < _FEW * most:
        yield (
            f"only {counted(len(group), 'field')} of {name} on this level, and {most} on others: a "
            f"wrong level? The first is {first}; mend its level or remove it"
        )
    known = VARIABLES.get(name)
    if known and known.kind == "sfc" and level_type in HECTOPASCAL:
        yield (
            f"{known.long_name} lies at the surface, not on a pressure level: a wrong level? The "
            f"first is {first}; mend its level or remove it"
        )


class _Cube:
    """The places of one row's fields: start, step and member."""

    def __init__(self, group: MessageList) -> None:
        self.group = group
        records = group.records
        steps = np.array([meaning.step for meaning in group.meanings])[records["meaning"]]
        columns = (records["time"], steps, np.maximum(records["number"], 0))
        axes = [np.unique(column, return_inverse=True) for column in columns]
        self.times = axes[0][0].astype("datetime64[s]")
        self.steps, self.numbers = axes[1][0].tolist(), axes[2][0].tolist()
        self._shape = tuple(len(values) for values, _ in axes)
        self._place = np.ravel_multi_index([index for _, index in axes], self._shape)
        held = np.zeros(self._shape, dtype=bool)
        held.reshape(-1)[self._place] = True
        self.lagged = is_lagged(held)
        self.gaps = np.argwhere(~held & _expected(held) if self.lagged else ~held)

    def problems(self) -> Iterator[str]:
        """What lacks, and what is there more than once."""
        if len(self.gaps):
            paths = {self.group.paths[n] for n in np.unique(self.group.records["file"])}
            where = f"in {paths.pop()}" if len(paths) == 1 else f"in {len(paths)} files"
            yield (
                f"{counted(len(self.gaps), 'field')} missing {where}: {few(self._gap_words())}; "
                f"fetch the files again, or accept the gaps with `ens10 prepare --missing nan`"
            )
        yield from self._twice()

    def _gap_words(self) -> list[str]:
        """One description for each start and step with gaps."""
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        for time, step, number in self.gaps.tolist():
            found[time, step].append(self.numbers[number])
        return [
            f"{str(self.times[time])[:13]} step {self.steps[step]} h "
            + ("all members" if len(who) == self._shape[2] else f"number {_ranges(who)}")
            for (time, step), who in found.items()
        ]

    def _twice(self) -> Iterator[str]:
        order = np.argsort(self._place, kind="stable")
        again = np.flatnonzero(np.diff(self._place[order]) == 0)
        told: dict[str, list[str]] = defaultdict(list)
        for n in again.tolist():
            one, other = (self.group[int(order[m])] for m in (n, n + 1))
            told[_difference(one, other)].append(f"{one.place} and {other.place}")
        for how, places in told.items():
            fields = counted(len(places), "field")
            yield f"{fields} given twice with {how}: {few(places)}; remove one of the two"


def _expected(held: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The places of a lagged ensemble: the steps and members that each start has."""
    steps: npt.NDArray[np.bool_] = np.asarray(held.any(axis=2))
    numbers: npt.NDArray[np.bool_] = np.asarray(held.any(axis=1))
    both: npt.NDArray[np.bool_] = steps[:, :, None] & numbers[:, None, :]
    return both


def _ranges(numbers: Sequence[int]) -> str:
    """Such as "1-3, 7" for 1, 2, 3, 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _difference(one: Message, other: Message) -> str:
    """What tells two messages of one field apart."""
    if one.data_type != other.data_type:
        return f"dataType {one.data_type} and {other.data_type}"
    try:
        same = _raw(one) == _raw(other) or np.array_equal(_bits(one), _bits(other))
    except Ens10Error:
        return "values that cannot be compared"
    return "equal values" if same else "different values"


def _raw(message: Message) -> bytes:
    with message.path.open("rb") as file:
        file.seek(message.offset)
        return file.read(message.length)


def _bits(message: Message) -> npt.NDArray[Any]:
    with message.path.open("rb") as file:
        return decode(message, file).view(np.uint32)
