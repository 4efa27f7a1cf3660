"""Parts of files as memory, without a copy, where the system can promise that reading them works.

A page that cannot be read ends the process (SIGBUS), and a page that must be fetched first stops
all threads if Python asks for it. `MADV_POPULATE_READ` (Linux 5.14) does neither: it fetches all
pages with the interpreter lock released, and returns an error where one cannot be read.
"""

import ctypes
import functools
import mmap
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

_POPULATE_READ = 22


def mapped(file: int, begin: int, size: int) -> npt.NDArray[np.uint8] | None:
    """Bytes of an open file, read-only, all of them in memory; None where that is not possible.

    Args:
        file: descriptor.
        begin: first byte.
        size: number of bytes, which the file has.
    """
    madvise = _madvise()
    if madvise is None or not size:
        return None
    before = begin % mmap.ALLOCATIONGRANULARITY
    try:
        held = mmap.mmap(
            file, before + size, mmap.MAP_SHARED, mmap.PROT_READ, offset=begin - before
        )
    except (OSError, ValueError):
        return None
    values = np.frombuffer(held, np.uint8)
    if madvise(values.ctypes.data, values.size, _POPULATE_READ):
        return None
    return values[before:]


@functools.cache
def _madvise() -> Any:
    """The system's function; called through ctypes, which releases the interpreter lock."""
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    function.restype = ctypes.c_int
    return function
