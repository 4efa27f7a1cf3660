"""Read chunks of a store straight into the caller's buffer: no dask, no zarr, no new memory.

Every array that a training reads is chunked so that each chunk contains its last two or three
dimensions completely and one position along the others; of small grids and stations, several
positions along the first one. A reader computes where each field of such
a chunk lies, checks it, reads the selected rows and fields, and unpacks them into reusable memory.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from numcodecs.blosc import compress

from ens10.errors import ArgumentError, DamagedFileError, FileError
from ens10.packed16.layout import (
    DamagedChunkError,
    length_of,
    max_chunk_bytes,
    parse,
    read_values,
    values_begin,
)
from ens10.packed16.lz4 import inflate
from ens10.packed16.unpack import unpack
from ens10.past_caches import MIN_POINTS, write
from ens10.places import is_url
from ens10.store.file_bytes import Buffer, FileBytes, MapCache, MemoryBytes, Source
from ens10.store.manifest import ArraySums, Record, compare
from ens10.untrusted import parse_json


@dataclass(frozen=True)
class Form:
    """Storage format of the chunks of one array.

    Attributes:
        shape: of the array.
        chunk: shape of a chunk.
        dims: names of the dimensions.
        codec: "packed16", "bytes" (plain numbers) or "other", which is not checked.
        compressed: True if the chunk is an lz4 frame.
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
        """Parse the form that a `zarr.json` describes.

        Raises:
            ValueError: it describes no array.
        """
        try:
            array_metadata: Mapping[str, Any] = parse_json(metadata)
            serializer, *compressors = [codec["name"] for codec in array_metadata["codecs"]]
            is_supported = serializer in ("packed16", "bytes") and compressors in ([], ["blosc"])
            is_numeric = isinstance(array_metadata["data_type"], str) and is_supported
            return cls(
                shape=tuple(array_metadata["shape"]),
                chunk=tuple(array_metadata["chunk_grid"]["configuration"]["chunk_shape"]),
                dims=tuple(map(str, array_metadata.get("dimension_names") or ())),
                codec=serializer if is_supported else "other",
                compressed=is_supported and compressors == ["blosc"],
                dtype=np.dtype(array_metadata["data_type"]).name if is_numeric else "",
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no metadata of an array ({error!r})") from error

    @property
    def is_field(self) -> bool:
        """True if the chunks hold fields over the grid, as float32."""
        return self.dims[-2:] == ("latitude", "longitude") and self.dtype == "float32"

    @property
    def plain_size(self) -> int:
        """Bytes of a chunk of plain numbers."""
        return prod(self.chunk) * np.dtype(self.dtype).itemsize

    def places(self) -> Iterator[tuple[int, ...]]:
        """Yield the position of every chunk, in the array's order."""
        counts = (-(-size // part) for size, part in zip(self.shape, self.chunk, strict=True))
        return product(*map(range, counts))

    @property
    def field_shape(self) -> tuple[int, int, int]:
        """Fields, rows and columns of a packed16 chunk."""
        *outer, rows, columns = self.chunk
        return prod(outer), rows, columns


def check(chunk: Buffer, form: Form, key: str = "") -> Buffer:
    """Check a chunk, and return its bytes, decompressed if needed.

    Args:
        chunk: as it lies in the store.
        form: of the array.
        key: its path in the store; "" if that is unknown.

    Raises:
        DamagedChunkError: the chunk is cut short, too long, does not match its checksums, or is
            that of another place.
    """
    if form.codec == "other":
        return chunk
    if form.compressed:
        return _decompress_frame(chunk, form, key)
    _check_values(chunk, form, key)
    return chunk


def plain_frame(chunk: Buffer) -> bytes:
    """Wrap bytes in an lz4 frame whose decompression is a mere copy."""
    frame: bytes = compress(chunk, b"lz4", 0, 0)
    return frame


def _decompress_frame(frame: Buffer, form: Form, key: str) -> Buffer:
    """Decompress and check the values of an lz4 frame."""
    is_packed = form.codec == "packed16"
    max_size = max_chunk_bytes(*form.field_shape) if is_packed else form.plain_size
    chunk = inflate(frame, max_size, lambda size: np.empty(size, np.uint8))
    try:
        _check_values(chunk, form, key)
    except DamagedChunkError as error:
        reason = f"{error.reason} (at byte {error.offset} once unpacked)"
        raise DamagedChunkError(0, reason) from error
    return chunk


def _check_values(chunk: Buffer, form: Form, key: str) -> None:
    if form.codec == "packed16":
        fields, rows, columns = form.field_shape
        records = parse(chunk.data, fields, rows, columns, chunk.size, key)
        for n in range(fields):
            read_values(chunk, records, n, rows * columns)
        return
    size = form.plain_size
    if chunk.size != size:
        raise DamagedChunkError(min(chunk.size, size), f"{chunk.size} bytes instead of {size}")


Place = tuple[int, ...]
Field = npt.NDArray[np.float32]
Move = Callable[[int, Field, Field], None]  # called with a field's index, values, destination
MEND = "Repair the store with `ens10 verify STORE --repair`"
_FLOAT_BYTES = 4
_FIELD_DIMS = ("number", "channel")


class _Request(NamedTuple):
    """The fields and rows of a chunk to read, and where to; see `Reader.read_into`."""

    place: Place
    out: Field
    fields: Sequence[int]
    first: int
    last: int
    move: Move | None


class Reader(ABC):
    """Reader of fields of one array.

    Attributes:
        fields: fields in a chunk (members or channels; 1 where there is no such dimension).
        rows: latitudes.
        columns: longitudes.
        dates: positions along the first dimension that share a chunk.
    """

    fields: int
    rows: int
    columns: int
    dates: int

    def read_into(
        self, place: Place, out: Field, fields: Sequence[int] | None = None,
        rows: slice = slice(None), move: Move | None = None,
    ) -> int:  # fmt: skip
        """Read fields of one chunk into `out`.

        Args:
            place: position along the array's outer dimensions.
            out: shape (fields, rows, columns), of the array's type; each field contiguous.
            fields: positions of the fields to read, all if None.
            rows: slice of the rows to read, without a step.
            move: writes a field to its place, e.g. normalised: called with the index of the field
                in `fields`, its values (rows, columns), which it must not change, and its place in
                `out`. None copies.

        Returns:
            Bytes read.

        Raises:
            FileError: the chunk is missing.
            DamagedFileError: the chunk is damaged, or that of another place.
            ArgumentError: a buffer of another shape or type, or a place of another array.
        """
        first, last, _ = rows.indices(self.rows)
        numbers = range(self.fields) if fields is None else fields
        return self._read(_Request(place, out, numbers, first, max(first, last), move))

    def chunk_of(self, place: Place) -> Place:
        """Return the position of the chunk that holds a position along the outer dimensions."""
        return place if self.dates == 1 else (place[0] // self.dates, *place[1:])

    @abstractmethod
    def _read(self, request: _Request) -> int:
        """Read what is requested, and return the bytes read."""


def open_reader(
    store: Path | str, name: str, record: Record | None = None, dtype: str = "float32"
) -> Reader:
    """Open the reader of one array, such as "sfc/t2m"; of a local store without zarr.

    Args:
        store: path or URL.
        name: of the array.
        record: the store's manifest, with which each chunk is compared when it is first read, and
            again once its file has changed; None to compare none.
        dtype: of the array.

    Raises:
        FileError: no such array, or one of another type, or chunked or coded in another way.
        DamagedFileError: the array's metadata differ from the manifest.
    """
    if is_url(store):
        return _ZarrReader(store, name, record)
    return ChunkReader(Path(store) / name, record, dtype)


class ChunkReader(Reader):
    """Reader of the chunks of an array in a local folder; thread-safe.

    Args:
        folder: of the array, with its `zarr.json`.
        record: the store's manifest; see `open_reader`.
        dtype: of the array.
    """

    def __init__(self, folder: Path, record: Record | None = None, dtype: str = "float32") -> None:
        self.folder, self.name = folder, "/".join(folder.parts[-2:])
        self._root = str(folder)
        try:
            metadata = (folder / "zarr.json").read_bytes()
            form = Form.read(metadata)
        except (OSError, ValueError) as error:
            raise FileError(folder, f"no array of a store ({error})", MEND) from error
        _compare_metadata(metadata, folder, self.name, record)
        self.shape, self.dtype = form.shape, np.dtype(dtype)
        self.outer = _count_outer_dims(folder, self.shape, form.chunk, form.dims)
        self.dates = form.chunk[0] if self.outer else 1
        *field_counts, self.rows, self.columns = self.shape[self.outer :]
        self.fields = field_counts[0] if field_counts else 1
        self.packed, self.compressed = form.codec == "packed16", form.compressed
        if form.codec == "other":
            raise FileError(folder, "coded in a way that is not read here", "Prepare it anew")
        if form.dtype != dtype:
            raise FileError(folder, f"holds {form.dtype}, not {dtype}", "Open it with zarr")
        self._thread_buffers, self._maps = threading.local(), MapCache()
        self._chunk_fields, self._plain_size = self.dates * self.fields, form.plain_size
        counts = [-(-size // part) for size, part in zip(self.shape, form.chunk, strict=True)]
        self._sums = record.array(self.name, tuple(counts[: self.outer])) if record else None
        # state of each chunk's file when it was compared, and True for fields that were compared
        self._file_states = np.zeros(prod(counts[: self.outer]), np.int64)
        self._is_compared = np.zeros((self._file_states.size, self.fields), np.bool_)

    def path_of(self, place: Place) -> Path:
        """Return the file of the chunk at a position along the outer dimensions."""
        return Path(self._file_of(place))

    def _file_of(self, place: Place) -> str:
        return "/".join([self._root, "c", *self._key_parts(self.chunk_of(place))])

    def _key_parts(self, place: Place) -> list[str]:
        return [*map(str, place), *["0"] * (len(self.shape) - self.outer)]

    def _read(self, request: _Request) -> int:
        path = self._file_of(request.place)  # text: a Path takes longer than a small read
        self._check(request)
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise FileError(Path(path), "the chunk is missing", MEND) from error
        try:
            file_bytes = FileBytes(file, self._maps)
            if self._sums is not None:
                self._compare(self._sums, file_bytes, request)
            if self.dates > 1:
                first = request.place[0] % self.dates * self.fields
                shifted = range(first, first + self.fields)
                is_whole = request.fields == range(self.fields)
                fields = shifted if is_whole else [shifted[n] for n in request.fields]
                request = request._replace(fields=fields)
            source = self._decompress(file_bytes) if self.compressed else file_bytes
            count = (self._read_packed if self.packed else self._read_plain)(source, request)
            return file_bytes.size if self.compressed else count
        except DamagedChunkError as error:
            raise DamagedFileError(Path(path), error.offset, error.reason, MEND) from error
        finally:
            os.close(file)

    def _compare(self, sums: ArraySums, source: FileBytes, request: _Request) -> None:
        """Compare a chunk with the manifest when it is first read or its file has changed.

        Several threads may do this at once: they write the same values.
        """
        n = sums.number(self.chunk_of(request.place))
        if self._file_states[n] != source.state:
            self._is_compared[n], self._file_states[n] = False, source.state
        row = self._is_compared[n]
        pending = [] if row.all() else [field for field in request.fields if not row[field]]
        if pending:
            fields = compare(sums.at(n), source, pending, self.fields, self._scratch("file"))
            self._is_compared[n, fields] = True

    def _read_packed(self, source: Source, request: _Request) -> int:
        key = "/".join([self.name, "c", *self._key_parts(self.chunk_of(request.place))])
        first, move = request.first, request.move
        head = source.read(0, values_begin(self._chunk_fields), self._scratch("head"))
        records = parse(head.data, self._chunk_fields, self.rows, self.columns, source.size, key)
        count, points = head.size, (request.last - first) * self.columns
        for n, (field, target) in enumerate(zip(request.fields, request.out, strict=True)):
            record = records[field]
            size = length_of(record, points)
            begin = int(record["offset"]) + length_of(record, first * self.columns)
            part = source.read(begin, size, self._scratch("values"))
            if move is None:
                unpack(record, part, target.reshape(-1), read_soon=False)
            else:
                field_values = self._scratch("field")(points * _FLOAT_BYTES).view("<f4")
                unpack(record, part, field_values)
                move(n, field_values.reshape(target.shape), target)
            count += size
        return count

    def _read_plain(self, source: Source, request: _Request) -> int:
        _, out, fields, first_row, last_row, move = request
        row_bytes, rows = self.columns * self.dtype.itemsize, last_row - first_row
        if source.size != (expected := self._plain_size):
            raise DamagedChunkError(source.size, f"{source.size} bytes instead of {expected}")
        for first, last in _runs(fields) if rows == self.rows else pairwise(range(len(fields) + 1)):
            begin = (fields[first] * self.rows + first_row) * row_bytes
            size = (last - first) * rows * row_bytes
            part = source.read(begin, size, self._scratch("values")).view(self.dtype)
            values = part.reshape(last - first, rows, self.columns)
            if move is None and (values.dtype != np.float32 or values[0].size < MIN_POINTS):
                out[first:last] = values
            else:
                for n in range(first, last):
                    (move or _copy)(n, values[n - first], out[n])
        return len(fields) * rows * row_bytes

    def _decompress(self, source: FileBytes) -> MemoryBytes:
        frame = source.read(0, source.size, self._scratch("file"))
        max_size = max_chunk_bytes(self._chunk_fields, self.rows, self.columns)
        chunk = inflate(frame, max_size, self._scratch("chunk"))
        return MemoryBytes(chunk)

    def _check(self, request: _Request) -> None:
        """Refuse a buffer, position or fields that do not fit the array."""
        place, out, fields, first, last, _ = request
        shape = (len(fields), last - first, self.columns)
        if out.shape != shape or out.dtype != self.dtype or not out[:1].flags.c_contiguous:
            reason = f"expected {self.dtype} of shape {shape}, each field contiguous"
            raise ArgumentError("out", f"{reason}; got {out.dtype} of shape {out.shape}")
        if len(place) != self.outer:
            raise ArgumentError("place", f"expected {self.outer} positions, got {place}")
        if fields != range(self.fields) and not {*fields} <= {*range(self.fields)}:
            raise ArgumentError("fields", f"{[*fields]} of {self.fields}")

    def _scratch(self, name: str) -> Any:
        """Return a function that returns this thread's reusable buffer of at least a size."""

        def buffer(size: int) -> Buffer:
            array: Buffer | None = getattr(self._thread_buffers, name, None)
            if array is None or array.size < size:
                array = np.empty(size, np.uint8)
                setattr(self._thread_buffers, name, array)
            return array[:size]

        return buffer


class _ZarrReader(Reader):
    """Reader through zarr, for stores that are not local folders."""

    def __init__(self, store: Path | str, name: str, record: Record | None = None) -> None:
        from ens10.store.checked import open_strictly  # which needs the remedy of this module

        array: Any = open_strictly(store, record)[name]
        dims = array.metadata.dimension_names
        outer = _count_outer_dims(f"{store}/{name}", array.shape, array.chunks, dims)
        self.dates = array.chunks[0] if outer else 1
        chunk_shape: Place = array.shape[outer:]
        self.rows, self.columns = chunk_shape[-2:]
        self.fields = chunk_shape[0] if len(chunk_shape) == 3 else 1
        self._array = array

    def _read(self, request: _Request) -> int:
        chunk = np.asarray(self._array[request.place])
        chunk = chunk.reshape(self.fields, self.rows, self.columns)
        fields = chunk[list(request.fields), request.first : request.last]
        for n, (values, target) in enumerate(zip(fields, request.out, strict=True)):
            (request.move or _copy)(n, np.ascontiguousarray(values), target)
        return chunk.nbytes


def _compare_metadata(content: bytes, folder: Path, name: str, record: Record | None) -> None:
    """Refuse metadata of an array that differ from the manifest."""
    if record is None:
        return
    try:
        compare(record.row(f"{name}/zarr.json"), MemoryBytes(np.frombuffer(content, np.uint8)))
    except DamagedChunkError as error:
        raise DamagedFileError(folder / "zarr.json", error.offset, error.reason, MEND) from error


def _copy(_: int, values: Field, out: Field) -> None:
    write(values, out)


def _count_outer_dims(folder: Path | str, shape: Place, chunk: Place, dims: Sequence[str]) -> int:
    """Return the number of outer dimensions; a chunk is one position along all but the first."""
    outer = len(shape) - (3 if dims[-3:-2] and dims[-3] in _FIELD_DIMS else 2)
    first = chunk[: min(outer, 1)]
    if outer < 0 or chunk != (*first, *(1,) * (outer - len(first)), *shape[outer:]):
        raise FileError(folder, f"chunks of {chunk} in an array of {shape}", "Prepare it anew")
    return outer


def _runs(fields: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs (first, past the last) of consecutive fields."""
    if isinstance(fields, range) and fields.step == 1:
        return [(0, len(fields))]
    breaks = [n for n in range(1, len(fields)) if fields[n] != fields[n - 1] + 1]
    edges = [0, *breaks, len(fields)]
    return [run for run in pairwise(edges) if run[0] < run[1]]
