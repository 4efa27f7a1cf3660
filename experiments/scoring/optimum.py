"""The best possible forecast of a synthetic world, as a run folder beside those of the models.

It is reported and never used in training.
"""

from pathlib import Path

import numpy as np

from ens10.errors import MissingDataError
from ens10.experiments.runs import provenance
from ens10.experiments.runs.reading import open_predictions
from ens10.experiments.scoring.score import usual_scores, write_states
from ens10.metrics import score_states
from ens10.synthetic import World

_SHARED = ("target", "target_units", "step", "step_units", "protocol", "weights", "dates", "years")


def score_optimum(world: World, model: Path, folder: Path, progress: bool = False) -> None:
    """Score the best possible forecast of a synthetic world on the dates of a model's predictions.

    Args:
        world: that the data come from, written.
        model: run folder with predictions, whose dates, truth and weights count.
        folder: run folder to write.
        progress: show a progress bar.

    Raises:
        MissingDataError: the world lacks dates of the predictions.
    """
    facts = provenance.read_provenance(model)
    _, truth = open_predictions(model)
    best = world.optimum(facts["target"], progress=progress, step=int(facts["step"]))
    dates = truth["time"].to_numpy()
    missing = np.setdiff1d(dates, best["time"].to_numpy())
    if missing.size:
        raise MissingDataError(
            "World", [str(t)[:13] for t in missing], "Give the world that the store was made from"
        )
    best = best.sel(time=dates)
    scores = usual_scores(best, truth, facts["target"])
    states = score_states(best, truth, scores, weights=facts["weights"])
    shared = {key: facts[key] for key in _SHARED if key in facts}
    provenance.write(folder, {**shared, "name": "optimum", "kind": "optimum"})
    write_states(states, folder)
