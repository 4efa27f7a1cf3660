"""Index entries of GRIB messages: `Meaning` (header), `Message`, and compact lists of messages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt

from ens10.grib.grid import LatLonGrid, Scan
from ens10.identity import PRESSURE_LEVELS, FieldKind, Window


@dataclass(frozen=True, slots=True)
class Meaning:
    """The header of a message, except for its time and member.

    The messages of an ensemble share a few hundred meanings. Kind, level and window identify the
    field; units, model date, experiment version, edition, packing and centre are its attributes.

    Attributes:
        edition: GRIB edition, 1 or 2.
        param_id: ECMWF parameter number.
        short_name: GRIB short name, such as `2t`.
        name: cfgrib's name, such as `t2m`.
        units: of the values, as the file states them.
        kind: class of the values.
        product: which quantile or probability it is, such as "10 %" or "> 303.15"; else "".
        level_type: such as `surface` or `isobaricInhPa`.
        level: in the units of the level type.
        window: the time that the field describes.
        data_type: such as `pf`, `cf` or `an`.
        model_date: YYYYMMDD of the model version that computed a hindcast, None for other data.
        version: ECMWF's experiment version; "" for other data.
        centre: such as `ecmf`.
        packing: such as `grid_simple`.
        bits: bits per value.
        grid: the grid, as fields are laid out in this package.
        scan: how the message's values are ordered.
    """

    edition: int
    param_id: int
    short_name: str
    name: str
    units: str
    kind: FieldKind
    product: str
    level_type: str
    level: int
    window: Window
    data_type: str
    model_date: int | None
    version: str
    centre: str
    packing: str
    bits: int
    grid: LatLonGrid
    scan: Scan

    @property
    def step(self) -> float:
        """Hours from the start to the end of the field's window, an integer if they are whole."""
        return self.window.step

    @property
    def pressure(self) -> float | None:
        """The level in hPa, None for fields that lie on no pressure level."""
        units = PRESSURE_LEVELS.get(self.level_type)
        return None if units is None else self.level / units


@dataclass(frozen=True, slots=True)
class Message:
    """Position of one GRIB message in its file, and the header of its field.

    Attributes:
        path: the file.
        offset: first byte of the message in the file.
        length: number of bytes.
        time: start (reference) time, datetime64[s]; of a hindcast, the date hindcast.
        number: ensemble member, or None where the message names none.
        meaning: the other keys of its header.
    """

    path: Path
    offset: int
    length: int
    time: np.datetime64
    number: int | None
    meaning: Meaning

    @property
    def place(self) -> str:
        """File and byte, for messages to the user."""
        return f"{self.path} at byte {self.offset}"


# time in seconds since 1970; number: -1 if the message names no member
RECORD = np.dtype([
    ("offset", "<i8"), ("length", "<i8"), ("time", "<i8"), ("number", "<i4"), ("meaning", "<i4"),
    ("file", "<i4"),
])  # fmt: skip


class MessageList(Sequence[Message]):
    """A compact list of messages, 36 bytes each; a `Message` is created on access.

    Attributes:
        paths: the files.
        records: one for each message, of the type `RECORD`.
        meanings: the distinct headers.
    """

    def __init__(
        self, paths: Sequence[Path], records: npt.NDArray[Any], meanings: Sequence[Meaning]
    ) -> None:
        self.paths, self.records, self.meanings = list(paths), records, list(meanings)

    @classmethod
    def concatenate(cls, lists: Iterable["MessageList"]) -> Self:
        """Concatenate several lists."""
        paths: list[Path] = []
        ids: dict[Meaning, int] = {}
        parts = []
        for part in lists:
            records = part.records.copy()
            new_ids = [ids.setdefault(meaning, len(ids)) for meaning in part.meanings]
            records["meaning"] = np.array(new_ids, dtype="<i4")[records["meaning"]]
            records["file"] += len(paths)
            paths += part.paths
            parts.append(records)
        return cls(paths, np.concatenate(parts or [np.empty(0, RECORD)]), list(ids))

    def take(self, which: npt.NDArray[Any]) -> "MessageList":
        """Return the messages at some positions, or of a mask, with the meanings that they use."""
        records = self.records[which]
        is_used = np.bincount(records["meaning"], minlength=len(self.meanings)) > 0
        records["meaning"] = (np.cumsum(is_used, dtype="<i4") - 1)[records["meaning"]]
        meanings = [self.meanings[n] for n in np.flatnonzero(is_used)]
        return MessageList(self.paths, records, meanings)

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> "MessageList": ...

    def __getitem__(self, index: int | slice) -> "Message | MessageList":
        if isinstance(index, slice):
            return MessageList(self.paths, self.records[index], self.meanings)
        offset, length, time, number, meaning, file = self.records[index].item()
        place, label = (self.paths[file], offset, length), None if number < 0 else number
        return Message(*place, np.datetime64(time, "s"), label, self.meanings[meaning])

    def __repr__(self) -> str:
        return f"<{len(self)} messages of {len(self.paths)} files>"
