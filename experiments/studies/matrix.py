"""Many models with many seeds on synthetic worlds or prepared data, then a table for each target.

python -m ens10.experiments.studies.matrix WORK --out OUT --seeds 3
"""

import csv
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import inf
from pathlib import Path
from typing import get_args

from jsonargparse import Namespace

from ens10.errors import listing
from ens10.experiments.demo import config_path
from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tables import TABLE, write_files, write_summary
from ens10.experiments.runner.tasks import DEFAULT_TASK, Task, WorldSize, config_of, store_of
from ens10.experiments.runner.trainings import (
    OPTIMUM,
    ModelCell,
    find_cells,
    keep_optimum,
    place_of,
)
from ens10.experiments.runner.tries import as_markdown, best_of, reuse, tries_of, with_rate
from ens10.experiments.runs.commands import add_world_options, world_options_of
from ens10.experiments.studies.study import compute, run_study, study_parser
from ens10.synthetic.world import WorldKind
from ens10.usage import count, positive, reports_errors

MODELS = ("raw", "emos_global", "emos_local", "mlp", "unet")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    options = _parse(arguments)
    inputs, targets = tuple(options.inputs), dict.fromkeys(options.targets)
    options.models = list(dict.fromkeys(options.models))
    for model in options.models:  # a wrong name fails before worlds are made
        config_of(model, config_path("raw").parent)
    tasks = [Task(target=target, inputs=inputs, step=options.step) for target in targets]
    return run_study(
        options, partial(_run, options, tasks), partial(_write, options, tasks), of_call=True
    )


def _write(options: Namespace, tasks: Sequence[Task], cells_folder: Path, outcome: Outcome) -> str:
    for name, reason in outcome.missing.items():
        print(f"{name} is not in the table: {reason}", file=sys.stderr)
    texts, same_data = [], options.store is not None
    for task in tasks:
        name = f"{TABLE}-{task.target}" if task.folder else TABLE
        folder = cells_folder / task.folder
        if options.tables:
            _report_missing(folder, options.models, options.seeds, name, same_data=same_data)
        earlier_models = _models_in(options.out / f"{name}.csv")
        models, seeds = options.models, range(options.seeds)
        texts.append(write_summary(options.out, folder, models, seeds, name, same_data=same_data))
        if dropped := sorted(earlier_models - {*models, OPTIMUM}):
            reason = f"the earlier {name} had rows of {listing(dropped)}, this one has none"
            print(f"{reason}; to have them too, name them in --models", file=sys.stderr)
    return "\n".join(texts)


def _run(options: Namespace, tasks: Sequence[Task]) -> Outcome:
    seeds, configs = range(options.seeds), config_path("raw").parent
    where = (options.work, options.out, configs, options.budget)
    size = WorldSize.from_options(**world_options_of(options))
    cells: list[ModelCell] = []
    for seed in seeds:
        if options.store is None:
            store_of(options.work / f"seed{seed}", seed, size)
        for task in tasks:
            # without a task the configuration is taken as it is, as earlier cells were
            is_usual = task == DEFAULT_TASK and not options.store and size.world == "pointwise"
            cells += find_cells(
                options.models, [seed], *where, None if is_usual else task, options.store
            )
    if options.store is not None:
        # on the same data, methods without random numbers give the same result with every seed
        cells = [cell for cell in cells if cell.seed == 0 or cell.has_network]
    tuning = Outcome()
    if options.tries:
        cells, tuning = _tune(options, cells)
    outcome = compute(cells, options)
    if options.store is None:
        for _, group in groupby(cells, lambda cell: (cell.seed, cell.task)):
            keep_optimum(list(group))
    optima = {place_of(task, n, OPTIMUM) for task in tasks for n in range(options.seeds)}
    return replace(
        outcome,
        places=(outcome.places or frozenset()) | optima,
        missing={**tuning.missing, **outcome.missing},
        failed=outcome.failed or tuning.failed,
    )


def _report_missing(
    folder: Path, models: Sequence[str], seeds: int, name: str, *, same_data: bool
) -> None:
    """Print the models without kept cells, or with cells of some seeds only."""
    for model in models:
        kept = sum((folder / f"seed{seed}" / model).is_dir() for seed in range(seeds))
        if kept == 0:
            print(f"{model} is not in {name}: no cell of it is kept", file=sys.stderr)
        elif kept < seeds and not same_data:
            text = f"{model} in {name}: cells of {kept} of {seeds} seeds are kept"
            print(text, file=sys.stderr)


def _models_in(table: Path) -> set[str]:
    """Return the names of the models in the rows of a CSV table; none if the file is missing."""
    if not table.is_file():
        return set()
    with table.open(newline="") as file:
        return {row["model"] for row in csv.DictReader(file) if row.get("model")}


def _tune(options: Namespace, cells: list[ModelCell]) -> tuple[list[ModelCell], Outcome]:
    """Try learning rates; return the trainings with the best ones, and which of them must wait.

    A network is left out while another process is at one of its tries, which may be the best.
    """
    rates = tries_of([cell for cell in cells if cell.seed == 0], options.tries)
    outcome = compute([one for tries in rates.values() for one in tries], options)
    older = options.keep_older
    waiting = {
        (cell.model, cell.task): f"{one.name} is left to {outcome.owners[one.name]}"
        for cell, tries in rates.items()
        for one in tries
        if one.name in outcome.owners and one.loss(older=older) == inf
    }
    missing = {
        cell.name: waiting[cell.model, cell.task]
        for cell in cells
        if (cell.model, cell.task) in waiting
    }
    factors = {(c.model, c.task): best_of(t, older=older) for c, t in rates.items()}
    tuned_cells = []
    for cell in cells:
        if cell.name in missing:
            continue
        best_try = factors.get((cell.model, cell.task))
        tuned_cells.append(with_rate(cell, best_try.factor) if best_try else cell)
        if best_try and cell.seed == 0:
            reuse(best_try, tuned_cells[-1])
    for task, group in groupby(rates, lambda cell: cell.task):
        name = f"tries-{task.target}" if task and task.folder else "tries"
        path = options.out / f"{name}.md"
        earlier = path.read_text() if path.is_file() else ""
        text = as_markdown({cell: rates[cell] for cell in group}, earlier, older=older)
        write_files(options.out, {path.name: text})
    return tuned_cells, Outcome(missing=missing, failed=outcome.failed)


def _parse(arguments: Sequence[str] | None) -> Namespace:
    text = "Every model with every seed on synthetic worlds or prepared data; resumable."
    parser = study_parser("matrix", text)
    text = f"rows of the tables, which have no others (default: {' '.join(MODELS)})"
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="NAME", help=text)
    parser.add_argument("--targets", nargs="+", default=["t2m"], metavar="NAME")
    text = "channels that every model sees (default: those of its configuration)"
    parser.add_argument("--inputs", nargs="+", default=[], metavar="NAME", help=text)
    parser.add_argument("--seeds", type=count, default=3)
    parser.add_argument("--world", choices=get_args(WorldKind), help="default: pointwise")
    parser.add_argument("--store", type=Path, help="prepared data of all seeds, instead of worlds")
    text = "factors of each network's learning rate; validation with the first seed chooses"
    parser.add_argument("--tries", nargs="+", type=positive, default=[], metavar="X", help=text)
    text = "lead time of the target, h, if there is truth at several"
    parser.add_argument("--step", type=int, metavar="HOURS", help=text)
    add_world_options(parser)
    parser.add_argument("--budget", metavar="NAME", help="how long to train, as five_minutes")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
