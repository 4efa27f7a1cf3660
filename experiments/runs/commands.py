"""Options and checks that the commands of studies share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ens10.errors import ArgumentError, FileError
from ens10.usage import Parser, count


def refuse_file(folder: Path | str) -> None:
    """Refuse a file in the place of a folder for results.

    Raises:
        FileError: the path exists and is not a folder.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise FileError(path, "is no folder", "Give another place for the results")


def add_work_options(parser: Parser) -> None:
    """Add options of trained cells: `budget`, and those of `add_cell_options`."""
    parser.add_argument("--budget", metavar="NAME", help="how long to train, as five_minutes")
    add_cell_options(parser)


def add_cell_options(parser: Parser) -> None:
    """Add options of computing cells: `workers`, `threads`, `keep_older`, `tables`."""
    parser.add_argument("--workers", type=count, default=1, metavar="N", help="cells at a time")
    parser.add_argument("--threads", type=count, default=1, metavar="N", help="of each cell")
    parser.add_argument(
        "--keep-older", action="store_true", help="cells made by other code or data count as well"
    )
    parser.add_argument(
        "--tables", action="store_true", help="only write the tables anew, of kept cells"
    )


def add_world_options(parser: Parser) -> None:
    """Add options of synthetic worlds, None unless they are given: `grid`, `years`, `dates`."""
    world = parser.add_argument_group("synthetic worlds")
    world.add_argument("--grid", metavar="HxW", help="rows x columns, usually 46x96")
    world.add_argument("--years", type=count, metavar="N", help="usually 10")
    world.add_argument("--dates", type=count, metavar="N", help="of each year, usually 40")


def world_options_of(options: Any, instead: Sequence[str] = ("store",)) -> dict[str, Any]:
    """Return the options of synthetic worlds (and `world`, their kind) that the user gave.

    Args:
        options: of the command.
        instead: names of options that replace the worlds.

    Raises:
        ArgumentError: the user gave both.
    """
    names = ("grid", "years", "dates", "world")
    values = {name: getattr(options, name, None) for name in names}
    world_options = {name: value for name, value in values.items() if value is not None}
    other = [name for name in instead if getattr(options, name) not in (None, False)]
    if world_options and other:
        text = f"Leave it out, or --{other[0]}"
        raise ArgumentError(f"--{next(iter(world_options))}", "is of synthetic worlds", text)
    return world_options
