"""The record of a store: every file with its size and checksum, every unit with its source.

The one chunk of the array `manifest/json` is a JSON text, with one line for each unit, so that what
is said of half a million chunks can be read line by line:

    {"format":1,"plan":{...},"units":{
    "00000-000":[["sfc/t2m/c/0/0/0/0/0",5196032,2893113,221.4,315.2,0,"0:0+5196072 ..."],...],
    ...
    },"crc32c":1234}

and spaces to its end, since the text tells the checksums of metadata that tell its length. A row
holds path, bytes, crc32c and, for fields, minimum, maximum, number of missing values, and source:
for each member the number of the file in the plan, first byte and length. No times of day, no names
of machines: the same data give the same bytes.
"""

import json
import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from ens10.convert.files import Folder, Row, encoded, place, sync
from ens10.errors import DamagedFileError, FileError
from ens10.packed16.layout import crc32c
from ens10.store import consolidate, create_array

NAME = "manifest/json/c/0"
FORMAT = 1
_GROUP = "manifest"
_METADATA = ("zarr.json", f"{_GROUP}/zarr.json", f"{_GROUP}/json/zarr.json")
_ROW = 32  # bytes of size, checksum and commas in a row, at the most
_PAGE = 1024  # the length is a multiple of it
REST = "metadata"  # the name of the unit of all files that no unit of work has written


@dataclass(frozen=True)
class Manifest:
    """A store's record.

    Attributes:
        plan: what the store was asked to be.
        units: what each unit has written.
    """

    plan: dict[str, Any]
    units: dict[str, list[Row]]

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Unit and row of every file."""
        return ((unit, row) for unit, rows in self.units.items() for row in rows)


def write_manifest(folder: Folder, plan: dict[str, Any]) -> None:
    """Puts the entries of all units together, with those of all other files of the store."""
    units = sorted(folder.done())
    lines = [f'"{unit}":'.encode() + folder.entry(unit).read_bytes() for unit in units]
    known = {row[0] for unit in units for row in folder.rows(unit)}
    arrays = {path.rpartition("/c/")[0] for path in known}
    rest = [path for path in files_of(folder.store, arrays) if path not in known]
    content = assembled(folder.store, plan, lines, [], rest)
    place(folder.scratch, folder.store, [(NAME, content)])


def assembled(
    root: Path,
    plan: dict[str, Any],
    lines: Sequence[bytes],
    known: Sequence[Row],
    new: Sequence[str],
) -> npt.NDArray[np.uint8]:
    """The manifest's text; the store's metadata are made to tell its length.

    Args:
        root: the store.
        plan: what it was asked to be.
        lines: of the units, as `write_manifest` has them.
        known: rows of other files.
        new: paths of other files, whose rows are made here.
    """
    paths = sorted({*new, *_METADATA})
    head = b'{"format":%d,"plan":%s,"units":{\n' % (FORMAT, encoded(plan))
    known = [row for row in known if row[0] not in paths]
    names = [REST, *paths, *(row[0] for row in known)]
    longest = sum(len(encoded(name)) + _ROW for name in names)
    length = len(head) + sum(len(line) + 2 for line in lines) + longest
    length = -(-length // _PAGE) * _PAGE
    describe(root, length)
    consolidate(root)
    sync(root, paths)
    rows = sorted([*known, *(_row(root, path) for path in paths)])
    body = head + b",\n".join([*lines, f'"{REST}":'.encode() + encoded(rows)]) + b"\n"
    text = body + b'},"crc32c":%d}' % crc32c(np.frombuffer(body, np.uint8))
    return np.frombuffer(text.ljust(length - 1) + b"\n", np.uint8)


def describe(root: Path, length: int) -> None:
    """Makes the array that the manifest is a chunk of, so that readers of Zarr know what it is."""
    group = zarr.open_group(str(root), mode="r+", use_consolidated=False).require_group(_GROUP)
    group.attrs["long_name"] = "record of the store: every file with its size and checksum, as JSON"
    held: Any = group.get("json")
    if held is None or held.shape != (length,):
        (root / _GROUP / "json" / "zarr.json").unlink(missing_ok=True)
        create_array(group, "json", (length,), ["byte"], dtype=np.uint8)


def _row(root: Path, path: str) -> Row:
    content = np.fromfile(root / path, np.uint8)
    return [path, content.size, crc32c(content)]


def files_of(root: Path, but: Container[str] = ()) -> list[str]:
    """All files of a store but the manifest, relative to it, sorted.

    Args:
        root: the store.
        but: arrays whose chunks are left out: to list their folders takes long.
    """
    found = []
    for folder, folders, names in os.walk(root):
        inner = folder[len(str(root)) + 1 :]
        if inner in but:
            folders[:] = [name for name in folders if name != "c"]
        found += [f"{inner}/{name}" for name in names] if inner else names
    return sorted(name for name in found if name != NAME)


def read_plan(store: Path) -> dict[str, Any]:
    """The plan of a store, without reading what lies behind it.

    Raises:
        FileError: no manifest.
        DamagedFileError: no JSON.
    """
    path = store / NAME
    try:
        with path.open("rb") as file:
            head = file.readline()
        plan: dict[str, Any] = json.loads(head.rstrip(b"\n") + b"}}")["plan"]
    except FileNotFoundError as error:
        raise _none(store) from error
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, 0, str(error)) from error
    return plan


def read_manifest(store: Path) -> Manifest:
    """A store's record.

    Raises:
        FileError: no manifest, or one of a newer version.
        DamagedFileError: it does not match its own checksum.
    """
    path = store / NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise _none(store) from error
    body, mark, tail = content.rpartition(b'},"crc32c":')
    try:
        whole = mark and content.endswith(b"\n")
        if not whole or json.loads(tail.rstrip(b" \n").removesuffix(b"}")) != crc32c(
            np.frombuffer(body, np.uint8)
        ):
            raise _damaged(path, 0, "it does not match its checksum")
        held = json.loads(content)
        if held["format"] > FORMAT:
            raise FileError(path, f"of format {held['format']}", "Update ens10 to read it")
        return Manifest(held["plan"], held["units"])
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, FileError):
            raise
        raise _damaged(path, 0, str(error)) from error


def _none(store: Path) -> FileError:
    return FileError(
        store, "has no manifest, so what it should hold is not known", "Prepare it with --force"
    )


def _damaged(path: Path, offset: int, reason: str) -> DamagedFileError:
    return DamagedFileError(path, offset, reason, "Prepare the store anew with --force")
