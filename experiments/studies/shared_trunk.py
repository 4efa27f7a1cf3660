"""Deep ensembles with a shared trunk beside one network and a full ensemble: gain and cost.

    python -m ens10.experiments.studies.shared_trunk WORK --out experiments/results/shared_trunk

Each seed has a displaced world of its own (three variables at 48 h). All trainings have the same
network, members, batches and learning rates. One network, the full ensemble, and two ensembles with
a shared trunk have the same number of epochs; a date of an epoch trains all members of the full
ensemble and one member of a shared trunk. A third shared trunk has as many epochs as members, so
that each of these sees a date as often as in the full ensemble, and so has a single network, whose
training costs as much as the full ensemble. The study is resumable, a training at a time.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from jsonargparse import Namespace

from ens10.convert import prepare
from ens10.experiments.demo import config_path
from ens10.experiments.forecasts.bundle import read_parts
from ens10.experiments.forecasts.weights import build_modules, load_weights
from ens10.experiments.planning.rates import random_batch
from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runner.trainings import ModelCell, read_cell
from ens10.experiments.scoring.contrasts import over_worlds
from ens10.experiments.scoring.run_results import mean_score
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.studies.study import compute, run_study, study_parser
from ens10.synthetic import World
from ens10.usage import count, reports_errors

YEARS, DATES, INPUTS = range(1998, 2008), 40, ("t2m", "u10", "v10")
MEMBERS, BATCH, EPOCHS = 5, 4, 8
ONE, FULL = "one network", "full ensemble"
# configuration, its further options, and the epochs as a multiple of those of the others
TRAININGS: dict[str, tuple[str, tuple[str, ...], int]] = {
    ONE: ("location_unet", (), 1),
    "shared, heads": ("shared_trunk", ("--model.init_args.scales=false",), 1),
    "shared, heads and scales": ("shared_trunk", (), 1),
    FULL: ("deep_ensemble", (f"--model.init_args.size={MEMBERS}",), 1),
    f"shared, heads and scales, {MEMBERS} times the epochs": ("shared_trunk", (), MEMBERS),
    f"{ONE}, {MEMBERS} times the epochs": ("location_unet", (), MEMBERS),
}
COSTS, _PASSES = "inference.json", 5
_HEADS = ("training", "CRPS (K)", "gain on one network (%)", "share of the full gain (%)")
_COSTS = ("parameters", "training (s)", "share of the full cost (%)", "inference (ms a date)")


@dataclass(frozen=True)
class TrunkCell(ModelCell):
    """A training with one seed, whose inference is timed, too."""

    def finish(self) -> dict[str, bytes]:
        """Predict, score and time a trained model; return the files to keep."""
        seconds = seconds_a_date(self.run)
        return {**super().finish(), COSTS: json.dumps({"seconds_a_date": seconds}).encode()}


def seconds_a_date(run: Path) -> float:
    """Return the processor time of a trained model's forecast for a date, least of some passes."""
    parts = read_parts(run)
    model, _ = build_modules(run, parts.config)
    numbers = parts.config["model"]["init_args"]["network"]["init_args"]
    grid = (numbers["grid"][0], numbers["grid"][1])
    load_weights(model, run, parts.weights, grid)
    batch = random_batch(parts.config["data"], numbers["in_channels"], grid, BATCH, 0)
    times = []
    with torch.inference_mode():
        for _ in range(_PASSES):
            start = time.process_time()
            model.eval()(batch)
            times.append(time.process_time() - start)
    return min(times) / BATCH


def run_trainings(options: Namespace) -> Outcome:
    """Compute the missing trainings of a seed after those of the other; make its world before.

    The long trainings are last: without them the table is complete but for two rows.
    """
    outcomes = []
    for times, seed in product((1, MEMBERS), range(options.seeds)):
        _make_store(options.work / f"seed{seed}", seed, options.grid)
        names = [name for name in TRAININGS if TRAININGS[name][2] == times]
        cells = [_cell(name, seed, options) for name in names if name in options.trainings]
        outcomes.append(compute(cells, options))
    return Outcome(failed=any(outcome.failed for outcome in outcomes))


def _cell(name: str, seed: int, options: Namespace) -> TrunkCell:
    config, further, times = TRAININGS[name]
    common = (f"--data.inputs=[{','.join(INPUTS)}]", f"--data.batch_size={BATCH}")
    overrides = (*common, *further, f"--trainer.max_epochs={times * options.epochs}")
    paths = (config_path(config), options.work, options.out)
    return TrunkCell(_folder(name), seed, *paths, overrides)


def _make_store(folder: Path, seed: int, grid: str) -> None:
    if not (folder / "store.zarr").exists():
        made = World(grid, YEARS, DATES, INPUTS, seed, steps=(48,), kind="displaced")
        made.write_once(folder / "world")
        prepare(folder / "world", folder / "store.zarr", truth=folder / "world" / "truth")


def _folder(name: str) -> str:
    return name.replace(",", "").replace(" ", "_")


def write_tables(out: Path, cells_folder: Path) -> str:
    """Write the table of the kept cells, means over seeds with 95 % bounds (Student's t)."""
    numbers = {name: _numbers(cells_folder, name) for name in TRAININGS}
    numbers = {name: of_seeds for name, of_seeds in numbers.items() if of_seeds}
    rows = [_row(name, numbers) for name in numbers if ONE in numbers and FULL in numbers]
    plain = [[name, seed, *row] for name, rows in numbers.items() for seed, row in rows.items()]
    heads = ("training", "seed", "crps", "parameters", "cpu_seconds", "inference_seconds")
    text = markdown_of(columns_of([*_HEADS, *_COSTS], rows))
    write_files(out, {"table.md": text, "table.csv": csv_of(heads, plain, ".9g")})
    return text


def _numbers(folder: Path, name: str) -> dict[int, list[float]]:
    """Return CRPS, parameters, and processor seconds of fit and forecast, by seed."""
    numbers = {}
    for place in sorted(folder.glob(f"seed*/{_folder(name)}")):
        run, seed = read_cell(place), int(place.parent.name.removeprefix("seed"))
        inference = json.loads((place / COSTS).read_text())["seconds_a_date"]
        costs = [float(run.provenance[key]) for key in ("parameters", "cpu_seconds")]
        numbers[seed] = [mean_score(run.states, "crps"), *costs, inference]
    return numbers


def _row(name: str, numbers: Mapping[str, Mapping[int, Sequence[float]]]) -> list[str]:
    seeds = sorted(set(numbers[name]) & set(numbers[ONE]) & set(numbers[FULL]))
    own, one, full = (np.array([numbers[n][s] for s in seeds]) for n in (name, ONE, FULL))
    gain, most = (100 * (1 - part[:, 0] / one[:, 0]) for part in (own, full))
    crps, parameters, cpu, inference = own.mean(0)
    words = ["–", "–"] if name == ONE else [_with_bounds(gain, ".2f")]
    words += [] if name == ONE else ["100" if name == FULL else _with_bounds(100 * gain / most)]
    cost = 100 * cpu / full[:, 2].mean()
    costs = [f"{parameters:,.0f}", f"{cpu:.0f}", f"{cost:.0f}", f"{1000 * inference:.1f}"]
    return [name, f"{crps:.4f}", *words, *costs]


def _with_bounds(values: np.ndarray, form: str = ".0f") -> str:
    """Return the mean over seeds with bounds as text; without them for one seed."""
    if len(values) < 2:
        return format(values[0], form)
    found = over_worlds([values[n : n + 1] for n in range(len(values))])
    value, lower, upper = (format(x, form) for x in (found.value, found.lower, found.upper))
    return f"{value} [{lower}, {upper}]"


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a training failed."""
    text = "Ensembles with a shared trunk beside one network and a full ensemble; resumable."
    parser = study_parser("shared_trunk", text)
    parser.add_argument("--trainings", nargs="+", choices=TRAININGS, default=list(TRAININGS))
    parser.add_argument("--epochs", type=count, default=EPOCHS, help="of one network")
    parser.add_argument("--seeds", type=count, default=3)
    parser.add_argument("--grid", metavar="HxW", default="46x96", help="of the worlds")
    options = parser.parse_args(arguments)
    return run_study(
        options,
        lambda: run_trainings(options),
        lambda folder, _: write_tables(options.out, folder),
    )


if __name__ == "__main__":
    # by its name: the processes of cells import the class of the cells from there
    from ens10.experiments.studies import shared_trunk

    sys.exit(shared_trunk.main())
