"""Cells of the study on a store: a model that is trained on the analyses of one case."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import xarray as xr

from ens10.experiments.demo import config_path
from ens10.experiments.runner.key import Key
from ens10.experiments.runner.tasks import Task
from ens10.experiments.runner.trainings import ModelCell, find_cells
from ens10.experiments.runs.provenance import read_provenance
from ens10.experiments.runs.reading import open_predictions
from ens10.experiments.studies.json_cells import RESULT
from ens10.experiments.studies.uncertain_truth import RESULT_VERSION
from ens10.experiments.studies.uncertain_truth.analyses import (
    AGAINST,
    CORRELATIONS,
    NONE,
    analysis_error,
    analysis_store,
    read_fields,
)
from ens10.metrics import score_states
from ens10.metrics.verification.truth_error import with_truth_error


@dataclass(frozen=True)
class AnalysisCell(ModelCell):
    """A model that is trained and tested on analyses, and scored against the true state as well.

    Args:
        case: kind of the errors of the analyses.
        true_store: the same forecasts with the true state.
    """

    case: str = NONE
    true_store: Path = Path()

    @property
    def name(self) -> str:
        """Model, seed and kind of errors in words, for progress and error messages."""
        return f"{super().name}, errors: {self.case}"

    @property
    def folder(self) -> Path:
        """Folder of this seed's runs, trained on analyses with this kind of errors."""
        return self.work / self.case / f"seed{self.seed}"

    @property
    def place(self) -> str:
        """Its place in the archive, by kind of errors, seed and model."""
        return f"{self.case}/{super().place}"

    def current_key(self) -> Key:
        """Return the key of the training, and with it the version of this study's results."""
        key = super().current_key()
        key["versions"]["ens10.experiments.studies.uncertain_truth"] = RESULT_VERSION
        return key

    def finish(self) -> dict[str, bytes]:
        """Predict and score a trained model; return the files to keep, with the CRPS of each date.

        Raises:
            Ens10Error: as `ens10 predict` and `score`.
        """
        files = super().finish()
        content = {"model": self.model, "case": self.case, "seed": self.seed, "crps": self._crps()}
        return files | {RESULT: (json.dumps(content, indent=1) + "\n").encode()}

    def _crps(self) -> dict[str, list[float]]:
        """Return the CRPS of each test date, by what is scored against."""
        record = read_provenance(self.run)
        forecast, analysed = open_predictions(self.run)
        mean, truth = read_fields(self.true_store, record["target"], int(record["step"]))

        def crps(forecast: xr.Dataset, truth: xr.DataArray) -> list[float]:
            states = score_states(forecast, truth, ["crps"], weights=record["weights"])
            daily = (states["crps_sum"] / states["crps_weight"]).to_numpy()
            return [float(f"{value:.6g}") for value in daily]

        true = crps(forecast, truth.sel(time=forecast["time"]))
        if self.case == NONE:
            return {AGAINST[0]: true}
        aware = with_truth_error(forecast, analysis_error(mean, truth))
        values = (true, crps(forecast, analysed), crps(aware, analysed))
        return dict(zip(AGAINST, values, strict=True))


def analysis_cells(
    store: Path, work: Path, out: Path, models: Sequence[str], seeds: int, task: Task,
    budget: str | None,
) -> list[AnalysisCell]:  # fmt: skip
    """Return the cells of all kinds of errors; make the stores of the analyses if needed.

    Args:
        store: of forecasts and the true state.
        work: folder for stores and runs.
        out: folder of the results.
        models: names of configurations.
        seeds: trainings of each network; methods without random numbers have one.
        task: target, inputs and lead time.
        budget: see `load_budget`.
    """
    cells = []
    for case in (NONE, *CORRELATIONS):
        data = analysis_store(store, case, task.target, task.step or 0, work)
        found = find_cells(
            models, range(seeds), work, out, config_path("raw").parent, budget, task, data
        )
        for cell in found:
            if cell.seed == 0 or cell.has_network:
                values = {field.name: getattr(cell, field.name) for field in fields(ModelCell)}
                cells.append(AnalysisCell(**values, case=case, true_store=store))
    return cells
