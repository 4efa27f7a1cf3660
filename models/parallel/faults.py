"""Error handling when one of the processes of a run ends or hangs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from ens10.errors import LostProcessError

_SIGNS = ("gloo", "nccl", "connection", "timed out", "broken pipe", "socket")


@contextmanager
def one_error_for_lost_processes(rank: int) -> Iterator[None]:
    """Convert errors of communication libraries that mean a lost process to one clear error.

    Args:
        rank: rank of this process.

    Raises:
        LostProcessError: another process ended, or did not answer within the timeout.
    """
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        signs = any(sign in text.lower() for sign in _SIGNS)
        if not (isinstance(error, dist.DistError) or signs):
            raise
        line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
        # without the library's source position and advice
        line = re.sub(r"^\[[^\]]*\.cc:\d+\] ", "", line).partition(". This is typically")[0]
        raise LostProcessError(rank, line) from error
