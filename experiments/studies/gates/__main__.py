"""The command line: train a U-Net with each way of routing its experts, write tables and maps."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from jsonargparse import Namespace

from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runner.tasks import WorldSize
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.studies.gates.cells import VARIANTS, WIDTH, GateCell
from ens10.experiments.studies.gates.tables import HEADINGS, draw, read_results, table
from ens10.experiments.studies.study import compute, image_of, run_study, study_parser
from ens10.synthetic.world import WorldKind
from ens10.usage import count, reports_errors


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    parser = study_parser("gates", "Gates of experts, in worlds of a known map.")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--world", choices=get_args(WorldKind), default="pointwise")
    parser.add_argument("--grid", default="17x32", help="rows x columns (default: %(default)s)")
    parser.add_argument("--years", type=count, default=10, help="from 1998 (default: %(default)s)")
    parser.add_argument("--dates", type=count, default=40, help="a year (default: %(default)s)")
    text = "of the U-Net on the full grid (default: %(default)s)"
    parser.add_argument("--width", type=count, default=WIDTH, help=text)
    options = parser.parse_args(arguments)
    return run_study(options, partial(_run, options), partial(_write, options.out))


def _run(options: Namespace) -> Outcome:
    world_options = {name: options[name] for name in ("grid", "years", "dates", "world")}
    size = WorldSize.from_options(**world_options, steps=(48,), kinds=("sfc",))
    where = (options.work, options.out, size, options.width)
    cells = [GateCell(name, seed, *where) for seed in options.seeds for name in options.variants]
    return compute(cells, options)


def _write(out: Path, cells_folder: Path, _: Outcome) -> str:
    results = read_results(cells_folder)
    rows = table(results)
    text = markdown_of(columns_of(HEADINGS, rows, (0, 2)))
    figure = image_of(draw(results))
    write_files(out, {"table.md": text, "table.csv": csv_of(HEADINGS, rows), "maps.png": figure})
    return text


if __name__ == "__main__":
    sys.exit(main())
