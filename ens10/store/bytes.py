"""Where the bytes of a chunk come from: its file, or memory after lz4 has unpacked them."""

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.packed16.layout import DamagedChunkError
from ens10.store.mapping import Maps

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
        """Bytes of the file, in an array given, or made by `into` if they are not memory yet."""
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
        """A part of the bytes, without a copy."""
        if begin + size > self.size:
            raise DamagedChunkError(self.size, f"the chunk lacks {begin + size - self.size} bytes")
        return self._chunk[begin : begin + size]


Source = FileBytes | MemoryBytes
