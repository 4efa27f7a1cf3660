"""The command of a study: compute the missing cells, then write tables of those that are kept."""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from matplotlib.figure import Figure

from ens10.experiments.runner.cell import Cell
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.running import Outcome, run_cells
from ens10.experiments.runs.commands import add_cell_options, refuse_file
from ens10.metrics import Interval
from ens10.usage import Parser, command_parser


def study_parser(name: str, text: str | None = None, work: str | None = "work") -> Parser:
    """Return the parser of a study's command, with `--out` and the options of its cells.

    Args:
        name: of the study's module.
        text: first paragraph of the help.
        work: name of the argument with the folder for data and runs; None without one.
    """
    parser = command_parser(f"python -m ens10.experiments.studies.{name}", text)
    if work:
        parser.add_argument(work, type=Path, help="folder for data and runs")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="of the results")
    add_cell_options(parser)
    return parser


def compute(
    cells: Sequence[Cell], options: Namespace, refusals: Mapping[str, str] | None = None
) -> Outcome:
    """Compute the cells that are missing, as the options of the cells say.

    Args:
        cells: of the study.
        options: see `add_cell_options`.
        refusals: reason why another cell cannot be computed, by its name.
    """
    counts = {"workers": options.workers, "threads": options.threads}
    return run_cells(cells, refusals, **counts, older=options.keep_older)


def run_study(
    options: Namespace,
    run: Callable[[], Outcome],
    write: Callable[[Path, Outcome], str],
    *,
    of_call: bool = False,
) -> int:
    """Compute the missing cells unless only tables are wanted, write the tables, and print them.

    Args:
        options: parsed, with `out` and `tables`.
        run: computes the cells; not called with `--tables`.
        write: writes the tables of the unpacked cells in a folder; returns what is printed.
        of_call: whether only the cells of this call are unpacked; otherwise all that are kept.

    Returns:
        The exit status: 1 if a cell failed.

    Raises:
        FileError: a file in the place of a folder.
    """
    for name in ("work", "folder", "out"):
        if getattr(options, name, None) is not None:
            refuse_file(getattr(options, name))
    outcome = Outcome() if options.tables else run()
    places = outcome.places if of_call else None
    with Results(options.out).temporary_folder(places) as cells_folder:
        text = write(cells_folder, outcome)
    if text:
        print(text)
    return int(outcome.failed)


def image_of(figure: Figure, dpi: int = 150, **options: Any) -> bytes:
    """Return a figure as an image, a PNG unless `format` is another.

    Args:
        figure: to draw.
        dpi: resolution, points per inch.
        **options: of `Figure.savefig`.
    """
    file = BytesIO()
    figure.savefig(file, **{"format": "png", "dpi": dpi, **options})
    return file.getvalue()


def with_bounds(score: Interval, form: str) -> str:
    """Return a value with its bounds as text, "value [lower, upper]"."""
    value, lower, upper = (format(x, form) for x in (score.value, score.lower, score.upper))
    return f"{value} [{lower}, {upper}]"
