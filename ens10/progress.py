"""A progress bar for everything that takes over a second."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
_SHORT = 0.5  # seconds; a rate over less says little


def track(items: Iterable[T], what: str, total: int, shown: bool = True) -> Iterator[T]:
    """Yield the items, with a bar that shows the share done, the rate and the time left.

    Args:
        items: what is worked through.
        what: label of the bar.
        total: number of items.
        shown: False for no bar.
    """
    with bar(what, total, shown) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def bar(
    what: str, total: int, shown: bool = True, *, done: int = 0, in_bytes: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error with the share done, the rate and the time left.

    Args:
        what: a word or two before the bar.
        total: how much there is to do; 0 bytes if it is unknown.
        shown: False for no bar.
        done: how much is done at the beginning; it does not count for the rate.
        in_bytes: True if the numbers are bytes.

    Yields:
        A function to call with the amount of work done since the last call.
    """
    with _progress(shown, in_bytes) as progress:
        known_total = None if in_bytes and not total else total
        task = progress.add_task(f"{what:<12}", total=known_total, completed=done)
        yield lambda more: progress.advance(task, more)


def _progress(visible: bool, in_bytes: bool) -> "Progress":
    from importlib.util import find_spec

    from rich.console import Console
    from rich.filesize import decimal
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """Bytes or items a second, or seconds an item; nothing of what took no time."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            if not speed or (task.finished and (task.elapsed or 0) < _SHORT):
                return Text("")
            if in_bytes:
                return Text(f"{decimal(int(speed))}/s")
            return Text(f"{speed:.1f}/s" if speed >= 1 else f"{1 / speed:.1f} s each")

    console = Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:
        visible = False  # rich would warn in place of each bar

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if in_bytes else MofNCompleteColumn(),
        Rate(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not visible,
    )
