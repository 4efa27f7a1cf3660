"""How work on the CPU is run: on threads, and outside of what `torch.compile` compiles."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")
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


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function, called from compiled code as it is.

    For layers with compiled loops of their own, into which torch cannot look, and with a backward
    pass that judges: torch compiles what lies before and behind them.
    """
    called: Callable[P, R] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return called
