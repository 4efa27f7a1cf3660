"""A progress bar for everything that takes over a second."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from ens10.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
_SHORT = 0.5  # seconds; a rate over less is not meaningful


def track(items: Iterable[T], label: str, total: int, visible: bool = True) -> Iterator[T]:
    """Yield the items, with a bar that shows the share done, the rate and the time left.

    Args:
        items: any iterable.
        label: text before the bar.
        total: number of items.
        visible: False for no bar.
    """
    with bar(label, total, visible) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def bar(
    label: str, total: int, visible: bool = True, *, initial: int = 0, in_bytes: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error with the share done, the rate and the time left.

    Args:
        label: text before the bar, a word or two.
        total: how much there is to do; 0 bytes if it is unknown.
        visible: False for no bar.
        initial: how much is done at the beginning; it does not count for the rate.
        in_bytes: True if the numbers are bytes.

    Yields:
        A function to call with the amount of work done since the last call.
    """
    with _progress(visible, in_bytes) as progress:
        known_total = None if in_bytes and not total else total
        task = progress.add_task(f"{printable(label):<12}", total=known_total, completed=initial)
        yield lambda more: progress.advance(task, more)


def _progress(visible: bool, in_bytes: bool) -> "Progress":
    from importlib.util import find_spec

    from rich import progress as rich
    from rich.console import Console
    from rich.filesize import decimal
    from rich.text import Text

    class Rate(rich.ProgressColumn):
        """Bytes or items a second, or seconds an item; empty for tasks of less than 0.5 s."""

        def render(self, task: rich.Task) -> Text:
            speed = task.finished_speed or task.speed
            if not speed or (task.finished and (task.elapsed or 0) < _SHORT):
                return Text("")
            if in_bytes:
                return Text(f"{decimal(int(speed))}/s")
            return Text(f"{speed:.1f}/s" if speed >= 1 else f"{1 / speed:.1f} s each")

    console = Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:
        visible = False  # rich would warn in place of each bar

    name, left = rich.TextColumn("{task.description}", markup=False), rich.TextColumn("left")
    done = rich.DownloadColumn() if in_bytes else rich.MofNCompleteColumn()
    times = (rich.TimeElapsedColumn(), left, rich.TimeRemainingColumn())
    columns = (name, rich.BarColumn(), done, Rate(), *times)
    return rich.Progress(*columns, console=console, disable=not visible)
