"""Short trainings in memory: without logs and checkpoints, and with the weights of the best epochs.

The code belongs to the result versions of the studies of experts, gates and traps.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytorch_lightning as pl

from ens10.experiments.runs.lightning_warnings import suppress_lightning_warnings


class BestWeights(pl.Callback):
    """Keep the weights of the best epoch by the validation loss ("val"), and by a score ("score").

    Args:
        score: function of the model that is called after each epoch; None for no score.
    """

    def __init__(self, score: Callable[[Any], float] | None = None) -> None:
        self.score = score
        self.losses: dict[str, list[float]] = {"val": []}
        self.weights: dict[str, dict[str, Any]] = {}

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Record the validation loss and the score of an epoch."""
        self._record("val", float(trainer.callback_metrics["val_loss"]), pl_module)
        if self.score is not None:
            self._record("score", self.score(pl_module), pl_module)

    def _record(self, criterion: str, loss: float, model: pl.LightningModule) -> None:
        losses = self.losses.setdefault(criterion, [])
        if loss < min(losses, default=float("inf")):
            self.weights[criterion] = {k: v.clone() for k, v in model.state_dict().items()}
        losses.append(loss)

    def epoch(self, criterion: str = "val") -> int:
        """Return the best epoch by a criterion, counted from 1; 0 if there was none."""
        losses = self.losses[criterion]
        return 1 + int(np.argmin(losses)) if losses else 0


def train_briefly(
    model: Any, data: Any, epochs: int, *callbacks: pl.Callback, **options: Any
) -> None:
    """Train a model, on one processor if `options`, those of Lightning's trainer, name no other."""
    settings = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    with suppress_lightning_warnings():
        pl.Trainer(max_epochs=epochs, callbacks=list(callbacks), **{**settings, **options}).fit(
            model, data
        )
