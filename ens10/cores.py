"""The processor cores that this process may use."""

import os


def usable_cores() -> int:
    """Return the number of cores of this process, or of the machine where it cannot be told.

    Linux tells those that a container, `taskset` or a scheduler grants; macOS and Windows do not.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
