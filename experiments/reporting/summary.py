"""What came out, in plain words and before any table."""

from collections.abc import Sequence

from ens10.experiments import story
from ens10.experiments.reporting.groups import Group
from ens10.experiments.reporting.scorecard import Compared, Line
from ens10.experiments.tables import FEW_DATES, Row
from ens10.experiments.writers import number
from ens10.metrics import Interval

_CLOSE = 0.05  # spread/error: nearer to 1 counts as calibrated
_MOST = 4  # names that are listed


def lead(groups: Sequence[Group]) -> str:
    """The first paragraph of the page."""
    if len(groups) == 1:
        return story.lead(groups[0].rows, groups[0].reference)
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
        return [story.no_reference(group.reference)]
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
