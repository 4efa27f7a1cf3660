"""The tables as files: Markdown, CSV, LaTeX and one HTML page."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ens10.durable import write_whole
from ens10.errors import MissingDataError
from ens10.experiments import page
from ens10.experiments.matrix.tasks import Task
from ens10.experiments.reproduce import papertable, skill
from ens10.experiments.reproduce.plan import Request
from ens10.experiments.reproduce.published import load_published
from ens10.experiments.reproduce.results import SCORE_NAMES, Result, read_results
from ens10.experiments.writers import Column, latex_of, markdown_of
from ens10.metrics import Interval

Sections = dict[str, list[Column]]


def write_tables(
    request: Request,
    missing: Mapping[str, str] | None = None,
    shown: Collection[Path] | None = None,
) -> str:
    """Writes `reproduce-PROTOCOL.md`, `.csv`, `.tex` and `.html` into the folder of the results.

    Args:
        request: what is asked for.
        missing: cells that are not there, and why.
        shown: folders of the kept cells that count; None for all.

    Returns:
        The Markdown.

    Raises:
        MissingDataError: not a single cell is there.
    """
    rows = (*request.rows, *((skill.OPTIMUM,) if request.store is None else ()))
    results = read_results(request.out, request.tasks, rows, range(request.seeds), shown)
    if not results:
        raise MissingDataError(request.out, list(request.rows), "Let at least one cell end")
    published = load_published()
    scores = {n: papertable.paper_columns(n, results, published) for n in SCORE_NAMES}
    sections = {SCORE_NAMES[name]: made for name, made in scores.items() if made}
    skills, intervals = _skills(results)
    sections |= skills
    told = papertable.notes(results, published, synthetic=request.store is None)
    told += [f"Missing: {name}: {why}" for name, why in (missing or {}).items()]
    told.append(skill.skill_note(intervals))
    heading = f"The papers' tables, protocol {request.rules.name}"
    texts = {
        "md": _markdown(heading, sections, told),
        "csv": papertable.paper_csv(results, published),
        "tex": _latex(sections, told),
        "html": _html(heading, sections, told),
    }
    for ending, text in texts.items():
        path = request.out / f"reproduce-{request.rules.name}.{ending}"
        write_whole(path, text)
    return texts["md"]


def _skills(results: Sequence[Result]) -> tuple[Sections, list[Interval]]:
    """Return a table of skill for each task, and the confidence intervals in these tables."""
    tasks: dict[Task, list[Result]] = {}
    for result in results:
        tasks.setdefault(result.task, []).append(result)
    sections, shown = {}, []
    for task, held in tasks.items():
        heading = f"{papertable.title(task)}: skill, calibration, cost"
        sections[heading], intervals = skill.skill_columns(held)
        shown += intervals
    return sections, shown


def _markdown(heading: str, sections: Sections, told: Sequence[str]) -> str:
    parts = [f"# {heading}"]
    for name, columns in sections.items():
        parts += [f"## {name}", markdown_of(columns).rstrip()]
    parts += ["## Notes", *(f"- {note}" for note in told)]
    return "\n\n".join(parts).replace("\n\n- ", "\n- ") + "\n"


def _latex(sections: Sections, told: Sequence[str]) -> str:
    notes = [note.replace("\n", " ") for note in told]
    tables = [latex_of(columns, [name]) for name, columns in sections.items()]
    return "".join(f"% {note}\n" for note in notes) + "\n" + "\n".join(tables)


def _html(heading: str, sections: Sections, told: Sequence[str]) -> str:
    parts = {name: page.table(columns, name) for name, columns in sections.items()}
    return page.page(heading, told[0], {**parts, "Notes": page.paragraphs(*told)})
