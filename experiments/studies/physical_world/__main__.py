"""The commands: simulate, write GRIB files, evaluate."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from ens10.errors import ArgumentError, FileError
from ens10.experiments.reporting.report import png
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runs.commands import refuse_file
from ens10.experiments.studies.physical_world.evaluation import (
    evaluate,
    markdown,
    read_cases,
    table,
)
from ens10.experiments.studies.physical_world.files import write_world
from ens10.experiments.studies.physical_world.production import (
    CHANGES,
    DATES,
    JcmProcess,
    PhysicalWorld,
    checksums,
    describe,
    simulate,
)
from ens10.experiments.studies.physical_world.years import years_markdown, years_table
from ens10.usage import Parser, command_parser, count, reports_errors

_PROGRAM = "python -m ens10.experiments.studies.physical_world"
_SETTINGS = ("members", "time_step", "spin_up", "amplitude", "model_error", "diffusion", "seed")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; exit status 1 with one line on bad input, 2 on usage."""
    options = _parser().parse_args(arguments)
    run: Callable[[Namespace], int] = _RUN[options.command]
    return run(options[options.command])


def _parser() -> Parser:
    parser = command_parser(_PROGRAM)
    commands = parser.add_subcommands(metavar="COMMAND", dest="command")
    for name, text in _HELP.items():
        subparser = command_parser(f"{_PROGRAM} {name}", text)
        subparser.add_argument("work", type=Path, help="folder of the units")
        if name == "simulate":
            _add_simulate(subparser)
        elif name == "write":
            subparser.add_argument("folder", type=Path, help="output folder")
            subparser.add_argument("--available", action="store_true", help="without missing units")
        else:
            subparser.add_argument("--out", type=Path, required=True, metavar="DIR")
        commands.add_subcommand(name, subparser, help=text)
    return parser


def _add_simulate(parser: Parser) -> None:
    parser.add_argument("--environment", type=Path, required=True, metavar="DIR", help="with jcm")
    parser.add_argument("--years", default="1998-2005", help="first-last (default: %(default)s)")
    text = 'with ensembles of the nature model: first-last, or "none" (default: %(default)s)'
    parser.add_argument("--perfect-years", default="2004-2005", help=text)
    text = "default: 52, a week apart"
    parser.add_argument("--dates", nargs="+", default=list(DATES), metavar="MMDD", help=text)
    text = "of the forecast model (default: %(default)s)"
    parser.add_argument("--variant", choices=CHANGES, default=PhysicalWorld.variant, help=text)
    defaults = {field.name: field.default for field in fields(PhysicalWorld)}
    for name in _SETTINGS:
        default = defaults[name]
        kind = float if isinstance(default, float) else int if name == "seed" else count
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default)
    parser.add_argument("--minutes", type=float, help="begin no unit after so many minutes")


def _simulate(options: Namespace) -> int:
    refuse_file(options.work)
    python = options.environment / "bin" / "python"
    if not python.exists():
        raise FileError(options.environment, "no environment", "Make one with jcm and pass it")
    perfect = () if options.perfect_years == "none" else _years(options.perfect_years)
    settings: dict[str, Any] = {name: options[name] for name in (*_SETTINGS, "variant")}
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
    dates, folder = write_world(options.work, options.folder, options.available), options.folder
    command = f"ens10 prepare {folder} STORE --truth {folder / 'truth'}"
    print(f"{folder}: {dates} start dates; next: {command}")
    return 0


def _evaluate(options: Namespace) -> int:
    from ens10.experiments.studies.physical_world.figures import world_figure

    refuse_file(options.out)
    world = PhysicalWorld.load(options.work)
    cases = read_cases(options.work)
    frame = table([evaluate(name, step, case) for (name, step), case in cases.items()])
    text, years = f"{describe(world)}\n\n{markdown(frame)}", years_table(cases)
    lines = checksums(options.work, world.units)
    content = {
        "table.md": text,
        "table.csv": frame.to_csv(index=False),
        "years.md": f"{describe(world)}\n\n{years_markdown(years)}",
        "years.csv": years.to_csv(index=False),
        "units.sha256": "".join(f"{line}\n" for line in lines),
        "world.png": png(world_figure(cases, frame)),
    }
    write_files(options.out, content)
    print(text)
    return 0


_HELP = {
    "simulate": "simulate the missing units; resumable, shared by processes",
    "write": "write the units as GRIB files in ENS-10's layout",
    "evaluate": "score raw, corrected and perfect-model ensembles",
}
_RUN = {"simulate": _simulate, "write": _write, "evaluate": _evaluate}

if __name__ == "__main__":
    sys.exit(main())
