"""Where the bytes of a chunk come from: its file, or memory after lz4 has unpacked them."""

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.packed16.layout import DamagedChunkError
from ens10.store.mapping import MappedFile

Buffer = npt.NDArray[np.uint8]
_WORTH_MAPPING = 2**16  # bytes above which a copy takes longer than mapping


class FileBytes:
    """An open file as a source of bytes."""

    def __init__(self, file: int) -> None:
        self._file, self.size = file, os.fstat(file).st_size
        self._mapped: MappedFile | None = None

    def read(self, begin: int, size: int, into: Any) -> Buffer:
        """Bytes of the file, in an array given, or made by `into` if they are not memory yet."""
        if callable(into) and size >= _WORTH_MAPPING:
            self._mapped = self._mapped or MappedFile(self._file, self.size)
            part = self._mapped.part(begin, size)
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
