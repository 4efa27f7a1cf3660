"""The Zarr v3 codec `packed16`; Zarr finds it by an entry point where ens10 is installed."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.core.common import JSON

from ens10.packed16.layout import encode, parse, read_values
from ens10.packed16.unpack import unpack

NAME = "packed16"


@dataclass(frozen=True)
class Packed16(ArrayBytesCodec):
    """Codec of float32 fields over (..., rows, columns), which keeps GRIB's packing.

    Fields written through Zarr are stored as float32, constant or missing; `ens10 prepare` writes
    chunks that keep GRIB's integers. Reading checks the crc32c of every field.
    """

    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:  # noqa: ARG003
        """Return the codec; it has no options."""
        return cls()

    def to_dict(self) -> dict[str, JSON]:
        """Return the codec's name, for the array's metadata."""
        return {"name": NAME, "configuration": {}}

    def validate(self, *, shape: tuple[int, ...], dtype: Any, chunk_grid: Any) -> None:  # noqa: ARG002
        """Refuse arrays that are not fields of float32.

        Raises:
            ValueError: another type, or fewer than two dimensions.
        """
        if dtype.to_native_dtype() != np.dtype(np.float32):
            raise ValueError(f"packed16 holds float32, not {dtype.to_native_dtype()}")
        if len(shape) < 2:
            raise ValueError("packed16 holds fields over rows and columns")

    def _decode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        chunk: Any = np.ascontiguousarray(chunk_bytes.as_numpy_array()).view(np.uint8)
        *outer, rows, columns = chunk_spec.shape
        points, fields = rows * columns, int(np.prod(outer, dtype=int))
        flat: Any = np.empty((fields, points), np.float32)
        records = parse(chunk.data, fields, rows, columns, chunk.size)
        for n, record in enumerate(records):
            unpack(record, _align(read_values(chunk, records, n, points)), flat[n])
        return chunk_spec.prototype.nd_buffer.from_ndarray_like(flat.reshape(chunk_spec.shape))

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return self._decode_sync(chunk_bytes, chunk_spec)

    def _encode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        values = np.ascontiguousarray(chunk_array.as_numpy_array())
        *_, rows, columns = values.shape
        fields = list(values.reshape(-1, rows, columns))
        chunk = np.frombuffer(encode(fields, rows, columns), np.uint8)
        return chunk_spec.prototype.buffer.from_array_like(chunk)

    async def _encode_single(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        return self._encode_sync(chunk_array, chunk_spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Raise NotImplementedError: chunks differ in size."""
        raise NotImplementedError


def _align(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the bytes, copied if they are not aligned to four bytes."""
    return values.copy() if values.ctypes.data % 4 else values
