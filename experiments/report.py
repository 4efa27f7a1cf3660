"""Finished runs to one page that explains itself, with its table and figures as files."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ens10.experiments import members, page, story
from ens10.experiments.figures import calibration, crps_chart, learning_curves
from ens10.experiments.finished import FinishedRun, read_runs
from ens10.experiments.maps import skill_maps
from ens10.experiments.tables import Row, score_table
from ens10.experiments.writers import columns, latex, markdown, notes, to_csv
from ens10.progress import track

TITLE = "Post-processed ensemble forecasts: scores"
PAGE = "index.html"
_DPI = 150


def write_report(
    runs: Sequence[Path | str],
    out: Path | str,
    title: str = TITLE,
    *,
    reference: str = "raw",
    progress: bool = False,
) -> Path:
    """Writes `index.html`, `table.md`, `table.csv`, `table.tex` and `figures/*.png`.

    The page is one file that loads nothing. Other files in the folder are left alone.

    Args:
        runs: folders of scored runs of the same dates and points.
        out: folder to write into; made if it does not exist.
        title: of the page.
        reference: name of the run that skill is measured against.
        progress: whether to show a progress bar.

    Returns:
        The path of `index.html`.

    Raises:
        FileError: a folder that holds no scored run, or files that cannot be read.
        ArgumentError: no runs, two of one name, or runs that cannot be compared.
        UnknownNameError: another reference than "raw" that is not among the runs.
        MissingDataError: runs scored on different dates.
    """
    finished = read_runs(runs)
    rows = score_table(finished, reference)
    by_name = {run.name: run for run in finished}
    ordered = [by_name[row.model] for row in rows]
    out = Path(out)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    pictures = _pictures(ordered, rows, reference, out / "figures", progress)
    writers = {"table.md": markdown, "table.csv": to_csv, "table.tex": latex}
    for name, writer in writers.items():
        (out / name).write_text(writer(rows), encoding="utf-8", newline="\n")
    content = _page(title, ordered, rows, reference, pictures)
    (out / PAGE).write_text(content, encoding="utf-8", newline="\n")
    return out / PAGE


def png(figure: Figure) -> bytes:
    """A figure as PNG; the same figure gives the same bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, bbox_inches="tight", metadata={"Software": None})
    return file.getvalue()


def _pictures(
    runs: Sequence[FinishedRun], rows: Sequence[Row], reference: str, folder: Path, progress: bool
) -> dict[str, bytes]:
    compared = any(run.name == reference for run in runs)
    draws: dict[str, Callable[[], Figure | None]] = {
        "crps": lambda: crps_chart(rows),
        "crpss-maps": lambda: skill_maps(runs, reference) if compared else None,
        "calibration": lambda: calibration(runs, reference),
        "learning-curves": lambda: learning_curves(runs),
    }
    made = {}
    for name, draw in track(draws.items(), "figures", len(draws), progress):
        path = folder / f"{name}.png"
        path.unlink(missing_ok=True)  # of an earlier report of other runs
        if (figure := draw()) is not None:
            made[name] = png(figure)
            path.write_bytes(made[name])
    return made


def _page(
    title: str,
    runs: Sequence[FinishedRun],
    rows: Sequence[Row],
    reference: str,
    pictures: dict[str, bytes],
) -> str:
    texts = story.captions(runs, rows, reference)

    def drawn(name: str) -> str:
        if name not in pictures:
            return page.paragraphs(story.absent(name, reference))
        return page.figure(pictures[name], texts[name].alt, texts[name].caption)

    scores = [
        page.table(columns(rows, seconds=True), "Scores from worst to best, after the reference"),
        page.paragraphs(" ".join(notes(rows))),
        drawn("crps"),
    ]
    if not any(run.name == reference for run in runs):
        scores.insert(0, page.paragraphs(story.no_reference(reference)))
    sections = {
        "What was compared": page.facts(story.compared(runs)),
        "Scores": "\n".join(scores),
        "Where skill lies": drawn("crpss-maps"),
        "Calibration": drawn("calibration"),
        **_members(runs, rows),
        "Learning curves": drawn("learning-curves"),
        "Where the numbers come from": "\n".join(
            (
                page.table(story.provenance(runs), "Seed, code and data of each run"),
                page.facts(story.versions(runs)),
            )
        ),
        "How to read this": page.paragraphs(*story.reading(rows, reference)),
    }
    return page.page(title, story.lead(rows, reference), sections)


def _members(runs: Sequence[FinishedRun], rows: Sequence[Row]) -> dict[str, str]:
    """The section on forecasts by members, if there are any."""
    made = members.columns_of_members(runs, rows)
    if not made:
        return {}
    told = page.table(made, "Plain CRPS of ensembles of several sizes, and spread/error")
    return {"Ensembles": f"{told}\n{page.paragraphs(*members.in_words(runs))}"}
