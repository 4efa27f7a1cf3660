"""Sizes and checksums of a store's files, found in its manifest without parsing all of it.

The manifest of 20,000 dates has hundreds of megabytes: some of them are searched at a time. What a
training reads is compared with it: of most files the crc32c of all bytes, of a chunk of statistics
that of each channel that is read. A manifest that does not match its own checksum is never used;
its copy is.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import crc32c as _crc32c
import numpy as np
import numpy.typing as npt
import zarr

from ens10.errors import DamagedFileError
from ens10.packed16.layout import DamagedChunkError, crc32c
from ens10.places import for_zarr, is_url
from ens10.store.bytes import Buffer, Source
from ens10.untrusted import check_regular

NAME = "manifest/json/c/0"
COPY = "manifest/copy/c/0"
END = b'},"crc32c":'
DIFFERS = "it does not match its checksum in the manifest"
_REST = b'"metadata":['  # the last line: files that no unit of work has written
_CHUNK = re.compile(r"/c(/\d+)*$")
_BLOCK = 1 << 24  # bytes that are searched at a time
_ROW = re.compile(rb'\["([^"\\]*)",(\d{1,18}),(\d{1,10})(?:,"((?:[0-9a-f]{8})*)")?')
_POSITIONS = re.compile(rb"\d{1,9}(/\d{1,9})*")
_DIGITS = 8  # hexadecimal digits of a checksum
_NONE = np.empty(0, np.uint32)
_LOG = logging.getLogger(__name__)
Place = tuple[int, ...]


class FileSums(NamedTuple):
    """What the manifest gives for one file.

    Attributes:
        size: bytes.
        crc: crc32c of all bytes.
        fields: crc32c of each field, empty where they were not recorded.
    """

    size: int
    crc: int
    fields: npt.NDArray[np.uint32]


def field_checksums(fields: npt.NDArray[Any]) -> str:
    """The crc32c of each field as eight hexadecimal digits, for the manifest.

    Args:
        fields: shape (fields, ...), contiguous.
    """
    return "".join(f"{crc32c(field):0{_DIGITS}x}" for field in fields)


def _memory(size: int) -> Buffer:
    return np.empty(size, np.uint8)


def compare(
    sums: FileSums | None,
    source: Source,
    wanted: Sequence[int] = (),
    fields: int = 0,
    into: Callable[[int], Buffer] = _memory,
) -> Sequence[int]:
    """Compare a file, or some of its fields where each has a checksum, with the manifest.

    Args:
        sums: from the manifest, None if it does not list the file.
        source: the file's bytes.
        wanted: the fields that will be read.
        fields: that the file has; 0 to compare all bytes.
        into: returns memory of a size, for bytes that are not in memory yet.

    Returns:
        The fields that were compared.

    Raises:
        DamagedChunkError: size or checksum differ.
    """
    if sums is None:
        raise DamagedChunkError(0, "the manifest does not list it")
    if source.size != sums.size:
        at = min(source.size, sums.size)
        raise DamagedChunkError(at, f"{source.size} bytes instead of {sums.size}")
    if not fields or sums.fields.size != fields:
        if crc32c(source.read(0, sums.size, into)) != sums.crc:
            raise DamagedChunkError(0, DIFFERS)
        return range(fields)
    length = sums.size // fields
    for n in wanted:
        if crc32c(source.read(n * length, length, into)) != sums.fields[n]:
            raise DamagedChunkError(n * length, f"field {n}: {DIFFERS}")
    return wanted


@dataclass(frozen=True)
class ArraySums:
    """Checksums of the chunks of one array, by their position along its outer dimensions.

    Attributes:
        outer: sizes of the outer dimensions.
        sizes: (chunks,) bytes, -1 for chunks that the manifest does not list.
        crcs: (chunks,) crc32c of all bytes.
        fields: crc32c of each field, by the chunk's number, of those where it was recorded.
    """

    outer: Place
    sizes: npt.NDArray[np.int64]
    crcs: npt.NDArray[np.uint32]
    fields: dict[int, npt.NDArray[np.uint32]]

    def at(self, chunk: int) -> FileSums | None:
        """The checksums of a chunk, None if it is not listed."""
        size = int(self.sizes[chunk])
        if size < 0:
            return None
        return FileSums(size, int(self.crcs[chunk]), self.fields.get(chunk, _NONE))

    def number(self, place: Place) -> int:
        """The number of the chunk at a place."""
        number = 0
        for position, size in zip(place, self.outer, strict=True):
            number = number * size + position
        return number


class Record:
    """A store's manifest, to be searched; it has matched its own checksum.

    Args:
        opened: opens its text, as often as it is called.
        rest: its rows of files that no unit of work has written: metadata and coordinates.
    """

    def __init__(self, opened: Callable[[], BinaryIO], rest: Mapping[str, FileSums]) -> None:
        self._opened, self._rest = opened, rest

    def blocks(self) -> Iterator[bytes]:
        """The text, some megabytes of whole lines at a time."""
        with self._opened() as file:
            while block := file.read(_BLOCK) + file.readline():
                yield block

    def row(self, key: str) -> FileSums | None:
        """The checksums of one file, None if the manifest does not list it."""
        if key in self._rest:
            return self._rest[key]
        begin = f'["{key}",'.encode()
        for block in self.blocks() if _CHUNK.search(key) else ():
            row = _ROW.match(block, at) if (at := block.find(begin)) >= 0 else None
            if row:
                return _sums(row)
        return None

    def array(self, name: str, outer: Place) -> ArraySums:
        """The checksums of all chunks of an array.

        Args:
            name: such as "truth/t2m".
            outer: sizes of its outer dimensions, along which each chunk is one place.
        """
        chunks = prod(outer)
        sizes, crcs = np.full(chunks, -1, np.int64), np.zeros(chunks, np.uint32)
        found = ArraySums(outer, sizes, crcs, {})
        for place, row in self._rows(name, len(outer)):
            if len(place) == len(outer) and all(map(int.__lt__, place, outer)):
                n, sums = found.number(place), _sums(row)
                sizes[n], crcs[n] = sums.size, sums.crc
                if sums.fields.size:
                    found.fields[n] = sums.fields
        return found

    def _rows(self, name: str, outer: int) -> Iterator[tuple[Place, re.Match[bytes]]]:
        begin = f'["{name}/c/'.encode()
        for block in self.blocks():
            at = block.find(begin)
            while at >= 0:
                row = _ROW.match(block, at)
                positions = row[1][len(begin) - 2 :] if row else b""
                if row and _POSITIONS.fullmatch(positions):
                    yield tuple(map(int, positions.split(b"/")[:outer])), row
                at = block.find(begin, at + len(begin))


def open_record(store: Path | str) -> Record | None:
    """The manifest of a store, or its copy if the manifest itself is damaged or missing.

    Returns:
        None, and a warning in the log, for a store that has neither.

    Raises:
        DamagedFileError: what there is of them does not match its own checksum.
    """
    texts = [text for text in (_text(store, name) for name in (NAME, COPY)) if text is not None]
    for opened in texts:
        rest = _checked_rest(opened)
        if rest is not None:
            return Record(opened, rest)
    if texts:
        reason = "neither it nor its copy matches its own checksum"
        raise DamagedFileError(f"{store}/{NAME}", 0, reason, "Prepare the store anew with --force")
    _LOG.warning("%s has no manifest: what is read from it is not compared with checksums", store)
    return None


def _text(store: Path | str, name: str) -> Callable[[], BinaryIO] | None:
    """What opens the text of a manifest; None if there is none."""
    if is_url(store):
        root: Any = zarr.open_group(for_zarr(store), mode="r", use_consolidated=False)
        array = name.partition("/c/")[0]
        if array not in root:
            return None
        content = np.asarray(root[array][...]).tobytes()
        return lambda: BytesIO(content)
    path = Path(store) / name
    try:
        check_regular(path)
    except FileNotFoundError:
        return None
    return lambda: path.open("rb")


def _checked_rest(opened: Callable[[], BinaryIO]) -> dict[str, FileSums] | None:
    """The last unit's rows of a manifest; None if it does not match its own checksum."""
    crc, rest = 0, b""
    with opened() as file:
        while line := file.readline():
            if line.startswith(END):
                break
            crc = _crc32c.crc32c(line, crc)
            rest = line
        told = line.removeprefix(END).rstrip(b" \n").removesuffix(b"}")
        if told != str(crc).encode() or not line.endswith(b"\n") or file.read(1):
            return None
    rows = [_sums_of(row) for row in _ROW.finditer(rest)] if rest.startswith(_REST) else []
    return dict(rows)


def _sums_of(row: re.Match[bytes]) -> tuple[str, FileSums]:
    return row[1].decode(), _sums(row)


def _sums(row: re.Match[bytes]) -> FileSums:
    digits = row[4] or b""
    fields = np.frombuffer(bytes.fromhex(digits.decode()), ">u4").astype(np.uint32)
    return FileSums(int(row[2]), int(row[3]) & 0xFFFFFFFF, fields)
