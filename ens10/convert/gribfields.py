"""Forecasts in GRIB files, unit by unit, their integers taken over as they are packed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xarray as xr

from ens10.channels import step_number
from ens10.convert.selection import Selection, chosen_members
from ens10.convert.units import Part
from ens10.convert.workers import died, processes
from ens10.grib import Message, MessageList, pack, scan
from ens10.packed16.layout import Field
from ens10.progress import track
from ens10.source.gribs import GribFields, Missing
from ens10.source.selection import MessageSelection, chosen_dates

Members = tuple[Message | None, ...]


@dataclass(frozen=True)
class PackedFields:
    """The messages of one date and step.

    Attributes:
        messages: of the members of each part.
        files: the number of each file in the store's plan.
    """

    messages: tuple[Members, ...]
    files: dict[Path, int]

    @contextmanager
    def opened(self) -> Iterator[Callable[[int], Sequence[Field]]]:
        """Opens each file once."""
        with ExitStack() as files:
            opened: dict[Path, BinaryIO] = {}

            def one(message: Message | None) -> Field:
                if message is None:
                    return None
                if message.path not in opened:
                    opened[message.path] = files.enter_context(message.path.open("rb"))
                return pack(message, opened[message.path])

            yield lambda part: [one(message) for message in self.messages[part]]

    def origin(self, part: int) -> str:
        """FILE:BYTE+LENGTH of each member, with the file's number; a dash for none."""
        return " ".join(
            "-" if m is None else f"{self.files[m.path]}:{m.offset}+{m.length}"
            for m in self.messages[part]
        )

    def place(self, part: int, member: int) -> str:
        """File and byte of one member."""
        message = self.messages[part][member]
        return "no message" if message is None else message.place


class GribForecasts:
    """Forecasts in GRIB files.

    Args:
        fields: the files' fields.
        template: what they are as a dataset.
        numbers: of the files in the store's plan.
        times: where each date of the template is among those of `fields`.

    Attributes:
        template: as given; its coordinates, dimensions and attributes shape the store.
    """

    def __init__(
        self, fields: GribFields, template: xr.Dataset, numbers: dict[Path, int], times: list[int]
    ) -> None:
        self.template = template
        self._fields, self._numbers, self._times = fields, numbers, times

    def fields(self, place: tuple[int, int], parts: Sequence[Part]) -> PackedFields:
        """What a worker needs to read one date and step."""
        messages = tuple(self._messages(place, part) for part in parts)
        used = {m.path for members in messages for m in members if m is not None}
        return PackedFields(messages, {path: self._numbers[path] for path in used})

    def _messages(self, place: tuple[int, int], part: Part) -> Members:
        i, j = self._times[place[0]], place[1]
        if part.level is None:
            return tuple(self._fields.messages(part.variable, i, j))
        level = float(self.template["level"].to_numpy()[part.level])
        own = self._fields.levels[part.variable]
        if level not in own:
            return (None,) * len(self._fields.numbers)
        return tuple(self._fields.messages(part.variable, i, j, own.index(level)))

    def width(self, place: tuple[int, int], parts: Sequence[Part]) -> int:
        """Bytes of the values of all fields of one date and step, at the most."""
        each = [_bytes(m) for part in parts for m in self._messages(place, part) if m is not None]
        return sum(each) * self.template.sizes["latitude"] * self.template.sizes["longitude"]

    def at(self, times: Any) -> "GribForecasts":
        """The forecasts of some start dates."""
        places = self.template.indexes["time"].get_indexer(times.to_numpy()).tolist()
        kept = self.template.isel(time=places)
        return GribForecasts(
            self._fields, kept, self._numbers, [self._times[place] for place in places]
        )


def _bytes(message: Message) -> int:
    """Bytes of a value that is kept as it is packed, or as float32 where that cannot be."""
    return 2 if message.packing == "grid_simple" and message.bits <= 16 else 4


def open_gribs(
    files: Sequence[Path], selection: Selection, missing: Missing, workers: int, progress: bool
) -> GribFields:
    """The selected fields of GRIB files, which are searched for messages by several processes.

    Raises:
        FileError: a file is damaged, or they do not fit together.
        MissingDataError: fields are missing.
        UnknownNameError: something is selected that is not there.
    """
    shown = progress and len(files) > 1
    with ExitStack() as stack:
        found: Iterable[MessageList] = map(scan, files)
        if workers > 1 and len(files) > 1:
            found = stack.enter_context(processes(workers)).map(scan, files)
        try:
            lists = list(track(found, "index", len(files), shown))
        except BrokenProcessPool as error:
            raise died(files[0].parent) from error
    return GribFields(lists, missing, _resolved(selection, lists))


def _resolved(selection: Selection, lists: Sequence[MessageList]) -> MessageSelection:
    """The selection with dates and members one by one."""
    records = np.concatenate([messages.records for messages in lists])
    dates: list[np.datetime64] | None = None
    if selection.dates is not None:
        times = np.unique(records["time"]).astype("datetime64[s]")
        dates = [times[n] for n in chosen_dates(times, selection.dates)]
    numbers = None
    if selection.members is not None:
        held = np.unique(np.maximum(records["number"], 0))
        numbers = [int(held[n]) for n in chosen_members(held, selection.members)]
    steps = None if selection.steps is None else [step_number(step) for step in selection.steps]
    return MessageSelection(selection.variables, selection.levels, steps, numbers, dates)


def matches(fields: GribFields, dataset: xr.Dataset) -> bool:
    """Whether a dataset has the fields' own names, and their coordinates in their order."""
    if not set(map(str, dataset.data_vars)) <= set(fields.levels):
        return False  # recognised under another name, and converted perhaps
    own = fields.coordinates()
    values = {name: value[1] if isinstance(value, tuple) else value for name, value in own.items()}
    return all(np.array_equal(dataset[name].to_numpy(), held) for name, held in values.items())
