"""Files that are whole or not there: written beside, synced, renamed; one writer to a store."""

import errno
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.errors import FileError
from ens10.packed16.layout import crc32c

_SCRATCH = ".tmp"
_UNITS = "units"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_WRITERS = 4  # threads of a worker: a file's sync is a wait
_SMALL = 1 << 20  # bytes of a chunk
Bytes = bytes | bytearray | memoryview | npt.NDArray[Any]
Row = list[Any]  # path, bytes, crc32c, and for forecasts: minimum, maximum, gaps, source


class DiskFullError(FileError):
    """There is no space left for a file; whoever plans the work knows how much is lacking."""


@dataclass(frozen=True)
class Folder:
    """Where a store is written: the store itself, and beside it what is needed to go on.

    Attributes:
        path: the folder, which has the store's name with `.partial`.
        token: of the plan. Temporary files lie in a folder of this name, so that a worker that
            outlived its plan cannot put anything into the store.
    """

    path: Path
    token: str

    @property
    def store(self) -> Path:
        """The store, until it gets its name."""
        return self.path / "store"

    @property
    def plan(self) -> Path:
        """The file that says what the store is to be; it is there once work may begin."""
        return self.path / "plan.json"

    @property
    def scratch(self) -> Path:
        """Where files are written before they get their name."""
        return self.path / _SCRATCH / self.token

    def entry(self, unit: str) -> Path:
        """The file that says that a unit is done."""
        return self.path / _UNITS / f"{unit}.json"

    def done(self) -> set[str]:
        """The names of the units that are done."""
        units = self.path / _UNITS
        return {path.stem for path in units.iterdir()}

    def rows(self, unit: str) -> list[Row]:
        """What a unit that is done has written."""
        rows: list[Row] = json.loads(self.entry(unit).read_bytes())
        return rows


class Writer:
    """Writes the chunks of one unit, then the unit's entry.

    Large chunks are written in the background while the next one is computed, small ones all
    together at the end: threads that take turns with the computing would cost more than they save.

    Args:
        folder: of the store.
        unit: the unit's name.
    """

    def __init__(self, folder: Folder, unit: str) -> None:
        self._folder, self._unit = folder, unit
        self._written: list[Future[Row]] = []
        self._waiting: list[tuple[Any, ...]] = []

    def put(self, path: str, data: Bytes, about: Row | None = None, codec: Any = None) -> None:
        """Writes one file of the store.

        Args:
            path: relative to the store.
            data: the file's content.
            about: what the manifest says besides size and checksum.
            codec: packs the content first, if given.
        """
        job = (self._folder, path, np.frombuffer(data, np.uint8), about or [], codec)
        if job[2].size < _SMALL:
            self._waiting.append(job)
        else:
            self._written.append(_writers().submit(_write, *job))

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self._written += [_writers().submit(_write, *job) for job in self._waiting]
        wait(self._written)
        if kind is None:
            rows = sorted(future.result() for future in self._written)
            entry = self._folder.entry(self._unit).relative_to(self._folder.path)
            content = np.frombuffer(encoded(rows), np.uint8)
            place(self._folder.scratch, self._folder.path, str(entry), content)


def _write(folder: Folder, path: str, data: npt.NDArray[np.uint8], about: Row, codec: Any) -> Row:
    content = np.frombuffer(codec(data), np.uint8) if codec else data
    place(folder.scratch, folder.store, path, content)
    return [path, content.size, crc32c(content), *about]


@cache
def _writers() -> ThreadPoolExecutor:
    """The threads of this process that write."""
    return ThreadPoolExecutor(_WRITERS, thread_name_prefix="write")


def encoded(value: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def place(scratch: Path, root: Path, path: str, content: npt.NDArray[np.uint8]) -> None:
    """Writes a file under a temporary name, syncs it, and gives it its own name.

    Args:
        scratch: folder for the temporary file, on the same file system.
        root: the store; it is not made anew if it has gone.
        path: the file, relative to `root`.
        content: shape (bytes,).

    Raises:
        DiskFullError: no space is left; nothing of the file is.
    """
    temporary = scratch / secrets.token_hex(8)
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            _write_all(file, content)
            # File systems that order their journal keep this order of data and names through a
            # loss of power, so that the folders need no sync of their own.
            os.fsync(file)
        finally:
            os.close(file)
        _rename(temporary, root, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        if error.errno in _FULL:
            raise DiskFullError(root / path, "no space is left on the disk") from error
        raise


def _write_all(file: int, content: npt.NDArray[np.uint8]) -> None:
    done = 0
    while done < content.size:
        done += os.write(file, content[done:].data)


def _rename(temporary: Path, root: Path, path: str) -> None:
    target = root / path
    try:
        temporary.rename(target)
    except FileNotFoundError:
        _make_parents(root, target.parent)
        temporary.rename(target)


def _make_parents(root: Path, folder: Path) -> None:
    """Makes the folders below the root, which must be there: a worker may outlive its store."""
    if folder == root:
        raise FileNotFoundError(errno.ENOENT, "the store has gone", str(root))
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        _make_parents(root, folder.parent)
        folder.mkdir(exist_ok=True)


def sync(root: Path, paths: Sequence[str]) -> None:
    """Makes sure that files are on the disk."""
    for path in paths:
        file = os.open(root / path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)


@contextmanager
def locked(partial: Path, store: Path) -> Iterator[None]:
    """Holds a store that is being written against all other processes; makes it if need be.

    The kernel lets go of the lock when the process ends, however it ends.

    Raises:
        FileError: another process holds it.
    """
    partial.parent.mkdir(parents=True, exist_ok=True)
    while True:
        partial.mkdir(exist_ok=True)
        file = os.open(partial, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(file)
            raise FileError(
                store, "another `ens10 prepare` is writing it", "Wait for it, or end it"
            ) from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), partial.stat()):
                break
        os.close(file)  # it was renamed between the opening and the lock
    try:
        yield
    finally:
        os.close(file)
