"""The bytes of a GRIB file, read where they are asked for."""

import os
from pathlib import Path
from typing import BinaryIO

from ens10.errors import DamagedFileError

_WINDOW = 1024  # bytes: the end of a message and the header of the next in one reading
_SEARCHED = 1 << 20  # bytes of each step of a search


class GribFile:
    """A file that is sliced like bytes.

    It is read and not mapped: a file that becomes shorter meanwhile is an error, where a page of
    a map that is gone would end the process (SIGBUS). The last two readings are kept.

    Args:
        path: of the file, for errors.
        file: the file, open for reading.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self._file = path, file.fileno()
        self._size = os.fstat(self._file).st_size
        self._begin = self._end = self._begin_before = self._end_before = 0
        self._held = self._held_before = b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, span: slice) -> bytes:
        """The bytes of a span, which is cut at the end of the file.

        Raises:
            DamagedFileError: the file has become shorter since it was opened.
        """
        begin, end = span.start, span.stop
        if self._begin <= begin and end <= self._end:
            return self._held[begin - self._begin : end - self._begin]
        if self._begin_before <= begin and end <= self._end_before:
            return self._held_before[begin - self._begin_before : end - self._begin_before]
        if end - begin > _WINDOW:
            return self._read(begin, end)
        self._begin_before, self._end_before = self._begin, self._end
        self._held_before = self._held
        self._held = self._read(begin, begin + _WINDOW)
        self._begin, self._end = begin, begin + len(self._held)
        return self._held[: end - begin]

    def find(self, pattern: bytes, begin: int) -> int:
        """The first place of a pattern from a byte on, -1 if there is none."""
        while begin < self._size:
            found = self._read(begin, begin + _SEARCHED).find(pattern)
            if found >= 0:
                return begin + found
            begin += _SEARCHED - len(pattern) + 1
        return -1

    def holds_only(self, octets: bytes, begin: int, end: int) -> bool:
        """Return True if all bytes of a span are among some octets."""
        spans = range(begin, end, _SEARCHED)
        return not any(self._read(n, min(n + _SEARCHED, end)).strip(octets) for n in spans)

    def _read(self, begin: int, end: int) -> bytes:
        wanted = max(min(end, self._size) - begin, 0)
        content = os.pread(self._file, wanted, begin)
        while len(content) < wanted:  # a reading may end early, as after 2 GB
            more = os.pread(self._file, wanted - len(content), begin + len(content))
            if not more:
                reason = f"the file ends here; it had {self._size} bytes when it was opened"
                raise DamagedFileError(self.path, begin + len(content), reason)
            content += more
        return content
