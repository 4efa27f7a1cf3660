"""Files behind http and https: a HEAD for the size, a GET with a byte range for the rest."""

import email.utils
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ens10 import __version__
from ens10.download.remote import BLOCK, Info, Part, RefusedError, TransientError

_TIMEOUT_SECONDS = 60.0
_TRANSIENT = {408, 425, 429}  # and all of 5xx
_ABSENT = {404, 410}
_NO_HEAD = {405, 501}


class Web:
    """Reads files from http(s) servers.

    Args:
        timeout: seconds without a byte after which a connection counts as dropped.
    """

    def __init__(self, timeout: float = _TIMEOUT_SECONDS) -> None:
        self._timeout = timeout

    def info(self, url: str) -> Info:
        """Size and version of a file."""
        try:
            with self._answer(url, "HEAD", {}) as answer:
                return _info(answer)
        except _NoHeadError:
            with self._answer(url, "GET", {}) as answer:
                return _info(answer)

    @contextmanager
    def part(self, url: str, start: int, known: Info) -> Iterator[Part]:
        """The bytes of a file from `start`, or from 0 if it has changed or there are no ranges.

        What the server sends decides, not what was asked for: 206 with the right range is the part,
        anything else is the whole file or an error.
        """
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and known.version.startswith('"'):  # weak ETags are not allowed in If-Range
            headers["If-Range"] = known.version
        with self._answer(url, "GET", headers) as answer:
            first = _first_byte(answer)
            info = _info(answer, first)
            if first not in (0, start) or (first and not info.agrees(known)):
                raise TransientError("the server sent another part than the one asked for")
            yield Part(first, info, _blocks(answer))

    def _answer(self, url: str, method: str, headers: dict[str, str]) -> Any:
        agent = {"User-Agent": f"ens10/{__version__}", "Accept-Encoding": "identity"}
        request = urllib.request.Request(url, headers=agent | headers, method=method)
        try:
            return urllib.request.urlopen(request, timeout=self._timeout)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error, method) from error
        except urllib.error.URLError as error:
            raise TransientError(f"no server answers ({error.reason})", unreachable=True) from error
        except (OSError, http.client.HTTPException) as error:
            raise _dropped(error) from error


class _NoHeadError(Exception):
    """The server does not answer HEAD."""


def _blocks(answer: Any) -> Iterator[bytes]:
    """Blocks as they come: `read` would wait for a full one, and lose it if the line drops."""
    try:
        while block := answer.read1(BLOCK):
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise _dropped(error) from error


def _dropped(error: Exception) -> TransientError:
    return TransientError(f"the connection dropped ({str(error) or type(error).__name__})")


def _refusal(error: urllib.error.HTTPError, method: str) -> Exception:
    if method == "HEAD" and error.code in _NO_HEAD:
        return _NoHeadError()
    reason = f"HTTP {error.code} {error.reason}".strip()
    if error.code == 416:
        return TransientError(f"{reason}: the file has become shorter", wait=0.0)
    if error.code in _TRANSIENT or error.code >= 500:
        return TransientError(reason, _wait(error.headers.get("Retry-After")))
    return RefusedError(reason, absent=error.code in _ABSENT)


def _wait(text: str | None) -> float | None:
    """Seconds of a `Retry-After`, which is a number or a date."""
    if not text:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _first_byte(answer: Any) -> int:
    """Where the body begins in the file."""
    if answer.status != 206:
        return 0
    first = _range(answer)[0]
    if first is None:
        raise TransientError("the server sent a part of the file without saying which")
    return first


def _range(answer: Any) -> tuple[int | None, int | None]:
    """First byte and size of the file in `Content-Range: bytes 5-9/10`."""
    unit, _, rest = (answer.headers.get("Content-Range") or "").strip().partition(" ")
    span, _, size = rest.partition("/")
    first = span.partition("-")[0]
    if unit != "bytes" or not first.isdigit():
        return None, None
    return int(first), int(size) if size.isdigit() else None


def _info(answer: Any, first: int = 0) -> Info:
    headers = answer.headers
    length = headers.get("Content-Length")
    size = int(length) + first if length and length.isdigit() else None
    if answer.status == 206:
        size = _range(answer)[1] or size
    return Info(size, headers.get("ETag") or headers.get("Last-Modified") or "")
