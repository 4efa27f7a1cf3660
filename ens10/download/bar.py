"""A progress bar in bytes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def track_bytes(what: str, total: int, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """A bar with the share that is here, the rate and the time left.

    Args:
        what: a word or two before the bar.
        total: bytes in all.
        shown: False for no bar.

    Yields:
        A function to call with every change in the number of bytes, from any thread.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as progress:
        task = progress.add_task(f"{what:<12}", total=total or None)
        yield lambda change: progress.advance(task, change)
