"""Training and prediction by Lightning's command line: a YAML file in, a run folder out.

RUN/config.yaml             the resolved configuration
RUN/provenance.json         seed, versions, commit, data, dates, parameters
RUN/log/metrics.csv         losses by epoch
RUN/checkpoints/            best.ckpt, last.ckpt and previous.ckpt, with normalisation statistics
RUN/run.lock                while a process trains
RUN/predictions.zarr        after `ens10 predict`
RUN/scores.nc, scores.csv   after `ens10 score`
RUN/parts/t2m-24h/          of several targets or lead times: predictions and scores of each
"""

import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import yaml
from jsonargparse.typing import PositiveFloat
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.utilities import rank_zero_only

from ens10.durable import clear_leftovers, leftovers
from ens10.errors import ArgumentError, Ens10Error, FileError, printable
from ens10.experiments.runs import provenance
from ens10.experiments.runs.bytesread import BytesRead
from ens10.experiments.runs.checkpoints import (
    BEST,
    Shapes,
    checkpoint_shapes,
    differences,
    other_architecture,
    resumable_checkpoint,
    shapes,
)
from ens10.experiments.runs.fit_cost import FitCost
from ens10.experiments.runs.lightning_warnings import suppress_lightning_warnings
from ens10.experiments.runs.locks import hold_lock
from ens10.experiments.runs.predictions import PredictionWriter
from ens10.experiments.runs.progress import DatesProgressBar
from ens10.experiments.runs.reading import PREDICTIONS, run_parts
from ens10.experiments.runs.runlog import FILE as LOG_FILE
from ens10.experiments.runs.runlog import FOLDER as LOG_FOLDER
from ens10.experiments.runs.runlog import RunLog
from ens10.experiments.runs.saving import MINUTES, RunCheckpoints, SignalHandlers, WholeCheckpointIO
from ens10.experiments.runs.trust import checked_config, split_trust, write_config
from ens10.experiments.training.data_numbers import (
    any_numbers,
    as_options,
    numbers_on_store,
    usable_inputs,
)
from ens10.experiments.training.options import (
    StageParser,
    check_protocol,
    split_options,
    with_strategy,
)
from ens10.loader.datamodule import EnsembleDataModule
from ens10.loader.samples import Samples
from ens10.models.matching import advice_for_amounts
from ens10.models.parallel.failure_detection import one_error_for_lost_processes
from ens10.models.warmstart import outermost_methods
from ens10.protocol import content_of, reference_of
from ens10.signals import Interrupted, Stop, Terminated, ending, stoppable
from ens10.usage import command_parser, ens10_cause

Stage = Literal["fit", "validate", "test", "predict"]
Inputs = Literal["usable", "all", "as recorded"]
CONFIG, CHECKPOINTS = "config.yaml", "checkpoints"
LOCK, PREDICT_LOCK = "run.lock", "predict.lock"
_FILES_BEFORE_TRAINING = (CONFIG, provenance.FILE)  # what a fit writes before it trains
_CONFIG_KEYS = ("seed_everything", "trainer", "model", "data")
_NO_ABBREVIATIONS: dict[str, Any] = {"allow_abbrev": False}  # --data.stor is a mistake


def run_stage(stage: Stage, arguments: Sequence[str], *, all_inputs: bool = False) -> "RunCLI":
    """Run one stage as the command line does.

    Args:
        stage: "fit", "validate", "test" or "predict".
        arguments: of the command line after the stage; all stages but `fit` take the
            configuration from the run folder, as far as `ens10.experiments.runs.trust` lets them.
        all_inputs: whether a configuration's inputs that the data lack are an error; else they are
            left out, with a line that names them.

    Raises:
        ArgumentError: no run folder is named, or several.
        FileError: the folder holds a run already, or none, or no checkpoint; or another process
            is writing the same files; or the run folder names code that is not trusted.
        SystemExit: an unknown option or key (2), or help was printed (0).
        Terminated: SIGTERM ended it; `fit --resume` resumes.
        KeyboardInterrupt: the user ended it; `fit --resume` resumes.
    """
    arguments = with_strategy(arguments)
    if _asks_for_help(arguments):
        with suppress_lightning_warnings():
            # prints help and exits: no run is needed
            return RunCLI([stage, *arguments], Path(), Stop())
    arguments, trusted = split_trust(arguments)
    run = _run_folder(arguments)
    begins = stage == "fit" and "--resume" not in arguments
    if begins and not _has_option(arguments, "--config", "--model"):
        command_parser("ens10 fit").error("--model is required; add --config FILE")
    with suppress_lightning_warnings(), stoppable() as stop, ExitStack() as contexts:
        if _is_first():
            contexts.enter_context(_hold_new_run(run) if begins else _hold_existing_run(run, stage))
        run_options = []
        if not begins:
            run_options = ["--config", checked_config(run / CONFIG, trusted, fit=stage == "fit")]
        if not begins and "--ckpt_path" not in arguments:
            run_options += _checkpoint_option(run, stage)
        try:
            inputs: Inputs = "as recorded" if not begins else "all" if all_inputs else "usable"
            return RunCLI([stage, *run_options, *arguments], run, stop, inputs)
        except (Terminated, KeyboardInterrupt) as error:
            raise _ending_exception(error, stage, run) from None
        except SystemExit as exit_error:
            if isinstance(exit_error.__context__, KeyboardInterrupt):
                # Lightning makes a silent exit of it
                raise _ending_exception(exit_error.__context__, stage, run) from None
            raise


def _ending_exception(error: BaseException, stage: Stage, run: Path) -> Terminated | Interrupted:
    """Return the exception that ends a stage; that of the first process names how to resume."""
    remedy = f"ens10 {stage} --run {run}" + (" --resume" if stage == "fit" else "")
    remedy = f"resume with `{remedy}`"
    if (stage == "fit" and not (run / CONFIG).is_file()) or not _is_first():
        remedy = ""
    number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
    exception = ending(number, remedy)
    if not _is_first():
        exception.line = ""
    return exception


@contextmanager
def _hold_new_run(run: Path) -> Iterator[None]:
    """Lock an empty folder for a new run; after an error before training, remove its files.

    Raises:
        FileError: the folder holds files already, or another process is using it.
    """
    is_new = not run.exists()
    run.mkdir(parents=True, exist_ok=True)
    allowed_files = {run / LOCK, *leftovers(run, *_FILES_BEFORE_TRAINING)}
    if set(run.iterdir()) - allowed_files:
        remedy = "Choose another --run, or resume it with --resume"
        raise FileError(run, "holds files already", remedy)
    try:
        with hold_lock(run / LOCK, "ens10 fit"):
            clear_leftovers(run, *_FILES_BEFORE_TRAINING)
            try:
                yield
            except (Ens10Error, OSError, SystemExit) as error:
                if not isinstance(error, Terminated):
                    _remove_untrained(run)
                raise
    except BaseException:
        with suppress(OSError):
            if is_new:
                run.rmdir()  # if it is empty
        raise


def _remove_untrained(run: Path) -> None:
    """Remove the files of a fit that has no checkpoint yet, so that it can be repeated."""
    if any((run / CHECKPOINTS).glob("*.ckpt")):
        return
    for path in (run / CONFIG, run / provenance.FILE, run / LOG_FOLDER / LOG_FILE):
        path.unlink(missing_ok=True)
    shutil.rmtree(run / provenance.PARTS, ignore_errors=True)
    for folder in (run / LOG_FOLDER, run / CHECKPOINTS):
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _hold_existing_run(run: Path, stage: Stage) -> Iterator[None]:
    """Lock a run to resume or predict it, and remove temporary files of killed processes.

    Raises:
        FileError: there is no run, or another process is using it.
    """
    if not (run / CONFIG).is_file():
        raise FileError(run, f"no run (it has no {CONFIG})", "Make one with `ens10 fit`")
    if stage == "fit":
        with hold_lock(run / LOCK, "ens10 fit"):
            clear_leftovers(run, *_FILES_BEFORE_TRAINING)  # `ens10 score` may be writing its own
            for folder in (run / LOG_FOLDER, run / CHECKPOINTS):
                clear_leftovers(folder)
            yield
    elif stage == "predict":
        with hold_lock(run / PREDICT_LOCK, "ens10 predict"):
            for folder in run_parts(run):
                clear_leftovers(folder, PREDICTIONS)
            yield
    else:
        yield


class RunCLI(LightningCLI):
    """Lightning's command line with `--run FOLDER`, `--resume` and `--quiet`.

    Args:
        args: stage and options.
        run: the folder of the run, which `--run` names too.
        stop: whether a signal has arrived.
        inputs: of a new run: "usable" leaves out those of its configuration that the data lack,
            "all" refuses to. Numbers that the configuration leaves out follow from the data.
            "as recorded" changes nothing.
    """

    def __init__(
        self, args: Sequence[str], run: Path, stop: Stop, inputs: Inputs = "as recorded"
    ) -> None:
        self._run, self._stop, self._stage, self._inputs = run, stop, args[0], inputs
        self.cost, self._log = FitCost(), RunLog(run)
        self._checkpoint: tuple[Path, Shapes] | None = None
        try:
            super().__init__(
                model_class=pl.LightningModule,
                subclass_mode_model=True,
                datamodule_class=EnsembleDataModule,
                save_config_callback=None,
                seed_everything_default=0,
                parser_class=StageParser,
                parser_kwargs={"prog": "ens10", **_NO_ABBREVIATIONS}
                | {self._stage: _NO_ABBREVIATIONS},
                auto_configure_optimizers=False,
                load_from_checkpoint_support=False,
                args=list(args),
            )
        except RuntimeError as error:
            self._refuse_other_architecture(error)
            raise
        except ValueError as error:
            raise ens10_cause(error) or error from error.__cause__

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Return the arguments that the requested stage skips; parsers of others cost time."""
        return {self._stage: LightningCLI.subcommands()[self._stage]}

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the options, check the protocol, and read the shapes in the checkpoint."""
        if self._inputs != "as recorded":
            # once before the options of the model: another class takes over complete parts alone
            before, of_model = split_options(args, "--model")
            if of_model:
                args = [*self._with_numbers(parser, before, check=False), *of_model]
            args = self._with_numbers(parser, args)
        super().parse_arguments(parser, args)
        check_protocol(self.config[self.config.subcommand].get("data.protocol"))
        if self._run != Path(str(self._options.run)):
            reason = f"{self._options.run} in a configuration, {self._run} on the command line"
            raise ArgumentError("run", reason, "Name the run with --run alone")
        checkpoint = self.config[self.config.subcommand].get("ckpt_path")
        if checkpoint:
            path = Path(checkpoint)
            self._checkpoint = path, checkpoint_shapes(path)

    def _with_numbers(
        self, parser: LightningArgumentParser, args: Sequence[str], check: bool = True
    ) -> list[str]:
        """Return the options with those that the configuration takes from the data."""
        # without validation, which refuses configurations that leave numbers out
        config = parser.parse_args(args, _skip_validation=True)[self._stage].as_dict()
        try:
            return [*args, *self._options_of_data(config, args, check)]
        except Ens10Error:  # mistakes in the configuration come before those of the data
            if not check:
                return list(args)
            super().parse_arguments(parser, [*args, *as_options(any_numbers(config))])
            raise

    def _options_of_data(
        self, config: dict[str, Any], args: Sequence[str], check: bool
    ) -> list[str]:
        """Return the options that a configuration takes from the data; check those that it sets."""
        data = config["data"]
        if data.get("store") is None:
            command_parser("ens10 fit").error("--data.store is required")
        changes: dict[str, Any] = {}
        own_inputs = any(argument.startswith("--data.inputs") for argument in args)
        if data.get("inputs") and self._inputs == "usable" and not own_inputs:
            usable, missing = usable_inputs(data, data["store"])
            if missing:
                changes["data.inputs"] = data["inputs"] = usable
                if _is_first():
                    words = f"the data have no {', '.join(missing)}: trained without"
                    print(f"ens10: inputs: {words}", file=sys.stderr)
        if config["model"]:
            changes |= numbers_on_store(config, data["store"], check=check)
        return as_options(changes)

    def _refuse_other_architecture(self, error: RuntimeError) -> None:
        """Raise an error that lists the differing shapes if a checkpoint does not fit the model."""
        model = getattr(self, "model", None)
        if self._checkpoint is None or model is None:
            return
        path, saved_shapes = self._checkpoint
        differing = differences(saved_shapes, shapes(model.state_dict()))
        if differing:
            raise other_architecture(path, differing) from error

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the options of a run, such as `--run`; link the seed of the data to that of all."""
        parser.add_argument("--run", type=str, required=True, help="folder of the run")
        parser.add_argument("--resume", action="store_true", help="resume from the last checkpoint")
        parser.add_argument(
            "--trust", type=str, metavar="MODULE",
            help="code that the configuration of a run of someone else may use; repeatable",
        )  # fmt: skip
        parser.add_argument("--quiet", action="store_true", help="no progress bar, no last line")
        parser.add_argument(
            "--checkpoint_minutes",
            type=PositiveFloat,
            default=MINUTES,
            help="minutes between checkpoints within an epoch",
        )
        parser.link_arguments("seed_everything", "data.seed", compute_fn=int)

    @property
    def run_folder(self) -> Path:
        """The folder of the run."""
        return Path(str(self._options.run))

    @property
    def _options(self) -> Any:
        return self.config[self.config.subcommand]

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Return a trainer that writes log, checkpoints and predictions to the run folder."""
        user_callbacks = self._get(self.config_init, "trainer.callbacks") or []
        callbacks: list[pl.Callback] = (
            [user_callbacks] if isinstance(user_callbacks, pl.Callback) else list(user_callbacks)
        )
        logger: RunLog | bool = False
        callbacks.append(SignalHandlers(self._stop))
        if self.subcommand == "fit":
            logger = self._log
            bytes_read = BytesRead(self.run_folder, self.datamodule)
            callbacks += [self._checkpoint_callback(logger), bytes_read, self.cost]
        elif self.subcommand == "predict":
            callbacks.append(PredictionWriter(self.run_folder / PREDICTIONS, self.datamodule))
        if not self._options.quiet:
            callbacks.append(DatesProgressBar(leave=False))
        if not any(isinstance(callback, pl.callbacks.Checkpoint) for callback in callbacks):
            # Lightning would add one that takes the state of ours in older checkpoints for its own
            kwargs["enable_checkpointing"] = False
        trainer = super().instantiate_trainer(
            logger=logger,
            callbacks=callbacks,
            default_root_dir=str(self.run_folder),
            enable_progress_bar=not self._options.quiet,
            enable_model_summary=False,
            **kwargs,
        )
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = WholeCheckpointIO()
        return trainer

    def _run_subcommand(self, subcommand: str) -> None:
        """Run a stage; if a process is lost, the others end with one line, not a traceback."""
        several = self.trainer.world_size > 1
        rank = self.trainer.global_rank
        with one_error_for_lost_processes(rank) if several else nullcontext():
            super()._run_subcommand(subcommand)

    def before_fit(self) -> None:
        """Write the configuration and the provenance of the run before the training."""
        if not _is_first():
            return
        target = self.datamodule.target
        targets = [target] if isinstance(target, str) else target
        if advice := advice_for_amounts(self.model, targets):
            print(f"ens10: {advice}", file=sys.stderr)
        self.run_folder.mkdir(parents=True, exist_ok=True)
        parser = self._parser("fit")
        text = parser.dump(self._options, skip_unset=False)  # a null may replace a default
        config = {key: value for key, value in yaml.safe_load(text).items() if key in _CONFIG_KEYS}
        config["data"].pop("seed", None)  # it is the seed of everything
        # a file of the user's may change or move: its content is kept, not its path
        config["data"]["protocol"] = reference_of(self.datamodule.protocol)
        write_config(self.run_folder / CONFIG, config)
        self._write_provenance()

    def after_fit(self) -> None:
        """Add the cost (seconds, memory) and the number of fitted parameters to the provenance."""
        if not _is_first():
            return
        weights = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        coefficients = sum(method.fitted_parameters for method, _ in outermost_methods(self.model))
        facts = {name: round(value, 1) for name, value in self.cost.totals().items()}
        facts["memory_mb"] = int(facts["memory_mb"])
        provenance.write(self.run_folder, {**facts, "parameters": weights + coefficients})

    def ending(self) -> str:
        """Return a line on a finished fit: loss, time, next command; "" with --quiet."""
        if self._options.quiet or not _is_first():
            return ""
        result = f"{self._log.best_validation()}, trained".removeprefix(", ").capitalize()
        seconds = provenance.duration(provenance.read_provenance(self.run_folder)["seconds"])
        next_command = f"ens10 predict --run {shlex.quote(str(self.run_folder))}"
        return printable(f"{result} in {seconds}. Next: {next_command}")

    def predict(self, **kwargs: Any) -> None:
        """Predict into the run folder, without predictions in memory."""
        kwargs["return_predictions"] = False
        self.trainer.predict(**kwargs)

    def _checkpoint_callback(self, log: RunLog) -> RunCheckpoints:
        monitor = "val_loss" if len(self.datamodule.batches("val")) else None
        minutes = float(self._options.checkpoint_minutes)
        return RunCheckpoints(self.run_folder / CHECKPOINTS, log, monitor, self._stop, minutes)

    def _write_provenance(self) -> None:
        batches = self.datamodule.batches("train")
        splits, samples = batches.splits, batches.samples
        parts = self.datamodule.parts
        name = self.run_folder.resolve().name
        facts = {
            "name": name,
            "kind": "reference" if name == "raw" else "model",
            "seed": int(self._options.seed_everything),
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
            "data": {
                "store": Path(self.datamodule.store).name,
                "checksum": provenance.checksum(self.datamodule.store),
            },
        }
        provenance.write(self.run_folder, facts)
        for samples in parts if len(parts) > 1 else []:
            part = provenance.part_name(samples.target, samples.step, samples.step_units)
            provenance.write(self.run_folder / provenance.PARTS / part, _describe(samples))


def _describe(samples: Samples) -> dict[str, Any]:
    return {
        "target": samples.target,
        "target_units": samples.attributes.get("units", ""),
        "step": samples.step,
        "step_units": samples.step_units,
    }


def _is_first() -> bool:
    """Return True if this is the one process that writes, if several train together."""
    return not getattr(rank_zero_only, "rank", 0)


def _has_option(arguments: Sequence[str], *options: str) -> bool:
    return any(argument.partition("=")[0] in options for argument in arguments)


def _asks_for_help(arguments: Sequence[str]) -> bool:
    """Return True for `--help`, and for `--model.help CLASS`, which lists a class's options."""
    names = [argument.partition("=")[0] for argument in arguments]
    return any(n in ("-h", "--help") or (n[:2] == "--" and n.endswith(".help")) for n in names)


def _run_folder(arguments: Sequence[str]) -> Path:
    folders = []
    for n, argument in enumerate(arguments):
        if argument == "--run" and n + 1 < len(arguments):
            folders.append(arguments[n + 1])
        elif argument.startswith("--run="):
            folders.append(argument.removeprefix("--run="))
    if not folders:
        raise ArgumentError("--run", "no folder is given for the run", "Add --run FOLDER")
    if len(folders) > 1:
        raise ArgumentError("--run", f"several folders: {', '.join(folders)}", "Give one")
    return Path(folders[0])


def _checkpoint_option(run: Path, stage: Stage) -> list[str]:
    """Return the option of a run's checkpoint; empty if a fit to resume has not saved any.

    Raises:
        FileError: the run was not trained, or its checkpoints are damaged.
    """
    if stage == "fit":
        path = resumable_checkpoint(run / CHECKPOINTS, repair=_is_first())
        return [] if path is None else ["--ckpt_path", str(path)]
    path = run / CHECKPOINTS / BEST
    if not path.is_file():
        raise FileError(
            path, "no such checkpoint", f"Train first: `ens10 fit --run {run} --resume`"
        )
    return ["--ckpt_path", str(path)]
