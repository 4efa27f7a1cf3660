"""The folder that a download writes: partial files, checksums of complete files, free space."""

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO

from ens10.download.remote import BLOCK, ByteRange, Info, TransientError
from ens10.durable import clear_leftovers, write_whole
from ens10.errors import ArgumentError, FileError
from ens10.file_locks import folder_lock
from ens10.untrusted import parse_json

_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
# of the files that may be written beside a file
_SUFFIXES = ("", ".part", ".part.json", ".damaged")


def path_in(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder, after checking that it cannot lead out of the folder.

    Args:
        folder: the folder, which may itself be a link.
        name: a bare file name.

    Raises:
        ArgumentError: the name is not a bare name, or is a link to outside the folder.
    """
    if name in ("", ".", "..") or any(c in name for c in "/\\\0:"):
        reason = f"{name!r} is no name of a file in {folder}"
        raise ArgumentError("name", reason, "Give a bare name")
    home = folder.resolve()
    for suffix in _SUFFIXES:
        path = folder / f"{name}{suffix}"
        if path.is_symlink() and not path.resolve().is_relative_to(home):
            raise ArgumentError("folder", f"{path} is a link out of the folder", "Remove the link")
    return folder / name


def nearest_folder(folder: Path) -> Path:
    """Return the folder, or the nearest parent that exists.

    Raises:
        FileError: it is not a folder.
    """
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise FileError(place, "not a folder", "Give another folder")
    return place


def free_space(folder: Path) -> int:
    """Return the free bytes on the disk of a folder, which need not exist yet."""
    return shutil.disk_usage(nearest_folder(folder)).free


def check_space(folder: Path, size: int) -> None:
    """Check that a number of bytes fits on the disk of a folder.

    Raises:
        FileError: less space is free.
    """
    free = free_space(folder)
    if size > free:
        reason = f"{size_text(size)} are to be written and {size_text(free)} are free"
        remedy = "Choose fewer dates, make room, or give a folder on a larger disk"
        raise FileError(folder, reason, remedy)


def size_text(size: int) -> str:
    """Return a number of bytes as text, in decimal units."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


NAME = "checksums.json"


@dataclass(frozen=True)
class Entry:
    """The record of one file.

    Attributes:
        sha256: hexadecimal, as `sha256sum` prints it.
        size: bytes.
        url: that it was downloaded from.
    """

    sha256: str
    size: int
    url: str


class Record:
    """The record `checksums.json` of a folder; its bytes do not depend on the order of downloads.

    Args:
        folder: of the record, which is created with its first entry.

    Raises:
        FileError: the record is invalid.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._lock = threading.Lock()
        self._entries = _read(self._path)

    def get(self, name: str) -> Entry | None:
        """Return the record of a file, None if it has none."""
        return self._entries.get(name)

    def add(self, name: str, entry: Entry) -> None:
        """Record a file; the record is on disk when this returns."""
        with self._lock, folder_lock(self._path.parent):
            self._write({**_read(self._path), name: entry})

    def remove(self, name: str) -> None:
        """Remove a file that is about to change from the record, if it has an entry."""
        with self._lock, folder_lock(self._path.parent):
            entries = _read(self._path)
            if entries.pop(name, None) is not None:
                self._write(entries)

    def _write(self, entries: dict[str, Entry]) -> None:
        clear_leftovers(self._path.parent, NAME)  # of a process that was killed here
        self._entries = dict(sorted(entries.items()))
        table = {name: asdict(entry) for name, entry in self._entries.items()}
        write_whole(self._path, json.dumps(table, indent=1) + "\n")


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
        reason = f"no record of checksums ({type(error).__name__}: {error})"
        remedy = "Remove it: the files are then hashed again and compared with the server's sizes"
        raise FileError(path, reason, remedy) from error
    return entries


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


MOST_UNANNOUNCED = 1 << 36  # bytes of a file whose size the server does not send


class Partial:
    """A partial file; bytes of the same version from an earlier attempt are used.

    Args:
        file: the partial file, open for appending and reading.
        note: the file beside it with URL, size and version of the remote file.
        url: of the remote file.
        info: size and version of the remote file.
        on_bytes: called with every change in the number of local bytes.
    """

    def __init__(
        self, file: IO[bytes], note: Path, url: str, info: Info, on_bytes: Callable[[int], None]
    ) -> None:
        self._file, self._note, self._on_bytes = file, note, on_bytes
        self.url, self.info = url, info
        self.position, self._digest, self._at_end = 0, sha256(), False
        self._resume()

    @property
    def is_complete(self) -> bool:
        """True if all bytes are here; without a size, if the server has ended its answer."""
        return self._at_end or (self.info.size is not None and self.position == self.info.size)

    @property
    def checksum(self) -> str:
        """SHA-256 of the local bytes, hexadecimal."""
        return self._digest.hexdigest()

    def adopt(self, part: ByteRange) -> None:
        """Continue with the bytes that the server sends; start again if they begin at 0."""
        size = self.info.size if part.info.size is None else part.info.size
        self.info = Info(size, part.info.version or self.info.version)
        if part.start == 0:
            self._restart()

    def add(self, block: bytes) -> None:
        """Append a block.

        Raises:
            TransientError: more bytes than the server announced.
            FileError: more than `MOST_UNANNOUNCED` bytes without an announced size.
        """
        if self.info.size is None and self.position + len(block) > MOST_UNANNOUNCED:
            reason = (
                f"the server sends more than {MOST_UNANNOUNCED} bytes and has announced no size"
            )
            raise FileError(self.url, reason, "Fetch it from another server")
        if self.info.size is not None and self.position + len(block) > self.info.size:
            self._restart()
            raise TransientError("the server sends more bytes than it announced")
        self._file.write(block)
        self._digest.update(block)
        self.position += len(block)
        self._on_bytes(len(block))

    def end(self) -> None:
        """Register the end of the server's answer.

        Raises:
            TransientError: the answer is shorter than announced.
        """
        if self.info.size is None:
            self._at_end = True
        elif self.position < self.info.size:
            reason = f"the server stopped after {self.position} of {self.info.size} bytes"
            raise TransientError(reason)

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
        write_whole(self._note, _note_text(self.url, self.info))


def resumable_size(part: Path, note: Path, url: str, info: Info) -> int:
    """Return the size of a partial file of this URL and version; 0 if it cannot be resumed."""
    try:
        size = part.stat().st_size
        same = note.read_text() == _note_text(url, info)
    except OSError:
        return 0
    is_same = same and bool(info.version)  # without a version the bytes may be of another file
    return size if is_same and info.size is not None and size <= info.size else 0


def part_of(target: Path) -> Path:
    """Return the path of the partial file."""
    return target.with_name(f"{target.name}.part")


def note_of(target: Path) -> Path:
    """Return the path of the note with URL, size and version of a partial file."""
    return target.with_name(f"{target.name}.part.json")


def _note_text(url: str, info: Info) -> str:
    return json.dumps({"size": info.size, "url": url, "version": info.version}) + "\n"
