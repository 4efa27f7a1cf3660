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
from ens10.experiments.runs.checkpoints import BEST, LAST, PREVIOUS
from ens10.experiments.runs.runlog import RunLog
from ens10.models.postprocessor import WeightedMean
from ens10.places import is_url
from ens10.signals import Interrupted, Stop, Terminated

MINUTES = 10.0  # between checkpoints within an epoch
_FORMAT = 1  # of what is added to Lightning's checkpoints
_EPOCH_LOOP = "epoch_loop.val_loop.batch_progress"


class WholeCheckpointIO(TorchCheckpointIO):
    """Write checkpoints under a temporary name in their folder, sync and rename them.

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
    """Save the checkpoints of a run, and end the training after a batch if a signal has arrived.

    A resumed training equals an uninterrupted one. For that a checkpoint has, besides the content
    of Lightning's: the rows of the log; the sums of the training loss so far; the state of torch's
    random numbers (of a single process); and at the end of an epoch the values by which schedules
    still have to step. Methods that collect all batches before they solve, and trainings whose
    schedule follows a value from step to step, are saved after an epoch only.

    Args:
        folder: RUN/checkpoints.
        log: of the run.
        monitor: name of the value to minimise; None if there is no validation.
        stop: whether a signal has arrived.
        minutes: between checkpoints within an epoch.
    """

    def __init__(
        self, folder: Path, log: RunLog, monitor: str | None, stop: Stop, minutes: float = MINUTES
    ) -> None:
        self._folder, self._log, self._monitor = folder, log, monitor
        self._stop, self._seconds = stop, 60 * minutes
        self._best: float | None = None
        self._save_time = time.monotonic()
        self._step = 0
        self._in_validation = False
        self._loaded_state: Mapping[str, Any] = {}

    @property
    def state_key(self) -> str:
        """Key of Lightning's ModelCheckpoint, under which older runs saved this state.

        Without validation it has a name of its own: the default ModelCheckpoint, which Lightning
        adds to predictions, has the same key then, and cannot read this state.
        """
        return self._generate_state_key_of("ModelCheckpoint" if self._monitor else "RunCheckpoints")

    def _generate_state_key_of(self, name: str) -> str:
        options = {"monitor": self._monitor, "mode": "min", "every_n_train_steps": 0}
        return f"{name}{options | {'every_n_epochs': 1, 'train_time_interval': None}}"

    @property
    def best_model_path(self) -> str:
        """Path of the best checkpoint so far, for Lightning's `ckpt_path="best"`; "" if none."""
        path = self._folder / BEST
        return str(path) if path.is_file() else ""

    def state_dict(self) -> dict[str, Any]:
        """Return the best validation loss, for a resumed fit."""
        best = None if self._best is None else torch.tensor(self._best, dtype=torch.float64)
        return {"best_model_score": best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best validation loss, also from a checkpoint that ModelCheckpoint wrote."""
        best = state_dict.get("best_model_score")
        self._best = None
        if best is not None and (self._folder / BEST).is_file():
            self._best = float(best)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add log, sums and random state, which Lightning does not save, to a checkpoint."""
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
        """Keep the state to restore when the training begins, and restore the log.

        Raises:
            FileError: a newer version of this package wrote the checkpoint.
        """
        if trainer.state.fn == "fit":
            self._loaded_state = checkpoint.get("ens10", {})
            version = self._loaded_state.get("format", _FORMAT)
            if version > _FORMAT:
                reason = f"a checkpoint of format {version}, newer than {_FORMAT}"
                raise FileError(self._folder / LAST, reason, "Update ens10 to resume it")
            if self._loaded_state:
                self._log.load_csv(self._loaded_state["log"])
            else:
                self._log.load_file(int(checkpoint["epoch"]))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Defer signals to the end of a batch; restore the state that Lightning does not."""
        self._stop.deferred = True
        self._save_time, self._step = time.monotonic(), trainer.global_step
        _restore(self._loaded_state, trainer, pl_module)
        _step_plateau(trainer, pl_module, self._loaded_state.get("plateau", []))
        self._log.write()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,  # noqa: ARG002
        batch: Any,  # noqa: ARG002
        batch_idx: int,
    ) -> None:
        """Save within an epoch if a checkpoint is due or a signal has arrived; end on a signal."""
        has_stepped, self._step = trainer.global_step != self._step, trainer.global_step
        number, due = self._shared_flags(trainer)
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
        """End if a signal has arrived: the resumed fit repeats the validation."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        number, _ = self._shared_flags(trainer)
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
        number, _ = self._shared_flags(trainer)
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

    def _shared_flags(self, trainer: pl.Trainer) -> tuple[int, bool]:
        """Return the signal, and whether a checkpoint is due: the same on all processes."""
        due = time.monotonic() - self._save_time >= self._seconds
        if trainer.world_size == 1:
            return self._stop.signal, due
        flags = torch.tensor([self._stop.signal, int(due)], device=trainer.strategy.root_device)
        common_flags = trainer.strategy.reduce(flags, reduce_op="max").tolist()
        return int(common_flags[0]), bool(common_flags[1])

    def _end(self, number: int) -> None:
        if number:
            self._stop.end(number)

    def _save_best(self, trainer: pl.Trainer) -> None:
        """Save `best.ckpt` if the monitored value is the least so far, or if there is none."""
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
            _link_previous(last, self._folder / PREVIOUS)
        trainer.save_checkpoint(last)
        self._log.write()
        self._save_time = time.monotonic()

    def _log_epoch(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the values of the epoch, which Lightning does after checkpoints are saved."""
        for name in self._loaded_state.get("sums", {}):
            if name not in trainer.callback_metrics:  # resumed after the last batch of the epoch
                pl_module.log(name, pl_module.get_submodule(f"means.{name}"))  # type: ignore[arg-type]
        self._loaded_state = {}
        values = trainer._logger_connector.metrics["log"]
        if values:
            step = trainer.fit_loop.epoch_loop._batches_that_stepped - 1
            self._log.log_metrics({**values, "epoch": trainer.current_epoch}, step)


class SignalHandlers(pl.Callback):
    """Replace Lightning's handler of SIGTERM, with which a run of several processes hangs.

    Lightning installs it before every stage; it starts a broadcast wherever the signal arrives.

    Args:
        stop: handles signals instead.
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


def _link_previous(last: Path, previous: Path) -> None:
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
    """Return the means over a training epoch that a module logs, by their names in the log."""
    means = dict(getattr(module, "means", torch.nn.ModuleDict()).items())
    return {
        name: mean
        for name, mean in means.items()
        if name.startswith("train") and isinstance(mean, WeightedMean)
    }


def _training_sums(trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, list[float]]:
    """Return the sums behind the means over the epoch so far, over all processes."""
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
    """Return the value by which each schedule steps at the end of this epoch; None if by none.

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
