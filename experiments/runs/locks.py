"""Locks of run folders: one process writes; others get an error that names it.

The kernel releases a lock when its process ends, however it ends, also on NFS, where locks hold
between machines. The lock file names its owner and is removed when the lock is released; one that
a killed process left is taken over.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

from ens10.experiments.runs.claims import claim
from ens10.file_locks import hold_file, in_use_error

_RETRY_SECONDS = 0.2  # seconds between attempts, without locks


def hold_lock(path: Path, purpose: str, *, wait: bool = False) -> AbstractContextManager[None]:
    """Hold a lock; its folder must exist.

    Where the file system has no locks, the file alone stands for one, with a sign of life every
    few seconds (see `ens10.experiments.runs.claims`).

    Args:
        path: the lock file.
        purpose: the work that needs the lock, such as "ens10 fit", for messages.
        wait: whether to wait for another process instead of refusing.

    Raises:
        FileError: another process holds it.
    """
    return hold_file(path, purpose, wait=wait, without_locks=partial(_hold_claim, path, wait=wait))


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
            raise in_use_error(mark)
        time.sleep(_RETRY_SECONDS)
