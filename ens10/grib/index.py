"""Find every message of a GRIB file, to its end and in any order, and any damage to its framing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ens10.errors import DamagedFileError, FileError
from ens10.grib.gribfile import GribFile
from ens10.grib.header import describe
from ens10.grib.message import Meaning
from ens10.grib.messages import RECORD, MessageList
from ens10.grib.sections import Framed, long_length

MAGIC = b"GRIB"
_END = b"7777"
_PADDING = b"\0\r\n "
_HEAD = 512  # bytes; the sections before the bitmap of nearly all messages
_SHORTEST = 24  # bytes; no message with a product section is shorter


def is_grib(path: Path) -> bool:
    """Whether the file begins with a GRIB message."""
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def scan(path: Path) -> MessageList:
    """Every message of one file, in the file's order.

    Raises:
        FileError: the file is empty, is no GRIB file, uses a grid that is not supported, or holds
            several fields in one message.
        DamagedFileError: a message is cut short, does not end in 7777, has a header that makes no
            sense, or is no GRIB.
    """

    def refuse(error: FileError) -> None:
        raise error

    return _scan(path, refuse)


def survey(path: Path) -> tuple[MessageList, list[FileError]]:
    """The whole messages of one file and every error that `scan` would raise, in the file's order.

    After damage to the framing it looks for the next message.

    Raises:
        FileError: the file is empty, or is no GRIB file.
    """
    errors: list[FileError] = []
    return _scan(path, errors.append), errors


def _scan(path: Path, report: Callable[[FileError], None]) -> MessageList:
    if not path.stat().st_size:
        raise FileError(path, "the file is empty", "Fetch or write it again")
    rows: list[tuple[int, ...]] = []
    meanings: list[Meaning] = []
    ids: dict[int, int] = {}  # by identity: `describe` gives equal meanings as one object
    with path.open("rb") as file:
        view = GribFile(path, file)
        if view[0:4] != MAGIC:
            raise FileError(path, "not a GRIB file (it does not begin with 'GRIB')")
        try:
            for message in _frames(view, report):
                try:
                    meaning, time, number = describe(message)
                except FileError as error:
                    report(error)
                    continue
                which = ids.setdefault(id(meaning), len(meanings))
                if which == len(meanings):
                    meanings.append(meaning)
                length = message.end - message.offset
                rows.append((message.offset, length, time, number, which, 0))
        except DamagedFileError as error:  # the file has become shorter
            report(error)
    return MessageList([path], np.array(rows, RECORD), meanings)


def _frames(view: GribFile, report: Callable[[FileError], None]) -> Iterator[Framed]:
    """Each message from GRIB to 7777; padding between messages is skipped."""
    offset, size, number = 0, len(view), 0
    while offset >= 0:
        number += 1
        head = view[offset : offset + _HEAD]
        try:
            end, edition = _frame(view, offset, head)
        except DamagedFileError as error:
            report(error)
            offset = view.find(MAGIC, offset + len(MAGIC))
            continue
        yield Framed(view.path, view, offset, end, edition, head, 0, number)
        if view[end : end + 4] == MAGIC:
            offset = end
            continue
        offset = view.find(MAGIC, end)
        following = offset if offset >= 0 else size
        if not view.holds_only(_PADDING, end, following):
            what = f"{following - end} bytes here belong to no message"
            report(DamagedFileError(view.path, end, what))


def _frame(view: GribFile, offset: int, head: bytes) -> tuple[int, int]:
    """The byte after the message that begins at `offset`, and its edition."""
    length, edition = _length(view, offset, head)
    if length < _SHORTEST:
        reason = f"the message gives its length as {length} bytes"
        raise DamagedFileError(view.path, offset, reason)
    end = offset + length
    if end > len(view):
        raise DamagedFileError(view.path, offset, f"the message lacks {end - len(view)} bytes")
    if view[end - 4 : end] != _END:
        raise DamagedFileError(view.path, offset, "the message does not end in 7777")
    return end, edition


def _length(view: GribFile, offset: int, head: bytes) -> tuple[int, int]:
    if len(head) < 16:
        raise DamagedFileError(view.path, offset, "the file ends inside a message's header")
    edition = head[7]
    if edition == 2:
        return int.from_bytes(head[8:16], "big"), edition
    if edition != 1:
        raise DamagedFileError(view.path, offset, f"GRIB edition {edition} is unknown")
    length = int.from_bytes(head[4:7], "big")
    if length & 0x800000:  # ECMWF's convention for edition 1 messages of over 8 MB
        length = long_length(view, offset, length)
    return length, edition
