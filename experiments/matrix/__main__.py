"""The command: every model with every seed, each cell once, then the table of all."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ens10.experiments.commands import add_work_options, count, refuse_file, tells_errors
from ens10.experiments.demo import config_path
from ens10.experiments.matrix.cells import find_cells
from ens10.experiments.matrix.summary import write_summary
from ens10.experiments.matrix.work import Work, add_optimum
from ens10.experiments.matrix.worlds import WorldSize, store_of
from ens10.signals import stoppable

MODELS = ("raw", "emos_global", "emos_local", "mlp", "unet")


@tells_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 if a cell failed, or with one line on bad input."""
    options = _parse(arguments)
    for folder in (options.work, options.out):
        refuse_file(folder)
    seeds = range(options.seeds)
    configs = config_path("raw").parent
    where = (options.work, options.out, configs)
    cells = find_cells(options.models, seeds, *where, options.budget)
    for seed in seeds:
        store_of(options.work / f"seed{seed}", seed, _size(options))
    work = Work(cells, options.keep_older, options.threads)
    with stoppable():
        work.do_all(options.workers)
    for seed in seeds:
        add_optimum([cell for cell in cells if cell.seed == seed])
    for name, lines in work.failed.items():
        print(f"{name} failed:\n{lines}\n", file=sys.stderr)
    print(write_summary(options.out, options.models, seeds))
    return 1 if work.failed else 0


def _size(options: argparse.Namespace) -> WorldSize:
    first = WorldSize().years[0]
    years = tuple(range(first, first + options.years))
    return WorldSize(options.grid, years, options.dates)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ens10.experiments.matrix",
        description="Every model with every seed on synthetic worlds; resumable.",
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
