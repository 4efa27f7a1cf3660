"""Trainings on several views of each date beside plain ones, on many dates and on few.

    python -m ens10.experiments.studies.views_of_dates FOLDER --out experiments/results/views

Each seed has a displaced world of its own. `convnext` is trained on 260 dates and on the last 65 of
these, with the same validation and test dates. Views are random halves of the members
(`ens10.loader.Views`). The trainings differ in computation: with the same dates in a batch, views
take as many epochs and steps as the plain training and `number` times the computation, as the plain
training with `number` times the epochs does. With fewer dates in a batch and fewer epochs, they
take its steps and computation. Rolled and mirrored views need a training without the location. The
learning rate decays as much in each. The study is resumable: trainings that have scores are not
repeated.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ens10.convert import prepare
from ens10.experiments.demo import config_path
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runs.commands import refuse_file
from ens10.experiments.scoring.run_results import SCORES, read_run
from ens10.experiments.scoring.score import score_run
from ens10.experiments.scoring.tables import score_table
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.studies.small_unet import change_of
from ens10.experiments.training.run import run_stage
from ens10.synthetic import World
from ens10.usage import command_parser, count, reports_errors

GRID, STEP, VARIABLES = "17x32", 48, ("t2m", "u10", "v10")
YEARS, DATES = range(1992, 2018), 13  # a year
TEST, VALIDATION, FEW = 4, 2, 5  # years; training years of the smaller data
EPOCHS, BATCH, DECAY = 12, 4, 0.8**12  # DECAY: of the learning rate over a training
MEMBERS = 5  # of ten


@dataclass(frozen=True)
class Training:
    """How a training differs from the plain one.

    Attributes:
        views: of each date.
        batch: dates in a batch.
        factor: of the epochs of the plain training.
        has_location: False to leave out the features of the location.
        moved: what views also do, "roll" or "mirror"; None for no more.
    """

    views: int = 1
    batch: int = BATCH
    factor: float = 1
    has_location: bool = True
    moved: str | None = None


TRAININGS = {
    "plain": Training(),
    "plain, 4 times the epochs": Training(factor=4),
    "2 views, equal epochs and steps": Training(2),
    "4 views, equal epochs and steps": Training(4),
    "4 views, equal steps and computation": Training(4, BATCH // 4, 0.25),
    "plain, no location": Training(has_location=False),
    "2 views, no location": Training(2, has_location=False),
    "2 views, mirrored, no location": Training(2, has_location=False, moved="mirror"),
    "2 views, rolled, no location": Training(2, has_location=False, moved="roll"),
}


def crps_of(folder: Path, seed: int, years: Sequence[int], name: str, epochs: int) -> float:
    """Train, predict and score, unless that is done, and return the CRPS on the test dates.

    Args:
        folder: of the world of the seed, its store and runs.
        seed: of the world and of the training.
        years: of the training.
        name: of the training.
        epochs: of the plain training.
    """
    store, world = folder / "store.zarr", folder / "world"
    if not store.exists():
        made = World(GRID, YEARS, DATES, VARIABLES, seed, steps=(STEP,), kind="displaced")
        made.write_once(world)
        prepare(world, store, truth=world / "truth")
    run = folder / f"{len(years)}years-{name.replace(',', '').replace(' ', '_')}"
    if not (run / SCORES).exists():
        options = ["--resume"]
        if not (run / "config.yaml").exists():
            protocol = folder / f"{len(years)}years.yaml"
            splits = f"test: {TEST}\nval: {VALIDATION}\ntrain: {list(years)}\n"
            protocol.write_text(f"name: {protocol.stem}\n{splits}")
            options = [f"--data.store={store}", f"--data.protocol={protocol}"]
            options += [f"--seed_everything={seed}", *_options(name, epochs)]
        run_stage("fit", [*options, f"--run={run}", "--quiet"])
        run_stage("predict", [f"--run={run}", "--quiet"])
        score_run(run)
    return score_table([read_run(run)])[0].crps.value


def _options(name: str, epochs: int) -> list[str]:
    """Return the options of a training that do not depend on its data."""
    training = TRAININGS[name]
    length = max(1, round(epochs * training.factor))
    options = [f"--config={config_path('convnext')}", f"--data.inputs=[{','.join(VARIABLES)}]"]
    options += [f"--data.batch_size={training.batch}", f"--trainer.max_epochs={length}"]
    options += [f"--model.scheduler.gamma={DECAY ** (1 / length)}"]
    if not training.has_location:
        options += ["--data.extras=[]"]
    if training.views > 1:
        options += ["--data.kind=ens10.loader.Views", f"--data.kind.members={MEMBERS}"]
        options += [f"--data.kind.number={training.views}"]
        options += [f"--data.kind.{training.moved}=true"] if training.moved else []
    return options


def tables(crps: dict[tuple[int, str], list[float]]) -> dict[str, str]:
    """Return the tables of CRPS and of its difference from the plain training, over the seeds.

    Args:
        crps: of each seed, by number of training dates and name of the training.
    """
    cells, plain = [], []
    for (dates, name), values in crps.items():
        words = change_of(values, crps[dates, "plain"])
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
    last = max(YEARS) - TEST - VALIDATION
    crps = {
        (len(years) * DATES, name): [
            crps_of(
                options.folder / f"seed{seed}-epochs{options.epochs}",
                seed,
                years,
                name,
                options.epochs,
            )
            for seed in range(options.seeds)
        ]
        for years in (range(min(YEARS), last + 1), range(last - FEW + 1, last + 1))
        for name in TRAININGS
    }
    files = tables(crps)
    write_files(options.out, files)
    print(files["table.md"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
