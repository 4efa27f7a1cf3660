"""Locks of files and folders, by which one process at a time works on them.

The kernel releases a lock when its file is closed, however the process ends. Some file systems, as
of clusters, have no locks, and neither have systems other than POSIX: work goes on without one.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
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
