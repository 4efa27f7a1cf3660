"""The table of models and seeds, and paired intervals of models in an expected order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from ens10.durable import clear_leftovers, write_whole
from ens10.errors import MissingDataError
from ens10.experiments.runner.comparisons import (
    contrasts_as_markdown,
    families_of,
    leaders_in,
)
from ens10.experiments.scoring.run_results import SCORES, FinishedRun, mean_score, read_runs
from ens10.experiments.scoring.score import EVENTS
from ens10.experiments.scoring.tables import ScoreRow, decimals, interval_of, score_table
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of, number
from ens10.metrics import Interval, summarise
from ens10.metrics.uncertainty import blocks_in_words

TABLE = "table"
_KINDS = {"reference": 0, "model": 1, "optimum": 2}
_WORLDS = "Means over the seeds, each a world and a training of its own"
_SAME_DATA = (
    "Means over the seeds, each a training on the same data; what has no random numbers has one"
)
_NOTE = (
    "plain CRPS for members, closed form where there is one, exact cell areas. {skill} "
    "PIT deviation: mean absolute deviation of the PIT histogram from a flat one. CPU: processor "
    "seconds of the fit; memory: most that its process held. Intervals of each row are in "
    "the CSV file."
)
_ATTAINED_SKILL = (
    "Attained skill: 0 is the raw ensemble, 100 the best possible forecast. EECRPS skill: share of "
    "the raw ensemble's CRPS, weighted by its extreme forecast index, that is removed."
)
_CRPS_SKILL = (
    "CRPS skill: share of the raw ensemble's CRPS that is removed; its range: over the seeds; "
    "EECRPS skill: the same of the CRPS weighted by the raw ensemble's extreme forecast index."
)
_EVENTS = (
    "Share of the raw ensemble's Brier score and threshold-weighted CRPS (twCRPS) that is removed, "
    "means over the seeds; thresholds in the units of the CRPS."
)
_FAIR = (
    "Part of each gain on the raw ensemble is the price of its {members} members: its fair CRPS, "
    "which estimates that of an infinite ensemble like it, is {fair} {units}, {less:.1f} % less."
)
_UNFITTED = (
    "Without any fit, `{name}` has a CRPS that is {less:.1f} % less than that of the members."
)
_UNEQUAL_SEEDS = (
    "Lines of fewer seeds are of fewer worlds: do not compare their CRPS with the others'."
)
_STILL_IMPROVING = (
    "(+): still improving when its training ended, with at least one seed: the best validation "
    "loss of the last tenth of its epochs is more than 0.1 % below the best before."
)


@dataclass(frozen=True)
class Entry:
    """One model with one seed.

    Attributes:
        seed: of world and training.
        row: of the seed's table.
        pit: deviation of its PIT histogram from a flat one.
        cpu: processor seconds of the fit.
        memory: most memory of the fit's process, MB.
        still_improving: whether it was still improving when its training ended.
        eecrps_skill: share of the reference's EECRPS that it removes, in percent; NaN if unknown.
    """

    seed: int
    row: ScoreRow
    pit: float
    cpu: float
    memory: float
    still_improving: bool = False
    eecrps_skill: float = float("nan")

    @property
    def attained_skill(self) -> float:
        """Attained skill in percent; NaN without an optimum."""
        return 100 * self.row.attained.value if self.row.attained else float("nan")

    @property
    def crps_skill(self) -> float:
        """Share of the reference's CRPS that it removes, in percent; NaN for the reference."""
        return 100 * self.row.crpss.value if self.row.crpss else float("nan")

    @property
    def spread_error(self) -> float:
        """Ratio of spread to error; NaN if unknown."""
        return self.row.spread_error.value if self.row.spread_error else float("nan")


def write_summary(
    out: Path,
    cells_folder: Path,
    models: Sequence[str],
    seeds: Iterable[int],
    name: str = TABLE,
    *,
    same_data: bool = False,
) -> str:
    """Write a table of the kept cells as Markdown and CSV, and return the first.

    Args:
        out: folder of the tables.
        cells_folder: folder of the unpacked cells.
        models: names of the models in the table.
        seeds: seeds in the table.
        name: of the files, without ending.
        same_data: whether all seeds have the same data; models that only the first seed has then
            count in the comparisons with every seed.

    Raises:
        MissingDataError: no cell of these models and seeds is kept.
    """
    runs = {seed: _read_seed(cells_folder / f"seed{seed}", models) for seed in seeds}
    runs = {seed: seed_runs for seed, seed_runs in runs.items() if seed_runs}
    if not runs:
        raise MissingDataError(str(out), list(models), "Let at least one cell end")
    if same_data:
        runs = _add_shared_runs(runs)
    entries = _entries(runs)
    note = _note(entries, same_data)
    if any(entry.still_improving for model_entries in entries for entry in model_entries):
        note = f"{note}{_STILL_IMPROVING}\n"
    families = families_of(cells_folder, models)
    contrasts = contrasts_as_markdown(runs, families, same_data=same_data)
    level = leaders_in(runs, families, same_data=same_data)
    parts = [as_markdown(entries), note, events_as_markdown(runs), contrasts]
    parts.append(sizes_as_markdown(runs))
    text = "\n".join(part for part in parts if part)
    write_files(out, {f"{name}.md": text, f"{name}.csv": as_csv(entries, level)})
    return text


def _add_shared_runs(runs: dict[int, list[FinishedRun]]) -> dict[int, list[FinishedRun]]:
    """Add to each seed the runs of models that it lacks and the first seed has."""
    first = next(iter(runs.values()))
    return {
        seed: [*seed_runs, *(run for run in first if run.name not in {r.name for r in seed_runs})]
        for seed, seed_runs in runs.items()
    }


def _note(entries: Sequence[Sequence[Entry]], same_data: bool) -> str:
    skill = _ATTAINED_SKILL if _has_optimum(entries) else _CRPS_SKILL
    note = f"{_SAME_DATA if same_data else _WORLDS}; {_NOTE.format(skill=skill)}"
    uneven = not same_data and len({len(seeds) for seeds in entries}) > 1
    unfitted = [
        _UNFITTED.format(name=e[0].row.model, less=np.mean([one.crps_skill for one in e]))
        for e in entries
        if e[0].row.model in ("raw_normal", "raw_truncated", "raw_censored")
    ]
    price = _price_of_members(entries[0])
    sentences = (note, price, *unfitted, _UNEQUAL_SEEDS if uneven else "")
    return " ".join(part for part in sentences if part) + "\n"


def _price_of_members(reference: Sequence[Entry]) -> str:
    """Return a sentence with the raw ensemble's fair CRPS; "" if it is unknown."""
    rows = [entry.row for entry in reference]
    fair = [row.crps_fair.value for row in rows if row.crps_fair]
    if rows[0].kind != "reference" or len(fair) < len(rows):
        return ""
    plain, mean = float(np.mean([row.crps.value for row in rows])), float(np.mean(fair))
    fair_text = f"{mean:.{max(4, decimals(mean))}f}"
    less = 100 * (1 - mean / plain)
    return _FAIR.format(members=rows[0].members, fair=fair_text, units=rows[0].units, less=less)


def _has_optimum(entries: Sequence[Sequence[Entry]]) -> bool:
    return any(entry.row.kind == "optimum" for model_entries in entries for entry in model_entries)


def write_files(folder: Path, content: Mapping[str, str | bytes]) -> None:
    """Write the tables and figures of a study, each whole or not at all.

    Temporary files of these names that a killed process left are removed.

    Args:
        folder: made if it is not there.
        content: of the files by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clear_leftovers(folder, *content)
    for name, data in content.items():
        write_whole(folder / name, data)


def _read_seed(folder: Path, models: Sequence[str]) -> list[FinishedRun]:
    places = [folder / name for name in (*models, "optimum")]
    run_folders = [place for place in places if (place / SCORES).exists()]
    return read_runs(run_folders) if run_folders else []


def _entries(runs: dict[int, list[FinishedRun]]) -> list[list[Entry]]:
    """Return the entries of each model: the reference, then by rising skill, the optimum last."""
    models: dict[str, list[Entry]] = {}
    run_ids: set[int] = set()  # runs that several seeds share count once
    for seed, seed_runs in runs.items():
        by_name = {run.name: run for run in seed_runs}
        for row in score_table(seed_runs):
            run = by_name[row.model]
            if id(run) not in run_ids:
                entry = _entry(seed, row, run, by_name.get("raw"))
                models.setdefault(row.model, []).append(entry)
            run_ids.add(id(run))
    return sorted(models.values(), key=_sort_key)


def _entry(seed: int, row: ScoreRow, run: FinishedRun, raw: FinishedRun | None) -> Entry:
    provenance = run.provenance
    cpu, memory = (float(provenance.get(name) or np.nan) for name in ("cpu_seconds", "memory_mb"))
    reference = raw.states_of("eecrps") if raw is not None and raw is not run else None
    eecrps_skill = _skill_percent(run.states_of("eecrps"), reference, "eecrps")
    return Entry(seed, row, pit_deviation(run), cpu, memory, run.still_improving, eecrps_skill)


def _skill_percent(states: xr.Dataset | None, raw: xr.Dataset | None, score: str) -> float:
    """Return the share of the raw ensemble's score that is removed, in percent; NaN if unknown."""
    if states is None or raw is None or f"{score}_sum" not in states:
        return float("nan")
    reference = mean_score(raw, score)
    return 100 * (1 - mean_score(states, score) / reference) if reference else float("nan")


def _sort_key(entries: Sequence[Entry]) -> tuple[int, float, float]:
    skill = float(np.mean([entry.attained_skill for entry in entries]))
    crps = float(np.mean([entry.row.crps.value for entry in entries]))
    return _KINDS[entries[0].row.kind], 0.0 if np.isnan(skill) else skill, -crps


def pit_deviation(run: FinishedRun) -> float:
    """Return the mean absolute deviation of the PIT histogram from a flat one, relative to it."""
    if "pit_count" not in run.states:
        return float("nan")
    counts = run.states["pit_count"].to_numpy().astype(float)
    return float(np.abs(counts / counts.mean() - 1).mean())


def as_markdown(models: Sequence[Sequence[Entry]]) -> str:
    """Return a table with a row for each model, means over its seeds, as Markdown."""
    units, attained = models[0][0].row.units, _has_optimum(models)
    skill = "Attained skill (%)" if attained else "CRPS skill (%)"
    heads = ["Model", "Forecast", "Seeds", f"CRPS ({units})", skill, "Its range"]
    heads += ["EECRPS skill (%)"]
    heads += ["Spread/error", "PIT deviation (%)", "CPU (s)", "Memory (MB)", "Parameters"]
    rows = (_cells(entries, attained) for entries in models)
    return markdown_of(columns_of(heads, rows, text=(0, 1)))


def _cells(entries: Sequence[Entry], attained: bool) -> list[str]:
    first = entries[0].row
    skills = [entry.attained_skill if attained else entry.crps_skill for entry in entries]
    span = f"{min(skills):.1f} to {max(skills):.1f}"

    # at least four decimals, and four digits of precipitation in m
    digits = max(4, decimals(first.crps.value))

    def mean(value: Callable[[Entry], float], form: str) -> str:
        average = float(np.mean([value(entry) for entry in entries]))
        # a distribution without a variance has no spread
        return format(average, form) if np.isfinite(average) else "–"

    return [
        first.model + (" (+)" if any(entry.still_improving for entry in entries) else ""),
        f"{first.members} members" if first.members else first.forecast,
        str(len(entries)),
        mean(lambda e: e.row.crps.value, f".{digits}f"),
        "–" if np.isnan(skills).any() else f"{np.mean(skills):.1f}",
        "–" if np.isnan(skills).any() or len(entries) < 2 else span,
        mean(lambda e: e.eecrps_skill, ".1f"),
        mean(lambda e: e.spread_error, ".3f"),
        mean(lambda e: 100 * e.pit, ".1f"),
        mean(lambda e: e.cpu, ".0f"),
        mean(lambda e: e.memory, ".0f"),
        "–" if first.parameters is None else f"{first.parameters:,}",
    ]


def events_as_markdown(runs: dict[int, list[FinishedRun]]) -> str:
    """Markdown: skill of the scores at thresholds against the raw ensemble; "" if there is none.

    Args:
        runs: of each seed.
    """
    models: dict[str, list[tuple[xr.Dataset, xr.Dataset]]] = {}
    for seed_runs in runs.values():
        states = {run.name: run.states for run in seed_runs}
        if "raw" not in states:
            continue
        raw = states.pop("raw")
        for model, model_states in states.items():
            models.setdefault(model, []).append((model_states, raw))
    names = (str(name) for pairs in models.values() for _, raw in pairs for name in raw)
    sums = dict.fromkeys(n for n in names if n.startswith(EVENTS) and n.endswith("_sum"))
    scores = [name.removesuffix("_sum") for name in sums]
    if not scores:
        return ""

    def cell(pairs: Sequence[tuple[xr.Dataset, xr.Dataset]], score: str) -> str:
        mean = float(np.mean([_skill_percent(states, raw, score) for states, raw in pairs]))
        return "–" if np.isnan(mean) else f"{mean:.1f}"

    heads = ["Skill at thresholds (%)", *(_event_in_words(score) for score in scores)]
    rows = [[model, *(cell(pairs, score) for score in scores)] for model, pairs in models.items()]
    return f"{markdown_of(columns_of(heads, rows))}\n{_EVENTS}\n"


def _event_in_words(name: str) -> str:
    """Return a heading for a score at a threshold: "Brier, above 0.01" for "brier_0.01"."""
    score, _, threshold = name.partition("_")
    return f"{'Brier' if score == 'brier' else 'twCRPS'}, above {threshold}"


def sizes_as_markdown(runs: dict[int, list[FinishedRun]]) -> str:
    """Return the CRPS of models of members by number of members as Markdown; "" if none."""
    scores: dict[str, list[Mapping[int, float]]] = {}
    for run in (run for seed_runs in runs.values() for run in seed_runs if run.sizes):
        scores.setdefault(run.name, []).append(run.sizes)
    if not scores:
        return ""
    sizes = sorted({size for seed_scores in scores.values() for one in seed_scores for size in one})
    heads = ["CRPS, given", *(f"{size} members" for size in sizes)]
    means = {
        model: [float(np.mean([one.get(size, np.nan) for one in seed_scores])) for size in sizes]
        for model, seed_scores in scores.items()
    }
    # as many digits as in the table of models, for precipitation in m too
    digits = max(4, decimals(next(value for row in means.values() for value in row[::-1])))
    rows = [[model, *(number(mean, f".{digits}f") for mean in row)] for model, row in means.items()]
    return markdown_of(columns_of(heads, rows))


def as_csv(models: Sequence[Sequence[Entry]], level: Mapping[str, str]) -> str:
    """Return a CSV with a line for each model and seed: its scores with bounds, and its costs.

    Args:
        models: entries of each model.
        level: the better model that a model is not distinguished from, see `leaders`; it is in the
            last column.
    """
    names = ("crps", "crpss", "attained")
    bounds = [f"{name}{part}" for name in names for part in ("", "_lower", "_upper")]
    costs = [
        "eecrpss",
        "spread_error",
        "pit_deviation",
        "cpu_seconds",
        "memory_mb",
        "still_improving",
    ]
    rows = []
    for entry in (entry for entries in models for entry in entries):
        row, values = entry.row, []
        for interval in (row.crps, row.crpss, row.attained):
            values += [interval.value, interval.lower, interval.upper] if interval else [np.nan] * 3
        values += [
            entry.eecrps_skill / 100,
            entry.spread_error,
            entry.pit,
            entry.cpu,
            entry.memory,
            int(entry.still_improving),
        ]
        rows.append(
            [row.model, entry.seed, *values, row.parameters, row.dates, level.get(row.model)]
        )
    heads = ["model", "seed", *bounds, *costs, "parameters", "dates", "level_with"]
    return csv_of(heads, rows, ".6g")


def comparisons(runs: dict[int, list[FinishedRun]], pairs: Sequence[tuple[str, str]]) -> str:
    """Markdown: CRPS skill of the second of each pair against the first, a column for each seed.

    Args:
        runs: of each seed.
        pairs: names of two models; a pair that no seed has is left out.

    Returns:
        The table and a note; "" if there is no pair.
    """
    all_skills: list[Interval] = []
    rows = []
    for worse, better in pairs:
        skills = [_skill(seed_runs, worse, better) for seed_runs in runs.values()]
        if any(skills):
            cells = [skill_in_words(skill) if skill else "–" for skill in skills]
            rows.append([f"{better} against {worse}", *cells])
            all_skills += [skill for skill in skills if skill]
    if not rows:
        return ""
    heads = ["CRPS skill, 95 %", *(f"seed {seed}" for seed in runs)]
    return f"{markdown_of(columns_of(heads, rows), escape=False)}\n{skill_note(all_skills)}\n"


def skill_in_words(skill: Interval) -> str:
    """Return a skill score and its confidence interval as text, in percent."""
    return f"{100 * skill.value:.1f} % [{100 * skill.lower:.1f}, {100 * skill.upper:.1f}]"


def skill_note(intervals: Sequence[Interval]) -> str:
    """Return a sentence on the method of the intervals of paired skill scores."""
    return f"In brackets: 95 % interval, paired over the test dates ({blocks_in_words(intervals)})."


def _skill(runs: Sequence[FinishedRun], worse: str, better: str) -> Interval | None:
    states = {run.name: run.states for run in runs}
    if worse not in states or better not in states:
        return None
    return interval_of(summarise(states[better], states[worse], maps=False), "crpss")
