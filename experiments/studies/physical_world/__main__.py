"""The commands: make the environment, simulate, write GRIB files, evaluate, archive a store."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from ens10.durable import write_whole
from ens10.errors import ArgumentError
from ens10.experiments.commands import refuse_file
from ens10.experiments.report import png
from ens10.experiments.studies.physical_world.evaluation import (
    evaluate,
    markdown,
    read_cases,
    table,
)
from ens10.experiments.studies.physical_world.files import archive, write_world
from ens10.experiments.studies.physical_world.production import (
    DATES,
    REQUIREMENT,
    JcmProcess,
    PhysicalWorld,
    checksums,
    describe,
    environment_python,
    make_environment,
    simulate,
)
from ens10.experiments.studies.physical_world.years import years_markdown, years_table
from ens10.usage import Parser, command_parser, count, reports_errors

_PROGRAM = "python -m ens10.experiments.studies.physical_world"


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; exit status 1 with one line on bad input, 2 on usage."""
    options = _parser().parse_args(arguments)
    run: Callable[[Namespace], int] = _RUN[options.command]
    return run(options[options.command])


def _parser() -> Parser:
    parser = command_parser(_PROGRAM)
    commands = parser.add_subcommands(metavar="COMMAND", dest="command")
    for name, (text, add_options) in _OPTIONS.items():
        subparser = command_parser(f"{_PROGRAM} {name}", text)
        add_options(subparser)
        commands.add_subcommand(name, subparser, help=text)
    return parser


def _add_environment(parser: Parser) -> None:
    parser.add_argument("folder", type=Path, help="of the environment, such as ~/jcm-env")


def _add_simulate(parser: Parser) -> None:
    default = PhysicalWorld(years=(1998,))
    parser.add_argument("work", type=Path, help="folder of the units")
    parser.add_argument("--environment", type=Path, required=True, metavar="DIR", help="with jcm")
    parser.add_argument("--years", default="1998-2005", help="first-last (default: %(default)s)")
    parser.add_argument(
        "--perfect-years",
        default="2004-2005",
        help='with ensembles of the nature model: first-last, or "none" (default: %(default)s)',
    )
    parser.add_argument(
        "--dates", nargs="+", default=list(DATES), metavar="MMDD", help="default: 52, a week apart"
    )
    for name in ("members", "time_step", "spin_up"):
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=count, default=getattr(default, name)
        )
    for name in ("amplitude", "model_error", "diffusion"):
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=float, default=getattr(default, name)
        )
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--minutes", type=float, help="begin no unit after so many minutes")


def _add_write(parser: Parser) -> None:
    parser.add_argument("work", type=Path, help="folder of the units")
    parser.add_argument("folder", type=Path, help="output folder")
    parser.add_argument("--available", action="store_true", help="leave out missing units")


def _add_evaluate(parser: Parser) -> None:
    parser.add_argument("work", type=Path, help="folder of the units")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the results")


def _add_archive(parser: Parser) -> None:
    parser.add_argument("store", type=Path, help="that `ens10 prepare` wrote")
    parser.add_argument("file", type=Path, help="the archive, such as physical_world.zip")


_OPTIONS: dict[str, tuple[str, Callable[[Parser], None]]] = {
    "environment": (f"make a virtual environment with {REQUIREMENT}", _add_environment),
    "simulate": ("simulate the missing units; resumable, shared by processes", _add_simulate),
    "write": ("write the units as GRIB files in ENS-10's layout", _add_write),
    "evaluate": ("score raw, corrected and perfect-model ensembles", _add_evaluate),
    "archive": ("pack a prepared store into one zip file", _add_archive),
}


def _environment(options: Namespace) -> int:
    refuse_file(options.folder)
    make_environment(options.folder)
    print(f"{options.folder} holds {REQUIREMENT}")
    return 0


def _simulate(options: Namespace) -> int:
    refuse_file(options.work)
    python = environment_python(options.environment)
    perfect = () if options.perfect_years == "none" else _years(options.perfect_years)
    names = ("members", "time_step", "spin_up", "amplitude", "model_error", "diffusion", "seed")
    settings: dict[str, Any] = {name: options[name] for name in names}
    world = PhysicalWorld(
        _years(options.years), tuple(options.dates), perfect_years=perfect, **settings
    )
    world.save(options.work)
    processes: list[JcmProcess] = []

    def start() -> JcmProcess:
        cache = options.work / "compiled"
        processes.append(JcmProcess(python, world, cache, options.work / "worker.log"))
        return processes[0]

    stop = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    try:
        missing = simulate(options.work, world, start, stop=stop)
    finally:
        for process in processes:
            process.close()
    print(f"{len(world.units) - len(missing)} of {len(world.units)} units are complete")
    return 0


def _years(text: str) -> tuple[int, ...]:
    first, _, last = text.partition("-")
    try:
        years = tuple(range(int(first), int(last or first) + 1))
    except ValueError as error:
        raise ArgumentError("years", f"{text!r} is no range", "Write 1998-2005") from error
    if not years:
        raise ArgumentError("years", f"{text!r} is empty", "Write 1998-2005")
    return years


def _write(options: Namespace) -> int:
    dates = write_world(options.work, options.folder, options.available)
    print(f"{options.folder}: {dates} start dates; next: ens10 prepare {options.folder} STORE "
          f"--truth {options.folder / 'truth'}")  # fmt: skip
    return 0


def _evaluate(options: Namespace) -> int:
    from ens10.experiments.studies.physical_world.figures import world_figure

    refuse_file(options.out)
    world = PhysicalWorld.load(options.work)
    cases = read_cases(options.work)
    frame = table([evaluate(name, step, case) for (name, step), case in cases.items()])
    options.out.mkdir(parents=True, exist_ok=True)
    text = f"{describe(world)}\n\n{markdown(frame)}"
    write_whole(options.out / "table.md", text)
    write_whole(options.out / "table.csv", frame.to_csv(index=False))
    years = years_table(cases)
    write_whole(options.out / "years.md", f"{describe(world)}\n\n{years_markdown(years)}")
    write_whole(options.out / "years.csv", years.to_csv(index=False))
    lines = checksums(options.work, world.units)
    write_whole(options.out / "units.sha256", "".join(f"{line}\n" for line in lines))
    write_whole(options.out / "world.png", png(world_figure(cases, frame)))
    print(text)
    return 0


def _archive(options: Namespace) -> int:
    checksum = archive(options.store, options.file)
    print(f"{checksum}  {options.file}")
    return 0


_RUN = {
    "environment": _environment,
    "simulate": _simulate,
    "write": _write,
    "evaluate": _evaluate,
    "archive": _archive,
}

if __name__ == "__main__":
    sys.exit(main())
