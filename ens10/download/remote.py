"""What is on the other side: the size and version of a remote file, and its bytes from any place.

http and https are read with urllib3 and not through fsspec: its HTTP files take an answer of 200 to
a request for a part of a file as that part, know neither `If-Range` nor `Retry-After`, do not
resume, and need aiohttp. Every other scheme (file, s3, gs, memory, ...) is fsspec's.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

from ens10.errors import ArgumentError

BLOCK = 1 << 20  # bytes read at a time


@dataclass(frozen=True)
class Info:
    """What is known of a remote file before it is read.

    Attributes:
        size: bytes; None if the server does not say.
        version: changes when the file does (its ETag or time of change); "" if there is none.
    """

    size: int | None
    version: str

    def agrees(self, other: "Info") -> bool:
        """Whether both may be of the same file: what one of them does not know cannot differ."""
        sizes = None in (self.size, other.size) or self.size == other.size
        return sizes and ("" in (self.version, other.version) or self.version == other.version)


@dataclass
class Part:
    """The bytes of a remote file from `start` to its end.

    Attributes:
        start: where they begin, which may be before the place asked for.
        info: of the file that they belong to.
        blocks: the bytes; ends early, or with `TransientError`, if the connection does.
    """

    start: int
    info: Info
    blocks: Iterator[bytes]


class TransientError(Exception):
    """Something that may well go better the next time.

    Args:
        reason: what went wrong.
        wait: seconds after which the server wishes to be asked again, if it said so.
        unreachable: no server answered at all.
    """

    def __init__(self, reason: str, wait: float | None = None, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.wait, self.unreachable = wait, unreachable


class RefusedError(Exception):
    """The file is not there, or not for us: asking again is of no use.

    Args:
        reason: what the other side says.
        absent: there is no such file.
    """

    def __init__(self, reason: str, absent: bool = False) -> None:
        super().__init__(reason)
        self.absent = absent


class Remote(Protocol):
    """A way to read remote files."""

    def info(self, url: str) -> Info:
        """Size and version; raises `RefusedError` or `TransientError`."""

    @contextmanager
    def part(self, url: str, start: int, known: Info) -> Iterator[Part]:
        """The bytes from `start`, if the file is still the `known` one, else from 0."""


class AnyFiles:
    """Remote files of any scheme but http(s), through fsspec."""

    def info(self, url: str) -> Info:
        """Size and version of a file."""
        with _told():
            files, path = _files(url)
            return self._info(files, path)

    @contextmanager
    def part(self, url: str, start: int, known: Info) -> Iterator[Part]:
        """The bytes of a file from `start`, or from 0 if it has changed."""
        with _told():
            files, path = _files(url)
            info = self._info(files, path)
            file = files.open(path, "rb")
        with file:
            first = start if info.agrees(known) else 0
            yield Part(first, info, _blocks(file, first))

    @staticmethod
    def _info(files: Any, path: str) -> Info:
        found = files.info(path)
        if found["type"] != "file":
            raise RefusedError(f"a {found['type']}, not a file", absent=True)
        size = found.get("size")
        return Info(None if size is None else int(size), str(files.ukey(path)))


def _blocks(file: Any, first: int) -> Iterator[bytes]:
    with _told():
        file.seek(first)
    while True:
        with _told():  # around the reading alone: what the reader of the blocks raises is its own
            block: bytes = file.read(BLOCK)
        if not block:
            return
        yield block


def _files(url: str) -> tuple[Any, str]:
    import fsspec

    files, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    return files, path


@contextmanager
def _told() -> Iterator[None]:
    """The errors of fsspec's back ends in our words."""
    try:
        yield
    except FileNotFoundError as error:
        raise RefusedError("there is no such file", absent=True) from error
    except PermissionError as error:
        raise RefusedError("reading it is not permitted") from error
    except RefusedError:
        raise
    except Exception as error:  # they have no base in common
        raise TransientError(f"cannot be read ({type(error).__name__}: {error})") from error


def remote_of(base: str) -> Remote:
    """The way to read what lies below a URL.

    Raises:
        ArgumentError: no URL, a scheme that nothing can read, or one that needs another package.
    """
    scheme = urlsplit(base).scheme
    if scheme in ("http", "https"):
        from ens10.download.web import Web

        return Web(base)
    check_scheme(base)
    return AnyFiles()


def check_scheme(base: str, argument: str = "base") -> None:
    """Refuses what fsspec cannot open, and says what to install.

    Raises:
        ArgumentError: no URL, an unknown scheme, or one that needs another package.
    """
    import fsspec

    scheme, mark, _ = base.partition("://")
    if not mark:
        raise ArgumentError(
            argument, f"{base!r} is no URL", "Write https://..., or file:///... for a folder"
        )
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        needed = _PACKAGES.get(scheme, f"what fsspec names for {scheme}")
        raise ArgumentError(
            argument,
            f"{scheme}:// needs a package that is not installed ({error})",
            f"Install it with: pip install {needed}",
        ) from error
    except ValueError as error:
        raise ArgumentError(
            argument, f"{scheme}:// is unknown to fsspec", "Give another"
        ) from error


_PACKAGES = {
    "gs": "'ens10[cloud]'",
    "gcs": "'ens10[cloud]'",
    "s3": "s3fs",
    "http": "'ens10[cloud]'",
    "https": "'ens10[cloud]'",
    "sftp": "paramiko",
}


def public(url: str) -> str:
    """The URL without a user's name, password or token, for records and messages."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


T = TypeVar("T")
Sleep = Callable[[float], object]
_NOTICED = 4.0  # seconds


@dataclass(frozen=True)
class Patience:
    """How often and how slowly to ask again.

    Attributes:
        tries: attempts in a row without any progress.
        first: seconds before the second attempt; doubled with every further one.
        longest: seconds between attempts at most.
        asked: seconds that a server may ask us to wait (`Retry-After`) before we give up instead.
        sleep: waits for some seconds.
        say: is told of pauses long enough to be noticed.
    """

    tries: int = 8
    first: float = 1.0
    longest: float = 60.0
    asked: float = 900.0
    sleep: Sleep = time.sleep
    say: Callable[[str], object] = lambda _: None

    def wait(self, failures: int, error: TransientError) -> None:
        """Waits after the given number of failures in a row.

        Raises:
            TransientError: that was the last attempt, or the server asks for too long a pause.
        """
        if failures >= self.tries:
            raise TransientError(
                f"{error}; given up after {failures} attempts", unreachable=error.unreachable
            ) from error
        if error.wait is not None and error.wait > self.asked:
            raise TransientError(
                f"{error}; the server asks to come back in {error.wait:.0f} s"
            ) from error
        backoff = min(self.longest, self.first * 2.0 ** (failures - 1))
        pause = backoff if error.wait is None else error.wait
        if pause >= _NOTICED:
            self.say(f"{error}: again in {pause:.0f} s ({failures} of {self.tries} tries)")
        self.sleep(pause)

    def call(self, action: Callable[[], T]) -> T:
        """The result of an action that may raise `TransientError` a few times.

        Raises:
            TransientError: it did to the end.
        """
        failures = 0
        while True:
            try:
                return action()
            except TransientError as error:
                failures += 1
                self.wait(failures, error)
