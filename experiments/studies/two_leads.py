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
from ens10.experiments.commands import refuse_file
from ens10.experiments.demo import config_path
from ens10.experiments.reading import parts_of
from ens10.experiments.run import run_stage
from ens10.experiments.run_results import SCORES, read_run
from ens10.experiments.runner.tables import write_files
from ens10.experiments.score import score_run
from ens10.experiments.tables import Row, score_table
from ens10.experiments.writers import columns_of, csv_of, markdown_of
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
    both_steps = "[24, 48]"
    folders: dict[str, dict[int, Path]] = {_RAW: {}, _ALONE: {}}
    for step in STEPS:
        folders[_RAW][step] = _run(folder / f"raw-{step}h", store, "raw", str(step), 1, seed)[0]
        alone = _run(folder / f"mlp-{step}h", store, "mlp", str(step), epochs, seed)
        folders[_ALONE][step] = alone[0]
    for name, run, length in ((_BOTH, "both", epochs), (_HALF, "both-half", max(1, epochs // 2))):
        parts = _run(folder / run, store, "mlp", both_steps, length, seed)
        folders[name] = dict(zip(STEPS, parts, strict=True))
    return folders


def _run(run: Path, store: Path, config: str, steps: str, epochs: int, seed: int) -> list[Path]:
    """Fit, predict and score one run; return its folders of each lead time."""
    silent = ["--run", str(run), "--quiet"]
    if not all((folder / SCORES).exists() for folder in parts_of(run)):
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
        for folder in parts_of(run):
            score_run(folder)
    return parts_of(run)


def tables(folders_by_training: Mapping[str, Mapping[int, Path]]) -> dict[str, str]:
    """Return the table of CRPS by lead time and training, as Markdown and as CSV.

    Args:
        folders_by_training: the scored folder of each training at each lead time.
    """
    rows: dict[tuple[str, int], Row] = {}
    for step in STEPS:
        for name, folders in folders_by_training.items():
            rows[name, step] = score_table([read_run(folders[step])])[0]
    cells = [
        [f"{step} h", *(_text(rows[name, step]) for name in folders_by_training)] for step in STEPS
    ]
    plain = [
        [step, name, row.crps.value, row.crps.lower, row.crps.upper, row.dates]
        for (name, step), row in sorted(rows.items(), key=lambda item: item[0][1])
    ]
    heads = ("step", "training", "crps", "crps_low", "crps_high", "dates")
    return {
        "table.md": markdown_of(columns_of(["lead time", *folders_by_training], cells)),
        "table.csv": csv_of(heads, plain, ".9g"),
    }


def _text(row: Row) -> str:
    crps = row.crps
    return f"{crps.value:.3f} [{crps.lower:.3f}, {crps.upper:.3f}]"


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
