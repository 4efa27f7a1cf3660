"""The console script `ens10`: the commands, their options, and the exit status.

Exit status 0 on success, 2 on bad usage, 1 with one clear line on bad input or a full disk, 130
after Ctrl-C, 143 after SIGTERM. This package is the only one under `ens10/` that imports the
experiments, inside its functions.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ens10.cli.apply import add_apply, add_bundle, add_couple
from ens10.cli.data import add_all as add_data_commands
from ens10.cli.scores import add_case, add_score
from ens10.errors import ArgumentError, suggestion
from ens10.extras import telling_extras
from ens10.machine_errors import check_memory_limit
from ens10.places import check_names
from ens10.signals import end_process, reported

_LIGHTNING = ("fit", "validate", "test", "predict")
_TRAIN_AND_DRAW = ("demo", "reproduce")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: the command line without the program's name; None for that of the process.

    Returns:
        The exit status.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = given[0] if given else ""
    extras = ("train", "plot") if command in _TRAIN_AND_DRAW else ()
    try:
        check_names(given)
        check_memory_limit(command)
        _check_python(command)
        with telling_extras(f"`ens10 {command}`", *extras):
            if command in _LIGHTNING:
                return _lightning(command, given[1:])
            options = _parser().read(given)
            status = int(options.command(options) or 0)
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        if not _reader_is_gone():  # another pipe broke, such as that of a worker
            raise
        return 1
    except BaseException as error:
        told = reported(error)
        if told is None:
            raise
        if arguments is None:
            end_process(told)
        return told


def _check_python(command: str) -> None:
    """Refuse `python -O`, with which zarr cannot open a group: its assertions have effects.

    Raises:
        ArgumentError: it is on, and the command may open a store.
    """
    if sys.flags.optimize and command not in ("info", "env"):
        reason = "zarr cannot open stores with it"
        raise ArgumentError("python -O", reason, "Run without -O, and without PYTHONOPTIMIZE")


def _reader_is_gone() -> bool:
    """Return True if stdout's reader, such as `head`, closed the pipe; discard further output."""
    try:
        print(flush=True)  # what was not buffered is not tried again by a flush alone
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are two lines, with a suggestion for a name that is not known."""

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Like `parse_args`, but the command's own parser answers for options unknown to it."""
        known = {option for action in self._actions for option in action.option_strings}
        if arguments and arguments[0].startswith("-") and arguments[0] not in known:
            self.error(f"unrecognized arguments: {arguments[0]}")
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options

    def error(self, message: str) -> NoReturn:
        """Prints the two lines and exits with 2."""
        known = [option for action in self._actions for option in action.option_strings]
        for action in self._actions:
            known += [str(choice) for choice in action.choices or ()]
        wrong = message.partition("unrecognized arguments: ")[2].split()
        if "invalid choice: '" in message:
            wrong = [message.partition("invalid choice: '")[2].partition("'")[0]]
            message = f"{wrong[0]!r} is not known"
        hint = suggestion(wrong[0].partition("=")[0], known) if wrong else ""
        print(f"ens10: {message}{hint}", file=sys.stderr)
        print(f"Try: {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


def _parser() -> _Parser:
    from ens10 import __version__

    parser = _Parser(
        prog="ens10",
        description="Post-processing of ensemble weather forecasts with the ENS-10 dataset.",
        epilog="fit, validate, test and predict take the options of `ens10 fit --help`.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ens10 {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for add in (
        add_data_commands,
        _add_stages,
        lambda commands: add_score(commands, _score),
        lambda commands: add_case(commands, _case),
        add_apply,
        add_bundle,
        add_couple,
        _add_plan,
        _add_report,
        _add_reproduce,
        _add_demo,
        _add_env,
    ):
        add(commands)
    for command in commands.choices.values():
        command.allow_abbrev = False
        command.set_defaults(parser=command)
    return parser


Commands = argparse._SubParsersAction


def _add_stages(commands: "Commands[_Parser]") -> None:
    says = {
        "fit": "train: --config FILE --data.store STORE --run RUN [--resume]",
        "validate": "validation scores of a run: --run RUN",
        "test": "test scores of a run: --run RUN",
        "predict": "write a run's predictions: --run RUN",
    }
    for stage in _LIGHTNING:
        commands.add_parser(stage, help=says[stage])


def _add_plan(commands: "Commands[_Parser]") -> None:
    parser = commands.add_parser(
        "plan",
        help="how to share a training out over devices",
        description="Counts what a step of the configuration's network takes on every split of the "
        "devices, and prints memory and time by a model. Nothing is trained or measured.",
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--devices", type=int, required=True, metavar="N")
    parser.add_argument("--memory", type=float, required=True, metavar="GB", help="of a device")
    parser.add_argument("--grid", metavar="HxW", help="default: the network's, or 361x720")
    parser.add_argument(
        "--batch-size", type=int, metavar="B",
        help="dates of a step on all devices (default: the configuration's)",
    )  # fmt: skip
    parser.add_argument("--machine", default="a100", help="cpu, a100 or h200 (default: a100)")
    parser.add_argument("--precision", default="32", help="32 or bf16 (default: 32)")
    parser.set_defaults(command=_plan)


def _add_report(commands: "Commands[_Parser]") -> None:
    parser = commands.add_parser("report", help="tables, figures and one HTML page of runs")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--reference", default="raw", help="name of the run to compare with")
    parser.set_defaults(command=_report)


def _add_reproduce(commands: "Commands[_Parser]") -> None:
    from ens10.experiments.studies.reproduce import arguments

    parser = commands.add_parser(
        "reproduce",
        help="every model of the papers, beside the published values",
        description=arguments.DESCRIPTION,
    )
    arguments.add_arguments(parser)
    parser.set_defaults(command=arguments.run)


def _add_demo(commands: "Commands[_Parser]") -> None:
    parser = commands.add_parser("demo", help="all of it on a synthetic world, in minutes")
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR")
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(command=_demo)


def _add_env(commands: "Commands[_Parser]") -> None:
    parser = commands.add_parser("env", help="versions and machine, for a bug report")
    parser.set_defaults(command=_env)


def _lightning(stage: str, arguments: Sequence[str]) -> int:
    from ens10.experiments.run import run_stage

    run_stage(stage, arguments)  # type: ignore[arg-type]
    return 0


def _score(options: argparse.Namespace) -> int:
    import warnings

    from ens10.experiments.score import score_forecast
    from ens10.metrics.verification import LeftOutWarning

    if options.out and len(options.paths) > 1:
        raise ArgumentError("--out", "several forecasts would write the same files", "Give one")
    agrees = True
    for path in options.paths:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", LeftOutWarning)
            scored = score_forecast(
                path,
                truth=options.truth,
                variable=options.variable,
                scores=options.scores,
                by=options.by,
                weights=options.weights,
                reference=options.reference,
                land=options.land,
                join=options.join,
                out=options.out,
                points=options.cross_check,
                scheduler=options.scheduler,
                progress=sys.stderr.isatty(),
                raw=options.raw,
                climate=options.climate,
                channel=options.channel,
                efi_method=options.efi_method,
                scores_raw=options.scores_raw,
                climatology=options.climatology,
            )
        for told in caught:
            print(f"ens10: {told.message}", file=sys.stderr)
        print(f"{path}: {scored.in_words()}")
        if options.by:
            print(scored.table())
        if scored.checked:
            print(f"{path}: {scored.checked}")
            agrees &= scored.checked.agrees
    return int(not agrees)


def _case(options: argparse.Namespace) -> None:
    from ens10.experiments.case_page import run_case

    print(run_case(options))


def _plan(options: argparse.Namespace) -> None:
    from ens10.experiments.plan import plan_config, print_plan

    names = ("grid", "batch_size", "machine", "precision")
    rest = {name: getattr(options, name) for name in names}
    shown = sys.stderr.isatty()
    print_plan(plan_config(options.config, options.devices, options.memory, **rest, progress=shown))


def _report(options: argparse.Namespace) -> None:
    from ens10.experiments.report import write_report

    page = write_report(options.runs, options.out, reference=options.reference, progress=True)
    print(f"Wrote {page}")


def _demo(options: argparse.Namespace) -> None:
    from ens10.experiments.demo import run_demo

    run_demo(options.out, seed=options.seed)


def _env(options: argparse.Namespace) -> None:  # noqa: ARG001
    from ens10.cli.output import print_environment

    print_environment()
