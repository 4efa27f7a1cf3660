"""`checksums.json`: what was fetched into a folder, from where, with size and SHA-256."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from ens10.download.remote import BLOCK
from ens10.durable import clear_leftovers, write_whole
from ens10.errors import FileError
from ens10.untrusted import parse_json

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
        with self._lock, _alone(self._path.parent):
            self._write({**_read(self._path), name: entry})

    def forget(self, name: str) -> None:
        """Takes a file that is about to change out of the record, if it is there."""
        with self._lock, _alone(self._path.parent):
            entries = _read(self._path)
            if entries.pop(name, None) is not None:
                self._write(entries)

    def _write(self, entries: dict[str, Entry]) -> None:
        clear_leftovers(self._path.parent, NAME)  # of a process that was killed here
        self._entries = dict(sorted(entries.items()))
        table = {name: asdict(entry) for name, entry in self._entries.items()}
        write_whole(self._path, json.dumps(table, indent=1) + "\n")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
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
