"""The console script `ens10`: the roof of the house, which reaches each room when it is called.

Exit status 0 on success, 2 on bad usage, 1 with one clear line on bad input.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ens10.errors import Ens10Error, suggestion

_LIGHTNING = ("fit", "validate", "test", "predict")
_NEEDED_BY_TRAIN = ("torch", "pytorch_lightning", "jsonargparse")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: the command line without the program's name; None for that of the process.

    Returns:
        The exit status.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in _LIGHTNING:
            return _lightning(given[0], given[1:])
        options = _parser().read(given)
        return int(options.command(options) or 0)
    except Ens10Error as error:
        print(f"ens10: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in (*_NEEDED_BY_TRAIN, "matplotlib"):
            remedy = "Install it with: pip install 'ens10[all]'"
            print(f"ens10: this command needs {error.name}. {remedy}", file=sys.stderr)
            return 1
        raise
    except KeyboardInterrupt:
        print("ens10: interrupted", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are two lines, with a suggestion for a name that is not known."""

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Like `parse_args`, but the command's own parser answers for options unknown to it."""
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
    for add in (_add_info, _add_synth, _add_inspect, _add_prepare, _add_stages, _add_score,
                _add_report, _add_demo, _add_env):  # fmt: skip
        add(commands)
    for command in commands.choices.values():
        command.allow_abbrev = False
        command.set_defaults(parser=command)
    return parser


Commands = argparse._SubParsersAction


def _add_info(commands: "Commands[_Parser]") -> None:
    parser = commands.add_parser("info", help="what ENS-10 is")
    parser.set_defaults(command=_info)


def _add_synth(commands: "Commands[_Parser]") -> None:
    parser = commands.add_parser("synth", help="write a synthetic world in the real file layout")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--grid", default="46x96", help="rows x columns (default: %(default)s)")
    parser.add_argument("--years", default="1998-2017", help="first-last (default: %(default)s)")
    parser.add_argument("--dates", type=int, help="how many of the 105 start dates (default: all)")
    parser.add_argument("--variables", nargs="+", help="default: all surface variables")
    parser.add_argument("--levels", nargs="+", type=int, default=[500, 850], help="hPa")
    parser.add_argument("--steps", nargs="+", type=int, default=[0, 24, 48], help="hours")
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(command=_synth)


def _add_inspect(commands: "Commands[_Parser]") -> None:
    parser = commands.add_parser("inspect", help="what a file, folder or store holds")
    parser.add_argument("path", type=Path, metavar="PATH")
    parser.add_argument("--headers", action="store_true", help="do not decode the values")
    parser.set_defaults(command=_inspect)


def _add_prepare(commands: "Commands[_Parser]") -> None:
    parser = commands.add_parser("prepare", help="build a store from files")
    parser.add_argument("src", metavar="SRC", help="GRIB or netCDF file or folder, or Zarr store")
    parser.add_argument("store", type=Path, metavar="STORE")
    parser.add_argument("--truth", metavar="T", help="file, folder or Zarr store with the truth")
    parser.add_argument("--names", type=Path, metavar="FILE", help="YAML mapping of names")
    parser.add_argument("--variables", nargs="+", help="default: all that the files hold")
    parser.add_argument("--codec", choices=("none", "lz4"), default="none")
    parser.add_argument("--missing", choices=("error", "nan", "skip"), default="error")
    parser.add_argument("--force", action="store_true", help="replace a store that exists")
    parser.set_defaults(command=_prepare)


def _add_stages(commands: "Commands[_Parser]") -> None:
    says = {
        "fit": "train: --config FILE --data.store STORE --run RUN [--resume]",
        "validate": "validation scores of a run: --run RUN",
        "test": "test scores of a run: --run RUN",
        "predict": "write a run's predictions: --run RUN",
    }
    for stage in _LIGHTNING:
        commands.add_parser(stage, help=says[stage])


def _add_score(commands: "Commands[_Parser]") -> None:
    parser = commands.add_parser("score", help="score predictions, with confidence intervals")
    parser.add_argument("paths", type=Path, nargs="+", metavar="RUN_OR_PREDICTIONS")
    parser.add_argument("--weights", choices=("cell", "cos", "none"), help="default: the run's")
    parser.set_defaults(command=_score)


def _add_report(commands: "Commands[_Parser]") -> None:
    parser = commands.add_parser("report", help="tables, figures and one HTML page of runs")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--reference", default="raw", help="name of the run to compare with")
    parser.set_defaults(command=_report)


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


def _info(options: argparse.Namespace) -> None:  # noqa: ARG001
    from ens10.screen import print_info

    print_info()


def _synth(options: argparse.Namespace) -> None:
    from ens10.errors import ArgumentError
    from ens10.synthetic import World

    first, _, last = options.years.partition("-")
    if not (first.isdigit() and (last or first).isdigit()):
        raise ArgumentError("--years", f"{options.years!r} is no range", "Write 1998-2005")
    world = World(
        options.grid,
        range(int(first), int(last or first) + 1),
        options.dates,
        options.variables,
        options.seed,
        levels=options.levels,
        steps=options.steps,
        members=options.members,
    )
    world.write(options.folder, progress=True)
    print(f"Wrote {options.folder}: truth of {', '.join(world.targets) or 'no target'}")


def _inspect(options: argparse.Namespace) -> int:
    from ens10.inspection import inspect_path
    from ens10.screen import print_rows

    rows = inspect_path(options.path, values=not options.headers, progress=True)
    print_rows(str(options.path), rows)
    return int(any(row.status != "ok" for row in rows))


def _prepare(options: argparse.Namespace) -> None:
    from ens10.convert import prepare
    from ens10.names import read_names
    from ens10.screen import print_store

    store = prepare(
        options.src,
        options.store,
        truth=options.truth,
        names=read_names(options.names) if options.names else None,
        variables=options.variables,
        codec=options.codec,
        missing=options.missing,
        force=options.force,
        progress=True,
    )
    print_store(store)


def _score(options: argparse.Namespace) -> None:
    from ens10.experiments.score import in_words, score_run

    for path in options.paths:
        print(f"{path}: {in_words(score_run(path, options.weights))}")


def _report(options: argparse.Namespace) -> None:
    from ens10.experiments.report import write_report

    page = write_report(options.runs, options.out, reference=options.reference, progress=True)
    print(f"Wrote {page}")


def _demo(options: argparse.Namespace) -> None:
    from ens10.experiments.demo import run_demo

    run_demo(options.out, seed=options.seed)


def _env(options: argparse.Namespace) -> None:  # noqa: ARG001
    from ens10.screen import print_environment

    print_environment()


if __name__ == "__main__":
    sys.exit(main())
