"""The text of a report: what was compared, the results in plain words, and how to read them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ens10.experiments.reporting.groups import Group, step_of
from ens10.experiments.reporting.scorecard import Compared, Line
from ens10.experiments.run_results import FinishedRun
from ens10.experiments.tables import FEW_DATES, Row, columns
from ens10.experiments.writers import ABSENT, Column, number
from ens10.grid import is_global
from ens10.metrics import Interval
from ens10.metrics.figures.maps import degrees
from ens10.stations import STATION

_SPLITS = {"train": "Training dates", "val": "Validation dates", "test": "Test dates"}
_WEIGHTS = {"cell": "exact cell areas", "cos": "cosine of latitude", "none": "none"}


def result_sentence(rows: Sequence[Row], reference: str) -> str:
    """One sentence that says what came out."""
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
    """Target, lead, dates, grid, weights and protocol; what is not known is shown as –."""
    first = runs[0].states
    told = {"Target": _target(runs), "Lead time": _agreed(runs, step_of)}
    told |= {
        label: _agreed(runs, lambda run, split=split: _split(run, split))  # type: ignore[misc]
        for split, label in _SPLITS.items()
    }
    if any(run.provenance.get("dates_in_gap") for run in runs):
        told["Dates dropped between splits"] = _agreed(
            runs, lambda run: str(run.provenance.get("dates_in_gap", 0))
        )
    told["Scored"] = _scored(runs[0])
    told["Grid"] = _grid(runs[0])
    told["Weights of grid points"] = _WEIGHTS.get(str(first.attrs.get("weights")), ABSENT)
    told["Protocol"] = _agreed(runs, lambda run: run.provenance.get("protocol"))
    return told


def _target(runs: Sequence[FinishedRun]) -> str:
    name = _agreed(runs, lambda run: run.provenance.get("target"))
    units = _agreed(runs, lambda run: run.provenance.get("target_units") or run.units or None)
    return name if units == ABSENT else f"{name} ({units})"


def _split(run: FinishedRun, split: str) -> str | None:
    count = (run.provenance.get("dates") or {}).get(split)
    if count is None:
        return None
    years = (run.provenance.get("years") or {}).get(split) or []
    return f"{count} ({_ranges(years)})" if years else str(count)


def _ranges(years: Sequence[int]) -> str:
    """Years with runs of neighbours drawn together: 1998–2003, 2005."""
    parts: list[list[int]] = []
    for year in sorted(set(years)):
        if parts and year == parts[-1][-1] + 1:
            parts[-1].append(year)
        else:
            parts.append([year])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)


def _scored(run: FinishedRun) -> str:
    when = run.states["valid_time" if "valid_time" in run.states.coords else "time"].to_numpy()
    days = np.sort(when, axis=None).astype("datetime64[D]")
    what = "valid" if "valid_time" in run.states.coords else "started"
    return f"{days.size} dates, {what} {days[0]} to {days[-1]}"


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
    """Seed, commit and data of each run."""

    def told(heading: str, value: Callable[[FinishedRun], Any]) -> Column:
        return Column(heading, tuple(_text(value(run)) for run in runs), numeric=False)

    return [
        told("Run", lambda run: run.name),
        told("Kind", lambda run: run.kind),
        told("Seed", lambda run: run.provenance.get("seed")),
        told("Commit", lambda run: run.provenance.get("commit")),
        told("Data", lambda run: (run.provenance.get("data") or {}).get("store")),
        told("Checksum of data", lambda run: (run.provenance.get("data") or {}).get("checksum")),
    ]


def versions(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Versions of the packages, by package."""
    packages: list[str] = []
    for run in runs:
        found = run.provenance.get("versions") or {}
        packages += [name for name in found if name not in packages]
    return {
        f"Version of {name}": _agreed(
            runs,
            lambda run, name=name: (run.provenance.get("versions") or {}).get(name),  # type: ignore[misc]
        )
        for name in packages
    } or {"Versions": ABSENT}


def _agreed(runs: Sequence[FinishedRun], value: Callable[[FinishedRun], Any]) -> str:
    """The one value that all who tell it tell; else each with the runs that tell it."""
    who: dict[str, list[str]] = {}
    for run in runs:
        if (told := value(run)) is not None:
            who.setdefault(str(told), []).append(run.name)
    if len(who) < 2:
        return next(iter(who), ABSENT)
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in who.items())


def _text(value: Any) -> str:
    return ABSENT if value is None else str(value)


def no_reference(reference: str) -> str:
    """Why there is no skill in the table."""
    return (
        f"No run is called {reference}, so there is nothing to measure skill against: CRPSS and "
        "attained skill are left out. Add that run to the report to see them."
    )


_CLOSE = 0.05  # spread/error: nearer to 1 counts as calibrated
_MOST = 4  # names that are listed


def lead(groups: Sequence[Group]) -> str:
    """The first paragraph of the page."""
    if len(groups) == 1:
        return result_sentence(groups[0].rows, groups[0].reference)
    runs = len({run.name for group in groups for run in group.runs})
    titles = "; ".join(group.title for group in groups)
    return f"{runs} forecasts, compared by target and lead time: {titles}."


def in_short(group: Group, lines: Sequence[Line]) -> list[str]:
    """A few sentences on the forecasts of a group: the best one, the others, calibration, cost."""
    models = [row for row in group.rows if row.kind == "model" and row.model != group.reference]
    if not models:
        return ["There is no model here to be compared with another forecast."]
    best = min(models, key=lambda row: row.crps.value)
    line = next(line for line in lines if line.name == best.model)
    told = [_best(best, line)]
    if line.best:
        told.append(_rival(best.model, line.best))
    told += _others([one for one in lines if one.name in {row.model for row in models}], group)
    told += _spread(best, group)
    told += _cost(models, best)
    return told + _cautions(group)


def _best(row: Row, line: Line) -> str:
    units = f" {row.units}" if row.units not in ("", "1") else ""
    told = f"The model with the lowest CRPS is {row.model}: {row.crps.value:.4g}{units}"
    if line.reference:
        told += f", {_lower(line.reference.skill)} {line.reference.other}"
        told += f" ({_between(line.reference.skill)})"
    if row.attained:
        told += f". It made {100 * row.attained.value:.0f} % of the improvement that is possible"
    return f"{told}."


def _lower(skill: Interval) -> str:
    share = 100 * skill.value
    return f"{abs(share):.1f} % {'lower than' if share >= 0 else 'higher than'} that of"


def _between(skill: Interval) -> str:
    low, high = (number(100 * x, ".1f") for x in (skill.lower, skill.upper))
    return f"95 % interval {low} to {high} %"


def _rival(name: str, against: Compared) -> str:
    if against.verdict == "better":
        return f"It is clearly better than the next best, {against.other}."
    if against.verdict == "worse":
        return f"It is clearly worse than {against.other}."
    return (
        f"Whether it is better than the next best, {against.other}, these dates do not tell: take "
        f"{name} and {against.other} as equally good."
    )


def _others(lines: Sequence[Line], group: Group) -> list[str]:
    if group.against is None:
        return [no_reference(group.reference)]
    found = {
        verdict: [
            line.name for line in lines if line.reference and line.reference.verdict == verdict
        ]
        for verdict in ("better", "unclear", "worse")
    }
    told = [
        f"Clearly better than {group.reference}: {len(found['better'])} of {_models(len(lines))}"
    ]
    if found["unclear"]:
        told.append(f"no clear difference: {_names(found['unclear'])}")
    if found["worse"]:
        told.append(f"clearly worse: {_names(found['worse'])}")
    return ["; ".join(told) + "."]


def _models(number: int) -> str:
    return f"{number} model{'s' * (number > 1)}"


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _spread(best: Row, group: Group) -> list[str]:
    raw = next((row for row in group.rows if row.model == group.reference), None)
    told = [_calibrated(row) for row in (raw, best) if row and row.spread_error]
    return ["Spread: " + "; ".join(told) + "."] if told else []


def _calibrated(row: Row) -> str:
    ratio = row.spread_error.value if row.spread_error else 1.0
    if abs(ratio - 1) <= _CLOSE:
        return f"that of {row.model} tells the size of its error (ratio {ratio:.2f})"
    size = "smaller" if ratio < 1 else "larger"
    sure = "too sure of itself" if ratio < 1 else "not sure enough"
    return f"that of {row.model} is {size} than its error (ratio {ratio:.2f}): it is {sure}"


def _cost(models: Sequence[Row], best: Row) -> list[str]:
    if best.seconds is None:
        return []
    told = f"Fitting {best.model} took {duration(best.seconds)}"
    cheap = [
        row
        for row in models
        if row.seconds is not None
        and row.seconds < best.seconds / 5
        and row.crps.value <= 1.05 * best.crps.value
    ]
    if cheap:
        other = min(cheap, key=lambda row: (row.crps.value, row.model))
        more = 100 * (other.crps.value / best.crps.value - 1)
        price = "the same CRPS" if more < 0.05 else f"a CRPS that is {more:.1f} % higher"
        told += f"; {other.model} took {duration(other.seconds or 0.0)}, for {price}"
    return [f"{told}."]


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever is told best."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _cautions(group: Group) -> list[str]:
    told = []
    dates = group.rows[0].dates
    if dates < FEW_DATES:
        told.append(f"These are only {dates} test dates: the intervals are rough.")
    for what, key in (("protocols", "protocol"), ("data", "data"), ("seeds", "seed")):
        known = [run.provenance.get(key) for run in group.runs if run.kind != "optimum"]
        values = {str(_checksum(value)) for value in known if value is not None}
        if len(values) > 1:
            told.append(
                f"Careful: these runs are of different {what} ({', '.join(sorted(values))}), which "
                "is part of the differences between them."
            )
    return told


def _checksum(value: object) -> object:
    return value.get("checksum") if isinstance(value, dict) else value
