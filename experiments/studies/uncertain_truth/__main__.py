"""The command: methods at made-up stations; with `--store`, models on prepared data."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from jsonargparse import Namespace

from ens10.errors import ArgumentError
from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runner.tasks import Task
from ens10.experiments.runs.commands import add_work_options, refuse_file
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.studies.experts.cells import INPUTS
from ens10.experiments.studies.study import compute, run_study
from ens10.experiments.studies.uncertain_truth import stations, tables
from ens10.experiments.studies.uncertain_truth.cells import analysis_cells
from ens10.usage import command_parser, count, reports_errors

MODELS = (
    *("raw", "raw_normal", "emos_local", "emos_seasonal", "emos_neighbours"),
    *("unet", "location_unet", "transformer_neighbours"),
)
_HEADS = ("error of the analysis", "scored against")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Write and print the tables; exit status 1 if a cell failed, or with one line on bad input."""
    parser = command_parser("python -m ens10.experiments.studies.uncertain_truth")
    parser.add_argument("out", type=Path, help="folder of the tables")
    parser.add_argument("--store", type=Path, help="prepared data with the true state")
    parser.add_argument("--work", type=Path, help="with --store: folder of analyses and runs")
    parser.add_argument("--target", default="t2m", choices=("t2m", "t850", "z500"))
    parser.add_argument("--step", type=count, default=48, metavar="HOURS")
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="NAME")
    parser.add_argument("--inputs", nargs="+", default=list(INPUTS), metavar="NAME")
    parser.add_argument("--seeds", type=count, default=1, help="trainings of each network")
    add_work_options(parser)
    options = parser.parse_args(arguments)
    if options.store is None:
        return _write_stations(options)
    if options.work is None:
        raise ArgumentError("--work", "is missing", "Name the folder of analyses and runs")
    return run_study(options, partial(_run, options), partial(_write, options))


def _write_stations(options: Namespace) -> int:
    refuse_file(options.out)
    heads, rows = [*_HEADS, *stations.METHODS], stations.station_rows()
    shown = [[*map(str, row[:2]), *(f"{x:.3f}" for x in row[2:])] for row in rows]
    text = markdown_of(columns_of(heads, shown, text=[0, 1]))
    write_files(options.out, {"table.md": text, "table.csv": csv_of(heads, rows)})
    print(text)
    return 0


def _run(options: Namespace) -> Outcome:
    task = Task(target=options.target, inputs=tuple(options.inputs), step=options.step)
    where = options.store, options.work, options.out
    cells = analysis_cells(*where, options.models, options.seeds, task, options.budget)
    return compute(cells, options)


def _write(options: Namespace, cells_folder: Path, _: Outcome) -> str:
    scores = tables.read_scores(cells_folder)
    models = tables.ranking(scores[tables.TRUE])[::-1]
    orders, changes = tables.order_rows(scores)
    files = {}
    for name, heads, rows, text in (
        ("table", (*_HEADS, *models), tables.crps_rows(scores), (0, 1)),
        ("order", tables.ORDER_HEADINGS, orders, (0, 1, 5)),
        ("changes", tables.CHANGE_HEADINGS, changes, (0, 1, 2, 4, 10)),
    ):
        files[f"{name}.md"] = markdown_of(columns_of(heads, rows, text))
        files[f"{name}.csv"] = csv_of(heads, rows)
    write_files(options.out, files)
    return "\n".join(text for name, text in files.items() if name.endswith(".md"))


if __name__ == "__main__":
    sys.exit(main())
