"""Find the messages of a GRIB file and decode their headers: `scan` and `survey`."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ens10.errors import DamagedFileError, FileError
from ens10.grib.header import describe
from ens10.grib.message import RECORD, Meaning, MessageList
from ens10.grib.sections import RawMessage, long_length

_WINDOW_BYTES = 1024  # bytes; one reading for the end of a message and the header of the next
_SEARCH_BYTES = 1 << 20  # bytes of each step of a search


class GribFile:
    """An open file that can be sliced like bytes.

    It is read, not memory-mapped: if the file becomes shorter, reading raises an error, where
    access to a missing page of a map would end the process (SIGBUS). The last two windows are
    cached.

    Args:
        path: of the file, for errors.
        file: the file, open for reading.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self._file = path, file.fileno()
        self._size = os.fstat(self._file).st_size
        self._windows = [(0, b""), (0, b"")]  # first byte and content, the latest first

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, span: slice) -> bytes:
        """Return a span of bytes, from one of the two cached windows if it contains the span.

        Raises:
            DamagedFileError: the file has become shorter since it was opened.
        """
        begin, end = span.start, span.stop
        for first, window in self._windows:
            if first <= begin and end <= first + len(window):
                return window[begin - first : end - first]
        if end - begin > _WINDOW_BYTES:
            return self._read(begin, end)
        window = self._read(begin, begin + _WINDOW_BYTES)
        self._windows = [(begin, window), self._windows[0]]
        return window[: end - begin]

    def find(self, pattern: bytes, begin: int) -> int:
        """Return the first position of a pattern at or after a byte, -1 if there is none."""
        while begin < self._size:
            position = self._read(begin, begin + _SEARCH_BYTES).find(pattern)
            if position >= 0:
                return begin + position
            begin += _SEARCH_BYTES - len(pattern) + 1
        return -1

    def holds_only(self, octets: bytes, begin: int, end: int) -> bool:
        """Return True if every byte of a span is one of `octets`."""
        spans = range(begin, end, _SEARCH_BYTES)
        return not any(self._read(n, min(n + _SEARCH_BYTES, end)).strip(octets) for n in spans)

    def _read(self, begin: int, end: int) -> bytes:
        size = max(min(end, self._size) - begin, 0)
        content = os.pread(self._file, size, begin)
        while len(content) < size:  # a reading may end early, as after 2 GB
            next_bytes = os.pread(self._file, size - len(content), begin + len(content))
            if not next_bytes:
                reason = f"the file ends here; it had {self._size} bytes when it was opened"
                raise DamagedFileError(self.path, begin + len(content), reason)
            content += next_bytes
        return content


MAGIC = b"GRIB"
_END = b"7777"
_PADDING = b"\0\r\n "
_HEAD = 512  # bytes; the sections before the bitmap of nearly all messages
_SHORTEST = 24  # bytes; no message with a product section is shorter


def is_grib(path: Path) -> bool:
    """Return True if the file begins with a GRIB message."""
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def scan(path: Path) -> MessageList:
    """Return every message of one file, in the file's order.

    Raises:
        FileError: the file is empty, is no GRIB file, uses a grid that is not supported, or holds
            several fields in one message.
        DamagedFileError: a message is cut short, does not end in 7777, has an invalid header, or
            is no GRIB.
    """

    def refuse(error: FileError) -> None:
        raise error

    return _scan(path, refuse)


def survey(path: Path) -> tuple[MessageList, list[FileError]]:
    """Return the intact messages of one file, and every error that `scan` would raise.

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
    ids: dict[int, int] = {}  # by identity: `describe` returns equal meanings as one object
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
                meaning_id = ids.setdefault(id(meaning), len(meanings))
                if meaning_id == len(meanings):
                    meanings.append(meaning)
                length = message.end - message.offset
                rows.append((message.offset, length, time, number, meaning_id, 0))
        except DamagedFileError as error:  # the file has become shorter
            report(error)
    return MessageList([path], np.array(rows, RECORD), meanings)


def _frames(view: GribFile, report: Callable[[FileError], None]) -> Iterator[RawMessage]:
    """Yield each message from GRIB to 7777; padding between messages is skipped."""
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
        yield RawMessage(view.path, view, offset, end, edition, head, 0, number)
        if view[end : end + 4] == MAGIC:
            offset = end
            continue
        offset = view.find(MAGIC, end)
        next_offset = offset if offset >= 0 else size
        if not view.holds_only(_PADDING, end, next_offset):
            reason = f"{next_offset - end} bytes here belong to no message"
            report(DamagedFileError(view.path, end, reason))


def _frame(view: GribFile, offset: int, head: bytes) -> tuple[int, int]:
    """Return the end of the message that begins at `offset`, and its edition."""
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
