"""Locks of files and folders, by which one process at a time works on them.

The kernel releases a lock when its file is closed, however the process ends. Some file systems, as
of clusters, have no locks, and neither have systems other than POSIX: work goes on without one.
"""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO

from ens10.errors import FileError

try:
    import fcntl
except ImportError:
    _IS_POSIX = False
else:
    _IS_POSIX = True

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def lock(file: int | IO[bytes], *, wait: bool = False) -> bool:
    """Lock an open file or folder against other processes until it is closed.

    Args:
        file: the open file, or its descriptor.
        wait: whether to wait while another process holds the lock.

    Returns:
        Whether it is locked; False where the file system or the system has no locks.

    Raises:
        BlockingIOError: another process holds the lock, and we do not wait.
    """
    if not _IS_POSIX:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


@contextmanager
def hold_file(
    path: Path,
    purpose: str,
    *,
    wait: bool = False,
    without_locks: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[None]:
    """Hold the lock of a file, which names its owner and is removed when the lock is released.

    Between machines on NFS, locks of files hold and those of folders do not.

    Args:
        path: the lock file; its folder exists. One that a killed process left is taken over.
        purpose: the work that needs the lock, such as "ens10 fit", for messages.
        wait: whether to wait for another process instead of refusing.
        without_locks: held instead where the file system has no locks.

    Raises:
        FileError: another process holds it.
    """
    file = _open_locked(path, wait)
    try:
        if file is None:
            with without_locks():
                yield
        else:
            os.ftruncate(file, 0)
            owner = f"{purpose}, process {os.getpid()} on {socket.gethostname()}\n"
            os.pwrite(file, owner.encode(), 0)
            yield
    finally:
        with suppress(OSError):
            path.unlink()
        if file is not None:
            os.close(file)


def _open_locked(path: Path, wait: bool) -> int | None:
    """Return the descriptor of the locked file; None where the file system has no locks."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            has_lock = lock(file, wait=wait)
        except OSError as error:
            os.close(file)
            if isinstance(error, BlockingIOError):
                raise in_use_error(path) from error
            raise
        with suppress(FileNotFoundError):  # its owner removed it between the opening and the lock
            if has_lock and os.path.samestat(os.fstat(file), path.stat()):
                return file
        os.close(file)
        if not has_lock:
            return None


def in_use_error(path: Path) -> FileError:
    """Return the error that names the owner of a lock file."""
    try:
        owner = path.read_text(encoding="utf-8").strip()
    except OSError:
        owner = ""
    reason = f"in use by {owner or 'another process'}"
    return FileError(path.parent, reason, "Wait for it, or end it")


@contextmanager
def folder_lock(folder: Path, in_use: FileError | None = None) -> Iterator[None]:
    """Hold the lock of a folder while the block runs; without locks the block just runs.

    Args:
        folder: must exist.
        in_use: raised if another process holds the lock; None to wait for it.
    """
    if not _IS_POSIX:  # where folders cannot be opened either
        yield
        return
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            lock(handle, wait=in_use is None)
        except BlockingIOError as error:
            if in_use is None:
                raise
            raise in_use from error
        yield
    finally:
        os.close(handle)
