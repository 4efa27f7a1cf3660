"""Chunks of a store straight into the caller's buffer: no dask, no zarr, no fresh memory.

Every array that a training reads is chunked so that its last two or three dimensions are whole (a
chunk is one place along the others). A reader knows where each field of such a chunk lies, reads
the rows and fields that are wanted and no more, and unpacks them into memory that is kept.
"""

import os
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import zarr

from ens10.errors import ArgumentError, DamagedFileError, FileError
from ens10.packed16.layout import DamagedChunkError, length_of, most_bytes, parse, values_begin
from ens10.packed16.lz4 import inflate
from ens10.packed16.unpack import unpack
from ens10.places import for_zarr, is_url
from ens10.store.bytes import Buffer, FileBytes, MemoryBytes, Source
from ens10.store.mapping import Maps
from ens10.streaming import Move, copy
from ens10.untrusted import parse_json

Place = tuple[int, ...]
Field = npt.NDArray[np.float32]
MEND = "Mend the store with `ens10 verify STORE --repair`"
_FLOAT_BYTES = 4
_FIELD_DIMS = ("number", "channel")


class Reader(Protocol):
    """What reads fields of one array.

    Attributes:
        fields: fields in a chunk (members or channels; 1 where there is no such dimension).
        rows: latitudes.
        columns: longitudes.
    """

    fields: int
    rows: int
    columns: int

    def read_into(
        self,
        place: Place,
        out: npt.NDArray[np.float32],
        fields: Sequence[int] | None = None,
        rows: slice = slice(None),
        move: Move | None = None,
    ) -> int:
        """Reads fields of one chunk.

        Args:
            place: the chunk's position along the array's outer dimensions.
            out: shape (fields, rows, columns), float32; each field contiguous.
            fields: positions of the fields wanted, all if None.
            rows: the rows wanted, without a step.
            move: brings a field to its place: called with the number of the field among those
                wanted, its values (rows, columns), which are near and not to be changed, and its
                place in `out`. A copy if None.

        Returns:
            Bytes read.

        Raises:
            FileError: the chunk is missing.
            DamagedFileError: the chunk is damaged.
            ArgumentError: a buffer of another shape or type, or a place of another array.
        """


def open_reader(store: Path | str, name: str) -> Reader:
    """A reader of one array, such as "sfc/t2m"; of a local store without zarr.

    Raises:
        FileError: no such array, or one that is chunked or coded in another way.
    """
    if is_url(store):
        return _ZarrReader(store, name)
    return ChunkReader(Path(store) / name)


class ChunkReader:
    """Reads chunks of an array in a local folder; threads may share it.

    Args:
        folder: of the array, with its `zarr.json`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            about = parse_json((folder / "zarr.json").read_text())
            chunk = about["chunk_grid"]["configuration"]["chunk_shape"]
            dims = about["dimension_names"]
            codecs = [codec["name"] for codec in about["codecs"]]
            kind = about["data_type"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileError(folder, f"no array of a store ({error})", MEND) from error
        self.shape: Place = tuple(about["shape"])
        self.outer = _outer(folder, self.shape, tuple(chunk), dims)
        *held, self.rows, self.columns = self.shape[self.outer :]
        self.fields = held[0] if held else 1
        self.packed, self.compressed = codecs[0] == "packed16", codecs[1:] == ["blosc"]
        if codecs[0] not in ("packed16", "bytes") or len(codecs) > 1 + self.compressed:
            raise FileError(folder, f"coded as {codecs}, which is not read here", "Prepare it anew")
        if kind != "float32":
            raise FileError(folder, f"holds {kind}, and fields are float32", "Open it with zarr")
        self._kept, self._maps = threading.local(), Maps()

    def path_of(self, place: Place) -> Path:
        """The file of the chunk at a place along the outer dimensions."""
        inner = len(self.shape) - self.outer
        return self.folder.joinpath("c", *map(str, place), *["0"] * inner)

    def read_into(
        self,
        place: Place,
        out: npt.NDArray[np.float32],
        fields: Sequence[int] | None = None,
        rows: slice = slice(None),
        move: Move | None = None,
    ) -> int:
        """Reads fields of one chunk; see `Reader`."""
        path = self.path_of(place)
        first, last, _ = rows.indices(self.rows)
        wanted = range(self.fields) if fields is None else fields
        self._check(place, out, wanted, max(last - first, 0))
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise FileError(path, "the chunk is missing", MEND) from error
        try:
            source = self._inflated(file) if self.compressed else FileBytes(file, self._maps)
            read = self._packed if self.packed else self._plain
            count = read(source, out, wanted, (first, last), move)
            return os.fstat(file).st_size if self.compressed else count
        except DamagedChunkError as error:
            raise DamagedFileError(path, error.offset, error.reason, MEND) from error
        finally:
            os.close(file)

    def _packed(
        self,
        source: Source,
        out: Any,
        fields: Sequence[int],
        rows: tuple[int, int],
        move: Move | None,
    ) -> int:
        head = source.read(0, values_begin(self.fields), self._scratch("head"))
        records = parse(head.data, self.fields, self.rows, self.columns, source.size)
        count, points = head.size, (rows[1] - rows[0]) * self.columns
        for n, (field, target) in enumerate(zip(fields, out, strict=True)):
            record = records[field]
            size = length_of(record, points)
            begin = int(record["offset"]) + length_of(record, rows[0] * self.columns)
            part = source.read(begin, size, self._scratch("values"))
            if move is None:
                unpack(record, part, target.reshape(-1))
            else:
                near = self._scratch("field")(points * _FLOAT_BYTES).view("<f4")
                unpack(record, part, near, past_caches=False)
                move(n, near.reshape(target.shape), target)
            count += size
        return count

    def _plain(
        self,
        source: Source,
        out: Any,
        fields: Sequence[int],
        rows: tuple[int, int],
        move: Move | None,
    ) -> int:
        row = self.columns * _FLOAT_BYTES
        wanted = self.fields * self.rows * row
        if source.size != wanted:
            raise DamagedChunkError(source.size, f"{source.size} bytes instead of {wanted}")
        whole = rows == (0, self.rows)
        for first, last in _runs(fields) if whole else [(n, n + 1) for n in range(len(fields))]:
            begin = (fields[first] * self.rows + rows[0]) * row
            size = (last - first) * (rows[1] - rows[0]) * row
            part = source.read(begin, size, self._scratch("values")).view("<f4")
            values = part.reshape(last - first, rows[1] - rows[0], self.columns)
            for n in range(first, last):
                if move is None:
                    copy(values[n - first].reshape(-1), out[n].reshape(-1), True)
                else:
                    move(n, values[n - first], out[n])
        return len(fields) * (rows[1] - rows[0]) * row

    def _inflated(self, file: int) -> MemoryBytes:
        size = os.fstat(file).st_size
        packed = FileBytes(file, self._maps).read(0, size, self._scratch("file"))
        most = most_bytes(self.fields, self.rows, self.columns)
        chunk = inflate(packed, most, self._scratch("chunk"))
        return MemoryBytes(chunk)

    def _check(self, place: Place, out: Any, fields: Sequence[int], rows: int) -> None:
        """Refuses what would be read in part, or into nowhere."""
        shape = (len(fields), rows, self.columns)
        if out.shape != shape or out.dtype != np.float32 or not out[:1].flags.c_contiguous:
            reason = f"expected float32 of shape {shape}, each field contiguous"
            raise ArgumentError("out", f"{reason}; got {out.dtype} of shape {out.shape}")
        if len(place) != self.outer:
            raise ArgumentError("place", f"expected {self.outer} positions, got {place}")
        if len(fields) and not 0 <= min(fields) <= max(fields) < self.fields:
            raise ArgumentError("fields", f"{[*fields]} of {self.fields}")

    def _scratch(self, name: str) -> Any:
        """A function that gives a kept buffer of this thread, of at least the size asked for."""

        def buffer(size: int) -> Buffer:
            held: Buffer | None = getattr(self._kept, name, None)
            if held is None or held.size < size:
                held = np.empty(size, np.uint8)
                setattr(self._kept, name, held)
            return held[:size]

        return buffer


class _ZarrReader:
    """Reads through zarr, for stores that are no local folder."""

    def __init__(self, store: Path | str, name: str) -> None:
        array: Any = zarr.open_group(for_zarr(store), mode="r", use_consolidated=False)[name]
        outer = _outer(f"{store}/{name}", array.shape, array.chunks, array.metadata.dimension_names)
        held: Place = array.shape[outer:]
        self.rows, self.columns = held[-2:]
        self.fields = held[0] if len(held) == 3 else 1
        self._array = array

    def read_into(
        self,
        place: Place,
        out: npt.NDArray[np.float32],
        fields: Sequence[int] | None = None,
        rows: slice = slice(None),
        move: Move | None = None,
    ) -> int:
        """Reads fields of one chunk; see `Reader`."""
        chunk = np.asarray(self._array[place]).reshape(self.fields, self.rows, self.columns)
        wanted = (chunk if fields is None else chunk[list(fields)])[:, rows]
        for n, (values, target) in enumerate(zip(wanted, out, strict=True)):
            (move or _copy)(n, np.ascontiguousarray(values), target)
        return chunk.nbytes


def _copy(_: int, values: Field, out: Field) -> None:
    out[...] = values


def _outer(folder: Path | str, shape: Place, chunk: Place, dims: Sequence[str]) -> int:
    """Number of dimensions along which a chunk is one place; the two or three others are whole."""
    outer = len(shape) - (3 if dims[-3:-2] and dims[-3] in _FIELD_DIMS else 2)
    if outer < 0 or chunk != (*(1,) * outer, *shape[outer:]):
        raise FileError(folder, f"chunks of {chunk} in an array of {shape}", "Prepare it anew")
    return outer


def _runs(fields: Sequence[int]) -> list[tuple[int, int]]:
    """Positions (first, past the last) of runs of fields that follow each other."""
    breaks = [n for n in range(1, len(fields)) if fields[n] != fields[n - 1] + 1]
    edges = [0, *breaks, len(fields)]
    return [run for run in pairwise(edges) if run[0] < run[1]]
