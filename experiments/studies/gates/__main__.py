"""The command line: train a U-Net with each way of routing its experts, write tables and maps."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from ens10.durable import whole_file
from ens10.experiments.commands import add_cell_options, refuse_file
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.running import Outcome, run_cells
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runner.tasks import WorldSize
from ens10.experiments.studies.gates.cells import VARIANTS, WIDTH, GateCell
from ens10.experiments.studies.gates.tables import HEADINGS, draw, read_results, table
from ens10.experiments.writers import columns_of, csv_of, markdown_of
from ens10.synthetic.world import WorldKind
from ens10.usage import command_parser, count, reports_errors


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    parser = command_parser(
        "python -m ens10.experiments.studies.gates", "Gates of experts, in worlds of a known map."
    )
    parser.add_argument("work", type=Path, help="folder for the worlds")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--world", choices=get_args(WorldKind), default="pointwise")
    parser.add_argument("--grid", default="17x32", help="rows x columns (default: %(default)s)")
    parser.add_argument("--years", type=count, default=10, help="from 1998 (default: %(default)s)")
    parser.add_argument("--dates", type=count, default=40, help="a year (default: %(default)s)")
    text = "of the U-Net on the full grid (default: %(default)s)"
    parser.add_argument("--width", type=count, default=WIDTH, help=text)
    add_cell_options(parser)
    options = parser.parse_args(arguments)
    for folder in (options.work, options.out):
        refuse_file(folder)
    world_options = {name: getattr(options, name) for name in ("grid", "years", "dates", "world")}
    size = WorldSize.from_options(**world_options, steps=(48,), kinds=("sfc",))
    outcome = Outcome()
    if not options.tables:
        cells = [
            GateCell(variant, seed, options.work, options.out, size, options.width)
            for seed in options.seeds
            for variant in options.variants
        ]
        counts = {"workers": options.workers, "threads": options.threads}
        outcome = run_cells(cells, **counts, older=options.keep_older)
    with Results(options.out).temporary_folder() as cells_folder:
        results = read_results(cells_folder)
    rows = table(results)
    text = markdown_of(columns_of(HEADINGS, rows, (0, 2)))
    write_files(options.out, {"table.md": text, "table.csv": csv_of(HEADINGS, rows)})
    print(text)
    with whole_file(options.out / "maps.png") as file:
        draw(results).savefig(file, format="png", dpi=150)
    return int(outcome.failed)


if __name__ == "__main__":
    sys.exit(main())
