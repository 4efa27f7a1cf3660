"""Trainings on several views of each date beside plain ones, on many dates and on few.

    python -m ens10.experiments.studies.views_of_dates FOLDER --out experiments/results/views

Each seed has a displaced world of its own. `convnext` is trained on 260 dates and on the last 65 of
these, with the same validation and test dates. Views are random halves of the members
(`ens10.loader.Views`). The trainings differ in computation: with the same dates in a batch, views
take as many epochs and steps as the plain training and `number` times the computation, as the plain
training with `number` times the epochs does. With fewer dates in a batch and fewer epochs, they
take its steps and computation. The learning rate decays as much in each. The study is resumable:
trainings that have scores are not repeated.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ens10.convert import prepare
from ens10.experiments.demo import config_path
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runs.commands import refuse_file
from ens10.experiments.scoring.run_results import SCORES, read_run
from ens10.experiments.scoring.score import score_run
from ens10.experiments.scoring.tables import score_table
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.training.run import run_stage
from ens10.synthetic import World
from ens10.usage import command_parser, count, reports_errors

GRID, STEP, VARIABLES = "17x32", 48, ("t2m", "u10", "v10")
YEARS, DATES = range(1992, 2018), 13  # a year
TEST, VALIDATION, FEW = 4, 2, 5  # years; training years of the smaller data
EPOCHS, BATCH, DECAY = 12, 4, 0.8**12  # DECAY: of the learning rate over a training
MEMBERS = 5  # of ten


class Training(NamedTuple):
    """A training on views, or a plain one with one view.

    Attributes:
        name: in the table.
        views: of each date.
        batch: dates in a batch.
        length: epochs, as a factor of those of the plain training.
    """

    name: str
    views: int
    batch: int
    length: float


TRAININGS = (
    Training("plain", 1, BATCH, 1),
    Training("plain, 4 times the epochs", 1, BATCH, 4),
    Training("2 views, equal epochs and steps", 2, BATCH, 1),
    Training("4 views, equal epochs and steps", 4, BATCH, 1),
    Training("4 views, equal steps and computation", 4, BATCH // 4, 0.25),
)


def crps_of(
    folder: Path, seed: int, few: bool, training: Training, epochs: int
) -> tuple[float, int]:
    """Train, predict and score, unless that is done, and return CRPS and number of training dates.

    Args:
        folder: of the world of the seed, its store and runs.
        seed: of the world and of the training.
        few: True to train on the last `FEW` training years alone.
        training: what is trained.
        epochs: of the plain training.
    """
    store, world = folder / "store.zarr", folder / "world"
    if not store.exists():
        made = World(GRID, YEARS, DATES, VARIABLES, seed, steps=(STEP,), kind="displaced")
        made.write_once(world)
        prepare(world, store, truth=world / "truth")
    last = max(YEARS) - TEST - VALIDATION
    years = list(range(last - FEW + 1 if few else min(YEARS), last + 1))
    run = folder / f"{len(years)}years-{training.name.replace(',', '').replace(' ', '_')}"
    silent = ["--run", str(run), "--quiet"]
    if not (run / SCORES).exists():
        options = ["--resume"]
        if not (run / "config.yaml").exists():
            options = _options(store, folder / f"{len(years)}years.yaml", years, training, epochs)
            options += ["--seed_everything", str(seed)]
        run_stage("fit", [*options, *silent])
        run_stage("predict", silent)
        score_run(run)
    return score_table([read_run(run)])[0].crps.value, len(years) * DATES


def _options(
    store: Path, protocol: Path, years: list[int], training: Training, epochs: int
) -> list[str]:
    """Return the options of a training; write its protocol."""
    protocol.write_text(f"name: {protocol.stem}\ntest: {TEST}\nval: {VALIDATION}\ntrain: {years}\n")
    length = max(1, round(epochs * training.length))
    values = {
        "config": config_path("convnext"),
        "data.store": store,
        "data.protocol": protocol,
        "data.inputs": f"[{', '.join(VARIABLES)}]",
        "data.batch_size": training.batch,
        "trainer.max_epochs": length,
        "model.scheduler.gamma": DECAY ** (1 / length),
    }
    if training.views > 1:
        values |= {"data.kind": "ens10.loader.Views", "data.kind.members": MEMBERS}
        values |= {"data.kind.number": training.views}
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def tables(crps: dict[tuple[int, str], list[float]]) -> dict[str, str]:
    """Return the tables of CRPS and of its difference from the plain training, over the seeds.

    Args:
        crps: of each seed, by number of training dates and name of the training.
    """
    cells, plain = [], []
    for (dates, name), values in crps.items():
        reference = np.array(crps[dates, TRAININGS[0].name])
        change = 100 * (np.array(values) / reference - 1)
        words = f"{change.mean():+.2f} ({change.min():+.2f} to {change.max():+.2f})"
        cells.append([str(dates), name, f"{np.mean(values):.4f}", words])
        plain += [[dates, name, seed, value] for seed, value in enumerate(values)]
    heads = ["training dates", "training", "CRPS (K)", "change from plain in % (of the seeds)"]
    return {
        "table.md": markdown_of(columns_of(heads, cells)),
        "table.csv": csv_of(("dates", "training", "seed", "crps"), plain, ".9g"),
    }


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = command_parser("python -m ens10.experiments.studies.views_of_dates")
    parser.add_argument("folder", type=Path, help="for data and runs")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--epochs", type=count, default=EPOCHS, help="of the plain training")
    parser.add_argument("--seeds", type=count, default=3)
    options = parser.parse_args(arguments)
    for folder in (options.folder, options.out):
        refuse_file(folder)
    crps: dict[tuple[int, str], list[float]] = {}
    for few in (False, True):
        for training in TRAININGS:
            for seed in range(options.seeds):
                folder = options.folder / f"seed{seed}-epochs{options.epochs}"
                value, dates = crps_of(folder, seed, few, training, options.epochs)
                crps.setdefault((dates, training.name), []).append(value)
    files = tables(crps)
    write_files(options.out, files)
    print(files["table.md"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
