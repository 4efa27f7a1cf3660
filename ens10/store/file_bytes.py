"""Bytes of a chunk from its file, from a memory map of it, or from memory.

A mapped page that cannot be read ends the process (SIGBUS), and a page that must be fetched first
stops all threads if Python touches it. `MADV_POPULATE_READ` (Linux 5.14) does neither: it fetches
the pages with the interpreter lock released, and returns an error where one cannot be read.

Mapping and unmapping a file takes about as long as copying it, so maps are kept: a training returns
to each file in every epoch. They take no memory but the system's file cache, which it may drop.
"""

import ctypes
import functools
import mmap
import os
import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.packed16.layout import DamagedChunkError

_POPULATE_READ = 22
_MOST_KEPT = 4096  # maps of one array: a process may have about 65,000


class MappedFile:
    """An open file whose parts are mapped into memory.

    Args:
        file: descriptor; it may be closed while the parts are in use.
        size: of the file, not 0.
    """

    def __init__(self, file: int, size: int) -> None:
        self._bytes: npt.NDArray[np.uint8] | None = None
        if _madvise() is not None:
            try:
                held = mmap.mmap(file, size, mmap.MAP_SHARED, mmap.PROT_READ)
            except (OSError, ValueError):  # a file system without mapping, or a file cut short
                return
            self._bytes = np.frombuffer(held, np.uint8)

    def part(self, begin: int, size: int) -> npt.NDArray[np.uint8] | None:
        """Return bytes of the file, read-only and in memory; None if that is not possible."""
        if self._bytes is None or begin + size > self._bytes.size:
            return None
        first = begin - begin % mmap.PAGESIZE
        address = self._bytes.ctypes.data + first
        if _madvise()(address, begin + size - first, _POPULATE_READ):
            return None
        return self._bytes[begin : begin + size]


class Maps:
    """The maps of files that were read before, until the files are others."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], tuple[tuple[int, int], MappedFile]] = {}
        self._lock = threading.Lock()

    def of(self, file: int, about: os.stat_result) -> MappedFile:
        """Return the memory map of an open file.

        Args:
            file: descriptor.
            about: what `os.fstat` says of it.
        """
        which, state = (about.st_dev, about.st_ino), (about.st_size, about.st_mtime_ns)
        held = self._kept.get(which)
        if held is not None and held[0] == state:
            return held[1]
        mapped = MappedFile(file, about.st_size)
        with self._lock:
            if len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[which] = (state, mapped)
        return mapped


@functools.cache
def _madvise() -> Any:
    """Return the system's madvise; through ctypes, which releases the interpreter lock."""
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    function.restype = ctypes.c_int
    return function


Buffer = npt.NDArray[np.uint8]
_WORTH_MAPPING = 2**16  # bytes above which a copy takes longer than mapping


class FileBytes:
    """An open file as a source of bytes.

    Args:
        file: descriptor.
        maps: of the files that were read before; None to map none.
    """

    def __init__(self, file: int, maps: Maps | None = None) -> None:
        self._file, self._maps = file, maps
        self._about = os.fstat(file)
        self.size = self._about.st_size

    @property
    def state(self) -> int:
        """A number that is another one once the file was written or replaced."""
        about = self._about
        return hash((about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns))

    def read(self, begin: int, size: int, into: Any) -> Buffer:
        """Read bytes into an array, or one made by `into` if they are not in memory yet."""
        if self._maps is not None and callable(into) and size >= _WORTH_MAPPING:
            part = self._maps.of(self._file, self._about).part(begin, size)
            if part is not None:
                return part
        target: Buffer = into(size) if callable(into) else into
        done = 0
        while done < size:
            count = os.preadv(self._file, [target[done:].data], begin + done)
            if not count:
                lacking = size - done
                raise DamagedChunkError(begin + done, f"the chunk lacks {lacking} bytes")
            done += count
        return target


class MemoryBytes:
    """Bytes that are in memory already."""

    def __init__(self, chunk: Buffer) -> None:
        self._chunk, self.size = chunk, chunk.size

    def read(self, begin: int, size: int, into: Any) -> Buffer:  # noqa: ARG002
        """Return a part of the bytes, without a copy."""
        if begin + size > self.size:
            raise DamagedChunkError(self.size, f"the chunk lacks {begin + size - self.size} bytes")
        return self._chunk[begin : begin + size]


Source = FileBytes | MemoryBytes
