"""Trainings and runs in Python: `ens10.fit`, `ens10.Run` and `ens10.save_run`.

They call what the commands call: `run_stage`, with options as its words and objects besides, and
the functions under `predict`, `score`, `report`, `apply` and `bundle`.
"""

import inspect
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import xarray as xr

from ens10.command_options import InputRules, ModelOptions
from ens10.errors import ArgumentError, UnknownNameError
from ens10.experiments.forecasts.apply import apply, open_for_models
from ens10.experiments.forecasts.bundle import bundle
from ens10.experiments.forecasts.load import TrainedModels, load_models
from ens10.experiments.reporting.report import write_report
from ens10.experiments.runs.checkpoints import BEST, LAST, read_checkpoint
from ens10.experiments.runs.provenance import NOT_BUILT
from ens10.experiments.runs.reading import open_forecast, run_parts
from ens10.experiments.runs.runlog import RunLog
from ens10.experiments.scoring.score import score_forecast
from ens10.experiments.training.data_numbers import config_path, shape_of_batches
from ens10.experiments.training.folder import CHECKPOINTS, CONFIG, is_first, require_run, run_folder
from ens10.experiments.training.limits import PROCESSOR_TIME, STEP_MEMORY, require_no_limits
from ens10.experiments.training.models import lightning_module
from ens10.experiments.training.run import model_as_values, run_stage
from ens10.experiments.training.train import write_start
from ens10.loader.batch_layouts import batch_layout
from ens10.loader.datamodule import EnsembleDataModule
from ens10.models.networks.base import DataShape
from ens10.models.postprocessor import PostProcessor, StatisticalPostProcessor
from ens10.models.specification import build, specification
from ens10.models.statistical import FittedMethod, StatisticalMethod
from ens10.models.statistical import fit as fit_arrays
from ens10.protocol import protocol_of, reference_of
from ens10.untrusted import read_mapping
from ens10.usage import UsageError


def _names(kind: type, *without: str) -> list[str]:
    return [name for name in inspect.signature(kind).parameters if name not in without]


_OF_DATA = _names(EnsembleDataModule, "store", "seed", "truth")
_OF_TRAINER = _names(pl.Trainer)
_OF_NETWORK = _names(PostProcessor, "network")
_LIMITS = ("max_epochs", "max_steps", "max_time", "fast_dev_run")
_PREPARE = (
    "Prepare one: ens10.prepare(members.to_dataset(name='t2m'), 'store.zarr', "
    "truth=truth.to_dataset(name='t2m')), and pass 'store.zarr'"
)
_OF_METHODS = {"max_epochs": 1, "accelerator": "cpu", "devices": 1}  # solved in one pass


def fit(
    data: Path | str | xr.DataArray | None = None,
    model: object = None,
    *,
    truth: xr.DataArray | None = None,
    run: Path | str | None = None,
    resume: bool = False,
    seed: int | None = None,
    quiet: bool = False,
    trust: Sequence[str] = (),
    processor_time: str | None = None,
    step_memory: str | None = None,
    **options: Any,
) -> "Run | FittedMethod":
    """Train a model, as `ens10 fit` does.

    A model that is an object starts with the weights that it has. If its class can be imported and
    its arguments are plain values, the run builds it again; of any other model a line says why not,
    and the run needs the object (`Run(path, model)`).

    Args:
        data: store of `ens10 prepare`; or, for a statistical method without a run, the members of
            past forecasts.
        model: name or file of a configuration; a Lightning module such as `PostProcessor`; a
            `Network` or a module of torch, to which `head` belongs, or the class of one, which is
            made with the channels of the data; a statistical method.
        truth: for members: their truth.
        run: folder of the run; None for the first free `runs/NAME-N`.
        resume: resume the training in `run`, whose own configuration counts, not `model`'s. A model
            that the run cannot build, and callbacks and loggers, have to be passed again.
        seed: of the data's order, and of a configuration's initial weights; None for 0.
        quiet: no progress bar, no last line.
        trust: modules that the configuration of a run of someone else may use.
        processor_time: such as "90s", "10min" or "2h", in place of `max_epochs`: a few steps of a
            copy are measured, and as many epochs are trained as take this time.
        step_memory: such as "8GB": batches whose step takes more are trained in equal parts whose
            gradients are accumulated. Bytes are counted on a copy.
        **options: of Lightning's trainer (`max_epochs`, `logger`, `callbacks`); of
            `EnsembleDataModule` (`target`, `inputs`, `batch_size`); of `PostProcessor` for a
            network (`head`, `loss`, `optimizer`); for members those of
            `ens10.models.statistical.fit`.

    Returns:
        The run; for members the fitted method, a function from members to corrected forecasts.

    Raises:
        ArgumentError: an option has a wrong value, or the model does not fit the data.
        UnknownNameError: no such configuration or option.
        FileError: the folder holds files already, or no run to resume.
        Terminated, KeyboardInterrupt: a signal ended it; call it again with `resume=True`.
    """
    texts = {PROCESSOR_TIME: processor_time, STEP_MEMORY: step_memory}
    limits = {name: text for name, text in texts.items() if text is not None}
    if isinstance(data, xr.DataArray):
        require_no_limits(limits, "is for trainings on a store; members are solved in one pass")
        return _fit_members(data, model, truth, options)
    if truth is not None:
        raise ArgumentError("truth", "is for members in a DataArray", "A store has its own truth")
    if resume and run is None:
        raise ArgumentError("run", "which run to resume is not said", "Name its folder")
    if not resume and (data is None or model is None):
        name = "data" if data is None else "model"
        raise ArgumentError(name, "is missing", "Pass a store and a model")
    of_network = {name: options.pop(name) for name in _OF_NETWORK if name in options}
    is_text = isinstance(model, Path | str)
    if not is_text and model is not None and not resume and processor_time is None:
        options = _with_limits(model, options)
    folder = Path(run) if run is not None else _free_folder(_name(model))
    words, objects = _words(options)
    words += ["--run", str(folder), *(["--quiet"] if quiet else [])]
    words += [f"{name}={text}" for name, text in limits.items()]
    words += [word for module in trust for word in ("--trust", module)]
    words += ["--seed_everything", str(seed)] if seed is not None else []
    words += ["--data.store", str(data)] if data is not None else []
    if resume:
        words.append("--resume")
    if is_text:
        path = _config_file(str(model))
        if of_network:
            reason = "is for networks; a configuration has its own"
            raise ArgumentError(min(of_network), reason, "Write it into the configuration")
        words = [*([] if resume else ["--config", str(path)]), *words]
        model = None
    make = None if model is None else partial(_make_model, model, of_network)
    command = _run_words("fit", words, make, objects)
    is_built = read_mapping(folder / CONFIG).get("model") is not None
    return Run(folder, None if is_built else command.model)


class Run:
    """A trained run: its folder, with the commands on it as methods.

    Args:
        path: the folder.
        model: the model, if the run cannot build it; as for `fit`.
        **options: of `PostProcessor` for a network, such as `head`.

    Attributes:
        path: the folder.

    Raises:
        FileError: the folder holds no run.
    """

    def __init__(self, path: Path | str, model: object = None, **options: Any) -> None:
        self.path = Path(path)
        require_run(self.path)
        self._model, self._options = model, options

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def predict(
        self, store: Path | str | None = None, *, quiet: bool = False, **options: Any
    ) -> Any:
        """Write the predictions of the test dates, as `ens10 predict`.

        Args:
            store: other data than those of the training.
            quiet: no progress bar.
            **options: of Lightning's trainer and of `EnsembleDataModule`.

        Returns:
            The forecast as a lazy Dataset; of several targets or lead times a list of these.

        Raises:
            FileError: no checkpoint, or a model that the run cannot build.
        """
        words, objects = _words(options)
        words += ["--run", str(self.path), *(["--quiet"] if quiet else [])]
        words += ["--data.store", str(store)] if store is not None else []
        _run_words("predict", words, None if self._model is None else self._module, objects)
        return _one_or_all([open_forecast(part, dask=True)[0] for part in run_parts(self.path)])

    def score(self, **options: Any) -> Any:
        """Score the predictions, as `ens10 score`.

        Args:
            **options: of `ens10.experiments.scoring.score.score_forecast`.

        Returns:
            The scores, a `ScoringResult`; of several targets or lead times a list of these.
        """
        return _one_or_all([score_forecast(part, **options) for part in run_parts(self.path)])

    def report(self, out: Path | str, *others: "Run | Path | str", **options: Any) -> Path:
        """Write a report of this and other scored runs, as `ens10 report`; return its page."""
        runs = [one.path if isinstance(one, Run) else one for one in (self, *others)]
        return write_report(runs, out, **options)

    def apply(
        self, forecast: Path | str | xr.Dataset, out: Path | str | None = None, **options: Any
    ) -> Any:
        """Correct new forecasts, as `ens10 apply`.

        Args:
            forecast: file, folder, store or Dataset; it needs no truth.
            out: file to write; None to return the corrected forecast.
            **options: of `ens10.experiments.forecasts.apply.apply`; without `out` those of a
                `TrainedModel`, such as `quantiles`.

        Returns:
            The path of the file; without `out` a Dataset, lazy for files.
        """
        module = None if self._model is None else self._module(None)
        if out is not None:
            shows = sys.stderr.isatty()
            return apply([self.path], forecast, out, module=module, progress=shows, **options)
        models = load_models(self.path, ModelOptions(), module)
        source = open_for_models(forecast, None, InputRules(), models)
        return (models[0] if len(models) == 1 else TrainedModels(models))(source, **options)

    def bundle(self, out: Path | str, **options: Any) -> Path:
        """Write the run as one file to share, as `ens10 bundle`; return its path."""
        return bundle(self.path, out, **options)

    def _module(self, data: EnsembleDataModule | None) -> pl.LightningModule:  # noqa: ARG002
        """Return the model as a Lightning module for the features of the checkpoint."""
        state = read_checkpoint(self.path / CHECKPOINTS / BEST)[EnsembleDataModule.__name__]
        channels, *grid = state["mean"].shape[-3:]
        shape = DataShape(channels, tuple(grid), 0, 0, None)
        return lightning_module(self._model, shape, **self._options)


def save_run(trainer: pl.Trainer, run: Path | str | None = None) -> Run:
    """Make a run of what a trainer of Lightning has fitted.

    The best checkpoint is that of the trainer's `ModelCheckpoint`, or else the present weights. The
    log has the trainer's last values.

    Args:
        trainer: after `fit(model, datamodule=EnsembleDataModule(...))`.
        run: folder of the run; None for the first free `runs/NAME-N`.

    Raises:
        ArgumentError: the trainer has not fitted a model on this package's data module of a store.
        FileError: the folder holds files already.
    """
    model, data = trainer.lightning_module, getattr(trainer, "datamodule", None)
    if model is None or not isinstance(data, EnsembleDataModule):
        reason = "it has not fitted a model on an EnsembleDataModule"
        raise ArgumentError("trainer", reason, "Call trainer.fit(model, datamodule=...) first")
    if not isinstance(data.store, str | Path):
        raise ArgumentError("trainer", "its data are no store", "Prepare one with `ens10 prepare`")
    folder = Path(run) if run is not None else _free_folder(_name(model))
    values, facts = model_as_values(model)
    config = {
        "seed_everything": data.seed,
        "trainer": {"max_epochs": trainer.max_epochs, "precision": trainer.precision},
        "model": values,
        "data": {"store": str(data.store), **_data_values(data)},
    }
    best = str(getattr(trainer.checkpoint_callback, "best_model_path", ""))
    if best:
        read_checkpoint(Path(best))
    with run_folder(folder, "fit", new=True):
        log = RunLog(folder)
        log.log_metrics({**trainer.logged_metrics, "epoch": trainer.current_epoch - 1})
        write_start(model, data, folder, config, facts)
        (folder / CHECKPOINTS).mkdir()
        trainer.save_checkpoint(folder / CHECKPOINTS / LAST)
        shutil.copyfile(best or folder / CHECKPOINTS / LAST, folder / CHECKPOINTS / BEST)
        log.write()
    return Run(folder, None if facts[NOT_BUILT] is None else model)


def _data_values(data: EnsembleDataModule) -> dict[str, Any]:
    """Return the options of a data module as plain values."""
    values = {name: getattr(data, name) for name in _OF_DATA if name != "protocol"}
    return {**specification(values, "data"), "protocol": reference_of(protocol_of(data.protocol))}


def _fit_members(
    members: xr.DataArray, model: object, truth: xr.DataArray | None, options: Mapping[str, Any]
) -> FittedMethod:
    """Fit a statistical method to members and truth in memory."""
    if isinstance(model, Path | str):
        content = read_mapping(_config_file(str(model)))["model"]
        if not str(content["class_path"]).endswith(StatisticalPostProcessor.__name__):
            raise ArgumentError("model", f"{model} trains on a store, not on arrays", _PREPARE)
        model = build(StatisticalPostProcessor, content["init_args"])
    method = getattr(model, "method", model)
    if not isinstance(method, StatisticalMethod):
        raise ArgumentError("model", f"a {type(model).__name__} does not fit arrays", _PREPARE)
    if truth is None:
        raise ArgumentError("truth", "is missing", "Pass the truth of the members as a DataArray")
    return fit_arrays(method, members, truth, **options)


def _run_words(stage: Any, words: Sequence[str], make: Any, objects: Mapping[str, Any]) -> Any:
    """Run a stage; bad usage is an error of an argument, not the end of the process."""
    try:
        return run_stage(stage, words, model=make, objects=objects)
    except UsageError as error:
        raise ArgumentError("options", error.line) from None


def _make_model(
    model: object, options: Mapping[str, Any], data: EnsembleDataModule
) -> pl.LightningModule:
    members = batch_layout(data.kind).features == "members"
    return lightning_module(
        model, shape_of_batches(data.batches("train"), members=members), **options
    )


def _with_limits(model: object, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with those of methods, which are solved in one pass.

    Raises:
        ArgumentError: it is not said how long a network trains.
    """
    if isinstance(model, StatisticalMethod | StatisticalPostProcessor):
        return _OF_METHODS | options
    if not any(name in options for name in _LIMITS):
        raise ArgumentError("max_epochs", "is missing", "Say how long to train: max_epochs=10")
    return options


def _words(options: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return options as words of the command line, and the trainer's objects.

    Raises:
        UnknownNameError: an option of neither data nor trainer.
        ArgumentError: an option of the data that is no plain value.
    """
    words, objects = [], {}
    for name, value in options.items():
        if name not in (*_OF_DATA, *_OF_TRAINER):
            raise UnknownNameError("options", name, [*_OF_DATA, *_OF_TRAINER, *_OF_NETWORK])
        group = "data" if name in _OF_DATA else "trainer"
        try:
            plain = reference_of(protocol_of(value)) if name == "protocol" else value
            plain = specification(plain, name)
        except ArgumentError:
            if group == "data":
                raise
            objects[name] = value
            continue
        words.append(f"--{group}.{name}={plain if isinstance(plain, str) else json.dumps(plain)}")
    return words, objects


def _config_file(model: str) -> Path:
    """Return the file of a configuration, by its path or by a name of this package's.

    Raises:
        UnknownNameError: there is none.
    """
    files = (Path(model), config_path(model))
    if found := next((file for file in files if file.is_file()), None):
        return found
    raise UnknownNameError("model", model, sorted(p.stem for p in files[1].parent.glob("*.yaml")))


def _name(model: object) -> str:
    """Return the name of a run by its model."""
    if isinstance(model, Path | str):
        return Path(model).stem
    inner = getattr(model, "network", getattr(model, "method", model))
    inner = getattr(inner, "module", inner)
    return (inner if isinstance(inner, type) else type(inner)).__name__.lower()


def _free_folder(name: str) -> Path:
    """Return the first folder `runs/NAME-N` that does not exist.

    Raises:
        ArgumentError: this is not the only process of the training.
    """
    if not is_first():
        reason = "several processes train into one folder"
        raise ArgumentError("run", reason, f"Name it, such as run='runs/{name}'")
    paths = (Path("runs") / f"{name}-{n}" for n in count(1))
    return next(path for path in paths if not path.exists())


def _one_or_all(items: list[Any]) -> Any:
    return items[0] if len(items) == 1 else items
