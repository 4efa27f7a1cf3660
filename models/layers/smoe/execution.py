"""Execution of CPU loops on threads, excluded from `torch.compile`."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")
Band = tuple[int, int]


def bands(count: int, size: int) -> list[Band]:
    """Split `count` rows into bands of `size`: (first, past the last); one band for one thread."""
    size = max(count, 1) if torch.get_num_threads() == 1 else size
    return [(first, min(first + size, count)) for first in range(0, count, size)]


def in_bands(work: Callable[..., Any], pieces: Sequence[tuple[Any, ...]]) -> None:
    """Call `work` on each piece, in threads; pieces must be independent."""
    threads = min(torch.get_num_threads(), len(pieces))
    if threads <= 1:
        for piece in pieces:
            work(*piece)
        return
    with ThreadPoolExecutor(threads, "ens10-experts") as pool:
        for done in [pool.submit(work, *piece) for piece in pieces]:
            done.result()


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """Exclude a function from `torch.compile`; compiled code calls it as it is.

    For layers with their own compiled loops or a custom backward pass, which torch cannot trace; it
    compiles the code before and after them.
    """
    called: Callable[P, R] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return called
