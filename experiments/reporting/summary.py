"""The text of a report: what was compared, and the results in plain words."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ens10.experiments.reporting.groups import Group, step_of
from ens10.experiments.reporting.scorecard import Comparison, Line
from ens10.experiments.runs.provenance import duration
from ens10.experiments.scoring.run_results import FinishedRun
from ens10.experiments.scoring.tables import FEW_DATES, ScoreRow, columns
from ens10.experiments.scoring.writers import ABSENT, Column, number
from ens10.grid import is_global
from ens10.metrics import Interval
from ens10.metrics.figures.maps import degrees
from ens10.stations import STATION

_SPLITS = {"train": "Training dates", "val": "Validation dates", "test": "Test dates"}
_WEIGHTS = {"cell": "exact cell areas", "cos": "cosine of latitude", "none": "none"}


def result_sentence(rows: Sequence[ScoreRow], reference: str) -> str:
    """Return the result of a table in one sentence: the model with the lowest CRPS."""
    models = [row for row in rows if row.kind == "model" and row.model != reference]
    if not models:
        return f"{len(rows)} forecast{'s' * (len(rows) > 1)}, scored on {rows[0].dates} dates."
    best = min(models, key=lambda row: row.crps.value)
    cells = {c.heading.split(" (")[0]: c.cells[rows.index(best)] for c in columns(rows)}
    text = f"Lowest CRPS of {len(models)} model{'s' * (len(models) > 1)}: {best.model}, "
    text += f"{cells['CRPS'].split(' [')[0]} {best.units}".rstrip()
    if best.crpss is not None:
        text += f"; skill {cells['CRPSS'].split(' [')[0]} % against {reference}"
    if best.attained is not None:
        text += f", {cells['Attained skill'].split(' [')[0]} % of what is possible here"
    return f"{text}. Scored on {best.dates} test dates."


def describe_comparison(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return target, lead time, dates, grid, weights and protocol of runs; – where unknown."""
    first = runs[0].states
    facts = {"Target": _target(runs), "Lead time": _join_values(runs, step_of)}
    facts |= {
        label: _join_values(runs, lambda run, split=split: _split(run, split))  # type: ignore[misc]
        for split, label in _SPLITS.items()
    }
    if any(run.provenance.get("dates_in_gap") for run in runs):
        facts["Dates dropped between splits"] = _join_values(
            runs, lambda run: str(run.provenance.get("dates_in_gap", 0))
        )
    facts["Scored"] = _dates_in_words(runs[0])
    facts["Grid"] = _grid(runs[0])
    facts["Weights of grid points"] = _WEIGHTS.get(str(first.attrs.get("weights")), ABSENT)
    facts["Protocol"] = _join_values(runs, lambda run: run.provenance.get("protocol"))
    return facts


def _target(runs: Sequence[FinishedRun]) -> str:
    name = _join_values(runs, lambda run: run.provenance.get("target"))
    units = _join_values(runs, lambda run: run.provenance.get("target_units") or run.units or None)
    return name if units == ABSENT else f"{name} ({units})"


def _split(run: FinishedRun, split: str) -> str | None:
    count = (run.provenance.get("dates") or {}).get(split)
    if count is None:
        return None
    years = (run.provenance.get("years") or {}).get(split) or []
    return f"{count} ({_ranges(years)})" if years else str(count)


def _ranges(years: Sequence[int]) -> str:
    """Return years as text, with consecutive years as ranges: "1998–2003, 2005"."""
    parts: list[list[int]] = []
    for year in sorted(set(years)):
        if parts and year == parts[-1][-1] + 1:
            parts[-1].append(year)
        else:
            parts.append([year])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)


def _dates_in_words(run: FinishedRun) -> str:
    times = run.states["valid_time" if "valid_time" in run.states.coords else "time"].to_numpy()
    days = np.sort(times, axis=None).astype("datetime64[D]")
    kind = "valid" if "valid_time" in run.states.coords else "started"
    return f"{days.size} dates, {kind} {days[0]} to {days[-1]}"


def _grid(run: FinishedRun) -> str:
    if STATION in run.states.dims:
        return f"{run.states.sizes[STATION]} stations"
    if "latitude" not in run.states.coords or "longitude" not in run.states.coords:
        return ABSENT
    lat, lon = run.states["latitude"].to_numpy(), run.states["longitude"].to_numpy()
    north, south = (degrees(round(float(edge), 2), "NS") for edge in (lat.max(), lat.min()))
    where = f"{north} to {south}"
    where += ", global" if is_global(lon) else ", regional"
    return f"{lat.size} × {lon.size} (latitude × longitude), {where}"


def provenance(runs: Sequence[FinishedRun]) -> list[Column]:
    """Return seed, commit and data of each run as columns of a table."""

    def column(heading: str, value_of: Callable[[FinishedRun], Any]) -> Column:
        return Column(heading, tuple(_text(value_of(run)) for run in runs), numeric=False)

    return [
        column("Run", lambda run: run.name),
        column("Kind", lambda run: run.kind),
        column("Seed", lambda run: run.provenance.get("seed")),
        column("Commit", lambda run: run.provenance.get("commit")),
        column("Data", lambda run: (run.provenance.get("data") or {}).get("store")),
        column("Checksum of data", lambda run: (run.provenance.get("data") or {}).get("checksum")),
    ]


def versions(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return the versions of the packages that the runs used, by package."""
    packages: list[str] = []
    for run in runs:
        run_versions = run.provenance.get("versions") or {}
        packages += [name for name in run_versions if name not in packages]
    return {
        f"Version of {name}": _join_values(
            runs,
            lambda run, name=name: (run.provenance.get("versions") or {}).get(name),  # type: ignore[misc]
        )
        for name in packages
    } or {"Versions": ABSENT}


def _join_values(runs: Sequence[FinishedRun], value_of: Callable[[FinishedRun], Any]) -> str:
    """Return the value that the runs share, or each value with its runs; – if none has one."""
    names_by_value: dict[str, list[str]] = {}
    for run in runs:
        if (value := value_of(run)) is not None:
            names_by_value.setdefault(str(value), []).append(run.name)
    if len(names_by_value) < 2:
        return next(iter(names_by_value), ABSENT)
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in names_by_value.items())


def _text(value: Any) -> str:
    return ABSENT if value is None else str(value)


def no_reference(reference: str) -> str:
    """Return the reason why the table has no skill: the reference is not among the runs."""
    return (
        f"No run is called {reference}, so there is nothing to measure skill against: CRPSS and "
        "attained skill are left out. Add that run to the report to see them."
    )


_CLOSE = 0.05  # spread/error: nearer to 1 counts as calibrated
_MAX_NAMES = 4  # names that are listed


def lead(groups: Sequence[Group]) -> str:
    """Return the first paragraph of the page."""
    if len(groups) == 1:
        return result_sentence(groups[0].rows, groups[0].reference)
    runs = len({run.name for group in groups for run in group.runs})
    titles = "; ".join(group.title for group in groups)
    return f"{runs} forecasts, compared by target and lead time: {titles}."


def in_short(group: Group, lines: Sequence[Line]) -> list[str]:
    """Return a few sentences on the best model of a group, the others, calibration and cost."""
    models = [row for row in group.rows if row.kind == "model" and row.model != group.reference]
    if not models:
        return ["There is no model here to be compared with another forecast."]
    best = min(models, key=lambda row: row.crps.value)
    line = next(line for line in lines if line.name == best.model)
    sentences = [_best_sentence(best, line)]
    if line.best:
        sentences.append(_rival_sentence(best.model, line.best))
    sentences += _reference_sentences(
        [one for one in lines if one.name in {row.model for row in models}], group
    )
    sentences += _spread(best, group)
    sentences += _cost(models, best)
    return sentences + _cautions(group)


def _best_sentence(row: ScoreRow, line: Line) -> str:
    units = f" {row.units}" if row.units not in ("", "1") else ""
    text = f"The model with the lowest CRPS is {row.model}: {row.crps.value:.4g}{units}"
    if line.reference:
        text += f", {_skill_in_words(line.reference.skill)} {line.reference.other}"
        text += f" ({_interval_in_words(line.reference.skill)})"
    if row.attained:
        text += f". It made {100 * row.attained.value:.0f} % of the improvement that is possible"
    return f"{text}."


def _skill_in_words(skill: Interval) -> str:
    share = 100 * skill.value
    return f"{abs(share):.1f} % {'lower than' if share >= 0 else 'higher than'} that of"


def _interval_in_words(skill: Interval) -> str:
    low, high = (number(100 * x, ".1f") for x in (skill.lower, skill.upper))
    return f"95 % interval {low} to {high} %"


def _rival_sentence(name: str, comparison: Comparison) -> str:
    if comparison.verdict == "better":
        return f"It is clearly better than the next best, {comparison.other}."
    if comparison.verdict == "worse":
        return f"It is clearly worse than {comparison.other}."
    return (
        f"Whether it is better than the next best, {comparison.other}, these dates do not tell: "
        f"take {name} and {comparison.other} as equally good."
    )


def _reference_sentences(lines: Sequence[Line], group: Group) -> list[str]:
    if group.reference_run is None:
        return [no_reference(group.reference)]
    models = {
        verdict: [
            line.name for line in lines if line.reference and line.reference.verdict == verdict
        ]
        for verdict in ("better", "unclear", "worse")
    }
    clauses = [
        f"Clearly better than {group.reference}: {len(models['better'])} of {_models(len(lines))}"
    ]
    if models["unclear"]:
        clauses.append(f"no clear difference: {_join_names(models['unclear'])}")
    if models["worse"]:
        clauses.append(f"clearly worse: {_join_names(models['worse'])}")
    return ["; ".join(clauses) + "."]


def _models(number: int) -> str:
    return f"{number} model{'s' * (number > 1)}"


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _spread(best: ScoreRow, group: Group) -> list[str]:
    raw = next((row for row in group.rows if row.model == group.reference), None)
    clauses = [_spread_in_words(row) for row in (raw, best) if row and row.spread_error]
    return ["Spread: " + "; ".join(clauses) + "."] if clauses else []


def _spread_in_words(row: ScoreRow) -> str:
    ratio = row.spread_error.value if row.spread_error else 1.0
    if abs(ratio - 1) <= _CLOSE:
        return f"that of {row.model} is as large as its error (ratio {ratio:.2f})"
    size = "smaller" if ratio < 1 else "larger"
    sure = "too confident" if ratio < 1 else "not confident enough"
    return f"that of {row.model} is {size} than its error (ratio {ratio:.2f}): it is {sure}"


def _cost(models: Sequence[ScoreRow], best: ScoreRow) -> list[str]:
    if best.seconds is None:
        return []
    text = f"Fitting {best.model} took {duration(best.seconds)}"
    cheap_models = [
        row
        for row in models
        if row.seconds is not None
        and row.seconds < best.seconds / 5
        and row.crps.value <= 1.05 * best.crps.value
    ]
    if cheap_models:
        other = min(cheap_models, key=lambda row: (row.crps.value, row.model))
        excess = 100 * (other.crps.value / best.crps.value - 1)
        price = "the same CRPS" if excess < 0.05 else f"a CRPS that is {excess:.1f} % higher"
        text += f"; {other.model} took {duration(other.seconds or 0.0)}, for {price}"
    return [f"{text}."]


def _cautions(group: Group) -> list[str]:
    cautions = []
    dates = group.rows[0].dates
    if dates < FEW_DATES:
        cautions.append(f"These are only {dates} test dates: the intervals are rough.")
    for noun, key in (("protocols", "protocol"), ("data", "data"), ("seeds", "seed")):
        entries = [run.provenance.get(key) for run in group.runs if run.kind != "optimum"]
        values = {str(_checksum(value)) for value in entries if value is not None}
        if len(values) > 1:
            cautions.append(
                f"Careful: these runs are of different {noun} ({', '.join(sorted(values))}), which "
                "is part of the differences between them."
            )
    return cautions


def _checksum(value: object) -> object:
    return value.get("checksum") if isinstance(value, dict) else value
