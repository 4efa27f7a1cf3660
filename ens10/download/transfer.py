"""One remote file into one local file, however often the connection drops.

The bytes go to `NAME.part`; beside it `NAME.part.json` says which version of which file they
belong to. A whole file is checked and renamed, so that what bears its name is whole.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ens10.download.partial import Partial, note_of, part_of
from ens10.download.record import Entry
from ens10.download.remote import Info, Part, Remote, TransientError, public
from ens10.download.retry import Patience
from ens10.durable import clear_leftovers, sync_folder
from ens10.errors import FileError
from ens10.grib import scan

_MAGIC = b"GRIB"
_WORDS_SHOWN = 160  # characters of what a server sent instead of a file


class StoppedError(Exception):
    """The transfer was told to stop; what it has is kept."""


@dataclass
class Transfer:
    """How files are fetched.

    Attributes:
        remote: reads them.
        patience: with dropped connections.
        moved: told of every change in the number of bytes that are here.
        stop: set by another thread to end all transfers soon.
    """

    remote: Remote
    patience: Patience
    moved: Callable[[int], None] = lambda _: None
    stop: threading.Event = field(default_factory=threading.Event)

    def fetch(self, url: str, target: Path, info: Info) -> Entry:
        """Fetches a GRIB file; goes on from what an earlier attempt left.

        Args:
            url: of the file.
            target: to write; `inside` has judged it.
            info: of the remote file, as just asked for.

        Raises:
            RefusedError, TransientError: the file cannot be had (any more).
            FileError: the server sent something else, or another process writes the same file.
            DamagedFileError: all of the file came, and it is no sound GRIB file.
            StoppedError: told to stop.
        """
        with part_of(target).open("ab+") as file, _alone(file, target):
            clear_leftovers(target.parent, note_of(target).name)
            partial = Partial(file, note_of(target), public(url), info, self.moved)
            try:
                self._fill(url, partial)
            except FileError:
                part_of(target).unlink()
                note_of(target).unlink()
                raise
            file.flush()
            os.fsync(file.fileno())
            _finish(target)
        return Entry(partial.checksum, partial.position, partial.url)

    def _fill(self, url: str, partial: Partial) -> None:
        failures, furthest = 0, partial.position
        while not partial.whole:
            try:
                with self.remote.part(url, partial.position, partial.info) as part:
                    self._copy(url, part, partial)
            except TransientError as error:
                failures = 1 if partial.position > furthest else failures + 1
                furthest = max(furthest, partial.position)
                self.patience.wait(failures, error)

    def _copy(self, url: str, part: Part, partial: Partial) -> None:
        if not part.info.agrees(partial.info) and not part.info.agrees(self.remote.info(url)):
            sent = _words(next(part.blocks, b""))
            raise TransientError(
                f"the server announces one file and sends another, which begins with {sent!r}"
            )
        partial.adopt(part)
        for block in part.blocks if part.start else _checked(part.blocks, partial.url):
            if self.stop.is_set():
                raise StoppedError
            partial.add(block)
        partial.end()


def _checked(blocks: Iterator[bytes], url: str) -> Iterator[bytes]:
    """The blocks of a file from its beginning, once that is seen to be GRIB."""
    head = b""
    for block in blocks:
        head += block
        if len(head) >= len(_MAGIC):
            break
    if not head.startswith(_MAGIC[: len(head)]):  # which may be shorter, if the connection dropped
        sent = _words(head)
        raise FileError(
            url, f"no GRIB file; what the server sent begins with {sent!r}", "Check the base URL"
        )
    yield head
    yield from blocks


def _words(head: bytes) -> str:
    return " ".join(head.decode("utf-8", "replace").split())[:_WORDS_SHOWN]


def _finish(target: Path) -> None:
    """Checks a whole file from its first message to its last, and gives it its name."""
    part = part_of(target)
    try:
        scan(part)
    except FileError:
        kept = target.with_name(f"{target.name}.damaged")
        part.replace(kept)
        note_of(target).unlink()
        scan(kept)  # says the same of the name that the file bears now
        raise
    part.replace(target)
    note_of(target).unlink(missing_ok=True)
    sync_folder(target.parent)


@contextmanager
def _alone(file: IO[bytes], target: Path) -> Iterator[None]:
    """Refuses a file that another process is fetching; the lock ends with the open file."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise FileError(
            target, "another process is fetching it", "Wait for it, or use another folder"
        ) from error
    yield
