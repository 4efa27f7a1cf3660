"""Score real forecasts at stations.

python -m ens10.experiments.studies.real_stations frankfurt FOLDER OUT
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files as resources
from pathlib import Path
from tempfile import TemporaryDirectory

from ens10.experiments.reproduce.published import Value, load_published
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runs.commands import refuse_file
from ens10.experiments.studies.leave_one_year_out import Line
from ens10.experiments.studies.real_stations import files, methods, tables
from ens10.usage import command_parser, reports_errors

PUBLISHED = Path(str(resources("ens10.experiments"))) / "published" / "stations.yaml"
Files = dict[str, str]
_INTERVALS = (
    "plain CRPS of members, closed form of distributions, means of quantile scores for isotonic; "
    "in brackets 95 % intervals (block bootstrap over dates, paired where a difference is shown). "
    "Values with a source are others', without intervals."
)


def frankfurt(folder: Path, work: Path) -> Files:
    """Return the table of 24-hour precipitation at Frankfurt airport.

    Args:
        folder: of the data; see `files.frankfurt`.
        work: folder for the store and the runs of the network.
    """
    train, test = files.frankfurt(folder)
    states = methods.fit_methods(methods.FRANKFURT, train, test)
    states["small network"] = methods.train_rain_network(train, test, work)
    lines = tables.scored_lines(files.STEP, states, 1000.0)
    return _files("frankfurt", lines, "mm", "precipitation of hours 6 to 30, 51 members")


def innsbruck(folder: Path, work: Path) -> Files:  # noqa: ARG001
    """Return the tables of temperature and of the square root of rain at Innsbruck airport.

    Args:
        folder: of the data; see `files.innsbruck`.
        work: not needed.
    """
    content: Files = {}
    for variable, units, what in (
        ("temp", "K", "temperature"),
        ("rain", "mm^0.5", "square roots of rain"),
    ):
        states = methods.fit_methods(
            methods.INNSBRUCK[variable], *files.innsbruck(folder, variable)
        )
        lines = tables.scored_lines(files.STEP, states)
        note = f"{what} of hours 18 to 30 in winter, 11 members"
        content |= _files(f"innsbruck_{variable}", lines, units, note)
    return content


def euppbench(folder: Path, work: Path) -> Files:
    """Return the tables of 2 m temperature at the stations of EUPPBench, one for each lead time.

    Args:
        folder: of the Zarr stores; see `files.euppbench`.
        work: folder for the store and the runs.
    """
    data = files.euppbench(folder, methods.VARIABLES)
    content: Files = {}
    for step in methods.STEPS:
        lines = tables.scored_lines(step, methods.score_euppbench(data, step, work))
        note = f"2 m temperature at {step} h, reforecasts of 2014 to 2017"
        content |= _files(f"euppbench_{step}h", lines, "K", note)
    return content


COMMANDS: Mapping[str, Callable[[Path, Path], Files]] = {
    "frankfurt": frankfurt,
    "innsbruck": innsbruck,
    "euppbench": euppbench,
}


def _files(target: str, lines: Sequence[Line], units: str, note: str) -> Files:
    values = [value for value in _published() if value.target == target]
    table = tables.markdown(lines, values, units, f"{note}; {_INTERVALS}")
    name = f"table-{target.replace('_', '-')}"
    return {f"{name}.md": table, f"{name}.csv": tables.to_csv(lines, values)}


def _published() -> tuple[Value, ...]:
    return load_published(PUBLISHED).values


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1, with one line, on bad input."""
    parser = command_parser("python -m ens10.experiments.studies.real_stations")
    parser.add_argument("data", choices=list(COMMANDS), help="which forecasts")
    parser.add_argument("folder", type=Path, help="of your copy of the data")
    parser.add_argument("out", type=Path, help="folder of the tables")
    options = parser.parse_args(arguments)
    refuse_file(options.out)
    with TemporaryDirectory() as work:
        content = COMMANDS[options.data](options.folder, Path(work))
    write_files(options.out, content)
    for name, text in content.items():
        if name.endswith(".md"):
            print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
