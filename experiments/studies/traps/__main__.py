"""The command: compute the missing cells, then write the tables and the figure."""

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import Namespace

from ens10.durable import write_whole
from ens10.errors import FileError
from ens10.experiments.commands import add_cell_options, refuse_file
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.running import Outcome, run_cells
from ens10.experiments.studies.traps import tables
from ens10.experiments.studies.traps.cells import find_cells
from ens10.usage import command_parser, reports_errors


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    options = _parse(arguments)
    for folder in (options.work, options.out):
        refuse_file(folder)
    if options.page and not options.page.is_file():
        raise FileError(options.page, "no such page", "Give one with places for the tables")
    outcome = Outcome()
    if not options.tables:
        cells = find_cells(options.work, options.out, options.seeds)
        counts = {"workers": options.workers, "threads": options.threads}
        outcome = run_cells(cells, **counts, older=options.keep_older)
    with Results(options.out).temporary_folder(outcome.places) as cells_folder:
        results = tables.read_results(cells_folder)
    print(tables.write_tables(results, options.out))
    place = options.out
    if options.page:
        text = options.page.read_text(encoding="utf-8")
        write_whole(options.page, tables.fill_page(text, tables.tables(results)))
        place = options.page.parent / "figures"
    tables.draw(results, place / "traps.png")
    return int(outcome.failed)


def _parse(arguments: Sequence[str] | None) -> Namespace:
    parser = command_parser("python -m ens10.experiments.studies.traps")
    parser.add_argument("work", type=Path, help="folder for the worlds")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=list(range(6)), metavar="N", help="default: 0 to 5"
    )
    parser.add_argument("--page", type=Path, help="docs/traps.md: write its tables and figure anew")
    add_cell_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
