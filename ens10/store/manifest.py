"""The manifest of a store: every file with its size and checksum, every unit with its source.

The one chunk of the array `manifest/json` is a JSON text, with one line for each unit, so that the
rows of half a million chunks can be read line by line:

    {"format":1,"plan":{...},"units":{
    "00000-000":[["sfc/t2m/c/0/0/0/0/0",5196032,2893113,221.4,315.2,0,"0:0+5196072 ..."],...],
    ...
    },"crc32c":1234}

padded with spaces, since the text contains the checksums of metadata that contain its length. The
array `manifest/copy` holds the same bytes once more, so that damage to one of them loses nothing.
A row holds path, bytes, crc32c and, for fields, minimum, maximum, number of missing values, and
source: for each member the number of the file in the plan, first byte and length; for statistics,
the crc32c of each channel's field in hexadecimal, since a training reads some channels of a chunk.
No times of day, no names of machines: the same data give the same bytes.

`read_manifest` parses all of it. `open_record` searches it without parsing: the manifest of 20,000
dates has hundreds of megabytes. A manifest that does not match its own checksum is never used; its
copy is.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import zarr
from crc32c import crc32c as crc32c_of

from ens10.durable import remove, sync_files, write_whole
from ens10.errors import DamagedFileError, FileError, printable
from ens10.packed16.layout import DamagedChunkError, crc32c
from ens10.places import for_zarr, is_url
from ens10.store.file_bytes import Buffer, Source
from ens10.store.writing import consolidate, create_array
from ens10.untrusted import check_depth, check_regular, is_inner, parse_json

NAME = "manifest/json/c/0"
COPY = "manifest/copy/c/0"
END = b'},"crc32c":'
CHECKSUM_DIFFERS = "it does not match its checksum in the manifest"
_METADATA_LINE = b'"metadata":['  # the last line: files that no unit of work has written
_CHUNK = re.compile(r"/c(/\d+)*$")
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.partial$|/\.[^/]*\.tmp$")  # of zarr, and of this package
_BLOCK = 1 << 24  # bytes that are searched at a time
_ROW_TEXT = re.compile(rb'\["([^"\\]*)",(\d{1,18}),(\d{1,10})(?:,"((?:[0-9a-f]{8})*)")?')
_POSITIONS = re.compile(rb"\d{1,9}(/\d{1,9})*")
_DIGITS = 8  # hexadecimal digits of a checksum
_NONE = np.empty(0, np.uint32)
_LOG = logging.getLogger(__name__)
Place = tuple[int, ...]


class FileSums(NamedTuple):
    """Size and checksums of one file in the manifest.

    Attributes:
        size: bytes.
        crc: crc32c of all bytes.
        fields: crc32c of each field, empty where they were not recorded.
    """

    size: int
    crc: int
    fields: npt.NDArray[np.uint32]


def field_checksums(fields: npt.NDArray[Any]) -> str:
    """Return the crc32c of each field as eight hexadecimal digits, for the manifest.

    Args:
        fields: shape (fields, ...), contiguous.
    """
    return "".join(f"{crc32c(field):0{_DIGITS}x}" for field in fields)


def _memory(size: int) -> Buffer:
    return np.empty(size, np.uint8)


def compare(
    sums: FileSums | None, source: Source, field_numbers: Sequence[int] = (), fields: int = 0,
    into: Callable[[int], Buffer] = _memory,
) -> Sequence[int]:  # fmt: skip
    """Compare a file, or some of its fields where each has a checksum, with the manifest.

    Args:
        sums: from the manifest, None if it does not list the file.
        source: the file's bytes.
        field_numbers: positions of the fields that will be read.
        fields: number of fields in the file; 0 to compare all bytes.
        into: function that returns memory of a size, for bytes that are not in memory yet.

    Returns:
        The fields that were compared.

    Raises:
        DamagedChunkError: size or checksum differ.
    """
    if sums is None:
        raise DamagedChunkError(0, "the manifest does not list it")
    compare_size(sums.size, source.size)
    if not fields or sums.fields.size != fields:
        if crc32c(source.read(0, sums.size, into)) != sums.crc:
            raise DamagedChunkError(0, CHECKSUM_DIFFERS)
        return range(fields)
    length = sums.size // fields
    for n in field_numbers:
        if crc32c(source.read(n * length, length, into)) != sums.fields[n]:
            raise DamagedChunkError(n * length, f"field {n}: {CHECKSUM_DIFFERS}")
    return field_numbers


def compare_size(expected: int, size: int) -> None:
    """Compare the size of a file with the manifest.

    Raises:
        DamagedChunkError: they differ.
    """
    if size != expected:
        raise DamagedChunkError(min(size, expected), f"{size} bytes instead of {expected}")


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
        """Return the checksums of a chunk, None if it is not listed."""
        size = int(self.sizes[chunk])
        if size < 0:
            return None
        return FileSums(size, int(self.crcs[chunk]), self.fields.get(chunk, _NONE))

    def number(self, place: Place) -> int:
        """Return the number of the chunk at a place."""
        number = 0
        for position, size in zip(place, self.outer, strict=True):
            number = number * size + position
        return number


class Record:
    """The manifest of a store, after a check of its own checksum; searched without parsing it.

    Args:
        open_text: function that opens its text; called for each search.
        metadata_rows: rows of files that no unit of work has written: metadata and coordinates.
    """

    def __init__(
        self, open_text: Callable[[], BinaryIO], metadata_rows: Mapping[str, FileSums]
    ) -> None:
        self._open_text, self._metadata_rows = open_text, metadata_rows

    def blocks(self) -> Iterator[bytes]:
        """Yield the text, some megabytes of whole lines at a time."""
        with self._open_text() as file:
            while block := file.read(_BLOCK) + file.readline():
                yield block

    def row(self, key: str) -> FileSums | None:
        """Return the checksums of one file, None if the manifest does not list it."""
        if key in self._metadata_rows:
            return self._metadata_rows[key]
        begin = f'["{key}",'.encode()
        for block in self.blocks() if _CHUNK.search(key) else ():
            row = _ROW_TEXT.match(block, at) if (at := block.find(begin)) >= 0 else None
            if row:
                return _sums(row)
        return None

    def array(self, name: str, outer: Place) -> ArraySums:
        """Return the checksums of all chunks of an array.

        Args:
            name: such as "truth/t2m".
            outer: sizes of its outer dimensions, along which each chunk is one place.
        """
        chunks = prod(outer)
        sizes, crcs = np.full(chunks, -1, np.int64), np.zeros(chunks, np.uint32)
        array_sums = ArraySums(outer, sizes, crcs, {})
        for place, row in self._rows(name, len(outer)):
            if len(place) == len(outer) and all(map(int.__lt__, place, outer)):
                n, sums = array_sums.number(place), _sums(row)
                sizes[n], crcs[n] = sums.size, sums.crc
                if sums.fields.size:
                    array_sums.fields[n] = sums.fields
        return array_sums

    def _rows(self, name: str, outer: int) -> Iterator[tuple[Place, re.Match[bytes]]]:
        begin = f'["{name}/c/'.encode()
        for block in self.blocks():
            at = block.find(begin)
            while at >= 0:
                row = _ROW_TEXT.match(block, at)
                positions = row[1][len(begin) - 2 :] if row else b""
                if row and _POSITIONS.fullmatch(positions):
                    yield tuple(map(int, positions.split(b"/")[:outer])), row
                at = block.find(begin, at + len(begin))


def open_record(store: Path | str) -> Record | None:
    """Open the manifest of a store, or its copy if the manifest is damaged or missing.

    Returns:
        The manifest; None, and a warning in the log, for a store that has neither.

    Raises:
        DamagedFileError: neither of those that exist matches its own checksum.
    """
    openers = [o for o in (_text_opener(store, name) for name in (NAME, COPY)) if o is not None]
    for opener in openers:
        metadata_rows = _read_metadata_rows(opener)
        if metadata_rows is not None:
            return Record(opener, metadata_rows)
    if openers:
        reason = "neither it nor its copy matches its own checksum"
        raise DamagedFileError(f"{store}/{NAME}", 0, reason, "Prepare the store anew with --force")
    _LOG.warning(
        "%s has no manifest: what is read from it is not compared with checksums", printable(store)
    )
    return None


def _text_opener(store: Path | str, name: str) -> Callable[[], BinaryIO] | None:
    """Return a function that opens the text of a manifest; None if there is none."""
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


def _read_metadata_rows(opener: Callable[[], BinaryIO]) -> dict[str, FileSums] | None:
    """Return the rows of a manifest's last unit; None if its own checksum differs."""
    crc, last = 0, b""
    with opener() as file:
        while line := file.readline():
            if line.startswith(END):
                break
            crc = crc32c_of(line, crc)
            last = line
        recorded_crc = line.removeprefix(END).rstrip(b" \n").removesuffix(b"}")
        if recorded_crc != str(crc).encode() or not line.endswith(b"\n") or file.read(1):
            return None
    if not last.startswith(_METADATA_LINE):
        return {}
    return {row[1].decode(): _sums(row) for row in _ROW_TEXT.finditer(last)}


def _sums(row: re.Match[bytes]) -> FileSums:
    digits = row[4] or b""
    fields = np.frombuffer(bytes.fromhex(digits.decode()), ">u4").astype(np.uint32)
    return FileSums(int(row[2]), int(row[3]) & 0xFFFFFFFF, fields)


FORMAT = 1
_GROUP = "manifest"
_ARRAYS = ("json", "copy")
_METADATA = ("zarr.json", f"{_GROUP}/zarr.json", *(f"{_GROUP}/{a}/zarr.json" for a in _ARRAYS))
_MIN_ROW_LENGTH = 3  # values of a row: path, bytes, crc32c
Row = list[Any]  # path, bytes, crc32c, and for forecasts: minimum, maximum, gaps, source
_T = TypeVar("_T")
_PLAN_KEYS = ("source", "truth", "options")
_ROW_BYTES = 32  # bytes of size, checksum and commas in a row, at the most
_PAGE = 1024  # the length is a multiple of it
METADATA_UNIT = "metadata"  # the name of the unit of all files that no unit of work has written
_REMEDY = "Prepare the store anew with --force"


@dataclass(frozen=True)
class Manifest:
    """The parsed manifest of a store.

    Attributes:
        plan: options and sources of the store.
        units: rows of the files that each unit has written.
    """

    plan: dict[str, Any]
    units: dict[str, list[Row]]

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Return unit and row of every file."""
        return ((unit, row) for unit, rows in self.units.items() for row in rows)

    def paths(self) -> set[str]:
        """Return paths of all files, relative to the store."""
        return {row[0] for _, row in self.rows()}

    def sums(self) -> dict[str, FileSums]:
        """Return size and checksum of each file, by its path."""
        return {row[0]: FileSums(row[1], row[2], _NONE) for _, row in self.rows()}

    def differing_names(self, store: Path) -> tuple[list[str], list[str]]:
        """Return the files that a store lacks, and those that the manifest does not name."""
        files, paths = set(files_of(store)), self.paths()
        return sorted(paths - files), sorted(files - paths)


def record_files(root: Path, plan: dict[str, Any]) -> None:
    """Write the manifest of a store whose other files are all there, and sync all of them.

    Args:
        root: the store, under a temporary name.
        plan: options and sources of the store, with the keys "source", "truth" and "options".
    """
    content = assemble_manifest(root, plan, [], [], files_of(root)).tobytes()
    for name in (COPY, NAME):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(root / name, content)


def clear_unfinished(root: Path) -> None:
    """Remove temporary files and the manifest that a killed process left in a partial store."""
    remove(root / Path(NAME).parts[0])
    for path in files_of(root):
        if _TEMPORARY.search(path):
            remove(root / path)


def assemble_manifest(
    root: Path, plan: dict[str, Any], lines: Sequence[bytes], other_rows: Sequence[Row],
    new_paths: Sequence[str],
) -> npt.NDArray[np.uint8]:  # fmt: skip
    """Return the manifest's text, after recording its length in the store's metadata.

    Args:
        root: the store.
        plan: options and sources of the store.
        lines: of the units: name, colon and rows as JSON.
        other_rows: rows of other files.
        new_paths: paths of further files, whose rows are computed here.
    """
    paths = sorted({*new_paths, *_METADATA})
    head = b'{"format":%d,"plan":%s,"units":{\n' % (FORMAT, encode_json(plan))
    other_rows = [row for row in other_rows if row[0] not in paths]
    names = [METADATA_UNIT, *paths, *(row[0] for row in other_rows)]
    longest = sum(len(encode_json(name)) + _ROW_BYTES for name in names)
    length = len(head) + sum(len(line) + 2 for line in lines) + longest
    length = -(-length // _PAGE) * _PAGE
    create_manifest_arrays(root, length)
    consolidate(root)
    sync_files(root, paths)
    rows = sorted([*other_rows, *(_row(root, path) for path in paths)])
    body = head + b",\n".join([*lines, f'"{METADATA_UNIT}":'.encode() + encode_json(rows)]) + b"\n"
    text = body + b'},"crc32c":%d}' % crc32c(np.frombuffer(body, np.uint8))
    return np.frombuffer(text.ljust(length - 1) + b"\n", np.uint8)


def create_manifest_arrays(root: Path, length: int, with_copy: bool = True) -> None:
    """Create the arrays whose only chunks are the manifest and its copy.

    Args:
        root: the store.
        length: bytes of the manifest.
        with_copy: False for a store of an earlier version, which has no copy.
    """
    group = zarr.open_group(root, mode="r+", use_consolidated=False).require_group(_GROUP)
    group.attrs["long_name"] = "record of the store: every file with its size and checksum, as JSON"
    for name in _ARRAYS if with_copy else _ARRAYS[:1]:
        array: Any = group.get(name)
        if array is None or array.shape != (length,):
            (root / _GROUP / name / "zarr.json").unlink(missing_ok=True)
            create_array(group, name, (length,), ["byte"], dtype=np.uint8)


def encode_json(value: Any) -> bytes:
    """Encode as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _row(root: Path, path: str) -> Row:
    content = np.fromfile(root / path, np.uint8)
    return [path, content.size, crc32c(content)]


def files_of(root: Path, skipped_arrays: Container[str] = ()) -> list[str]:
    """Return all files of a store but manifest and copy, relative to it, sorted.

    Args:
        root: the store.
        skipped_arrays: arrays whose chunks are left out, since listing their folders takes long.
    """
    paths = []
    for folder, folders, names in os.walk(root):
        inner = folder[len(str(root)) + 1 :]
        check_depth(root, inner.count(os.sep))
        if inner in skipped_arrays:
            folders[:] = [name for name in folders if name != "c"]
        paths += [f"{inner}/{name}" for name in names] if inner else names
    return sorted(name for name in paths if name not in (NAME, COPY))


def read_plan(store: Path) -> dict[str, Any]:
    """Return the plan of a store, without reading the rest of the manifest.

    Raises:
        FileError: no manifest.
        DamagedFileError: neither the manifest nor its copy begins with a plan.
    """
    return _read_with_fallback(store, _read_plan_file)


def read_manifest(store: Path, remedy: str = _REMEDY) -> Manifest:
    """Return a store's record, from its copy if the manifest itself is missing or damaged.

    Args:
        store: the store.
        remedy: what to do about a manifest that is lost, for the error.

    Raises:
        FileError: no manifest, or one of a newer version.
        DamagedFileError: neither the manifest nor its copy matches its own checksum, or it
            names files outside the store.
    """
    return _read_with_fallback(store, lambda path: _read_manifest_file(path, remedy), remedy)


def damaged_records(store: Path) -> list[str]:
    """Return which of the manifest and its copy cannot be read or differ from the one in use.

    Raises:
        FileError: as for `read_manifest`.
    """
    manifest = read_manifest(store)
    names = [NAME] if f"{_GROUP}/copy/zarr.json" not in manifest.paths() else [NAME, COPY]
    intact_names = [name for name in names if _is_intact(store / name)]
    content = (store / intact_names[0]).read_bytes()  # read_manifest has read one of them
    return [n for n in names if n not in intact_names or (store / n).read_bytes() != content]


def mend_records(store: Path) -> list[str]:
    """Replace whichever of the manifest and its copy is damaged by the other one.

    Returns:
        Names of the files that were replaced.
    """
    damaged_names = damaged_records(store)
    for name in damaged_names:
        write_whole(store / name, (store / (COPY if name == NAME else NAME)).read_bytes())
    return damaged_names


def _is_intact(path: Path) -> bool:
    try:
        _read_manifest_file(path)
    except (FileNotFoundError, FileError):
        return False
    return True


def _read_with_fallback(store: Path, read: Callable[[Path], _T], remedy: str = _REMEDY) -> _T:
    """Read from the manifest, or from its copy if the manifest cannot be read."""
    try:
        return read(store / NAME)
    except FileNotFoundError:
        reason = "has no manifest, so what it should hold is not known"
        error: FileError = FileError(store, reason, remedy)
    except FileError as damage:
        error = damage
    try:
        return read(store / COPY)
    except (FileNotFoundError, FileError):
        raise error from None


def _read_plan_file(path: Path) -> dict[str, Any]:
    with _open(path) as file:
        head = file.readline()
    try:
        return _check_plan(parse_json(head.rstrip(b"\n") + b"}}")["plan"])
    except (ValueError, KeyError, TypeError) as error:
        raise _damage_error(path, str(error)) from error


def _read_manifest_file(path: Path, remedy: str = _REMEDY) -> Manifest:
    with _open(path) as file:
        content = file.read()
    body, mark, tail = content.rpartition(b'},"crc32c":')
    try:
        recorded_crc = parse_json(tail.rstrip(b" \n").removesuffix(b"}")) if mark else None
        if not content.endswith(b"\n") or recorded_crc != crc32c(np.frombuffer(body, np.uint8)):
            raise _damage_error(path, "it does not match its checksum", remedy)
        manifest = parse_json(content)
        if manifest["format"] > FORMAT:
            raise FileError(path, f"of format {manifest['format']}", "Update ens10 to read it")
        return Manifest(_check_plan(manifest["plan"]), _check_units(manifest["units"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, FileError):
            raise
        raise _damage_error(path, str(error), remedy) from error


def _open(path: Path) -> BinaryIO:
    try:
        check_regular(path)
        return path.open("rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, f"cannot be read ({error.strerror})", _REMEDY) from error


def _check_plan(plan: Any) -> dict[str, Any]:
    """Check that a plan has the required keys, and return it.

    Raises:
        ValueError: it has not, or it names a source outside the folders that are searched.
    """
    if not isinstance(plan, dict) or not set(_PLAN_KEYS) <= set(plan):
        raise ValueError(f"its plan lacks one of {', '.join(_PLAN_KEYS)}")
    for key in ("source", "truth"):
        source = plan[key] or {}
        file_names = [name for name, _ in source.get("files", ())]
        names = (source.get("name", "source"), *file_names)
        invalid = [n for n in names if not (isinstance(n, str) and is_inner(n.replace(":", "-")))]
        if invalid:
            raise ValueError(f"its plan names {invalid[0]!r}, which is not a plain file name")
    return plan


def _check_units(units: Any) -> dict[str, list[Row]]:
    """Check that units name only files inside the store, and return them.

    Raises:
        ValueError: a row has another form, or a path leads out of the store.
    """
    for rows in units.values():
        for row in rows:
            if len(row) < _MIN_ROW_LENGTH or not all(
                type(n) is int and n >= 0 for n in row[1:_MIN_ROW_LENGTH]
            ):
                raise ValueError(f"a row has another form: {str(row)[:80]}")
            if not is_inner(row[0]):
                raise ValueError(f"it names {row[0]!r}, which is not a path inside the store")
    valid_units: dict[str, list[Row]] = units
    return valid_units


def _damage_error(path: Path, reason: str, remedy: str = _REMEDY) -> DamagedFileError:
    return DamagedFileError(path, 0, reason, remedy)


def to_json_types(value: Any) -> Any:
    """Return options as values that JSON stores: dicts, lists, numbers and texts."""
    return json.loads(json.dumps(value, default=_json_default, sort_keys=True))


def _json_default(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)
