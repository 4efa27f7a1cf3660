"""What the commands on cells share: their options, and the refusal of a file as a folder."""

from pathlib import Path

from ens10.errors import FileError
from ens10.usage import Parser, count


def refuse_file(folder: Path | str) -> None:
    """Refuses a file in the place of a folder for results, before anything is done.

    Raises:
        FileError: there is one.
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
        "--tables", action="store_true", help="only write the tables anew, of all kept cells"
    )
