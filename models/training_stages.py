"""Training of the parts of a model one after another."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytorch_lightning as pl
from torch import nn
from torch.optim import Optimizer

from ens10.errors import ArgumentError, UnknownNameError


@dataclass(frozen=True)
class Stage:
    """Epochs in which the named parts are trained and the parts of other stages are not.

    Args:
        parts: names of modules of the model, such as "network.bias".
        epochs: number of epochs of the stage.
    """

    parts: Sequence[str]
    epochs: int


class TrainingStages(pl.Callback):
    """Train parts of a model one after another.

    In each stage, parts that only other stages name are not trained: their weights do not change,
    and their batch normalisation uses and keeps its running statistics. Modules that no stage names
    are trained in every stage, and after the last stage all modules are. The epoch's number
    determines the stage, also after a resume. Gradients of all parts are still computed, so that a
    stage is no faster.

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
        ArgumentError: a stage without parts or epochs, or a part that contains another.
        UnknownNameError: when training starts, a part that the model does not have.
    """

    def __init__(self, stages: list[Stage]) -> None:
        self.stages = [_as_stage(stage) for stage in stages]
        self._parts = {part for stage in self.stages for part in stage.parts}
        for part, other in permutations(self._parts, 2):
            if part.startswith(f"{other}."):
                raise ArgumentError("stages", f"{other} contains {part}", "Name separate modules")

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the names of the parts, and point out stages that are not reached."""
        names = [name for name, _ in pl_module.named_modules() if name]
        for part in sorted(self._parts):
            if part not in names:
                raise UnknownNameError("stages", part, names)
        epochs, most = sum(stage.epochs for stage in self.stages), trainer.max_epochs
        if most is not None and 0 <= most < epochs and trainer.is_global_zero:
            print(f"ens10: the stages have {epochs} epochs, max_epochs is {most}.", file=sys.stderr)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set modules to eval mode as at the start of an epoch, which a resumed epoch lacks."""
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set the modules that are not trained to eval mode, for their batch normalisation."""
        for module in self._untrained_modules(trainer, pl_module):
            module.eval()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set all modules back to training mode."""
        for module in self._untrained_modules(trainer, pl_module):
            module.train()

    def on_before_optimizer_step(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        optimizer: Optimizer,  # noqa: ARG002
    ) -> None:
        """Set the gradients of modules that are not trained to None; optimisers skip these."""
        for module in self._untrained_modules(trainer, pl_module):
            for parameter in module.parameters():
                parameter.grad = None

    def _untrained_modules(self, trainer: pl.Trainer, model: nn.Module) -> list[nn.Module]:
        """Return the modules that are not trained in the current epoch."""
        epoch = trainer.current_epoch
        for stage in self.stages:
            if epoch < stage.epochs:
                parts = sorted(self._parts - set(stage.parts))
                return [model.get_submodule(part) for part in parts]
            epoch -= stage.epochs
        return []


def _as_stage(options: Stage | Mapping[str, Any]) -> Stage:
    stage = options if isinstance(options, Stage) else Stage(**options)
    if not stage.parts:
        raise ArgumentError("stages", "a stage names no part", "Name modules of the model")
    if stage.epochs < 1:
        raise ArgumentError("stages", f"{stage.epochs} epochs", "Use one or more")
    return stage
