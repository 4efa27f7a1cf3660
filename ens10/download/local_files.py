"""The folder that a download writes: partial files, checksums of complete files, free space."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO

from ens10.download.remote import BLOCK, Info, Part, TransientError
from ens10.durable import clear_leftovers, write_whole
from ens10.errors import ArgumentError, FileError
from ens10.untrusted import parse_json

_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
# Everything that is ever written beside a file.
_SUFFIXES = ("", ".part", ".part.json", ".damaged")


def inside(folder: Path, name: str) -> Path:
    """The path of a file in a folder.

    Args:
        folder: may itself be reached through links; that is the user's own choice.
        name: a bare file name.

    Raises:
        ArgumentError: the name is no bare name, or leads out of the folder through a link.
    """
    if name in ("", ".", "..") or any(c in name for c in "/\\\0:"):
        raise ArgumentError(
            "name", f"{name!r} is no name of a file in {folder}", "Give a bare name"
        )
    home = folder.resolve()
    for suffix in _SUFFIXES:
        path = folder / f"{name}{suffix}"
        if path.is_symlink() and not path.resolve().is_relative_to(home):
            raise ArgumentError("folder", f"{path} is a link out of the folder", "Remove the link")
    return folder / name


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there.

    Raises:
        FileError: something that is no folder is in the way.
    """
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise FileError(place, "not a folder", "Give another folder")
    return place


def free_space(folder: Path) -> int:
    """Bytes that can be written there."""
    return shutil.disk_usage(existing(folder)).free


def check_space(folder: Path, needed: int) -> None:
    """Refuses what does not fit.

    Raises:
        FileError: less space is free than needed.
    """
    free = free_space(folder)
    if needed > free:
        raise FileError(
            folder,
            f"{size_text(needed)} are to be written and {size_text(free)} are free",
            "Choose fewer dates, make room, or give a folder on a larger disk",
        )


def size_text(size: int) -> str:
    """Bytes in words, in decimal units."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


NAME = "checksums.json"


@dataclass(frozen=True)
class Entry:
    """One file.

    Attributes:
        sha256: hexadecimal, as `sha256sum` prints it.
        size: bytes.
        url: where it came from.
    """

    sha256: str
    size: int
    url: str


class Record:
    """The record of one folder; the same files give the same bytes, whatever their order.

    Args:
        folder: where `checksums.json` is, or will be once something is added.

    Raises:
        FileError: there is one that makes no sense.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._lock = threading.Lock()
        self._entries = _read(self._path)

    def get(self, name: str) -> Entry | None:
        """What is recorded of a file."""
        return self._entries.get(name)

    def add(self, name: str, entry: Entry) -> None:
        """Records a file, on disk before this returns."""
        with self._lock, _lock_folder(self._path.parent):
            self._write({**_read(self._path), name: entry})

    def forget(self, name: str) -> None:
        """Takes a file that is about to change out of the record, if it is there."""
        with self._lock, _lock_folder(self._path.parent):
            entries = _read(self._path)
            if entries.pop(name, None) is not None:
                self._write(entries)

    def _write(self, entries: dict[str, Entry]) -> None:
        clear_leftovers(self._path.parent, NAME)  # of a process that was killed here
        self._entries = dict(sorted(entries.items()))
        table = {name: asdict(entry) for name, entry in self._entries.items()}
        write_whole(self._path, json.dumps(table, indent=1) + "\n")


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Wait until no other process changes the record of a folder; systems without locks go on."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read(path: Path) -> dict[str, Entry]:
    if not path.exists():
        return {}
    try:
        table = parse_json(path.read_text())
        entries = {
            str(name): Entry(str(e["sha256"]), int(e["size"]), str(e["url"]))
            for name, e in table.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileError(
            path,
            f"no record of checksums ({type(error).__name__}: {error})",
            "Remove it: the files are then hashed again and compared with the server's sizes",
        ) from error
    return entries


def checksum(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


MOST_UNANNOUNCED = 1 << 36  # bytes of a file whose size the server does not say


class Partial:
    """A file that grows; takes over what an earlier attempt left of the same version.

    Args:
        file: the part, open for appending and reading.
        note: the file beside it that says what it is part of.
        url: of the remote file.
        info: of the remote file.
        on_bytes: called with every change in the number of bytes that are here.
    """

    def __init__(
        self, file: IO[bytes], note: Path, url: str, info: Info, on_bytes: Callable[[int], None]
    ) -> None:
        self._file, self._note, self._on_bytes = file, note, on_bytes
        self.url, self.info = url, info
        self.position, self._digest, self._ended = 0, sha256(), False
        self._resume()

    @property
    def whole(self) -> bool:
        """Whether all bytes are here; where no size is known, whether the server said so."""
        return self._ended or (self.info.size is not None and self.position == self.info.size)

    @property
    def checksum(self) -> str:
        """SHA-256 of what is here, hexadecimal."""
        return self._digest.hexdigest()

    def adopt(self, part: Part) -> None:
        """Goes on with what the server really sends: the part, another version, or all again."""
        size = self.info.size if part.info.size is None else part.info.size
        self.info = Info(size, part.info.version or self.info.version)
        if part.start == 0:
            self._restart()

    def add(self, block: bytes) -> None:
        """Writes a block at the end.

        Raises:
            TransientError: more bytes than the server announced.
            FileError: more bytes than any file has, of a size that the server did not announce.
        """
        if self.info.size is None and self.position + len(block) > MOST_UNANNOUNCED:
            raise FileError(
                self.url,
                f"the server sends more than {MOST_UNANNOUNCED} bytes and has announced no size",
                "Fetch it from another server",
            )
        if self.info.size is not None and self.position + len(block) > self.info.size:
            self._restart()
            raise TransientError("the server sends more bytes than it announced")
        self._file.write(block)
        self._digest.update(block)
        self.position += len(block)
        self._on_bytes(len(block))

    def end(self) -> None:
        """Takes note that the server sends no more."""
        if self.info.size is None:
            self._ended = True
        elif self.position < self.info.size:
            raise TransientError(
                f"the server stopped after {self.position} of {self.info.size} bytes"
            )

    def _resume(self) -> None:
        size = resumable_size(Path(self._file.name), self._note, self.url, self.info)
        if not size:
            self._restart()
            return
        self._file.seek(0)
        while block := self._file.read(BLOCK):
            self._digest.update(block)
        self.position = size
        self._on_bytes(size)

    def _restart(self) -> None:
        self._file.truncate(0)
        self._on_bytes(-self.position)
        self.position, self._digest = 0, sha256()
        write_whole(self._note, _words(self.url, self.info))


def resumable_size(part: Path, note: Path, url: str, info: Info) -> int:
    """Bytes of a part that an attempt at this version of this file left; 0 if it is of no use."""
    try:
        size = part.stat().st_size
        same = note.read_text() == _words(url, info)
    except OSError:
        return 0
    return size if same and info.size is not None and size <= info.size else 0


def part_of(target: Path) -> Path:
    """Where a file grows until it is whole."""
    return target.with_name(f"{target.name}.part")


def note_of(target: Path) -> Path:
    """Where it is written what the part is part of."""
    return target.with_name(f"{target.name}.part.json")


def _words(url: str, info: Info) -> str:
    return json.dumps({"size": info.size, "url": url, "version": info.version}) + "\n"
