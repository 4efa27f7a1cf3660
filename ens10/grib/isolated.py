"""ecCodes in a separate process, so that a message that aborts ecCodes does not end this process.

A worker process is started on first use and reused; a thread that finds no idle one starts
another. Workers end with the process that started them, however it ends. The memory that ecCodes
may allocate for a message is limited.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.errors import FileError

_TIMEOUT = 120.0  # for one message; one of 100 MB takes less than 5
_BASE_MEMORY = 1 << 28  # bytes of memory for any message
_MEMORY_FACTOR = 64  # bytes of memory for each byte of a message and for each point
_REMEDY = "Run again, with fewer workers if memory is short"
_SCRIPT = Path(__file__).with_name("eccodesworker.py")
_SIGNALS = {number.value: number.name for number in signal.Signals}
_DAMAGE = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL")

Packing = tuple[float, int, int, int]


class EccodesError(Exception):
    """ecCodes cannot read a message, or its process crashed while reading it."""


class _Worker:
    """A process that answers one request after another.

    Attributes:
        is_full: True if ecCodes uses so much memory that the process should be replaced.
    """

    def __init__(self) -> None:
        self.is_full = False
        self._connection, worker_end = Pipe()
        self._shared = _memory_file()
        path = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109
        with worker_end:
            fds = (worker_end.fileno(), self._shared.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_SCRIPT), *map(str, fds), *path],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=fds,
            )  # fmt: skip

    def request(self, operation: str, path: Path, raw: bytes, memory: int) -> dict[str, Any]:
        """Send a request and return the answer; values are written to the shared file.

        Args:
            operation: "keys" or "values".
            path: of the file, for errors.
            raw: the message.
            memory: bytes that ecCodes may allocate for it.

        Raises:
            EccodesError: ecCodes crashed on the message, or took too long.
            FileError: the process was ended from outside.
        """
        self._shared.seek(0)
        self._shared.write(raw)
        request = {"what": operation, "size": len(raw), "memory": memory}
        try:
            self._connection.send_bytes(json.dumps(request).encode())
            if not self._connection.poll(_TIMEOUT):
                raise EccodesError(f"ecCodes reads it for more than {_TIMEOUT:g} s")
            answer: dict[str, Any] = json.loads(self._connection.recv_bytes())
            self.is_full = answer["is_full"]
        except (EOFError, ConnectionError) as error:
            status = self._process.wait()
            name = _SIGNALS.get(-status, f"status {status}")
            if name in _DAMAGE:
                raise EccodesError(f"ecCodes ended on it with {name}") from error
            reason = f"the process that reads its messages ended with {name}"
            raise FileError(path, reason, _REMEDY) from error
        return answer

    def values(self, size: int) -> npt.NDArray[np.float64]:
        """Return the values of the last answer, shape (size,)."""
        self._shared.seek(0)
        values = np.empty(size, np.float64)
        if self._shared.readinto(values) != values.nbytes:
            raise EccodesError(f"its {size} values do not fit into memory")
        return values

    @property
    def is_alive(self) -> bool:
        """True if the process is running."""
        return self._process.poll() is None

    def end(self) -> None:
        """End the process."""
        self._connection.close()
        self._shared.close()
        self._process.kill()
        self._process.wait()

    def close_in_child(self) -> None:
        """Close the connection in a forked process; the process belongs to its parent."""
        self._connection.close()
        self._shared.close()
        self._process.returncode = 0


def _memory_file() -> Any:
    """Create an unnamed file, in memory if the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("ens10"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


_idle: list[_Worker] = []


def keys_of(path: Path, raw: bytes) -> dict[str, Any]:
    """Return the header keys of a message, read by ecCodes.

    Args:
        path: of the file, for errors.
        raw: the message, after `sections` has checked it.

    Returns:
        The value of each key that the message has; an `EccodesError` where ecCodes cannot read it.

    Raises:
        EccodesError: ecCodes cannot read the message.
        FileError: the process of ecCodes was ended from outside.
    """
    with _worker() as worker:
        answer = worker.request("keys", path, raw, _memory(raw, 0))
    _check(answer)
    errors = {key: EccodesError(reason) for key, reason in answer["errors"].items()}
    return {**answer["keys"], **errors}


def values_of(
    path: Path, raw: bytes, points: int
) -> tuple[npt.NDArray[np.float64], Packing | None]:
    """Return the values of a message, unpacked by ecCodes.

    Args:
        path: of the file, for errors.
        raw: the message, after `sections` has checked it.
        points: of its grid.

    Returns:
        Values, shape (values,), in the message's order, NaN where missing; and reference value,
        binary and decimal scale factor and bits per value, or None for packings without these.

    Raises:
        EccodesError: ecCodes cannot unpack them.
        FileError: the process of ecCodes was ended from outside.
    """
    with _worker() as worker:
        answer = worker.request("values", path, raw, _memory(raw, points))
        values = worker.values(answer.get("values", 0))
    _check(answer)
    packing = answer["packing"]
    return values, None if packing is None else tuple(packing)


def _memory(raw: bytes, points: int) -> int:
    """Return the limit of the memory, in bytes, that ecCodes may allocate for a message."""
    return _BASE_MEMORY + _MEMORY_FACTOR * (len(raw) + points)


def _check(answer: dict[str, Any]) -> None:
    if "error" in answer:
        raise EccodesError(answer["error"])


@contextmanager
def _worker() -> Iterator[_Worker]:
    """Yield an idle ecCodes process; it is kept unless an error is raised."""
    worker = _idle_worker()
    try:
        yield worker
    except BaseException:  # Ctrl-C too: an answer that nobody has read would be the next one
        worker.end()
        raise
    if worker.is_full:
        worker.end()
    else:
        _idle.append(worker)


def _idle_worker() -> _Worker:
    while True:
        try:
            worker = _idle.pop()
        except IndexError:
            return _Worker()
        if worker.is_alive:
            return worker
        worker.end()


@atexit.register
def _end_all() -> None:
    while _idle:
        _idle.pop().end()


def _close_all_in_child() -> None:
    while _idle:
        _idle.pop().close_in_child()


os.register_at_fork(after_in_child=_close_all_in_child)
