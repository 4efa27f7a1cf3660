"""Find every message of a GRIB file, to its end and in any order, and any damage to its framing."""

import mmap
from collections.abc import Iterator
from pathlib import Path

import eccodes

from ens10.errors import DamagedFileError, FileError
from ens10.grib.header import describe, open_header
from ens10.grib.message import Message

MAGIC = b"GRIB"
_END = b"7777"
_PADDING = b"\0\r\n "
_SHORTEST = 24  # bytes; no message with a product section is shorter


def is_grib(path: Path) -> bool:
    """Whether the file begins with a GRIB message."""
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def scan(path: Path) -> list[Message]:
    """Every message of one file, in the file's order.

    Raises:
        FileError: the file is empty, is no GRIB file, or uses a grid that is not supported.
        DamagedFileError: a message is cut short, does not end in 7777, has a header that makes no
            sense, or is no GRIB.
    """
    if not path.stat().st_size:
        raise FileError(path, "the file is empty", "Fetch or write it again")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        if view[:4] != MAGIC:
            raise FileError(path, "not a GRIB file (it does not begin with 'GRIB')")
        return [describe(path, view, *frame) for frame in _frames(path, view)]


def _frames(path: Path, view: mmap.mmap) -> Iterator[tuple[int, int, int]]:
    """(offset, length, edition) of each message; padding between messages is skipped."""
    offset, size = 0, len(view)
    while offset >= 0:
        length, edition = _length(path, view, offset)
        if length < _SHORTEST:
            raise DamagedFileError(path, offset, f"the message gives its length as {length} bytes")
        end = offset + length
        if end > size:
            raise DamagedFileError(path, offset, f"the message lacks {end - size} bytes")
        if view[end - 4 : end] != _END:
            raise DamagedFileError(path, offset, "the message does not end in 7777")
        yield offset, length, edition
        offset = view.find(MAGIC, end)
        gap = view[end : offset if offset >= 0 else size]
        if gap.strip(_PADDING):
            raise DamagedFileError(path, end, f"{len(gap)} bytes here belong to no message")


def _length(path: Path, view: mmap.mmap, offset: int) -> tuple[int, int]:
    if offset + 16 > len(view):
        raise DamagedFileError(path, offset, "the file ends inside a message's header")
    edition = view[offset + 7]
    if edition == 2:
        return int.from_bytes(view[offset + 8 : offset + 16], "big"), edition
    if edition != 1:
        raise DamagedFileError(path, offset, f"GRIB edition {edition} is unknown")
    length = int.from_bytes(view[offset + 4 : offset + 7], "big")
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
