"""What the commands `python -m ens10.experiments.NAME` share."""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import wraps

from ens10.errors import Ens10Error


def tells_errors(command: Callable[..., int]) -> Callable[..., int]:
    """A command that tells an error of ens10 in one line and returns the exit status 1.

    Args:
        command: takes the command line, None for that of the process; returns the exit status.
    """

    @wraps(command)
    def told(arguments: Sequence[str] | None = None) -> int:
        try:
            return command(arguments)
        except Ens10Error as error:
            print(f"ens10: {error}", file=sys.stderr)
            return 1

    return told


def add_work_options(parser: argparse.ArgumentParser) -> None:
    """How cells are trained and shared out: `budget`, `workers`, `threads`, `keep_older`."""
    parser.add_argument("--budget", metavar="NAME", help="how long to train, as five_minutes")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="cells at a time")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of each cell")
    parser.add_argument(
        "--keep-older", action="store_true", help="cells made by other code or data count as well"
    )
