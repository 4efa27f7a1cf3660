"""The messages of files as columns of numbers."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt

from ens10.grib.message import Meaning, Message

RECORD = np.dtype(
    [
        ("offset", "<i8"),
        ("length", "<i8"),
        ("time", "<i8"),  # seconds since 1970
        ("number", "<i4"),  # -1: the message names no member
        ("meaning", "<i4"),
        ("file", "<i4"),
    ]
)


class MessageList(Sequence[Message]):
    """Messages in 36 bytes each; a `Message` is made when it is asked for.

    Attributes:
        paths: the files.
        records: one for each message, of the type `RECORD`.
        meanings: what the headers say, each once.
    """

    def __init__(
        self, paths: Sequence[Path], records: npt.NDArray[Any], meanings: Sequence[Meaning]
    ) -> None:
        self.paths, self.records, self.meanings = list(paths), records, list(meanings)

    @classmethod
    def joined(cls, lists: Iterable["MessageList"]) -> Self:
        """The messages of several lists, in their order."""
        paths: list[Path] = []
        ids: dict[Meaning, int] = {}
        parts = []
        for part in lists:
            records = part.records.copy()
            new = [ids.setdefault(meaning, len(ids)) for meaning in part.meanings]
            records["meaning"] = np.array(new, dtype="<i4")[records["meaning"]]
            records["file"] += len(paths)
            paths += part.paths
            parts.append(records)
        return cls(paths, np.concatenate(parts or [np.empty(0, RECORD)]), list(ids))

    def take(self, which: npt.NDArray[Any]) -> "MessageList":
        """Some of the messages, by their numbers or by a mask, with their meanings alone."""
        records = self.records[which]
        used = np.bincount(records["meaning"], minlength=len(self.meanings)) > 0
        records["meaning"] = (np.cumsum(used, dtype="<i4") - 1)[records["meaning"]]
        kept = [self.meanings[n] for n in np.flatnonzero(used)]
        return MessageList(self.paths, records, kept)

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
        return Message(
            path=self.paths[file],
            offset=offset,
            length=length,
            time=np.datetime64(time, "s"),
            number=None if number < 0 else number,
            meaning=self.meanings[meaning],
        )

    def __repr__(self) -> str:
        return f"<{len(self)} messages of {len(self.paths)} files>"
