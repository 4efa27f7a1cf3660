"""The checkpoints of a run that trains: `last.ckpt` to resume from, `best.ckpt` to predict with.

RUN/checkpoints/last.ckpt       after each epoch, every few minutes within it, and on SIGTERM
RUN/checkpoints/previous.ckpt   the one before, which `--resume` takes if last.ckpt is damaged
RUN/checkpoints/best.ckpt       of the least validation loss so far
"""

import math
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor

from ens10.durable import temporary_path, whole_file
from ens10.errors import FileError
from ens10.experiments.checkpoints import BEST, LAST, PREVIOUS
from ens10.experiments.runlog import RunLog
from ens10.models.postprocessor import WeightedMean
from ens10.places import is_url
from ens10.signals import Interrupted, Stop, Terminated, ending

MINUTES = 10.0  # between checkpoints within an epoch
_FORMAT = 1  # of what is added to Lightning's checkpoints
_EPOCH_LOOP = "epoch_loop.val_loop.batch_progress"


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its target, syncs and renames it.

    Lightning's own writes to TMPDIR and moves it, which on another file system is a copy over the
    old checkpoint: a kill there leaves neither.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a checkpoint.

        Raises:
            OSError: no space is left; the old checkpoint is as it was.
        """
        if storage_options is not None or is_url(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as file:
            torch.save(checkpoint, file)


class RunCheckpoints(Checkpoint):
    """Saves the checkpoints of a run, and ends the training after a batch if a signal asks for it.

    A checkpoint holds what a resumed training needs to equal an uninterrupted one: besides what
    Lightning saves the rows of the log, the sums of the training loss so far, (of a single process)
    the state of torch's random numbers, and at the end of an epoch the values by which schedules
    still have to step. Methods that collect all batches before they solve, and trainings whose
    schedule follows a value from step to step, are saved after an epoch only.

    Args:
        folder: RUN/checkpoints.
        log: of the run.
        monitor: the value whose minimum is the best; None if there is no validation.
        stop: whether a signal has arrived.
        minutes: between checkpoints within an epoch.
    """

    def __init__(
        self, folder: Path, log: RunLog, monitor: str | None, stop: Stop, minutes: float = MINUTES
    ) -> None:
        self._folder, self._log, self._monitor = folder, log, monitor
        self._stop, self._seconds = stop, 60 * minutes
        self._best: float | None = None
        self._saved = time.monotonic()
        self._step = 0
        self._in_validation = False
        self._loaded: Mapping[str, Any] = {}

    @property
    def state_key(self) -> str:
        """That of Lightning's ModelCheckpoint, which older runs were saved by.

        Without validation it has a name of its own: the default ModelCheckpoint, which Lightning
        adds to predictions, has the same key then, and cannot read this state.
        """
        return self._generate_state_key_of("ModelCheckpoint" if self._monitor else "RunCheckpoints")

    def _generate_state_key_of(self, name: str) -> str:
        options = {"monitor": self._monitor, "mode": "min", "every_n_train_steps": 0}
        return f"{name}{options | {'every_n_epochs': 1, 'train_time_interval': None}}"

    @property
    def best_model_path(self) -> str:
        """The best checkpoint so far, as Lightning's `ckpt_path="best"` looks for it."""
        path = self._folder / BEST
        return str(path) if path.is_file() else ""

    def state_dict(self) -> dict[str, Any]:
        """Return the best validation loss, for a resumed fit."""
        best = None if self._best is None else torch.tensor(self._best, dtype=torch.float64)
        return {"best_model_score": best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the state of a checkpoint, also of one that ModelCheckpoint wrote."""
        best = state_dict.get("best_model_score")
        self._best = None
        if best is not None and (self._folder / BEST).is_file():
            self._best = float(best)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add what Lightning leaves out to a checkpoint."""
        epochs: Any = trainer.fit_loop.epoch_progress.current
        at_epoch_end = epochs.processed > epochs.completed  # in the hooks at the end of an epoch
        sums = {} if at_epoch_end else _training_sums(trainer, pl_module)
        state: dict[str, Any] = {"format": _FORMAT, "log": self._log.to_csv(), "sums": sums}
        if at_epoch_end:
            state["plateau"] = _plateau_values(trainer)
        if trainer.world_size == 1:
            state["random"] = _random_state()
        checkpoint["ens10"] = state
        if self._in_validation:  # to be repeated as a whole: its sums are in no checkpoint
            counts = {"ready": 1, "started": 1, "processed": 0, "completed": 0}
            progress = {"total": dict(counts), "current": dict(counts), "is_last_batch": False}
            checkpoint["loops"]["fit_loop"][_EPOCH_LOOP] = progress

    def on_load_checkpoint(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,  # noqa: ARG002
        checkpoint: dict[str, Any],
    ) -> None:
        """Keep what is to be restored when the training begins.

        Raises:
            FileError: a newer version of this package wrote the checkpoint.
        """
        if trainer.state.fn == "fit":
            self._loaded = checkpoint.get("ens10", {})
            version = self._loaded.get("format", _FORMAT)
            if version > _FORMAT:
                reason = f"a checkpoint of format {version}, newer than {_FORMAT}"
                raise FileError(self._folder / LAST, reason, "Update ens10 to resume it")
            if self._loaded:
                self._log.take_csv(self._loaded["log"])
            else:
                self._log.take_file(int(checkpoint["epoch"]))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """From here on signals wait for the end of a batch; restore what Lightning does not."""
        self._stop.deferred = True
        self._saved, self._step = time.monotonic(), trainer.global_step
        _restore(self._loaded, trainer, pl_module)
        _step_plateau(trainer, pl_module, self._loaded.get("plateau", []))
        self._log.write()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,  # noqa: ARG002
        batch: Any,  # noqa: ARG002
        batch_idx: int,
    ) -> None:
        """Save within an epoch if it is time to, or if a signal asks to end."""
        has_stepped, self._step = trainer.global_step != self._step, trainer.global_step
        number, due = self._agreed(trainer)
        if not _resumes_within_epochs(trainer, pl_module):
            self._end(number)  # nothing of its epoch can be saved
            return
        validates = trainer.is_last_batch or (batch_idx + 1) % (trainer.val_check_batch or 1) == 0
        if (number or due) and has_stepped and not validates:
            self._save_last(trainer)
            self._end(number)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Mark that validation runs; reset its batch counter: a resumed one starts over."""
        if not trainer.sanity_checking:
            self._in_validation = True
            trainer.fit_loop.epoch_loop.val_loop.batch_progress.total.reset()

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,  # noqa: ARG002
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
        dataloader_idx: int = 0,  # noqa: ARG002
    ) -> None:
        """End if a signal asks for it: the resumed fit repeats the validation."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        number, _ = self._agreed(trainer)
        if number and _resumes_within_epochs(trainer, pl_module):
            self._save_last(trainer)
        self._end(number)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Save the best in mid-epoch, where validation is more frequent than epochs."""
        self._in_validation = False
        if trainer.state.fn == "fit" and not trainer.sanity_checking and not trainer.is_last_batch:
            self._save_best(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the best, then the last, which relies on the best being there; then the log."""
        self._log_epoch(trainer, pl_module)
        self._save_best(trainer)
        self._save_last(trainer)
        number, _ = self._agreed(trainer)
        self._end(number)
        if trainer.fit_loop.restarting:  # Lightning leaves it out in an epoch that was resumed
            _step_plateau(trainer, pl_module, _plateau_values(trainer))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Signals need not wait any more."""
        self._stop.deferred = False

    def on_exception(
        self,
        trainer: pl.Trainer,  # noqa: ARG002
        pl_module: pl.LightningModule,  # noqa: ARG002
        exception: BaseException,  # noqa: ARG002
    ) -> None:
        """Signals need not wait any more."""
        self._stop.deferred = False

    def _agreed(self, trainer: pl.Trainer) -> tuple[int, bool]:
        """The signal, and whether a checkpoint is due: the same on all processes."""
        due = time.monotonic() - self._saved >= self._seconds
        if trainer.world_size == 1:
            return self._stop.signal, due
        flags = torch.tensor([self._stop.signal, int(due)], device=trainer.strategy.root_device)
        common_flags = trainer.strategy.reduce(flags, reduce_op="max").tolist()
        return int(common_flags[0]), bool(common_flags[1])

    def _end(self, number: int) -> None:
        if number:
            raise ending(number)

    def _save_best(self, trainer: pl.Trainer) -> None:
        """Save the best checkpoint if this is it: of the least value, or the latest without one."""
        value = trainer.callback_metrics.get(self._monitor or "")
        score = None if value is None else float(value)
        if score is not None and math.isnan(score):
            score = math.inf
        better = self._best is None or (score is not None and score < self._best)
        if trainer.strategy.reduce_boolean_decision(better):
            self._best = score
            trainer.save_checkpoint(self._folder / BEST)

    def _save_last(self, trainer: pl.Trainer) -> None:
        last = self._folder / LAST
        if trainer.is_global_zero:
            _keep(last, self._folder / PREVIOUS)
        trainer.save_checkpoint(last)
        self._log.write()
        self._saved = time.monotonic()

    def _log_epoch(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the values of the epoch, which Lightning does after checkpoints are saved."""
        for name in self._loaded.get("sums", {}):
            if name not in trainer.callback_metrics:  # resumed after the last batch of the epoch
                pl_module.log(name, pl_module.get_submodule(f"means.{name}"))  # type: ignore[arg-type]
        self._loaded = {}
        values = trainer._logger_connector.metrics["log"]
        if values:
            step = trainer.fit_loop.epoch_loop._batches_that_stepped - 1
            self._log.log_metrics({**values, "epoch": trainer.current_epoch}, step)


class SignalHandlers(pl.Callback):
    """Replaces Lightning's handler of SIGTERM, with which a run of several processes hangs.

    Lightning installs it before every stage; it starts a broadcast wherever the signal arrives.

    Args:
        stop: what handles signals instead.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def _install(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        self._stop.install()

    on_sanity_check_start = on_train_start = _install
    on_validation_start = on_test_start = on_predict_start = _install

    def on_exception(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,  # noqa: ARG002
        exception: BaseException,
    ) -> None:
        """Pass a signal that ends this process on to the processes that it started."""
        launcher: Any = trainer.strategy.launcher
        if isinstance(exception, Terminated | Interrupted) and hasattr(launcher, "kill"):
            launcher.kill(signal.SIGTERM)


def _keep(last: Path, previous: Path) -> None:
    """Give the last checkpoint a second name, so that it outlives the next one's writing."""
    if not last.is_file():
        return
    temporary = temporary_path(previous)
    with suppress(OSError):
        try:
            os.link(last, temporary)
        except OSError:  # a file system without links
            last.replace(previous)
            return
        temporary.replace(previous)
        # renaming one name of a file to another of its names does nothing and leaves both
        temporary.unlink(missing_ok=True)


def _means(module: pl.LightningModule) -> dict[str, WeightedMean]:
    """The means over an epoch of training that a module logs, by the names of its log."""
    means = dict(getattr(module, "means", torch.nn.ModuleDict()).items())
    return {
        name: mean
        for name, mean in means.items()
        if name.startswith("train") and isinstance(mean, WeightedMean)
    }


def _training_sums(trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, list[float]]:
    """The sums behind the means over the epoch so far, of all processes together."""
    sums_by_name = {}
    for name, mean in _means(module).items():
        sums = torch.stack([mean.total, mean.weight]).double()
        if trainer.world_size > 1:
            sums = trainer.strategy.reduce(sums, reduce_op="sum")
        if sums[1] > 0:  # or nothing of it was logged in this epoch
            sums_by_name[name] = sums.tolist()
    return sums_by_name


def _resumes_within_epochs(trainer: pl.Trainer, module: pl.LightningModule) -> bool:
    """Return True if training resumes exactly from a checkpoint that was saved within an epoch.

    Lightning steps a schedule that follows a value, at `interval="step"`, after the callbacks of
    the batch, with values of the epoch so far that no checkpoint holds.
    """
    schedules = trainer.lr_scheduler_configs
    follows_steps = any(
        schedule.reduce_on_plateau and schedule.interval == "step" for schedule in schedules
    )
    return module.automatic_optimization and not follows_steps


def _plateau_values(trainer: pl.Trainer) -> list[Tensor | None]:
    """What each schedule is given at the end of this epoch, if it follows a value: else None.

    Lightning steps such a schedule after all callbacks of the epoch, so that a checkpoint of the
    epoch's end does not hold that step.
    """
    values: list[Tensor | None] = []
    for config in trainer.lr_scheduler_configs:
        due = config.interval == "epoch" and (trainer.current_epoch + 1) % config.frequency == 0
        value = trainer.callback_metrics.get(config.monitor or "")
        values.append(value if config.reduce_on_plateau and due else None)
    return values


def _step_plateau(
    trainer: pl.Trainer, module: pl.LightningModule, values: Sequence[Tensor | None]
) -> None:
    """Step the schedules that follow a value, each with its own; None steps none."""
    for config, value in zip(trainer.lr_scheduler_configs, values, strict=False):
        if value is not None:
            module.lr_scheduler_step(config.scheduler, value)


def _random_state() -> dict[str, Any]:
    state: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def _restore(state: Mapping[str, Any], trainer: pl.Trainer, module: pl.LightningModule) -> None:
    """Restore sums and random numbers; a checkpoint of an epoch's end has no sums to continue."""
    means = _means(module)
    for name, sums in state.get("sums", {}).items():
        if name in means and trainer.is_global_zero:
            total: list[Tensor] = [torch.tensor(x, device=module.device).float() for x in sums]
            means[name].update(*total)
    random = state.get("random")
    if random is not None and trainer.world_size == 1:
        torch.set_rng_state(random["cpu"])
        if "cuda" in random and torch.cuda.device_count() == len(random["cuda"]):
            torch.cuda.set_rng_state_all(random["cuda"])
