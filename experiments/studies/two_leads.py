"""One training of two lead times beside a training of each, on a small synthetic world.

    python -m ens10.experiments.studies.two_leads FOLDER --out experiments/results/two_leads

The study is resumable: trainings that have scores are not repeated. `mlp` is trained on t2m at
24 h, at 48 h, and at both, with as many epochs (twice the steps) and with half of them (as many
steps).
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ens10.convert import prepare
from ens10.experiments.demo import config_path
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runs.commands import refuse_file
from ens10.experiments.runs.reading import run_parts
from ens10.experiments.scoring.run_results import SCORES, read_run
from ens10.experiments.scoring.score import score_run
from ens10.experiments.scoring.tables import score_table
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.studies.study import with_bounds
from ens10.experiments.training.run import run_stage
from ens10.synthetic import World
from ens10.usage import command_parser, count, reports_errors

STEPS = (24, 48)
YEARS, DATES, EPOCHS = range(2000, 2010), 26, 12
GRID, INPUTS = "16x32", "[t2m, u10]"
_RAW, _ALONE, _BOTH, _HALF = "raw", "a run of this lead time", "one run of both", "half its epochs"
_CHANNELS = 9  # mean and spread of the inputs, location, day of the year; the lead time is one more


def fit_all(folder: Path, epochs: int = EPOCHS, seed: int = 0) -> dict[str, dict[int, Path]]:
    """Make the world, its store and the scored runs, except those that are complete.

    Args:
        folder: of world, store and runs.
        epochs: of the trainings.
        seed: of the world and of the trainings.

    Returns:
        The scored folder of each training at each lead time.
    """
    if (epochs, seed) != (EPOCHS, 0):
        folder = folder / f"seed{seed}-epochs{epochs}"  # nothing of another study is taken for it
    store, world = folder / "store.zarr", folder / "world"
    if not store.exists():
        variables = ["t2m", "u10"]
        leads = World(GRID, YEARS, DATES, variables, seed, steps=STEPS, truth_steps=STEPS)
        leads.write_once(world)
        prepare(world, store, truth=world / "truth")

    def run(name: str, config: str, steps: object, length: int) -> list[Path]:
        return _run(folder / name, store, config, str(steps), length, seed)

    folders: dict[str, dict[int, Path]] = {
        _RAW: {step: run(f"raw-{step}h", "raw", step, 1)[0] for step in STEPS},
        _ALONE: {step: run(f"mlp-{step}h", "mlp", step, epochs)[0] for step in STEPS},
    }
    for name, place, length in ((_BOTH, "both", epochs), (_HALF, "both-half", max(1, epochs // 2))):
        parts = run(place, "mlp", list(STEPS), length)
        folders[name] = dict(zip(STEPS, parts, strict=True))
    return folders


def _run(run: Path, store: Path, config: str, steps: str, epochs: int, seed: int) -> list[Path]:
    """Fit, predict and score one run; return its folders of each lead time."""
    silent = ["--run", str(run), "--quiet"]
    if not all((folder / SCORES).exists() for folder in run_parts(run)):
        if not (run / "config.yaml").exists():
            options = ["--config", str(config_path(config)), "--data.store", str(store)]
            options += ["--data.step", steps, "--seed_everything", str(seed)]
            if config != "raw":
                channels = _CHANNELS + steps.startswith("[")
                options += ["--model.network.in_channels", str(channels), "--data.inputs", INPUTS]
                options += ["--data.extras", "[location, day_of_year]"]
                options += ["--trainer.max_epochs", str(epochs)]
            run_stage("fit", [*options, *silent])
        else:
            run_stage("fit", [*silent, "--resume"])
        run_stage("predict", silent)
        for folder in run_parts(run):
            score_run(folder)
    return run_parts(run)


def tables(folders_by_training: Mapping[str, Mapping[int, Path]]) -> dict[str, str]:
    """Return the table of CRPS by lead time and training, as Markdown and as CSV.

    Args:
        folders_by_training: the scored folder of each training at each lead time.
    """
    cells, plain = [], []
    for step in STEPS:
        rows = [score_table([read_run(by[step])])[0] for by in folders_by_training.values()]
        cells.append([f"{step} h", *(with_bounds(row.crps, ".3f") for row in rows)])
        for name, row in zip(folders_by_training, rows, strict=True):
            crps = row.crps
            plain.append([step, name, crps.value, crps.lower, crps.upper, row.dates])
    heads = ("step", "training", "crps", "crps_low", "crps_high", "dates")
    return {
        "table.md": markdown_of(columns_of(["lead time", *folders_by_training], cells)),
        "table.csv": csv_of(heads, plain, ".9g"),
    }


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = command_parser("python -m ens10.experiments.studies.two_leads")
    parser.add_argument("folder", type=Path, help="for data and runs")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--epochs", type=count, default=EPOCHS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    for folder in (options.folder, options.out):
        refuse_file(folder)
    files = tables(fit_all(options.folder, options.epochs, options.seed))
    write_files(options.out, files)
    print(files["table.md"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
