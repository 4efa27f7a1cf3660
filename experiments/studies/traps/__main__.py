"""The command: compute the missing cells, then write the tables and the figure."""

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import Namespace

from ens10.durable import write_whole
from ens10.errors import FileError
from ens10.experiments.runner.running import Outcome
from ens10.experiments.studies.study import compute, run_study, study_parser
from ens10.experiments.studies.traps import tables
from ens10.experiments.studies.traps.cells import find_cells
from ens10.usage import reports_errors


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    parser = study_parser("traps")
    seeds = list(range(6))
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds, metavar="N", help="0 to 5")
    parser.add_argument("--page", type=Path, help="docs/traps.md: write its tables and figure anew")
    options = parser.parse_args(arguments)
    if options.page and not options.page.is_file():
        raise FileError(options.page, "no such page", "Give one with places for the tables")

    def run() -> Outcome:
        return compute(find_cells(options.work, options.out, options.seeds), options)

    return run_study(options, run, lambda folder, _: _write(options, folder), of_call=True)


def _write(options: Namespace, cells_folder: Path) -> str:
    results = tables.read_results(cells_folder)
    text, place = tables.write_tables(results, options.out), options.out
    if options.page:
        page = options.page.read_text(encoding="utf-8")
        write_whole(options.page, tables.fill_page(page, tables.tables(results)))
        place = options.page.parent / "figures"
    tables.draw(results, place / "traps.png")
    return text


if __name__ == "__main__":
    sys.exit(main())
