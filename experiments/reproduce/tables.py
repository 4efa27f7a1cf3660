"""The papers' tables: models by rows, targets and ensemble sizes by columns, skill and cost.

Published values stand beside the scores of a store, not beside those of synthetic worlds. The
tables are written as Markdown, CSV, LaTeX and HTML.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ens10.errors import MissingDataError
from ens10.experiments.reporting.pages import page
from ens10.experiments.reproduce.command import Request
from ens10.experiments.reproduce.published import UNVERIFIED, Published, load_published
from ens10.experiments.runner.tables import pit_deviation, write_files
from ens10.experiments.runner.tasks import Task
from ens10.experiments.runner.trainings import OPTIMUM, place_of, read_cell
from ens10.experiments.scoring.run_results import SCORES, FinishedRun, check_comparable, mean_score
from ens10.experiments.scoring.tables import FEW_DATES, interval_of
from ens10.experiments.scoring.writers import ABSENT, Column, csv_of, latex_of, markdown_of
from ens10.metrics import Interval, summarise
from ens10.metrics.uncertainty import Method, blocks_in_words

SCORE_NAMES = {"crps": "CRPS", "eecrps": "EECRPS"}
REFERENCE = "raw"
_TITLES = {"t2m": "T2m", "t850": "T850", "z500": "Z500"}
_COSTS = (
    ("Fit (s)", "seconds", ".0f"),
    ("Memory (MB)", "memory_mb", ".0f"),
    ("Parameters", "parameters", ",.0f"),
)
ValueOf = Callable[[FinishedRun], float]
_NOTE = (
    "Skill: 1 - CRPS / CRPS of the other, mean over seeds; in brackets the number of seeds in "
    "which the 95 % interval of the difference, paired over the test dates ({}), does not hold 0. "
    "Best other: the model of the lowest mean CRPS but the row's own, over the seeds that all "
    "models have. Attained: 0 is raw, 100 the "
    "best possible forecast of a synthetic world. Spread/error is 1 and PIT deviation 0 for a "
    "calibrated forecast. Seconds and memory are of the fit, on the machine that did it."
)
Sections = dict[str, list[Column]]


@dataclass(frozen=True)
class Result:
    """One model and task.

    Attributes:
        model: name of the configuration.
        task: what was corrected.
        units: of its scores.
        runs: kept runs by seed, without maps and predictions.
        values: by score ("crps", "eecrps") and seed; a score that a seed lacks is left out.
    """

    model: str
    task: Task
    units: str
    runs: dict[int, FinishedRun] = field(repr=False)
    values: dict[str, dict[int, float]]

    def mean(self, score: str) -> float:
        """Return the mean of a score over the seeds; NaN if none has it."""
        values = list(self.values.get(score, {}).values())
        return float(np.mean(values)) if values else float("nan")

    def spread(self, score: str) -> float:
        """Return the standard deviation over the seeds (n - 1); NaN for fewer than two."""
        values = list(self.values.get(score, {}).values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def read_results(
    cells_folder: Path,
    tasks: Sequence[Task],
    models: Sequence[str],
    seeds: Sequence[int],
    places: Collection[str] | None = None,
) -> list[Result]:
    """Return the results of the kept cells; missing ones are left out.

    Args:
        cells_folder: folder of the unpacked cells.
        tasks: to read.
        models: names of configurations, in the order of the table.
        seeds: to read.
        places: places of the cells to read; None for all.

    Raises:
        FileError: a kept cell that cannot be read.
    """
    results = []
    for task in tasks:
        for model in models:
            seed_places = {seed: place_of(task, seed, model) for seed in seeds}
            folders = {
                seed: cells_folder / place
                for seed, place in seed_places.items()
                if (cells_folder / place / SCORES).exists() and (places is None or place in places)
            }
            if folders:
                results.append(_result(model, task, folders))
    return results


def _result(model: str, task: Task, folders: dict[int, Path]) -> Result:
    runs = {seed: read_cell(folder) for seed, folder in folders.items()}
    values = {"crps": {seed: mean_score(run.states, "crps") for seed, run in runs.items()}}
    extremes = {seed: run.states_of("eecrps") for seed, run in runs.items()}
    if any(states is not None for states in extremes.values()):
        values["eecrps"] = {
            seed: mean_score(states, "eecrps")
            for seed, states in extremes.items()
            if states is not None
        }
    return Result(model, task, next(iter(runs.values())).units, runs, values)


def write_tables(
    request: Request,
    cells_folder: Path,
    missing: Mapping[str, str] | None = None,
    places: Collection[str] | None = None,
) -> str:
    """Write `reproduce-PROTOCOL.md`, `.csv`, `.tex` and `.html` into the folder of the results.

    Args:
        request: contents of the table.
        cells_folder: folder of the unpacked cells.
        missing: reason why a cell has no result, by its name.
        places: places of the cells to read; None for all.

    Returns:
        The Markdown.

    Raises:
        MissingDataError: no cell of the request is kept.
    """
    rows = (*request.rows, *((OPTIMUM,) if request.store is None else ()))
    results = read_results(cells_folder, request.tasks, rows, range(request.seeds), places)
    if not results:
        raise MissingDataError(request.out, list(request.rows), "Let at least one cell end")
    # beside synthetic worlds, whose errors are their own, published values say nothing
    published = Published({}, {}, {}, ()) if request.store is None else load_published()
    scores = {n: paper_columns(n, results, published) for n in SCORE_NAMES}
    sections = {SCORE_NAMES[name]: columns for name, columns in scores.items() if columns}
    skills, intervals = _skills(results)
    sections |= skills
    note_lines = notes(results, published, synthetic=request.store is None)
    note_lines += [f"Missing: {name}: {why}" for name, why in (missing or {}).items()]
    note_lines.append(skill_note(intervals))
    heading = f"The papers' tables, protocol {request.rules.name}"
    texts = {
        "md": _markdown(heading, sections, note_lines),
        "csv": paper_csv(results, published),
        "tex": _latex(sections, note_lines),
        "html": page("tables", heading, note_lines[0], tables=sections, notes=note_lines),
    }
    name = f"reproduce-{request.rules.name}"
    write_files(request.out, {f"{name}.{ending}": text for ending, text in texts.items()})
    return texts["md"]


def _skills(results: Sequence[Result]) -> tuple[Sections, list[Interval]]:
    """Return a table of skill for each task, and the confidence intervals in these tables."""
    tasks: dict[Task, list[Result]] = {}
    for result in results:
        tasks.setdefault(result.task, []).append(result)
    sections, all_intervals = {}, []
    for task, task_results in tasks.items():
        heading = f"{title(task)}: skill, calibration, cost"
        sections[heading], intervals = skill_columns(task_results)
        all_intervals += intervals
    return sections, all_intervals


def _markdown(heading: str, sections: Sections, note_lines: Sequence[str]) -> str:
    parts = [f"# {heading}"]
    for name, columns in sections.items():
        parts += [f"## {name}", markdown_of(columns).rstrip()]
    parts += ["## Notes", *(f"- {note}" for note in note_lines)]
    return "\n\n".join(parts).replace("\n\n- ", "\n- ") + "\n"


def _latex(sections: Sections, note_lines: Sequence[str]) -> str:
    notes = [note.replace("\n", " ") for note in note_lines]
    tables = [latex_of(columns, [name]) for name, columns in sections.items()]
    return "".join(f"% {note}\n" for note in notes) + "\n" + "\n".join(tables)


def paper_columns(score: str, results: Sequence[Result], published: Published) -> list[Column]:
    """Return the columns of one score; empty if no cell has it.

    Args:
        score: "crps" or "eecrps".
        results: of one protocol.
        published: published values, shown beside the results.
    """
    available = [result for result in results if score in result.values]
    if not available:
        return []
    models = list(dict.fromkeys(result.model for result in available))
    by_place = {(result.model, result.task): result for result in available}
    columns = [Column("Model", tuple(models), numeric=False)]
    for task in dict.fromkeys(result.task for result in available):
        row_results = [by_place.get((model, task)) for model in models]
        most = max(len(result.values[score]) for result in row_results if result)
        units = next(result.units for result in row_results if result)
        heading = f"{title(task)} ({units})" if units else title(task)
        columns.append(
            Column(heading, tuple(_score_in_words(result, score, most) for result in row_results))
        )
        values = [published.find(score, model, task.target, task.members) for model in models]
        if any(values):
            cells = tuple(value.text if value else ABSENT for value in values)
            columns.append(Column(f"{title(task)}, published", cells))
    return columns


def title(task: Task) -> str:
    """Return target and ensemble size as the paper writes them."""
    return f"{_TITLES.get(task.target, task.target)} {task.members}-ENS"


def _score_in_words(result: Result | None, score: str, most: int) -> str:
    """Return mean and spread as text, with the number of seeds if other models have more."""
    if result is None or score not in result.values:
        return ABSENT
    mean, spread, seeds = result.mean(score), result.spread(score), len(result.values[score])
    decimals = _decimals(mean)
    text = f"{mean:.{decimals}f}"
    text = text if math.isnan(spread) else f"{text} ± {spread:.{decimals}f}"
    return text if seeds == most else f"{text} ({seeds} of {most} seeds)"


def _decimals(value: float) -> int:
    """Return the number of decimals as in the paper: three for kelvins, two for geopotentials."""
    return 2 if abs(value) >= 10 else 3


def notes(results: Sequence[Result], published: Published, *, synthetic: bool) -> list[str]:
    """Return notes on data, seeds, estimators, and the sources of published values.

    Args:
        results: of one protocol.
        published: published values with their sources.
        synthetic: whether the data are synthetic worlds, one for each seed.
    """
    seeds = sorted({len(result.runs) for result in results})
    counts = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    per_seed = (
        "each a synthetic world and a training of its own" if synthetic else "of the training"
    )
    note_lines = [
        f"Mean ± standard deviation over seeds ({counts}), {per_seed}. Lower is better. Plain CRPS "
        "for members, closed form where there is one. EECRPS: CRPS weighted by the absolute "
        "extreme forecast index of all raw members.",
        f"Dates: {_dates(results)}.",
    ]
    if synthetic and len(seeds) > 1:
        note_lines.append(
            "Numbers of fewer seeds are of fewer worlds: do not compare them with others."
        )
    if not published.values:
        return note_lines
    note_lines.append(
        "Published values are of ENS-10: compare them with those of a store of all of ENS-10 under "
        "the protocol of its paper."
    )
    lines = {published.line_of(result.model) for result in results}
    note_lines += [f"{line}: {note}." for line, note in published.notes.items() if line in lines]
    note_lines += [
        f"Published: {source['cite']}, {source['link']}"
        + (f" ({source['note']})." if "note" in source else ".")
        for source in published.sources.values()
    ]
    return [*note_lines, f"{UNVERIFIED} marks published values that no second source confirms."]


def _dates(results: Sequence[Result]) -> str:
    date_counts = [run.provenance.get("dates") or {} for r in results for run in r.runs.values()]
    texts = {
        ", ".join(f"{counts.get(s, '?')} {s}" for s in ("train", "val", "test"))
        for counts in date_counts
    }
    return "; ".join(sorted(texts))


def paper_csv(results: Sequence[Result], published: Published) -> str:
    """Return CSV with a line for each model, task and score, in full precision."""
    head = ["protocol", "target", "members", "model", "score", "units", "seeds", "mean", "spread"]
    rows = []
    for result in results:
        task = result.task
        for score in (name for name in SCORE_NAMES if name in result.values):
            value = published.find(score, result.model, task.target, task.members)
            numbers = [result.mean(score), result.spread(score)]
            entry = [value.value, str(value.confirmed), value.source] if value else ["", "", ""]
            entry = entry if published.values else []
            keys = [task.rules.name, task.target, task.members, result.model, score, result.units]
            rows.append([*keys, len(result.values[score]), *numbers, *entry])
    columns = ["published", "confirmed", "source"] if published.values else []
    return csv_of([*head, *columns], rows)


def skill_note(intervals: Sequence[Interval]) -> str:
    """Return an explanation of the skill columns, with the block lengths of their intervals."""
    return _NOTE.format(blocks_in_words(intervals))


def skill_columns(results: Sequence[Result]) -> tuple[list[Column], list[Interval]]:
    """Return columns of skill, calibration and cost, and the intervals of the CRPS differences.

    Args:
        results: of one task.
    """
    intervals: list[Interval] = []

    def skill_cell(result: Result, other: Result | None) -> str:
        skills, differences = _compare_runs(result, other)
        intervals.extend(differences)
        return _skill_in_words(skills, differences)

    ranked = _rank([r for r in results if r.model != OPTIMUM])
    columns = [Column("Model", tuple(r.model for r in results), numeric=False)]
    raw, optimum = (_find_result(results, name) for name in (REFERENCE, OPTIMUM))
    columns.append(Column("Skill against raw (%)", tuple(skill_cell(r, raw) for r in results)))
    best = [next((o for o in ranked if o is not r), None) for r in results]
    pairs = zip(results, best, strict=True)
    columns.append(
        Column("Skill against best other (%)", tuple(skill_cell(r, o) for r, o in pairs))
    )
    columns.append(Column("Best other", tuple(o.model if o else ABSENT for o in best), False))
    if raw and optimum:
        attained = tuple(_attained(r, raw, optimum) for r in results)
        columns.append(Column("Attained (%)", attained))
    columns.append(Column("Spread/error", tuple(_mean(r, _spread_error, ".3f") for r in results)))
    pit = tuple(_mean(r, lambda run: 100 * pit_deviation(run), ".1f") for r in results)
    columns.append(Column("PIT deviation (%)", pit))
    for heading, key, form in _COSTS:
        columns.append(Column(heading, tuple(_mean(r, _cost_of(key), form) for r in results)))
    return columns, intervals


def _rank(rivals: Sequence[Result]) -> list[Result]:
    """Sort results by mean CRPS over their common seeds, or each over its own if there are none."""
    shared = set.intersection(*(set(rival.runs) for rival in rivals)) if rivals else set()

    def place(rival: Result) -> float:
        crps = rival.values["crps"]
        return float(np.mean([crps[seed] for seed in shared or crps]))

    return sorted(rivals, key=place)


def _find_result(results: Sequence[Result], name: str) -> Result | None:
    return next((result for result in results if result.model == name), None)


def _attained(result: Result, raw: Result, optimum: Result) -> str:
    """Return the share of the possible improvement that was made, mean over seeds, as text."""
    crps, worst, best = (r.values["crps"] for r in (result, raw, optimum))
    seeds = sorted(set(crps) & set(worst) & set(best))
    shares = [(worst[s] - crps[s]) / (worst[s] - best[s]) for s in seeds]
    return _percent(100 * float(np.mean(shares))) if shares else ABSENT


def _percent(number: float) -> str:
    return f"{number:.1f}".replace("-", "−")


def _compare_runs(result: Result, other: Result | None) -> tuple[list[float], list[Interval]]:
    """Return skill in percent and difference of the CRPS, for each seed that both have."""
    if other is None or other is result:
        return [], []
    skills, differences = [], []
    for seed in sorted(set(result.runs) & set(other.runs)):
        run, reference = result.runs[seed], other.runs[seed]
        check_comparable([run, reference])
        few = run.states.sizes["time"] < FEW_DATES
        method: Method = "student" if few else "bootstrap"
        scores = summarise(run.states, reference.states, maps=False, method=method)
        skills.append(100 * float(scores["crpss"]))
        differences.append(interval_of(scores, "crps_difference"))
    return skills, differences


def _skill_in_words(skills: Sequence[float], differences: Sequence[Interval]) -> str:
    """Return the mean skill over the seeds, and in how many of them it is clear, as text."""
    if not skills:
        return ABSENT
    clear = sum(one.lower > 0 or one.upper < 0 for one in differences)
    return f"{_percent(float(np.mean(skills)))} [{clear} of {len(skills)}]"


def _mean(result: Result, value_of: ValueOf, form: str) -> str:
    values = [value_of(run) for run in result.runs.values()]
    number = float(np.mean(values))
    return ABSENT if math.isnan(number) else format(number, form)


def _spread_error(run: FinishedRun) -> float:
    scores = summarise(run.states, maps=False, method="student")
    return float(scores["spread_error"]) if "spread_error" in scores else math.nan


def _cost_of(key: str) -> ValueOf:
    def read(run: FinishedRun) -> float:
        value = run.provenance.get(key)
        return math.nan if value is None else float(value)

    return read
