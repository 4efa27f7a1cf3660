"""Locks of run folders: one process writes; others get an error that names it.

The kernel releases a lock when its process ends, however it ends, also on NFS, where locks hold
between machines. The lock file names its owner and is removed when the lock is released; one that
a killed process left is taken over.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ens10.errors import FileError
from ens10.experiments.runner.claims import claim
from ens10.file_locks import lock

_RETRY_SECONDS = 0.2  # seconds between attempts, without locks


@contextmanager
def hold_lock(path: Path, purpose: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock; its folder must exist.

    Where the file system has no locks, the file alone stands for one, with a sign of life every
    few seconds (see `ens10.experiments.runner.claims`).

    Args:
        path: the lock file.
        purpose: the work that needs the lock, such as "ens10 fit", for messages.
        wait: whether to wait for another process instead of refusing.

    Raises:
        FileError: another process holds it.
    """
    file = _open(path)
    try:
        has_lock = lock(file, wait=wait)
    except BlockingIOError as error:
        os.close(file)
        raise _in_use_error(path) from error
    except OSError:
        os.close(file)
        raise
    if not has_lock:
        os.close(file)
        with _hold_claim(path, wait=wait):
            yield
        return
    if not _is_at(file, path):  # its owner removed it between the opening and the lock
        os.close(file)
        with hold_lock(path, purpose, wait=wait):
            yield
        return
    try:
        os.ftruncate(file, 0)
        owner = f"{purpose}, process {os.getpid()} on {socket.gethostname()}\n"
        os.pwrite(file, owner.encode(), 0)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(file)


def owner(path: Path) -> str:
    """Return a description of the process that holds a lock, for messages."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8").strip() or "another process"
    return "another process"


@contextmanager
def _hold_claim(path: Path, *, wait: bool) -> Iterator[None]:
    with suppress(OSError):
        if path.stat().st_size == 0:
            path.unlink()
    mark = path.with_name(f"{path.name}.claim")
    while True:
        with claim(mark) as is_owner:
            if is_owner:
                yield
                return
        if not wait:
            raise _in_use_error(mark)
        time.sleep(_RETRY_SECONDS)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _in_use_error(path: Path) -> FileError:
    return FileError(path.parent, f"in use by {owner(path)}", "Wait for it, or end it")
