"""Find every message of a GRIB file, to its end and in any order, and any damage to its framing."""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import eccodes
import numpy as np

from ens10.errors import DamagedFileError, FileError
from ens10.grib.header import describe
from ens10.grib.meaning import open_header
from ens10.grib.message import Meaning
from ens10.grib.messages import RECORD, MessageList

MAGIC = b"GRIB"
_END = b"7777"
_PADDING = b"\0\r\n "
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
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        if view[:4] != MAGIC:
            raise FileError(path, "not a GRIB file (it does not begin with 'GRIB')")
        if hasattr(mmap, "MADV_RANDOM"):
            view.madvise(mmap.MADV_RANDOM)  # no reading ahead: only headers and ends are wanted
        for offset, end, edition in _frames(path, view, report):
            try:
                meaning, time, number = describe(path, view, offset, end, edition)
            except FileError as error:
                report(error)
                continue
            which = ids.setdefault(id(meaning), len(meanings))
            if which == len(meanings):
                meanings.append(meaning)
            rows.append((offset, end - offset, time, number, which, 0))
    return MessageList([path], np.array(rows, RECORD), meanings)


def _frames(
    path: Path, view: mmap.mmap, report: Callable[[FileError], None]
) -> Iterator[tuple[int, int, int]]:
    """(offset, end, edition) of each message; padding between messages is skipped."""
    offset, size = 0, len(view)
    while offset >= 0:
        try:
            end, edition = _frame(path, view, offset)
        except DamagedFileError as error:
            report(error)
            offset = view.find(MAGIC, offset + len(MAGIC))
            continue
        yield offset, end, edition
        if view[end : end + 4] == MAGIC:
            offset = end
            continue
        offset = view.find(MAGIC, end)
        gap = view[end : offset if offset >= 0 else size]
        if gap.strip(_PADDING):
            what = f"{len(gap)} bytes here belong to no message"
            report(DamagedFileError(path, end, what))


def _frame(path: Path, view: mmap.mmap, offset: int) -> tuple[int, int]:
    """The byte after the message that begins at `offset`, and its edition."""
    length, edition = _length(path, view, offset)
    if length < _SHORTEST:
        raise DamagedFileError(path, offset, f"the message gives its length as {length} bytes")
    end = offset + length
    if end > len(view):
        raise DamagedFileError(path, offset, f"the message lacks {end - len(view)} bytes")
    if view[end - 4 : end] != _END:
        raise DamagedFileError(path, offset, "the message does not end in 7777")
    return end, edition


def _length(path: Path, view: mmap.mmap, offset: int) -> tuple[int, int]:
    if offset + 16 > len(view):
        raise DamagedFileError(path, offset, "the file ends inside a message's header")
    head = view[offset : offset + 16]
    edition = head[7]
    if edition == 2:
        return int.from_bytes(head[8:], "big"), edition
    if edition != 1:
        raise DamagedFileError(path, offset, f"GRIB edition {edition} is unknown")
    length = int.from_bytes(head[4:7], "big")
    if length & 0x800000:  # ECMWF's convention for edition 1 messages of over 8 MB
        length = _length_from_eccodes(path, offset)
    return length, edition


def _length_from_eccodes(path: Path, offset: int) -> int:
    with path.open("rb") as file:
        file.seek(offset)
        handle = open_header(path, file, offset)
    length = int(eccodes.codes_get_long(handle, "totalLength"))
    eccodes.codes_release(handle)
    return length
