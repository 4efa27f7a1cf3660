"""Train a model into a run folder (`train`), and validate, test or predict a run (`evaluate`).

The commands and `ens10.fit` call these two with a model, its data, and options of Lightning's
trainer. Both hold the lock of the run, handle signals, and show the progress.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint, ProgressBar, RichModelSummary
from pytorch_lightning.plugins.io import TorchCheckpointIO

from ens10.errors import ArgumentError, printable
from ens10.experiments.runs import provenance
from ens10.experiments.runs.bytesread import BytesRead
from ens10.experiments.runs.checkpoints import (
    checkpoint_shapes,
    differences,
    other_architecture,
    shapes,
)
from ens10.experiments.runs.fit_cost import FitCost
from ens10.experiments.runs.lightning_warnings import suppress_lightning_warnings
from ens10.experiments.runs.predictions import PredictionWriter
from ens10.experiments.runs.progress import DatesProgressBar
from ens10.experiments.runs.reading import PREDICTIONS
from ens10.experiments.runs.runlog import RunLog
from ens10.experiments.runs.saving import MINUTES, RunCheckpoints, SignalHandlers, WholeCheckpointIO
from ens10.experiments.runs.trust import write_config
from ens10.experiments.training.folder import (
    CHECKPOINTS,
    CONFIG,
    Stage,
    checkpoint_of,
    is_first,
    run_folder,
)
from ens10.loader.datamodule import EnsembleDataModule
from ens10.loader.samples import Samples
from ens10.models.matching import advice_for_amounts
from ens10.models.parallel.failure_detection import one_error_for_lost_processes
from ens10.models.warmstart import outermost_methods
from ens10.protocol import content_of, reference_of
from ens10.signals import stoppable

Config = Mapping[str, Any]
Data = EnsembleDataModule
Module = pl.LightningModule
# settings of Lightning's trainer that a run decides on itself: the refused values, and why
_REFUSED: dict[str, tuple[Any, str]] = {
    "enable_checkpointing": (False, "a run keeps checkpoints, to resume from and to predict with"),
    "logger": (True, "a run has its own log, and true names no further one, such as CSVLogger"),
}


@dataclass(frozen=True)
class RunWork:
    """The folder of a run, and how a stage works in it.

    Attributes:
        path: the folder.
        quiet: no progress bar, no last line.
        minutes: between checkpoints within an epoch.
        resume: whether a fit is resumed.
        of_stage: arguments of the trainer's method, such as `ckpt_path`; without it the run's own
            checkpoint is used.
    """

    path: Path
    quiet: bool = False
    minutes: float = MINUTES
    resume: bool = False
    of_stage: Mapping[str, Any] | None = None


def train(
    model: Module, data: Data, trainer: Config, run: RunWork, config: Config, facts: Config
) -> pl.Trainer:
    """Train a model into a run folder, or resume its training.

    Args:
        model: to train.
        data: with a store.
        trainer: arguments of Lightning's trainer. Loggers and callbacks are added to the run's own.
        run: the folder and options.
        config: `seed_everything`, `trainer`, `model` and `data` as plain values, for `config.yaml`.
        facts: for the provenance, besides those of the data.

    Returns:
        The trainer, after the fit.

    Raises:
        FileError: the folder holds a run already, or none to resume, or another process writes it.
        ArgumentError: a setting of the trainer that a run decides on itself.
        Terminated, Interrupted: a signal ended it; it can be resumed.
    """
    path = run.path
    if not run.resume:
        _refuse(trainer)
    folder = run_folder(path, "fit", new=not run.resume)
    with suppress_lightning_warnings(), stoppable() as stop, folder:
        log, cost = RunLog(path), FitCost()
        monitor = "val_loss" if len(data.batches("val")) else None
        checkpoints = RunCheckpoints(path / CHECKPOINTS, log, monitor, stop, run.minutes)
        own = [SignalHandlers(stop), checkpoints, BytesRead(path, data), cost]
        fitting = _trainer(trainer, run, own, log)
        if is_first():
            write_start(model, data, path, config, facts)
        _run_stage("fit", fitting, model, data, run)
        if is_first():
            provenance.write(path, {**cost.rounded(), "parameters": _count_parameters(model)})
            if not run.quiet:
                print(_ending(path, log))
    return fitting


def evaluate(stage: Stage, model: Module, data: Data, trainer: Config, run: RunWork) -> pl.Trainer:
    """Validate, test or predict with the best checkpoint of a run.

    Args:
        stage: "validate", "test" or "predict", which writes `predictions.zarr`.
        model: of the run, with any weights.
        data: to evaluate on.
        trainer: arguments of Lightning's trainer.
        run: the folder and options.

    Returns:
        The trainer, after the stage.

    Raises:
        FileError: no run, no checkpoint, or another process predicts.
    """
    with suppress_lightning_warnings(), stoppable() as stop, run_folder(run.path, stage):
        own: list[pl.Callback] = [SignalHandlers(stop)]
        if stage == "predict":
            own.append(PredictionWriter(run.path / PREDICTIONS, data))
        evaluating = _trainer(trainer, run, own)
        _run_stage(stage, evaluating, model, data, run)
        if stage == "predict" and is_first() and not run.quiet:
            has_truth = all(samples.has_truth for samples in data.parts)
            after = f". Next: ens10 score {shlex.quote(str(run.path))}" if has_truth else ""
            print(printable(f"Wrote the predictions of {run.path}{after}"))
    return evaluating


def _run_stage(stage: Stage, trainer: pl.Trainer, model: Module, data: Data, run: RunWork) -> None:
    """Run a stage; if a process is lost, the others end with one line, not a traceback."""
    arguments = dict(run.of_stage or {})
    checkpoint = arguments.pop("ckpt_path", None)
    if checkpoint is None and (stage != "fit" or run.resume):
        checkpoint = checkpoint_of(run.path, stage)
    saved = checkpoint_shapes(Path(checkpoint)) if checkpoint else None
    if stage == "predict":
        arguments["return_predictions"] = False  # they are on the disk
    several = trainer.world_size > 1
    with one_error_for_lost_processes(trainer.global_rank) if several else nullcontext():
        try:
            path = checkpoint and str(checkpoint)
            getattr(trainer, stage)(model, datamodule=data, ckpt_path=path, **arguments)
        except RuntimeError as error:
            differing = differences(saved or {}, shapes(model.state_dict())) if saved else []
            if differing and checkpoint:
                raise other_architecture(Path(checkpoint), differing) from error
            raise


def _trainer(
    settings: Config, run: RunWork, own: Sequence[pl.Callback], log: RunLog | None = None
) -> pl.Trainer:
    """Return a trainer with the callbacks and loggers of the user, and those of the run."""
    settings = dict(settings)
    callbacks = [*as_list(settings.get("callbacks")), *own]
    loggers = [one for one in as_list(settings.get("logger")) if not isinstance(one, bool)]
    _check_checkpoints(callbacks)
    bars = any(isinstance(one, ProgressBar) for one in callbacks)
    shows = settings.get("enable_progress_bar")
    shows = (bars or not run.quiet) if shows is None else shows
    if shows and not bars:
        callbacks.append(DatesProgressBar(leave=False))
    if settings.get("enable_model_summary"):  # printed, where Lightning's own line is not shown
        callbacks.append(RichModelSummary())
    if not any(isinstance(callback, pl.callbacks.Checkpoint) for callback in callbacks):
        # Lightning would add one that takes the state of ours in older checkpoints for its own
        settings["enable_checkpointing"] = False
    settings |= {
        "callbacks": callbacks,
        "logger": [log, *loggers] if log else loggers or False,
        "default_root_dir": settings.get("default_root_dir") or str(run.path),
        "enable_progress_bar": shows,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(**settings)
    if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
        trainer.strategy.checkpoint_io = WholeCheckpointIO()
    return trainer


def _refuse(settings: Config) -> None:
    """Refuse settings of Lightning's trainer that a run decides on itself.

    Raises:
        ArgumentError: there is one.
    """
    if settings.get("default_root_dir") is not None:
        remedy = "Name the folder with --run; loggers and callbacks take folders of their own"
        raise ArgumentError("trainer.default_root_dir", "a run writes into its own folder", remedy)
    for name, (value, reason) in _REFUSED.items():
        if settings.get(name) is value:
            raise ArgumentError(f"trainer.{name}", reason, "Leave it out")


def _check_checkpoints(callbacks: Sequence[pl.Callback]) -> None:
    """Refuse a checkpoint of the user's that a run keeps itself, under the same key.

    Raises:
        ArgumentError: there is one.
    """
    own = [one.state_key for one in callbacks if isinstance(one, RunCheckpoints)]
    for one in callbacks:
        if isinstance(one, ModelCheckpoint) and one.state_key in own:
            reason = "a run keeps the checkpoint of the least val_loss itself, as best.ckpt"
            remedy = "Leave ModelCheckpoint out, or give it another monitor or frequency"
            raise ArgumentError("trainer.callbacks", reason, remedy)


def as_list(value: Any) -> list[Any]:
    """Return the items of a setting that is one item, several, or None."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def write_start(model: Module, data: Data, run: Path, config: Config, facts: Config) -> None:
    """Write the configuration and the provenance of a run before the training."""
    targets = [data.target] if isinstance(data.target, str) else data.target
    if advice := advice_for_amounts(model, targets):
        print(f"ens10: {advice}", file=sys.stderr)
    run.mkdir(parents=True, exist_ok=True)
    of_data = {name: value for name, value in config["data"].items() if name != "seed"}
    # a file of the user's may change or move: its content is kept, not its path
    of_data["protocol"] = reference_of(data.protocol)
    write_config(run / CONFIG, {**config, "data": of_data})
    _write_provenance(data, run, int(config["seed_everything"]), facts)


def _write_provenance(data: Data, run: Path, seed: int, facts: Config) -> None:
    batches = data.batches("train")
    splits, samples = batches.splits, batches.samples
    parts, store = data.parts, Path(str(data.store))
    name = run.resolve().name
    content = {
        "name": name,
        "kind": "reference" if name == "raw" else "model",
        "seed": seed,
        **(_describe(samples) if len(parts) == 1 else {}),
        "protocol": batches.protocol.name,
        "rules": content_of(batches.protocol),
        "weights": batches.protocol.weighting,
        "channels": list(batches.channels),
        "years": splits.years,
        "dates": {split: len(index) for split, index in splits.index.items()},
        "dates_in_no_split": len(splits.outside),
        "dates_in_gap": len(splits.gap),
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "processor": provenance.processor(),
        "data": {"store": store.name, "checksum": provenance.checksum(store)},
        **facts,
    }
    provenance.write(run, content)
    for samples in parts if len(parts) > 1 else []:
        part = provenance.part_name(samples.target, samples.step, samples.step_units)
        provenance.write(run / provenance.PARTS / part, _describe(samples))


def _describe(samples: Samples) -> dict[str, Any]:
    return {
        "target": samples.target,
        "target_units": samples.attributes.get("units", ""),
        "step": samples.step,
        "step_units": samples.step_units,
    }


def _count_parameters(model: pl.LightningModule) -> int:
    """Return the number of trained parameters and of fitted coefficients."""
    weights = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return weights + sum(method.fitted_parameters for method, _ in outermost_methods(model))


def _ending(run: Path, log: RunLog) -> str:
    """Return a line on a finished fit: loss, time, next command."""
    result = f"{log.best_validation()}, trained".removeprefix(", ").capitalize()
    seconds = provenance.duration(provenance.read_provenance(run)["seconds"])
    next_command = f"ens10 predict --run {shlex.quote(str(run))}"
    return printable(f"{result} in {seconds}. Next: {next_command}")
