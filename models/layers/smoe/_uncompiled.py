"""What `torch.compile` leaves as it is."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function, called from compiled code as it is.

    For layers with compiled loops of their own, into which torch cannot look, and with a backward
    pass that judges: torch compiles what lies before and behind them.
    """
    called: Callable[P, R] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return called
