"""Write a report of scored runs: one HTML page, and its tables and figures as files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ens10.command_options import ReportOptions
from ens10.durable import clear_leftovers, write_whole
from ens10.experiments.reporting.assembly import assemble
from ens10.experiments.reporting.diagnostics import Diagnosis, diagnose
from ens10.experiments.reporting.figures import (
    calibration,
    crps_by_latitude,
    crps_chart,
    diagnostic_figures,
    learning_curves,
    skill_card,
    skill_maps,
)
from ens10.experiments.reporting.groups import Group, read_groups
from ens10.experiments.runs.commands import refuse_file
from ens10.experiments.runs.locks import hold_lock
from ens10.experiments.scoring.tables import latex, markdown, to_csv
from ens10.metrics.figures.style import png as png  # where studies look for it
from ens10.options import chosen, takes
from ens10.progress import track

TITLE = "Post-processed ensemble forecasts: scores"
PAGE = "index.html"
_LOCK = "report.lock"
_TABLES = {"table.md": markdown, "table.csv": to_csv, "table.tex": latex}


@takes(ReportOptions)
def write_report(
    runs: Sequence[Path | str],
    out: Path | str,
    title: str = TITLE,
    options: ReportOptions | None = None,
    *,
    progress: bool = False,
    **named: Any,
) -> Path:
    """Write `index.html`, `table.md`, `table.csv`, `table.tex` and `figures/*.png`.

    The page is one file that loads nothing. Runs of several targets or lead times are compared
    within each, and tables and figures lie in a folder for each of them. Maps of bias and spread
    and reliability diagrams are of the runs that have predictions. Other files in the folder are
    left alone.

    Args:
        runs: folders of scored runs; those of one target and lead time of the same dates and
            points.
        out: folder to write into; made if it does not exist.
        title: of the page.
        options: of the command; None for its defaults.
        progress: whether to show progress bars.
        **named: single options.

    Returns:
        The path of `index.html`.

    Raises:
        FileError: a folder that holds no scored run, files that cannot be read, or one at `out`.
        ArgumentError: no runs, two of one name, or runs that cannot be compared.
        UnknownNameError: another reference than "raw" that is not among the runs.
        MissingDataError: runs scored on different dates.
    """
    refuse_file(out)
    groups = read_groups(runs, chosen(ReportOptions, options, named).reference)
    out = Path(out)
    diagnoses = _diagnoses(groups, progress)
    out.mkdir(parents=True, exist_ok=True)
    with hold_lock(out / _LOCK, "ens10 report", wait=True):
        clear_leftovers(out, PAGE)
        for group, diagnosed in zip(groups, diagnoses, strict=True):
            folder = out if len(groups) == 1 else out / group.slug
            _write_figures(group, diagnosed, folder / "figures", progress)
            clear_leftovers(folder, *_TABLES)
            for name, writer in _TABLES.items():
                write_whole(folder / name, writer(group.rows))
        content = assemble(title, groups, diagnoses)
        write_whole(out / PAGE, content)
    return out / PAGE


def _diagnoses(groups: Sequence[Group], progress: bool) -> list[dict[str, Diagnosis]]:
    diagnoses: list[dict[str, Diagnosis]] = [{} for _ in groups]
    todo = [(n, run) for n, group in enumerate(groups) for run in group.runs]
    for n, run in track(todo, "predictions", len(todo), progress):
        diagnosis = diagnose(groups[n].folders[run.name], run.states["time"].to_numpy())
        if diagnosis is not None:
            diagnoses[n][run.name] = diagnosis
    return diagnoses


def _write_figures(
    group: Group, diagnoses: Mapping[str, Diagnosis], folder: Path, progress: bool
) -> None:
    """Write the figures as PNG, a text column wide; remove those of an earlier report."""
    folder.mkdir(parents=True, exist_ok=True)
    runs, rows, reference = group.runs, group.rows, group.reference
    draws: dict[str, Callable[[], Figure | None]] = {
        "crps": lambda: crps_chart(rows),
        "crpss-maps": lambda: skill_maps(runs, reference) if group.reference_run else None,
        "calibration": lambda: calibration(runs, reference),
        "learning-curves": lambda: learning_curves(runs),
        "latitude": lambda: crps_by_latitude(runs),
        "card": lambda: skill_card(runs, reference),
        **diagnostic_figures(
            {name: one.bias for name, one in diagnoses.items()},
            {name: one.events for name, one in diagnoses.items()},
            rows[0].units,
        ),
    }
    clear_leftovers(folder, *(f"{name}.png" for name in draws))
    for name, draw in track(draws.items(), "figures", len(draws), progress):
        path = folder / f"{name}.png"
        if (figure := draw()) is not None:
            write_whole(path, png(figure))
        else:
            path.unlink(missing_ok=True)  # of an earlier report of other runs
