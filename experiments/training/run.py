"""Training and prediction by Lightning's command line: a YAML file in, a run folder out.

The command line parses options and makes model, data and trainer's arguments; `train` and
`evaluate` do the work. `ens10.fit` gives options as words too, and objects besides.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import yaml
from jsonargparse.typing import PositiveFloat
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.utilities.seed import isolate_rng

from ens10.errors import ArgumentError, Ens10Error, printable
from ens10.experiments.runs.lightning_warnings import suppress_lightning_warnings
from ens10.experiments.runs.provenance import FILE as PROVENANCE
from ens10.experiments.runs.provenance import NOT_BUILT, OBJECTS, read_provenance
from ens10.experiments.runs.saving import MINUTES
from ens10.experiments.runs.trust import (
    checked_config,
    find_modules_here,
    split_trust,
)
from ens10.experiments.training.data_numbers import (
    any_numbers,
    as_options,
    numbers_on_store,
    usable_inputs,
)
from ens10.experiments.training.folder import (
    CONFIG,
    Stage,
    endings,
    is_first,
    require_empty,
    require_run,
)
from ens10.experiments.training.limits import (
    LIMITS,
    PROCESSOR_TIME,
    STEP_MEMORY,
    Probe,
    epochs_within,
    part_within,
    require_no_limits,
    split_limits,
)
from ens10.experiments.training.options import (
    StageParser,
    check_protocol,
    split_options,
    with_strategy,
)
from ens10.experiments.training.train import RunWork, as_list, evaluate, train
from ens10.loader.datamodule import EnsembleDataModule
from ens10.models.specification import rebuilt_specification
from ens10.signals import stoppable
from ens10.usage import command_parser, ens10_cause

Inputs = Literal["usable", "all", "as recorded"]
# makes the model of a training from its data, in place of a configuration's
MakeModel = Callable[[EnsembleDataModule], pl.LightningModule]
_CONFIG_KEYS = ("seed_everything", "trainer", "model", "data")
_EPOCHS = "trainer.max_epochs"
_NO_ABBREVIATIONS: dict[str, Any] = {"allow_abbrev": False}  # --data.stor is a mistake


def run_stage(
    stage: Stage,
    arguments: Sequence[str],
    *,
    all_inputs: bool = False,
    model: MakeModel | None = None,
    objects: Mapping[str, Any] | None = None,
) -> "RunCLI":
    """Run one stage as the command line does.

    Args:
        stage: "fit", "validate", "test" or "predict".
        arguments: of the command line after the stage; all stages but `fit` take the
            configuration from the run folder, as far as `ens10.experiments.runs.trust` lets them.
        all_inputs: whether a configuration's inputs that the data lack are an error; else they are
            left out, with a line that names them.
        model: makes the model from the data; None for that of the configuration.
        objects: arguments of Lightning's trainer that no command line can hold.

    Returns:
        The command, with the trainer in its attribute `trainer`.

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
            return RunCLI([stage, *arguments])  # prints help and exits: no run is needed
    arguments, trusted = split_trust(arguments)
    arguments, limits = split_limits(arguments)
    run = _run_folder(arguments)
    begins = stage == "fit" and "--resume" not in arguments
    if begins and model is None and not _has_option(arguments, "--config", "--model"):
        command_parser("ens10 fit").error("--model is required; add --config FILE")
    with suppress_lightning_warnings(), stoppable(), endings(run, stage):
        run_options: list[str] = []
        if begins:
            if is_first():
                require_empty(run)
            find_modules_here([*arguments, *_config_texts(arguments)])
        else:
            require_run(run)
            text = checked_config(
                run / CONFIG, trusted, fit=stage == "fit", with_model=model is None
            )
            run_options = ["--config", text]
        inputs: Inputs = "as recorded" if not begins else "all" if all_inputs else "usable"
        words = [stage, *run_options, *arguments]
        measured: dict[str, Any] = {}
        if limits and not begins:
            require_no_limits(limits, "is for a training that begins; a run has what was chosen")
        elif limits:
            chosen, measured = _within(limits, words, run, inputs, model, objects or {})
            words += as_options(chosen)
        command = RunCLI(words, run, inputs, model)
        command.run(objects or {}, measured)
    return command


def _within(
    limits: Mapping[str, str], words: Sequence[str], run: Path, inputs: Inputs,
    model: MakeModel | None, objects: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Return options that keep a training within limits, and facts; say what was chosen.

    Raises:
        ArgumentError: a limit that cannot be kept, or an option that it chooses.
    """

    def probe() -> Probe:
        command = RunCLI([*words, *as_options(chosen)], run, inputs, model)
        return Probe(command.model, command.datamodule, command.settings(objects))

    chosen: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    timed = PROCESSOR_TIME in limits
    if timed and _has_option(words, f"--{_EPOCHS}"):
        raise ArgumentError(PROCESSOR_TIME, f"--{_EPOCHS} is given, too", "Give one of the two")
    # any number of epochs, which a schedule may need
    words = [*words, f"--{_EPOCHS}=1"] if timed else words
    with isolate_rng():
        if STEP_MEMORY in limits:
            chosen, facts["step_memory"] = part_within(limits[STEP_MEMORY], probe())
        if timed:
            epochs, facts["processor_time"] = epochs_within(limits[PROCESSOR_TIME], probe())
            chosen[_EPOCHS] = epochs
    if is_first():
        for fact in facts.values():
            print(f"ens10: {fact.pop('line')}", file=sys.stderr)
    return chosen, facts


class RunCLI(LightningCLI):
    """Lightning's command line with `--run FOLDER`, `--resume` and `--quiet`.

    Args:
        args: stage and options.
        run: the folder of the run, which `--run` names too.
        inputs: of a new run: "usable" leaves out those of its configuration that the data lack,
            "all" refuses to. Numbers that the configuration leaves out follow from the data.
            "as recorded" changes nothing.
        make_model: makes the model from the data; None for that of the configuration.
    """

    def __init__(
        self,
        args: Sequence[str],
        run: Path | None = None,
        inputs: Inputs = "as recorded",
        make_model: MakeModel | None = None,
    ) -> None:
        self._run, self._stage, self._inputs = run or Path(), args[0], inputs
        self._make_model = make_model
        try:
            super().__init__(
                model_class=pl.LightningModule,
                subclass_mode_model=True,
                datamodule_class=EnsembleDataModule,
                save_config_callback=None,
                seed_everything_default=0,
                parser_class=StageParser,
                parser_kwargs={"prog": "ens10", **_NO_ABBREVIATIONS}
                | {self._stage: dict(_NO_ABBREVIATIONS)},  # Lightning adds a description
                auto_configure_optimizers=False,
                load_from_checkpoint_support=False,
                args=list(args),
            )
        except ValueError as error:
            raise ens10_cause(error) or error from error.__cause__

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Return the arguments that the requested stage skips; parsers of others cost time."""
        return {self._stage: LightningCLI.subcommands()[self._stage]}

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the options, and check the protocol."""
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
        for name in LIMITS if self._stage == "fit" else ():
            if self._options[name.strip("-").replace("-", "_")] is not None:
                reason = "is in a configuration, where nothing is measured"
                raise ArgumentError(name, reason, "Give it on the command line")

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
                if is_first():
                    words = f"the data have no {', '.join(missing)}: trained without"
                    print(f"ens10: inputs: {words}", file=sys.stderr)
        if config.get("model"):
            changes |= numbers_on_store(config, data["store"], check=check)
        return as_options(changes)

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the options of trainer, model and data; those of a model unless it is an object."""
        if self._make_model is None:
            super().add_core_arguments_to_parser(parser)
            return
        parser.add_lightning_class_args(pl.Trainer, "trainer")
        parser.add_lightning_class_args(EnsembleDataModule, "data")

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
        for name, (metavar, text) in LIMITS.items() if self._stage == "fit" else ():
            parser.add_argument(name, type=str, metavar=metavar, help=text)
        parser.link_arguments("seed_everything", "data.seed", compute_fn=int)

    @property
    def _options(self) -> Any:
        return self.config[self.config.subcommand]

    def instantiate_classes(self) -> None:
        """Make data and model, and the arguments of the trainer."""
        self.config_init = self.parser.instantiate_classes(self.config)
        self.datamodule = self._get(self.config_init, "data")
        self.model = self._get(self.config_init, "model")
        if self._make_model is not None:
            self.model = self._make_model(self.datamodule)

    def _run_subcommand(self, subcommand: str) -> None:
        """Do nothing: `run` does the work."""

    def _parse_ckpt_path(self) -> None:
        """Leave the options as they are: a checkpoint is read, and checked, by `evaluate`."""

    def settings(self, objects: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the trainer, with those that are objects."""
        settings = dict(self._get(self.config_init, "trainer", default={}))
        for name, value in objects.items():
            several = name in ("callbacks", "logger") and settings.get(name)
            settings[name] = [*as_list(settings[name]), *as_list(value)] if several else value
        return settings

    def run(self, objects: Mapping[str, Any], measured: Mapping[str, Any]) -> None:
        """Run the stage with further arguments of the trainer, and facts for the provenance."""
        settings = self.settings(objects)
        names = self._subcommand_method_arguments[self._stage]
        of_stage = {k: v for k, v in self.config_init[self._stage].items() if k in names}
        given = self._options
        minutes = float(given.checkpoint_minutes)
        work = RunWork(self._run, bool(given.quiet), minutes, bool(given.resume), of_stage)
        if work.resume and is_first():
            begun = (self._run / PROVENANCE).is_file()  # a kill may leave a configuration alone
            facts = read_provenance(self._run) if begun else {}
            for name, kinds in (facts.get(OBJECTS) or {}).items():
                if name not in objects:
                    words = f"trained with {', '.join(kinds)} of Python, and resumed without"
                    print(f"ens10: {name}: {words}", file=sys.stderr)
        parts = (self.model, self.datamodule, settings, work)
        if self._stage == "fit":
            config, facts = self._plain_config(objects)
            self.trainer = train(*parts, config, {**facts, **measured})
        else:
            self.trainer = evaluate(self._stage, *parts)  # type: ignore[arg-type]

    def _plain_config(self, objects: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the configuration as plain values, and what no configuration can hold."""
        text = self._parser("fit").dump(self._options, skip_unset=False)  # null may be an option
        config = {k: v for k, v in yaml.safe_load(text).items() if k in _CONFIG_KEYS}
        facts: dict[str, Any] = {}
        if objects:
            names = {
                name: [type(one).__name__ for one in as_list(v)] for name, v in objects.items()
            }
            facts[OBJECTS] = names
        if self._make_model is not None:
            config["model"], reason = model_as_values(self.model)
            facts |= reason
        return config, facts


def model_as_values(model: pl.LightningModule) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return a model as plain values and a fact for the provenance; None if there are no such."""
    try:
        return rebuilt_specification(model), {NOT_BUILT: None}
    except ArgumentError as error:
        if is_first():
            line = f"the run cannot build its model, which later needs model=: {error}"
            print(f"ens10: {printable(line)}", file=sys.stderr)
        return None, {NOT_BUILT: str(error)}


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


def _config_texts(arguments: Sequence[str]) -> list[str]:
    """Return the texts of the configuration files among the options."""
    words = [part for argument in arguments for part in argument.split("=", 1)]
    files = [Path(b) for a, b in pairwise(words) if a in ("--config", "-c")]
    return [file.read_text(encoding="utf-8") for file in files if file.is_file()]
