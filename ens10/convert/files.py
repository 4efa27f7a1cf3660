"""Atomic writing of a store's files: write, sync, rename."""

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.errors import FileError
from ens10.packed16.layout import crc32c
from ens10.partial import Partial
from ens10.store.manifest import Row, encode_json
from ens10.untrusted import parse_json

_STORE, _SCRATCH, _UNITS = "store", ".tmp", "units"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_WRITER_THREADS = 4  # threads of a worker: a file's sync is a wait
_SMALL_CHUNK = 1 << 20  # bytes; smaller files of a unit are written in one batch
_MAX_OPEN_FILES = 128  # files that are open at a time
Bytes = bytes | bytearray | memoryview | npt.NDArray[Any]
Octets = npt.NDArray[np.uint8]


class DiskFullError(FileError):
    """No space is left on the disk for a file."""


def partial_store(store: Path) -> Partial:
    """Return the partial folder of a store, whose parts `Folder` names."""
    return Partial(store, _STORE, _UNITS, _SCRATCH)


@dataclass(frozen=True)
class Folder:
    """The folder of a partial store: the store itself and the files needed to resume.

    Attributes:
        path: the folder, which has the store's name with `.partial`.
        token: token of the plan. Temporary files lie in a folder of this name, so that a worker of
            an earlier plan cannot write into the store.
    """

    path: Path
    token: str

    @property
    def store(self) -> Path:
        """Path of the store while it is partial."""
        return self.path / _STORE

    @property
    def scratch(self) -> Path:
        """Folder of temporary files."""
        return self.path / _SCRATCH / self.token

    def entry(self, unit: str) -> Path:
        """Return the path of the entry that marks a unit as complete."""
        return self.path / _UNITS / f"{unit}.json"

    def complete_units(self) -> set[str]:
        """Return the names of the complete units."""
        units = self.path / _UNITS
        return {path.stem for path in units.iterdir()}

    def rows(self, unit: str) -> list[Row]:
        """Return the manifest rows of a complete unit."""
        rows: list[Row] = parse_json(self.entry(unit).read_bytes())
        return rows


class Writer:
    """Writes the chunks of units, then the units' entries.

    Large chunks are written in the background while the next one is computed. Small ones are
    written in one batch at the end, since a sync takes about as long for many files as for one.

    Args:
        folder: of the store.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._units: dict[str, _UnitFiles] = {}

    @contextmanager
    def unit(self, name: str) -> Iterator[None]:
        """Collect the files of a unit; it stays incomplete if an error is raised."""
        self._units[name] = _UnitFiles()
        try:
            yield
        except BaseException:
            wait(self._units.pop(name).futures)
            raise

    def put(self, path: str, data: Bytes, details: Row | None = None, codec: Any = None) -> None:
        """Write one file of the store.

        Args:
            path: relative to the store.
            data: the file's content.
            details: further entries of the file's row in the manifest, after path, size and
                checksum.
            codec: compresses the content first, if not None.
        """
        unit = next(reversed(self._units.values()))
        content = np.frombuffer(data, np.uint8)
        if content.size < _SMALL_CHUNK:
            content = _compress(content, codec)
            unit.small_files.append((path, content))
            unit.small_rows.append([path, content.size, crc32c(content), *(details or [])])
        else:
            job = (self._folder, path, content, details or [], codec)
            unit.futures.append(_writer_pool().submit(_write, *job))

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *error: object) -> None:
        folder, entries = self._folder, []
        try:
            small = [file for unit in self._units.values() for file in unit.small_files]
            write_files(folder.scratch, folder.store, small)
        finally:
            wait([future for unit in self._units.values() for future in unit.futures])
        for name, unit in self._units.items():
            rows = sorted([*unit.small_rows, *(future.result() for future in unit.futures)])
            path = folder.entry(name).relative_to(folder.path)
            entries.append((str(path), np.frombuffer(encode_json(rows), np.uint8)))
        write_files(folder.scratch, folder.path, entries)


@dataclass
class _UnitFiles:
    """The files of one unit.

    Attributes:
        futures: writes of large files in the background, which return the files' manifest rows.
        small_rows: manifest rows of small files.
        small_files: path and content of small files, which are still to be written.
    """

    futures: list[Future[Row]] = field(default_factory=list)
    small_rows: list[Row] = field(default_factory=list)
    small_files: list[tuple[str, Octets]] = field(default_factory=list)


def _write(folder: Folder, path: str, data: Octets, details: Row, codec: Any) -> Row:
    content = _compress(data, codec)
    write_files(folder.scratch, folder.store, [(path, content)])
    return [path, content.size, crc32c(content), *details]


def _compress(content: Octets, codec: Any) -> Octets:
    return np.frombuffer(codec(content), np.uint8) if codec else content


@cache
def _writer_pool() -> ThreadPoolExecutor:
    """Return the pool of writer threads of this process."""
    return ThreadPoolExecutor(_WRITER_THREADS, thread_name_prefix="write")


def write_files(scratch: Path, root: Path, files: Sequence[tuple[str, Octets]]) -> None:
    """Write files under temporary names, sync them, and rename them.

    Args:
        scratch: folder for the temporary files, on the same file system.
        root: the store; not recreated if it is missing.
        files: path relative to `root`, and content.

    Raises:
        DiskFullError: no space is left; temporary files are removed.
    """
    for begin in range(0, len(files), _MAX_OPEN_FILES):
        _write_batch(scratch, root, files[begin : begin + _MAX_OPEN_FILES])


def _write_batch(scratch: Path, root: Path, files: Sequence[tuple[str, Octets]]) -> None:
    temporary_names = [scratch / secrets.token_hex(8) for _ in files]
    path = ""
    try:
        with ExitStack() as stack:
            descriptors = []
            for name, entry in zip(temporary_names, files, strict=True):
                path, content = entry
                file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                stack.callback(os.close, file)
                _write_all(file, content)
                descriptors.append(file)
            # File systems that order their journal keep this order of data and names through a
            # loss of power, so that the folders need no sync of their own.
            if len(descriptors) == 1:
                os.fsync(descriptors[0])
            else:
                list(_writer_pool().map(os.fsync, descriptors))
        for name, (path, _) in zip(temporary_names, files, strict=True):
            _rename(name, root, path)
    except OSError as error:
        for name in temporary_names:
            with suppress(OSError):
                name.unlink()
        if error.errno in _DISK_FULL:
            raise DiskFullError(root / path, "no space is left on the disk") from error
        raise


def _write_all(file: int, content: Octets) -> None:
    offset = 0
    while offset < content.size:
        offset += os.write(file, content[offset:].data)


def _rename(temporary: Path, root: Path, path: str) -> None:
    target = root / path
    try:
        temporary.rename(target)
    except FileNotFoundError:
        # below the root alone: a worker may outlive its store, which must not be created again
        for part in Path(path).parts[:-1]:
            root = root / part
            root.mkdir(exist_ok=True)
        temporary.rename(target)
