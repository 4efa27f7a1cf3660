"""Whether the bytes of a chunk are whole, as the array's own metadata and checksums tell."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numcodecs.blosc import compress

from ens10.packed16.layout import DamagedChunkError, checked_values, most_bytes, parse
from ens10.packed16.lz4 import inflate
from ens10.untrusted import parse_json

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Form:
    """How the chunks of one array are kept.

    Attributes:
        shape: of the array.
        chunk: shape of a chunk.
        dims: names of the dimensions.
        codec: "packed16", "bytes" (plain numbers) or "other", which is not checked.
        compressed: whether the chunk is an lz4 frame.
        dtype: type of the numbers, "" where they are none.
    """

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dims: tuple[str, ...]
    codec: str
    compressed: bool
    dtype: str

    @classmethod
    def read(cls, metadata: bytes | str) -> Self:
        """The form that a `zarr.json` describes.

        Raises:
            ValueError: it describes no array.
        """
        try:
            about: Mapping[str, Any] = parse_json(metadata)
            first, *rest = [codec["name"] for codec in about["codecs"]]
            known = first in ("packed16", "bytes") and rest in ([], ["blosc"])
            sized = isinstance(about["data_type"], str) and known
            return cls(
                shape=tuple(about["shape"]),
                chunk=tuple(about["chunk_grid"]["configuration"]["chunk_shape"]),
                dims=tuple(map(str, about.get("dimension_names") or ())),
                codec=first if known else "other",
                compressed=known and rest == ["blosc"],
                dtype=np.dtype(about["data_type"]).name if sized else "",
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no metadata of an array ({error!r})") from error

    @property
    def is_field(self) -> bool:
        """Whether the chunks hold fields over the grid, as float32."""
        return self.dims[-2:] == ("latitude", "longitude") and self.dtype == "float32"

    @property
    def plain_size(self) -> int:
        """Bytes of a chunk of plain numbers."""
        return prod(self.chunk) * np.dtype(self.dtype).itemsize

    def places(self) -> Iterator[tuple[int, ...]]:
        """The position of every chunk, in the array's order."""
        counts = (-(-size // part) for size, part in zip(self.shape, self.chunk, strict=True))
        return product(*map(range, counts))

    @property
    def field_shape(self) -> tuple[int, int, int]:
        """Fields, rows and columns of a packed16 chunk."""
        *outer, rows, columns = self.chunk
        return prod(outer), rows, columns


def check(chunk: Bytes, form: Form, key: str = "") -> Bytes:
    """The bytes of a chunk, unpacked if they were compressed.

    Args:
        chunk: as it lies in the store.
        form: of the array.
        key: where in the store it lies; "" if that is not known.

    Raises:
        DamagedChunkError: the chunk is cut short, too long, does not match its checksums, or is
            that of another place.
    """
    if form.codec == "other":
        return chunk
    if form.compressed:
        return _within(chunk, form, key)
    _check_values(chunk, form, key)
    return chunk


def plain_frame(chunk: Bytes) -> bytes:
    """Bytes that were unpacked as an lz4 frame again, one whose unpacking is a mere copy."""
    frame: bytes = compress(chunk, b"lz4", 0, 0)
    return frame


def _within(frame: Bytes, form: Form, key: str) -> Bytes:
    """The values in an lz4 frame, checked."""
    packed = form.codec == "packed16"
    most = most_bytes(*form.field_shape) if packed else form.plain_size
    chunk = inflate(frame, most, lambda size: np.empty(size, np.uint8))
    try:
        _check_values(chunk, form, key)
    except DamagedChunkError as error:
        reason = f"{error.reason} (at byte {error.offset} once unpacked)"
        raise DamagedChunkError(0, reason) from error
    return chunk


def _check_values(chunk: Bytes, form: Form, key: str) -> None:
    if form.codec == "packed16":
        fields, rows, columns = form.field_shape
        records = parse(chunk.data, fields, rows, columns, chunk.size, key)
        for n in range(fields):
            checked_values(chunk, records, n, rows * columns)
        return
    wanted = form.plain_size
    if chunk.size != wanted:
        raise DamagedChunkError(min(chunk.size, wanted), f"{chunk.size} bytes instead of {wanted}")
