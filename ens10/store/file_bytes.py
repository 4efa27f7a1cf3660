"""Bytes of a chunk: read from its file, from a memory map of the file, or from memory.

`FileBytes` and `MemoryBytes` have the same method `read`, so that the code that decodes a chunk
does not depend on where its bytes are. `FileBytes` avoids a copy of large parts by memory maps.

Python code that touches a page of a map that is not in memory holds the interpreter lock while the
system reads the page, which stops all threads; an unreadable page ends the process (SIGBUS).
Therefore pages are fetched by `MADV_POPULATE_READ` (Linux 5.14), which releases the lock and
returns an error code. Where that is not available, parts are copied. To ask for pages that are in
memory takes a fifth of the time of a copy, so at later readings `mincore` is asked first, which
takes a tenth of that; it answers only the owner of a file.

Mapping and unmapping a file takes about as long as copying it, so maps are cached: a training reads
each file in every epoch. The pages of a map belong to the system's file cache, which can reclaim
them; the system counts them as resident memory of the process.
"""

import ctypes
import functools
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.packed16.layout import DamagedChunkError

Buffer = npt.NDArray[np.uint8]

_MADV_POPULATE_READ = 22  # the number in Linux's mman.h; Python's mmap does not name it
_MAP_FAILED = ctypes.c_void_p(-1).value
_MAX_MAPS = 4096  # of one array: Linux allows about 65,000 maps in a process
_MIN_MAPPED_SIZE = 2**16  # bytes; a smaller part is copied faster than its pages are looked up


class MappedFile:
    """A file whose parts are mapped into memory, without keeping it open.

    Python's `mmap` keeps a descriptor open for each map, and a training maps more files than a
    process may have open. A map by the C library's `mmap` needs no open descriptor.

    Args:
        file: descriptor of the open file; it may be closed while the parts are in use.
        size: bytes of the file, not 0.
    """

    def __init__(self, file: int, size: int) -> None:
        self._bytes = None if _libc() is None else _map_file(file, size)
        self._is_own = self._bytes is not None and os.fstat(file).st_uid == os.geteuid()
        self._fetched: set[int] = set()  # where parts begin whose pages are in the process's table

    def part(self, begin: int, size: int) -> Buffer | None:
        """Return bytes of the file, read-only, after their pages were read; None if they cannot be.

        The file must not be truncated while the array is in use: reading a page that is lost ends
        the process (SIGBUS).
        """
        if self._bytes is None or begin + size > self._bytes.size:
            return None
        first = begin - begin % mmap.PAGESIZE  # madvise takes whole pages
        address = self._bytes.ctypes.data + first
        length = begin + size - first
        if begin not in self._fetched or not _is_in_memory(address, length):
            error_code = _libc().madvise(address, length, _MADV_POPULATE_READ)
            if error_code:
                return None
            if self._is_own:
                self._fetched.add(begin)
        return self._bytes[begin : begin + size]


class _Pages:
    """Mapped memory for numpy, unmapped when no array has a view of it any more."""

    def __init__(self, address: int, size: int) -> None:
        read_only = True
        self.__array_interface__ = {
            "data": (address, read_only), "shape": (size,), "typestr": "|u1", "version": 3
        }  # fmt: skip
        # not at exit, when other threads may still read
        weakref.finalize(self, _libc().munmap, address, size).atexit = False


def _is_in_memory(address: int, length: int) -> bool:
    """Return True if all pages of a map of an own file are in the system's file cache."""
    pages = np.empty(-(-length // mmap.PAGESIZE), np.uint8)
    error_code = _libc().mincore(address, length, pages.ctypes.data)
    return not error_code and bool((pages & 1).all())


def _map_file(file: int, size: int) -> Buffer | None:
    """Map a file; None for a file system without mapping, or a truncated file."""
    if os.fstat(file).st_size < size:
        return None
    address = _libc().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    return None if address == _MAP_FAILED else np.asarray(_Pages(address, size))


class MapCache:
    """Memory maps of files that were read before; a file that has changed is mapped again."""

    def __init__(self) -> None:
        # (device, inode) -> ((size, time of modification), map), oldest first
        self._entries: dict[tuple[int, int], tuple[tuple[int, int], MappedFile]] = {}
        self._lock = threading.Lock()

    def get(self, file: int, status: os.stat_result) -> MappedFile:
        """Return the memory map of an open file.

        Args:
            file: descriptor of the open file.
            status: result of `os.fstat` for it.
        """
        key, version = (status.st_dev, status.st_ino), (status.st_size, status.st_mtime_ns)
        entry = self._entries.get(key)
        if entry is not None and entry[0] == version:
            return entry[1]
        mapped_file = MappedFile(file, status.st_size)
        with self._lock:
            if len(self._entries) >= _MAX_MAPS:
                oldest = next(iter(self._entries))
                del self._entries[oldest]
            self._entries[key] = (version, mapped_file)
        return mapped_file


@functools.cache
def _libc() -> Any:
    """Return the system's library, or None outside Linux; ctypes releases the interpreter lock."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    number, size, pointer = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
    library.madvise.argtypes = (pointer, size, number)
    library.mincore.argtypes = (pointer, size, pointer)
    library.munmap.argtypes = (pointer, size)
    library.mmap.argtypes = (pointer, size, number, number, number, ctypes.c_long)
    library.mmap.restype = pointer
    return library


class FileBytes:
    """An open file as a source of bytes.

    Args:
        file: descriptor of the open file.
        maps: maps of the array's files; None to copy all parts.

    Attributes:
        size: bytes of the file.
    """

    def __init__(self, file: int, maps: MapCache | None = None) -> None:
        self._file, self._maps = file, maps
        self._status = os.fstat(file)
        self.size = self._status.st_size

    @property
    def state(self) -> int:
        """A number that changes when the file is written or replaced."""
        status = self._status
        return hash((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))

    def read(self, begin: int, size: int, into: Buffer | Callable[[int], Buffer]) -> Buffer:
        """Return a part of the file.

        Args:
            begin: first byte.
            size: number of bytes.
            into: the array to write to; or a function that returns one of a size, which permits
                to return a part of a memory map instead.

        Raises:
            DamagedChunkError: the file ends before the part does.
        """
        if self._maps is not None and callable(into) and size >= _MIN_MAPPED_SIZE:
            part = self._maps.get(self._file, self._status).part(begin, size)
            if part is not None:
                return part
        target = into(size) if callable(into) else into
        offset = 0
        while offset < size:
            count = os.preadv(self._file, [target[offset:].data], begin + offset)
            if not count:
                raise DamagedChunkError(begin + offset, f"the chunk lacks {size - offset} bytes")
            offset += count
        return target


class MemoryBytes:
    """Bytes in memory as a source, such as a chunk that Zarr has read.

    Attributes:
        size: number of bytes.
    """

    def __init__(self, chunk: Buffer) -> None:
        self._chunk, self.size = chunk, chunk.size

    def read(self, begin: int, size: int, into: Any) -> Buffer:  # noqa: ARG002
        """Return a part without a copy; arguments and errors are those of `FileBytes.read`."""
        if begin + size > self.size:
            raise DamagedChunkError(self.size, f"the chunk lacks {begin + size - self.size} bytes")
        return self._chunk[begin : begin + size]


Source = FileBytes | MemoryBytes
