"""Remote files: size and version of a file, its bytes from any offset, and retries.

http and https are read with urllib3 and not through fsspec: its HTTP files take an answer of 200 to
a request for a part of a file as that part, support neither `If-Range` nor `Retry-After`, do not
resume, and need aiohttp. All other schemes (file, s3, gs, memory, ...) are read through fsspec.
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
from ens10.extras import pip_install

BLOCK = 1 << 20  # bytes read at a time


@dataclass(frozen=True)
class Info:
    """Size and version of a remote file.

    Attributes:
        size: bytes; None if the server does not send it.
        version: changes when the file does (its strong ETag or time of change); "" if there is
            none, so that bytes of two answers may be of different files.
    """

    size: int | None
    version: str

    def matches(self, other: "Info") -> bool:
        """Return True if both may be of the same file; an unknown size or version matches any."""
        sizes = None in (self.size, other.size) or self.size == other.size
        return sizes and ("" in (self.version, other.version) or self.version == other.version)


@dataclass
class ByteRange:
    """The bytes of a remote file from `start` to its end.

    Attributes:
        start: offset of the first byte, which may be less than the offset requested.
        info: of the file that they belong to.
        blocks: the bytes; ends early, or with `TransientError`, if the connection does.
    """

    start: int
    info: Info
    blocks: Iterator[bytes]


class TransientError(Exception):
    """An error that may not occur at the next attempt.

    Args:
        reason: of the error.
        wait: seconds before the next attempt, e.g. by `Retry-After`; None for those of the policy.
        unreachable: True if no server answered at all.
    """

    def __init__(self, reason: str, wait: float | None = None, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.wait, self.unreachable = wait, unreachable


class SlowError(TransientError):
    """The bytes arrive too slowly."""


class RefusedError(Exception):
    """The file does not exist or access is denied, so that retries are useless.

    Args:
        reason: of the error.
        absent: True if there is no such file.
    """

    def __init__(self, reason: str, absent: bool = False) -> None:
        super().__init__(reason)
        self.absent = absent


class Remote(Protocol):
    """Interface of readers of remote files."""

    def info(self, url: str) -> Info:
        """Return size and version of a file.

        Raises:
            RefusedError: the file does not exist or cannot be read.
            TransientError: an error that may not occur at the next attempt.
        """

    @contextmanager
    def read_from(self, url: str, start: int, expected: Info) -> Iterator[ByteRange]:
        """Yield the bytes from `start`, or from 0 if the file is not the `expected` one any more.

        Raises:
            RefusedError: the file does not exist or cannot be read.
            TransientError: an error that may not occur at the next attempt.
        """


class FsspecFiles:
    """Remote files of any scheme but http(s), through fsspec."""

    def info(self, url: str) -> Info:
        """Return size and version of a file."""
        with _fsspec_errors():
            files, path = _files(url)
            return self._info(files, path)

    @contextmanager
    def read_from(self, url: str, start: int, expected: Info) -> Iterator[ByteRange]:
        """Yield the bytes of a file from `start`, or from 0 if it has changed."""
        with _fsspec_errors():
            files, path = _files(url)
            info = self._info(files, path)
            file = files.open(path, "rb")
        with file:
            first = start if info.matches(expected) else 0
            yield ByteRange(first, info, _blocks(file, first))

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
        # around the reading alone: what the reader of the blocks raises is its own
        with _fsspec_errors():
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
    """Return the reader for the files below a URL.

    Raises:
        ArgumentError: no URL, an unknown scheme, or one that needs another package.
    """
    scheme = urlsplit(base).scheme
    if scheme in ("http", "https"):
        return HttpFiles(base)
    check_scheme(base)
    return FsspecFiles()


def check_scheme(base: str, argument: str = "base") -> None:
    """Raise an error if fsspec cannot open a URL; the error names the package to install.

    Raises:
        ArgumentError: no URL, an unknown scheme, or one that needs another package.
    """
    import fsspec

    scheme, mark, _ = base.partition("://")
    if not mark:
        reason = f"{base!r} is no URL"
        raise ArgumentError(argument, reason, "Write https://..., or file:///... for a folder")
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        package = _PACKAGES.get(scheme, f"what fsspec names for {scheme}")
        reason = f"{scheme}:// needs a package that is not installed ({error})"
        command = pip_install("cloud") if scheme in _CLOUD else f"pip install {package}"
        raise ArgumentError(argument, reason, f"Install it with: {command}") from error
    except ValueError as error:
        reason = f"{scheme}:// is unknown to fsspec"
        raise ArgumentError(argument, reason, "Give another") from error


_CLOUD = ("gs", "gcs", "http", "https")  # of the extra
_PACKAGES = {"s3": "s3fs", "sftp": "paramiko"}


def redact(url: str) -> str:
    """Return a URL without user name, password and token, for records and messages."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


T = TypeVar("T")
Sleep = Callable[[float], object]
_LONG_PAUSE = 4.0  # seconds; from here on pauses are announced


@dataclass(frozen=True)
class RetryPolicy:
    """Number of attempts, and pauses between them, after transient errors.

    Attributes:
        tries: attempts in a row without any progress.
        tries_unreachable: attempts in a row if no server answers at all; at most `tries`.
        first_pause: seconds before the second attempt; doubled with every further one.
        longest_pause: maximum of the pauses in seconds.
        max_retry_after: maximum of seconds in a server's `Retry-After`; a longer one is an error.
        minimum_rate: bytes a second; a slower connection counts as a failure.
        rate_seconds: seconds over which the rate is measured.
        sleep: function that waits for some seconds.
        clock: function that returns seconds, of any origin.
        notify: called with a message before long pauses.
    """

    tries: int = 8
    tries_unreachable: int = 8
    first_pause: float = 1.0
    longest_pause: float = 60.0
    max_retry_after: float = 900.0
    minimum_rate: float = 1000.0
    rate_seconds: float = 60.0
    sleep: Sleep = time.sleep
    clock: Callable[[], float] = time.monotonic
    notify: Callable[[str], object] = lambda _: None

    def wait(self, failures: int, error: TransientError) -> None:
        """Wait after a number of failures in a row.

        Raises:
            TransientError: that was the last attempt, or the server requires too long a pause.
        """
        if failures >= min(self.tries, self.tries_unreachable if error.unreachable else self.tries):
            reason = f"{error}; given up after {failures} attempts"
            raise TransientError(reason, unreachable=error.unreachable) from error
        if error.wait is not None and error.wait > self.max_retry_after:
            reason = f"{error}; the server asks to come back in {error.wait:.0f} s"
            raise TransientError(reason) from error
        backoff = min(self.longest_pause, self.first_pause * 2.0 ** (failures - 1))
        pause = backoff if error.wait is None else error.wait
        if pause >= _LONG_PAUSE:
            self.notify(f"{error}: again in {pause:.0f} s ({failures} of {self.tries} tries)")
        self.sleep(pause)

    def call(self, action: Callable[[], T]) -> T:
        """Return the result of a function, calling it again after each `TransientError`.

        Raises:
            TransientError: the last attempt failed, too.
        """
        failures = 0
        while True:
            try:
                return action()
            except TransientError as error:
                failures += 1
                self.wait(failures, error)

    def check_rate(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield blocks while they arrive at the minimum rate or faster.

        Raises:
            SlowError: they arrive more slowly.
        """
        begin, count = self.clock(), 0
        for block in blocks:
            count += len(block)
            seconds = self.clock() - begin
            if seconds >= self.rate_seconds:
                if count < self.minimum_rate * seconds:
                    reason = f"{count} bytes in {seconds:.0f} s"
                    limit = f"the minimum is {self.minimum_rate:.0f} bytes a second"
                    raise SlowError(f"the server is too slow: {reason}, and {limit}")
                begin, count = self.clock(), 0
            yield block


_HEADERS = {"User-Agent": f"ens10/{__version__}", "Accept-Encoding": "identity"}
_TRANSIENT = {408, 425, 429}  # and all of 5xx
_ABSENT = {404, 410}
_MOST_DIGITS = 18  # of a number of bytes
_NO_HEAD = {405, 501}
_RANGE = re.compile(r"\s*bytes (\d+)(?:-\d*)?(?:/(\d+))?", re.ASCII)
# urllib3 only follows redirects. All other retries are those of `RetryPolicy`, which counts the
# attempts without progress, and whose pauses end when the download is stopped.
_REDIRECTS_ONLY = Retry(total=None, connect=0, read=False, other=0, redirect=10)


class HttpFiles:
    """Remote files on http(s) servers, through the proxy of the environment.

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
    def read_from(self, url: str, start: int, expected: Info) -> Iterator[ByteRange]:
        """Yield the bytes of a file from `start`, or from 0 if it changed or there are no ranges.

        The status of the answer decides, not the request: 206 with the right range is the part,
        anything else is the complete file or an error. A part whose version is unknown is not used.
        """
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and expected.version.startswith('"'):
            headers["If-Range"] = expected.version
        with self._answer(url, "GET", headers) as answer:
            first, info = _position_and_info(answer)
            if first not in (0, start) or (first and not info.matches(expected)):
                raise TransientError("the server sent another part than the one asked for")
            if not first or info.version or "If-Range" in headers:
                yield ByteRange(first, info, _answer_blocks(answer))
                return
        with self.read_from(url, 0, expected) as whole:
            yield whole

    @contextmanager
    def _answer(
        self, url: str, method: str, headers: dict[str, str] | None = None
    ) -> Iterator[BaseHTTPResponse]:
        """Yield an answer whose body is not read yet; a partly read body closes the connection."""
        with _urllib3_errors():
            headers = _HEADERS | (headers or {})
            answer = self._pool.request(
                method, url, headers=headers, retries=_REDIRECTS_ONLY, preload_content=False
            )
        with closing(answer):
            if answer.status >= 400 and not (method == "HEAD" and answer.status in _NO_HEAD):
                raise _refusal(answer)
            yield answer


def _answer_blocks(answer: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield blocks as they arrive: `read` waits for a full one, and loses it if the line drops."""
    while True:
        with _urllib3_errors():
            block = answer.read1(BLOCK, decode_content=False)
        if not block:
            return
        yield block


@contextmanager
def _urllib3_errors() -> Iterator[None]:
    """Convert the exceptions of urllib3 to those of this module."""
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
    size = _size(length) if length.isdecimal() else None
    if answer.status == 206:
        span = _RANGE.match(headers.get("Content-Range", ""))
        if span is None:
            raise TransientError("the server sent a part of the file without saying which")
        first = _size(span[1])
        size = _size(span[2]) if span[2] else None if size is None else size + first
    etag = headers.get("ETag", "")  # a weak one may be that of other bytes
    version = etag if etag.startswith('"') else headers.get("Last-Modified", "")
    return first, Info(size, version)


def _size(digits: str) -> int:
    """Return a number of bytes that a server announces.

    Raises:
        RefusedError: no file can be that large.
    """
    if len(digits) > _MOST_DIGITS:
        raise RefusedError(f"the server announces an impossible size, of {len(digits)} digits")
    return int(digits)
