"""What is on the other side: the size and version of a remote file, and its bytes from any place.

http and https are read with urllib3 and not through fsspec: its HTTP files take an answer of 200 to
a request for a part of a file as that part, know neither `If-Range` nor `Retry-After`, do not
resume, and need aiohttp. Every other scheme (file, s3, gs, memory, ...) is fsspec's.
"""

import email.utils
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Retry
from urllib3.exceptions import HTTPError, LocationValueError, MaxRetryError, ResponseError

from ens10 import __version__
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
        with _fsspec_errors():
            files, path = _files(url)
            return self._info(files, path)

    @contextmanager
    def part(self, url: str, start: int, known: Info) -> Iterator[Part]:
        """The bytes of a file from `start`, or from 0 if it has changed."""
        with _fsspec_errors():
            files, path = _files(url)
            info = self._info(files, path)
            file = files.open(path, "rb")
        with file:
            first = start if info.agrees(known) else 0
            yield Part(first, info, _blocks(file, first))

    @staticmethod
    def _info(files: Any, path: str) -> Info:
        details = files.info(path)
        if details["type"] != "file":
            raise RefusedError(f"a {details['type']}, not a file", absent=True)
        size = details.get("size")
        return Info(None if size is None else int(size), str(files.ukey(path)))


def _blocks(file: Any, first: int) -> Iterator[bytes]:
    with _fsspec_errors():
        file.seek(first)
    while True:
        with (
            _fsspec_errors()
        ):  # around the reading alone: what the reader of the blocks raises is its own
            block: bytes = file.read(BLOCK)
        if not block:
            return
        yield block


def _files(url: str) -> tuple[Any, str]:
    import fsspec

    files, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    return files, path


@contextmanager
def _fsspec_errors() -> Iterator[None]:
    """Convert the exceptions of fsspec's back ends to those of this module."""
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
        package = _PACKAGES.get(scheme, f"what fsspec names for {scheme}")
        raise ArgumentError(
            argument,
            f"{scheme}:// needs a package that is not installed ({error})",
            f"Install it with: pip install {package}",
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


_HEADERS = {"User-Agent": f"ens10/{__version__}", "Accept-Encoding": "identity"}
_TRANSIENT = {408, 425, 429}  # and all of 5xx
_ABSENT = {404, 410}
_NO_HEAD = {405, 501}
_RANGE = re.compile(r"\s*bytes (\d+)(?:-\d*)?(?:/(\d+))?", re.ASCII)
# Redirects alone are repeated here. `Patience` decides about every other attempt: it knows whether
# bytes have come since the last one, and its pauses end when the download is stopped.
_ONCE = Retry(total=None, connect=0, read=False, other=0, redirect=10)


class Web:
    """Reads files from http(s) servers, through the proxy that the environment names.

    Args:
        base: URL below which the files are.
        timeout: seconds without a byte after which a connection counts as dropped.
    """

    def __init__(self, base: str, timeout: float = 60.0) -> None:
        parts = urlsplit(base)
        proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
        pool = partial(ProxyManager, proxy) if proxy else PoolManager
        self._pool = pool(timeout=timeout, maxsize=32)  # connections that are kept for reuse

    def info(self, url: str) -> Info:
        """Return size and version of a file."""
        with self._answer(url, "HEAD") as answer:
            if answer.status not in _NO_HEAD:
                return _position_and_info(answer)[1]
        with self._answer(url, "GET") as answer:
            return _position_and_info(answer)[1]

    @contextmanager
    def part(self, url: str, start: int, known: Info) -> Iterator[Part]:
        """Yield the bytes of a file from `start`, or from 0 if it changed or there are no ranges.

        What the server sends decides, not what was asked for: 206 with the right range is the part,
        anything else is the whole file or an error.
        """
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and known.version.startswith('"'):  # weak ETags are not allowed in If-Range
            headers["If-Range"] = known.version
        with self._answer(url, "GET", headers) as answer:
            first, info = _position_and_info(answer)
            if first not in (0, start) or (first and not info.agrees(known)):
                raise TransientError("the server sent another part than the one asked for")
            yield Part(first, info, _answer_blocks(answer))

    @contextmanager
    def _answer(
        self, url: str, method: str, headers: dict[str, str] | None = None
    ) -> Iterator[BaseHTTPResponse]:
        """Yield an answer before its body; a body that is not read whole ends the connection."""
        with _urllib3_errors():
            headers = _HEADERS | (headers or {})
            answer = self._pool.request(
                method, url, headers=headers, retries=_ONCE, preload_content=False
            )
        with closing(answer):
            if answer.status >= 400 and not (method == "HEAD" and answer.status in _NO_HEAD):
                raise _refusal(answer)
            yield answer


def _answer_blocks(answer: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield blocks as they come: `read` waits for a full one, and loses it if the line drops."""
    while True:
        with _urllib3_errors():
            block = answer.read1(BLOCK, decode_content=False)
        if not block:
            return
        yield block


@contextmanager
def _urllib3_errors() -> Iterator[None]:
    """Raise our errors for those of urllib3."""
    try:
        yield
    except LocationValueError as error:  # also of a redirect to a scheme that is not http(s)
        raise RefusedError(f"not an address of http(s) ({error})") from error
    except MaxRetryError as error:
        if isinstance(error.reason, ResponseError):  # redirects without end
            raise RefusedError(str(error.reason)) from error
        raise TransientError(f"no server answers ({error.reason})", unreachable=True) from error
    except (HTTPError, OSError) as error:
        text = str(error) or type(error).__name__
        raise TransientError(f"the connection dropped ({text})") from error


def _refusal(answer: BaseHTTPResponse) -> Exception:
    reason = f"HTTP {answer.status} {answer.reason or ''}".strip()
    if answer.status == 416:
        return TransientError(f"{reason}: the file has become shorter", wait=0.0)
    if answer.status in _TRANSIENT or answer.status >= 500:
        return TransientError(reason, _wait(answer.headers.get("Retry-After", "")))
    return RefusedError(reason, absent=answer.status in _ABSENT)


def _wait(text: str) -> float | None:
    """Return the seconds of a `Retry-After`, which is a number or a date."""
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _position_and_info(answer: BaseHTTPResponse) -> tuple[int, Info]:
    """Return where the body begins in the file, and size and version of the file."""
    headers, first = answer.headers, 0
    length = headers.get("Content-Length", "")
    size = int(length) if length.isdecimal() else None
    if answer.status == 206:
        span = _RANGE.match(headers.get("Content-Range", ""))
        if span is None:
            raise TransientError("the server sent a part of the file without saying which")
        first = int(span[1])
        size = int(span[2]) if span[2] else None if size is None else size + first
    return first, Info(size, headers.get("ETag") or headers.get("Last-Modified") or "")
