"""What the commands `python -m ens10.experiments.NAME` share."""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path

from ens10.errors import FileError
from ens10.places import check_names
from ens10.signals import end_process, reported


def tells_errors(command: Callable[..., int]) -> Callable[..., int]:
    """A command that reports an error or a signal in one line, and returns its exit status.

    Args:
        command: takes the command line, None for that of the process; returns the exit status.
    """

    @wraps(command)
    def told(arguments: Sequence[str] | None = None) -> int:
        try:
            check_names(sys.argv[1:] if arguments is None else arguments)
            return command(arguments)
        except BaseException as error:
            status = reported(error)
            if status is None:
                raise
            if arguments is None:
                end_process(status)
            return status

    return told


def refuse_file(folder: Path | str) -> None:
    """Refuses a file in the place of a folder for results, before anything is done.

    Raises:
        FileError: there is one.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise FileError(path, "is no folder", "Give another place for the results")


def count(text: str) -> int:
    """A number of one or more, as the type of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return int(text)


def add_work_options(parser: argparse.ArgumentParser) -> None:
    """Add options of trained cells: `budget`, and those of `add_cell_options`."""
    parser.add_argument("--budget", metavar="NAME", help="how long to train, as five_minutes")
    add_cell_options(parser)


def add_cell_options(parser: argparse.ArgumentParser) -> None:
    """Add options of computing cells: `workers`, `threads`, `keep_older`, `tables`."""
    parser.add_argument("--workers", type=count, default=1, metavar="N", help="cells at a time")
    parser.add_argument("--threads", type=count, default=1, metavar="N", help="of each cell")
    parser.add_argument(
        "--keep-older", action="store_true", help="cells made by other code or data count as well"
    )
    parser.add_argument(
        "--tables", action="store_true", help="only write the tables anew, of all kept cells"
    )
