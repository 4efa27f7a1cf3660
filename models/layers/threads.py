"""Execution of compiled loops in as many threads as torch uses."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch


def in_threads(work: Callable[..., Any], pieces: Sequence[tuple[Any, ...]]) -> None:
    """Call a function for each tuple of arguments, in several threads.

    Args:
        work: the function; calls run at the same time if it releases the interpreter lock.
        pieces: arguments of each call.
    """
    threads = min(torch.get_num_threads(), len(pieces))
    if threads <= 1:
        for piece in pieces:
            work(*piece)
        return
    with ThreadPoolExecutor(threads, "ens10-loops") as pool:
        for future in [pool.submit(work, *piece) for piece in pieces]:
            future.result()
