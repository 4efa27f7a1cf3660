"""A progress bar for everything that takes over a second."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def track(items: Iterable[T], what: str, total: int, shown: bool = True) -> Iterator[T]:
    """The items, with a bar that shows the share done, the rate and the time left.

    Args:
        items: what is worked through.
        what: a word or two before the bar.
        total: how many items there are.
        shown: False for no bar.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as progress:
        yield from progress.track(items, total=total, description=f"{what:<12}")
