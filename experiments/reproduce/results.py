"""The scores of the cells that are done: a mean over seeds for each model and task."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ens10.experiments.finished import SCORES, FinishedRun, mean_score
from ens10.experiments.matrix.cells import read_kept
from ens10.experiments.matrix.tasks import Task

SCORE_NAMES = {"crps": "CRPS", "eecrps": "EECRPS"}


@dataclass(frozen=True)
class Result:
    """One model and task.

    Attributes:
        model: name of the configuration.
        task: what was corrected.
        units: of its scores.
        runs: kept runs by seed, without maps and predictions.
        values: by score ("crps", "eecrps") and seed; a score that a seed lacks is left out.
    """

    model: str
    task: Task
    units: str
    runs: dict[int, FinishedRun] = field(repr=False)
    values: dict[str, dict[int, float]]

    def mean(self, score: str) -> float:
        """Over the seeds; NaN if none has it."""
        held = list(self.values.get(score, {}).values())
        return float(np.mean(held)) if held else float("nan")

    def spread(self, score: str) -> float:
        """Standard deviation over the seeds (n - 1); NaN for fewer than two."""
        held = list(self.values.get(score, {}).values())
        return float(np.std(held, ddof=1)) if len(held) > 1 else float("nan")


def read_results(
    out: Path,
    tasks: Sequence[Task],
    models: Sequence[str],
    seeds: Sequence[int],
    shown: Collection[Path] | None = None,
) -> list[Result]:
    """The results of the cells that are kept in a folder; those that are missing are left out.

    Args:
        out: folder of the kept cells.
        tasks: to look for.
        models: names of configurations, in the order of the table.
        seeds: to look for.
        shown: folders of the cells that count, such as none of other code or data; None for all.

    Raises:
        FileError: a kept cell that cannot be read.
    """
    found = []
    for task in tasks:
        for model in models:
            places = {seed: out / task.folder / f"seed{seed}" / model for seed in seeds}
            places = {
                seed: place
                for seed, place in places.items()
                if (place / SCORES).exists() and (shown is None or place in shown)
            }
            if places:
                found.append(_result(model, task, places))
    return found


def _result(model: str, task: Task, places: dict[int, Path]) -> Result:
    kept = {seed: read_kept(place) for seed, place in places.items()}
    runs = {seed: run for seed, (run, _) in kept.items()}
    values = {"crps": {seed: mean_score(run.states, "crps") for seed, run in runs.items()}}
    extremes = {
        s: mean_score(states, "eecrps") for s, (_, states) in kept.items() if states is not None
    }
    if extremes:
        values["eecrps"] = extremes
    return Result(model, task, next(iter(runs.values())).units, runs, values)
