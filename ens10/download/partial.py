"""The part of a file that is here, and which version of which remote file it belongs to."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import IO

from ens10.download.remote import BLOCK, Info, Part, TransientError
from ens10.durable import write_whole
from ens10.errors import FileError

MOST_UNANNOUNCED = 1 << 36  # bytes of a file whose size the server does not say


class Partial:
    """A file that grows; takes over what an earlier attempt left of the same version.

    Args:
        file: the part, open for appending and reading.
        note: the file beside it that says what it is part of.
        url: of the remote file.
        info: of the remote file.
        moved: told of every change in the number of bytes that are here.
    """

    def __init__(
        self, file: IO[bytes], note: Path, url: str, info: Info, moved: Callable[[int], None]
    ) -> None:
        self._file, self._note, self._moved = file, note, moved
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
        self._moved(len(block))

    def end(self) -> None:
        """Takes note that the server sends no more."""
        if self.info.size is None:
            self._ended = True
        elif self.position < self.info.size:
            raise TransientError(
                f"the server stopped after {self.position} of {self.info.size} bytes"
            )

    def _resume(self) -> None:
        size = held(Path(self._file.name), self._note, self.url, self.info)
        if not size:
            self._restart()
            return
        self._file.seek(0)
        while block := self._file.read(BLOCK):
            self._digest.update(block)
        self.position = size
        self._moved(size)

    def _restart(self) -> None:
        self._file.truncate(0)
        self._moved(-self.position)
        self.position, self._digest = 0, sha256()
        write_whole(self._note, _words(self.url, self.info))


def held(part: Path, note: Path, url: str, info: Info) -> int:
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
