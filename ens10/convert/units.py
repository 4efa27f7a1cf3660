"""Units of work: what one worker does at a time, and may do again without harm.

A unit is a plain object that can be sent to another process or machine. `work` writes the files of
units and then their entries; a unit whose entry is there is done.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ens10.convert.files import Folder, Writer
from ens10.convert.moments import Chunk, Range, add_date
from ens10.errors import FileError
from ens10.packed16.layout import Field, encode
from ens10.source.ranges import check_range
from ens10.store.manifest import Row
from ens10.store.record import field_checksums

SUMS = ("count", "sum", "square_sum")
_SLAB = 1 << 16  # points
_LARGE = 1 << 16  # points of a grid whose moments are worth another thread


class Unit(Protocol):
    """What can be done by itself.

    Attributes:
        name: of its entry.
    """

    @property
    def name(self) -> str:
        """Of its entry; no two units share it."""

    def write(self, writer: Writer) -> None:
        """Hands its files to the writer."""


Group = tuple[Unit, ...]


def work(folder: Folder, group: Group) -> list[str]:
    """Does some units, but for those that are done; the names of all.

    Small units are done several at a time, since the disk takes them in at the price of one; those
    that were whole before an error are done all the same.
    """
    with Writer(folder) as writer:
        for unit in group:
            if not folder.entry(unit.name).exists():
                with writer.unit(unit.name):
                    unit.write(writer)
    return [unit.name for unit in group]


@dataclass(frozen=True)
class Packing:
    """How blosc packs chunks, by the arrays' metadata."""

    cname: str
    clevel: int
    shuffle: int
    typesize: int

    def __call__(self, data: bytearray) -> bytes:
        """The chunk as a blosc frame. With one thread: several would leave its order to chance."""
        import numcodecs.blosc as blosc

        blosc.set_nthreads(1)
        name = self.cname.encode()
        frame: bytes = blosc.compress(data, name, self.clevel, self.shuffle, 0, self.typesize)
        return frame


@dataclass(frozen=True)
class Form:
    """What all forecast units have in common.

    Attributes:
        members: of the ensemble.
        rows: of the grid.
        columns: of the grid.
        channels: how many the statistics have.
        ensembles: suffix of the arrays' names, and members, of each mean and deviation.
        packing: of the forecasts' chunks, None for packed16 alone.
        any_values: whether values that cannot be are accepted.
        places: whether chunks carry their place; those of older stores do not.
    """

    members: int
    rows: int
    columns: int
    channels: int
    ensembles: tuple[tuple[str, int], ...]
    packing: Packing | None
    any_values: bool = False
    places: bool = True


@dataclass(frozen=True)
class Part:
    """One chunk of a forecast: a variable at one level.

    Attributes:
        variable: its name.
        level: place among the levels, None at the surface.
        channel: place among the channels, None where the variable lacks this level.
        path: of the chunk in the store.
    """

    variable: str
    level: int | None
    channel: int | None
    path: str


class Fields(Protocol):
    """The fields of one date and step."""

    def opened(self) -> AbstractContextManager[Callable[[int], Sequence[Field]]]:
        """Opens what is needed to read; gives a function from a part's place to its members."""

    def origin(self, part: int) -> str:
        """Where the members of a part are kept, for the manifest."""

    def place(self, part: int, member: int) -> str:
        """Where one member is kept, for messages."""


@dataclass(frozen=True)
class ForecastUnit:
    """One date and step: all chunks of the forecasts, and the ensemble's mean and deviation."""

    name: str
    place: tuple[int, int]
    form: Form
    parts: tuple[Part, ...]
    fields: Fields

    def write(self, writer: Writer) -> None:
        """Reads each field once."""
        form = self.form
        shape = (len(form.ensembles), 2, form.channels, form.rows * form.columns)
        moments = np.empty(shape, np.float32)
        beside: list[Future[None]] = []
        with self.fields.opened() as read:
            for n, part in enumerate(self.parts):
                key = part.path if form.places else ""
                data = encode(read(n), form.rows, form.columns, key)
                chunk = Chunk(data, form.members, form.rows, form.columns)
                ranges = chunk.ranges()
                for member, held in enumerate(() if form.any_values else ranges):
                    where = partial(self.fields.place, n, member)
                    _check(part.variable, held.minimum, held.maximum, where)
                about = [*_whole(ranges), self.fields.origin(n)]
                writer.put(part.path, data, about, form.packing)
                if part.channel is not None:
                    for each, (_, members) in zip(moments, form.ensembles, strict=True):
                        job = (each[0, part.channel], each[1, part.channel], members)
                        if chunk.points < _LARGE:
                            chunk.moments(*job)
                        else:
                            beside.append(_beside().submit(chunk.moments, *job))
            for one in beside:
                one.result()
        for each, (suffix, _) in zip(moments, form.ensembles, strict=True):
            for values, kind in zip(each, ("mean", "std"), strict=True):
                path = chunk_path(f"statistics/ensemble_{kind}{suffix}", self.place, 3)
                writer.put(path, values, [field_checksums(values)])


@cache
def _beside() -> ThreadPoolExecutor:
    """A thread that computes moments while the next messages are read."""
    return ThreadPoolExecutor(1, thread_name_prefix="moments")


def _check(name: str, low: float, high: float, where: Callable[[], str]) -> None:
    """Refuses impossible values; the place is put in words only then."""
    try:
        check_range(name, low, high, "")
    except FileError:
        try:
            check_range(name, low, high, where())
        except FileError as error:
            error.args = (f"{error} For anomalies and the like, give --any-values.",)
            raise


def _whole(ranges: Sequence[Range]) -> Row:
    """Minimum, maximum and gaps of several fields, as JSON holds them."""
    lows = [r.minimum for r in ranges if r.minimum == r.minimum]
    highs = [r.maximum for r in ranges if r.maximum == r.maximum]
    gaps = sum(r.gaps for r in ranges)
    return [_short(min(lows)), _short(max(highs)), gaps] if lows else [None, None, gaps]


def _short(value: float) -> float | None:
    """A float32 number in as few digits as tell it from all others."""
    return float(str(np.float32(value))) if np.isfinite(value) else None


def chunk_path(array: str, place: Sequence[int], inner: int) -> str:
    """A chunk's path in the store, of an array whose last dimensions are whole in each chunk."""
    return "/".join([array, "c", *map(str, place), *["0"] * inner])


@dataclass(frozen=True)
class TruthUnit:
    """The truth of one start date, at all its steps and levels.

    Attributes:
        name: of the unit.
        date: place of the date.
        dataset: variables over (step[, level], latitude, longitude), lazy.
        where: the source, for messages.
        any_values: whether values that cannot be are accepted.
    """

    name: str
    date: int
    dataset: Any
    where: str
    any_values: bool = False

    def write(self, writer: Writer) -> None:
        """Reads each field once."""
        held = self.dataset.compute(scheduler="synchronous")
        for name, field in held.data_vars.items():
            values = np.ascontiguousarray(field.to_numpy(), dtype="<f4")
            for place in np.ndindex(values.shape[:-2]):
                found = Chunk.of_floats(values[place])
                if not self.any_values:
                    _check(str(name), found.minimum, found.maximum, lambda: self.where)
                path = chunk_path(f"truth/{name}", (self.date, *place), 2)
                writer.put(path, values[place], [*_whole([found]), ""])


@dataclass(frozen=True)
class SumsUnit:
    """Count, sum and sum of squares at one step over the dates of one block.

    Attributes:
        name: of the unit.
        root: the store.
        place: block and step.
        dates: places of the block's dates, in their order.
        kinds: such as "mean" or "std_first5".
        shape: (channels, rows, columns).
    """

    name: str
    root: Path
    place: tuple[int, int]
    dates: tuple[int, ...]
    kinds: tuple[str, ...]
    shape: tuple[int, int, int]

    def write(self, writer: Writer) -> None:
        """Adds up in the dates' order, so that the sums depend on the data alone."""
        points = int(np.prod(self.shape))
        for kind in self.kinds:
            sums = np.zeros(points, "<i8"), np.zeros(points), np.zeros(points)
            paths = [
                self.root / chunk_path(f"statistics/ensemble_{kind}", (date, self.place[1]), 3)
                for date in self.dates
            ]
            for path in paths:
                if path.stat().st_size != 4 * points:
                    reason = f"{path.stat().st_size} bytes instead of {4 * points}"
                    raise FileError(path, reason, "Prepare the store anew")
            # By slabs of points, so that the sums stay in the processor's cache for all dates.
            for begin in range(0, points, _SLAB):
                slab = [values[begin : begin + _SLAB] for values in sums]
                for path in paths:
                    add_date(np.fromfile(path, "<f4", slab[0].size, offset=4 * begin), *slab)
            for part, values in zip(SUMS, sums, strict=True):
                about = [field_checksums(values.reshape(self.shape[0], -1))]
                key = chunk_path(f"statistics/{kind}_{part}", self.place, 3)
                writer.put(key, values, about)
