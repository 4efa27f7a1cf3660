"""Training of the parts of a model one after another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
from torch import nn
from torch.optim import Optimizer

from ens10.errors import ArgumentError, UnknownNameError


@dataclass(frozen=True)
class Stage:
    """Epochs in which some parts of a model are trained, and the others stay as they are.

    Args:
        parts: names of modules of the model, such as "network.bias".
        epochs: number of epochs of the stage.
    """

    parts: Sequence[str]
    epochs: int


class TrainingStages(pl.Callback):
    """Trains the parts of a model one after another; after the last stage all parts are trained.

    A part that does not train keeps its weights, and its batch normalisation the statistics that it
    has. The stage follows from the number of the epoch, so that a resumed training continues in it.

    Args:
        stages: in order, each a mapping or `Stage` with `parts` and `epochs`.

    Examples:
        In a configuration, the bias net before the spread net:

            trainer:
              callbacks:
                - class_path: ens10.models.TrainingStages
                  init_args:
                    stages:
                      - {parts: [network.bias], epochs: 6}
                      - {parts: [network.spread], epochs: 12}

    Raises:
        ArgumentError: a stage without parts or epochs.
        UnknownNameError: when training starts, a part that the model does not have.
    """

    def __init__(self, stages: list[Stage]) -> None:
        self.stages = [_as_stage(stage) for stage in stages]

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Check the names of the parts."""
        names = [name for name, _ in pl_module.named_modules() if name]
        for part in (part for stage in self.stages for part in stage.parts):
            if part not in names:
                raise UnknownNameError("stages", part, names)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set the parts that do not train to evaluation, for their batch normalisation."""
        for module in self._resting(trainer, pl_module):
            module.eval()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set all parts back to training."""
        for module in self._resting(trainer, pl_module):
            module.train()

    def on_before_optimizer_step(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        optimizer: Optimizer,  # noqa: ARG002
    ) -> None:
        """Drop the gradients of the parts that do not train: an optimiser skips such weights."""
        for module in self._resting(trainer, pl_module):
            for parameter in module.parameters():
                parameter.grad = None

    def _resting(self, trainer: pl.Trainer, model: nn.Module) -> list[nn.Module]:
        """Return the parts of all stages but the present one; none after the last stage."""
        epoch = trainer.current_epoch
        for present in self.stages:
            if epoch < present.epochs:
                parts = {part for stage in self.stages for part in stage.parts}
                return [model.get_submodule(part) for part in sorted(parts - set(present.parts))]
            epoch -= present.epochs
        return []


def _as_stage(given: Stage | Mapping[str, Any]) -> Stage:
    stage = given if isinstance(given, Stage) else Stage(**given)
    if not stage.parts:
        raise ArgumentError("stages", "a stage names no part", "Name modules of the model")
    if stage.epochs < 1:
        raise ArgumentError("stages", f"{stage.epochs} epochs", "Use one or more")
    return stage
