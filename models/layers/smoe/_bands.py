"""Work on bands of rows, on as many threads as torch uses."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

Band = tuple[int, int]


def bands(count: int, size: int) -> list[Band]:
    """First row and the one after the last, of bands of so many rows; one band for one thread."""
    size = max(count, 1) if torch.get_num_threads() == 1 else size
    return [(first, min(first + size, count)) for first in range(0, count, size)]


def in_bands(work: Callable[..., Any], pieces: Sequence[tuple[Any, ...]]) -> None:
    """Calls `work` with each of the pieces, which may not depend on each other."""
    threads = min(torch.get_num_threads(), len(pieces))
    if threads <= 1:
        for piece in pieces:
            work(*piece)
        return
    with ThreadPoolExecutor(threads, "ens10-experts") as pool:
        for done in [pool.submit(work, *piece) for piece in pieces]:
            done.result()
