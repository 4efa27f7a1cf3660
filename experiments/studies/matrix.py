"""Many models with many seeds on synthetic worlds, then one table of all.

python -m ens10.experiments.studies.matrix WORK --out OUT --seeds 3
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import Namespace

from ens10.experiments.commands import add_work_options, refuse_file
from ens10.experiments.demo import config_path
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.running import Outcome, run_cells
from ens10.experiments.runner.tables import write_summary
from ens10.experiments.runner.tasks import WorldSize, store_of
from ens10.experiments.runner.trainings import find_cells, keep_optimum
from ens10.usage import command_parser, count, reports_errors

MODELS = ("raw", "emos_global", "emos_local", "mlp", "unet")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    options = _parse(arguments)
    for folder in (options.work, options.out):
        refuse_file(folder)
    outcome = Outcome() if options.tables else _run(options)
    with Results(options.out).temporary_folder() as kept:
        print(write_summary(options.out, kept, options.models, range(options.seeds)))
    return int(outcome.failed)


def _run(options: Namespace) -> Outcome:
    seeds = range(options.seeds)
    configs = config_path("raw").parent
    where = (options.work, options.out, configs)
    cells = find_cells(options.models, seeds, *where, options.budget)
    first = WorldSize().years[0]
    years = tuple(range(first, first + options.years))
    for seed in seeds:
        store_of(options.work / f"seed{seed}", seed, WorldSize(options.grid, years, options.dates))
    counts = {"workers": options.workers, "threads": options.threads}
    outcome = run_cells(cells, **counts, older=options.keep_older)
    for seed in seeds:
        keep_optimum([cell for cell in cells if cell.seed == seed])
    return outcome


def _parse(arguments: Sequence[str] | None) -> Namespace:
    parser = command_parser(
        "python -m ens10.experiments.studies.matrix",
        "Every model with every seed on synthetic worlds; resumable.",
    )
    parser.add_argument("work", type=Path, help="folder for data and runs (7 GB a seed)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the small results")
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="NAME")
    parser.add_argument("--seeds", type=count, default=3)
    usual = WorldSize()
    parser.add_argument("--grid", default=usual.grid, help="of the worlds, rows x columns")
    parser.add_argument("--years", type=count, default=len(usual.years), help="of the worlds")
    parser.add_argument("--dates", type=count, default=usual.dates, help="in each year")
    add_work_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
