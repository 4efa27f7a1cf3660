"""Decompress the lz4 frames of chunks, as c-blosc writes them, safely also if they are damaged.

c-blosc trusts the lengths in a frame's header: a truncated frame would be read past its end, and
one with a flipped bit could allocate gigabytes. Both lengths are checked first.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from numcodecs.blosc import decompress

from ens10.packed16.layout import DamagedChunkError

_HEADER = 16
_LENGTH = slice(4, 8)  # bytes of the values, little-endian
_FRAME = slice(12, 16)  # bytes of the frame

Bytes = npt.NDArray[np.uint8]


def inflate(frame: Bytes, max_bytes: int, allocate: Callable[[int], Bytes]) -> Bytes:
    """Return the decompressed bytes of a frame.

    Args:
        frame: the whole frame.
        max_bytes: maximum number of decompressed bytes.
        allocate: returns the output array of a given number of bytes.

    Raises:
        DamagedChunkError: the frame is damaged; `offset` counts from the start of the frame.
    """
    if frame.size < _HEADER:
        raise DamagedChunkError(frame.size, f"an lz4 frame of {frame.size} bytes")
    length, size = (int(frame[part].view("<u4")[0]) for part in (_LENGTH, _FRAME))
    if size != frame.size:
        reason = f"an lz4 frame of {size} bytes, but {frame.size} are there"
        raise DamagedChunkError(min(size, frame.size), reason)
    if length > max_bytes:
        raise DamagedChunkError(4, f"an lz4 frame that holds {length} bytes, more than {max_bytes}")
    content = allocate(length)
    try:
        decompress(frame, content)
    except (RuntimeError, ValueError) as error:
        raise DamagedChunkError(0, f"lz4 cannot unpack it ({error})") from error
    return content
