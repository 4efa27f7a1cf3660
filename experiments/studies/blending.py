"""What blends of two ensembles bring, with both on all dates and with one of them missing.

    python -m ens10.experiments.studies.blending WORK --stores A B --out OUT

The stores have forecasts of two models for the same dates, and the same truth. A method is trained
on each, and its two runs are blended on the test dates: with both, and with one of them missing on
every second date. Gains are on the run with the lower CRPS of all test dates; on the dates where it
is missing, on the other run. The coverage is that of central intervals of 80 %.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from jsonargparse import Namespace

from ens10.experiments.demo import config_path
from ens10.experiments.forecasts.blend import blend_runs
from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runner.tasks import Task, members_of
from ens10.experiments.runner.trainings import ModelCell, find_cells
from ens10.experiments.runs.reading import open_predictions
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.studies.json_cells import JsonCell, Result, read_json_cells
from ens10.experiments.studies.small_unet import compute_here
from ens10.experiments.studies.study import run_study, study_parser, with_bounds
from ens10.experiments.training.run import run_stage
from ens10.metrics import interval, score_states, summarise
from ens10.models.blending import Pool
from ens10.usage import reports_errors

NONE, RUNS = "none", ("A", "B")
HEADS = ("method", "forecast", "missing")


@dataclass(frozen=True)
class BlendCell(JsonCell):
    """One method: a run of each store, and all blends of the two.

    Args:
        stores: two, with one truth.
        task: of both, without the number of members.
        budget: of the trainings; None for the configurations' own lengths.
    """

    stores: tuple[Path, Path]
    task: Task
    budget: str | None = None

    def trainings(self) -> list[ModelCell]:
        """Return the training of the method on each store."""
        cells = []
        for name, store in zip(RUNS, self.stores, strict=True):
            members = members_of(store, self.task.target, self.task.step, self.task.protocol)
            task, configs = replace(self.task, members=members), config_path(self.variant).parent
            where = (self.work / name, self.out, configs, self.budget, task, store)
            cells += find_cells([self.variant], [self.seed], *where)
        return cells

    def current_key(self) -> Key:
        """Return the key, of which those of the trainings are a part."""
        keys = [cell.key for cell in self.trainings()]
        return key_of({"trainings": keys}, "-".join(key["data"] for key in keys))

    def result(self) -> Result:
        """Train, predict and blend; return the scores of the runs and blends."""
        runs = {}
        for name, cell in zip(RUNS, self.trainings(), strict=True):
            cell.fit()
            run_stage("predict", ["--run", str(cell.run), "--quiet"])
            runs[name] = cell.run
        scores = [{"forecast": name, "missing": NONE, **_scores(run)} for name, run in runs.items()]
        folder = self.scratch / self.variant
        folder.mkdir(parents=True, exist_ok=True)
        for missing in (NONE, *RUNS):
            sources = {**runs}
            if missing != NONE:
                sources[missing] = folder / f"half-{missing}.nc"
                _write_every_second_date(runs[missing], sources[missing])
            for pool in get_args(Pool):
                out = folder / f"{pool}-{missing}.zarr"
                weights = blend_runs(list(sources.values()), out, method=pool, force=True)
                facts = {"forecast": pool, "missing": missing, "weights": list(weights.values())}
                scores.append(facts | _scores(out))
        return {"variant": self.variant, "scores": scores}


def _write_every_second_date(run: Path, out: Path) -> None:
    forecast, truth = open_predictions(run)
    few = forecast.assign(truth=truth).isel(time=slice(None, None, 2))
    few.load().drop_encoding().to_netcdf(out)


def _scores(run: Path) -> Result:
    """Return the CRPS of each date, in order of time, and the coverage of 80 % intervals."""
    states = score_states(*open_predictions(run), ["crps", "coverage_0.8"]).sortby("time")
    crps = (states["crps_sum"] / states["crps_weight"]).to_numpy()
    return {
        "crps": [float(f"{value:.6g}") for value in crps],
        "coverage": round(float(summarise(states)["coverage_0.8"]), 4),
    }


def rows_of(results: Iterable[Result]) -> list[list[Any]]:
    """Return a row for each method and forecast: names, CRPS, gain with bounds, coverage."""
    rows: list[list[Any]] = []
    for result in results:
        crps = {
            (one["forecast"], one["missing"]): np.array(one["crps"]) for one in result["scores"]
        }
        better, other = sorted(RUNS, key=lambda name: crps[name, NONE].mean())
        for one in result["scores"]:
            own, reference = np.array(one["crps"]), crps[better, NONE].copy()
            if one["missing"] == better:
                reference[1::2] = crps[other, NONE][1::2]
            gain = interval(100 * (reference - own) / reference.mean())
            names = (result["variant"], one["forecast"], one["missing"])
            rows.append([*names, own.mean(), gain, one["coverage"]])
    return rows


def _write(options: Namespace, cells_folder: Path, _: Outcome) -> str:
    rows = rows_of(read_json_cells(cells_folder).values())
    gains = [with_bounds(r[4], ".2f") if r[4].lower < r[4].upper else "–" for r in rows]
    shown = [
        [*r[:3], f"{r[3]:.4f}", gain, f"{100 * r[5]:.1f}"]
        for r, gain in zip(rows, gains, strict=True)
    ]
    text = markdown_of(columns_of([*HEADS, "CRPS", "gain (%)", "coverage (%)"], shown, (0, 1, 2)))
    numbers = [[*r[:4], r[4].value, r[4].lower, r[4].upper, r[5]] for r in rows]
    heads = (*HEADS, "crps", "gain", "lower", "upper", "coverage")
    write_files(options.out, {"table.md": text, "table.csv": csv_of(heads, numbers, ".9g")})
    return text


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    parser = study_parser("blending", "What blends of two ensembles bring; resumable.")
    parser.add_argument("--stores", nargs=2, type=Path, required=True, metavar=RUNS)
    parser.add_argument("--methods", nargs="+", default=["raw", "emos_seasonal"], metavar="NAME")
    parser.add_argument("--inputs", nargs="+", default=[], metavar="NAME", help="of networks")
    parser.add_argument("--protocol", default="clean", help="name or YAML file")
    parser.add_argument("--budget", metavar="NAME", help="how long networks are trained")
    options = parser.parse_args(arguments)
    task = Task(options.protocol, inputs=tuple(options.inputs), step=48)
    where = (options.work, options.out, tuple(options.stores), task, options.budget)
    cells = [BlendCell(name, 0, *where) for name in options.methods]
    return run_study(options, partial(compute_here, cells), partial(_write, options))


if __name__ == "__main__":
    # by its name, as the cells of other studies: their classes are found there
    from ens10.experiments.studies import blending

    sys.exit(blending.main())
