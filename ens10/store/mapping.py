"""Parts of files as memory, without a copy, where the system can promise that reading them works.

A page that cannot be read ends the process (SIGBUS), and a page that must be fetched first stops
all threads if Python asks for it. `MADV_POPULATE_READ` (Linux 5.14) does neither: it fetches the
pages with the interpreter lock released, and returns an error where one cannot be read.

Mapping a file and taking the map down again takes about as long as copying what it holds, so maps
are kept: a training comes back to each file in every epoch. They take no memory but the system's
own copy of the files, which it may drop.
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

_POPULATE_READ = 22
_MOST_KEPT = 4096  # maps of one array: a process may have about 65,000


class MappedFile:
    """An open file whose parts are given as memory.

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
        """Bytes of the file, read-only, all of them in memory; None where that is not possible."""
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
        """The map of an open file.

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
    """The system's function; called through ctypes, which releases the interpreter lock."""
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    function.restype = ctypes.c_int
    return function
