"""Files behind http and https: a HEAD for the size, a GET with a byte range for the rest."""

import email.utils
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Retry
from urllib3.exceptions import HTTPError, LocationValueError, MaxRetryError, ResponseError

from ens10 import __version__
from ens10.download.remote import BLOCK, Info, Part, RefusedError, TransientError

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
                return _described(answer)[1]
        with self._answer(url, "GET") as answer:
            return _described(answer)[1]

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
            first, info = _described(answer)
            if first not in (0, start) or (first and not info.agrees(known)):
                raise TransientError("the server sent another part than the one asked for")
            yield Part(first, info, _blocks(answer))

    @contextmanager
    def _answer(
        self, url: str, method: str, headers: dict[str, str] | None = None
    ) -> Iterator[BaseHTTPResponse]:
        """Yield an answer before its body; a body that is not read whole ends the connection."""
        with _translated():
            headers = _HEADERS | (headers or {})
            answer = self._pool.request(
                method, url, headers=headers, retries=_ONCE, preload_content=False
            )
        with closing(answer):
            if answer.status >= 400 and not (method == "HEAD" and answer.status in _NO_HEAD):
                raise _refusal(answer)
            yield answer


def _blocks(answer: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield blocks as they come: `read` waits for a full one, and loses it if the line drops."""
    while True:
        with _translated():
            block = answer.read1(BLOCK, decode_content=False)
        if not block:
            return
        yield block


@contextmanager
def _translated() -> Iterator[None]:
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


def _described(answer: BaseHTTPResponse) -> tuple[int, Info]:
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
