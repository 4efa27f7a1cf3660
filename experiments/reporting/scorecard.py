"""The score card: which forecasts are better than the reference, and than the best other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr

from ens10.experiments.reporting.groups import Group
from ens10.experiments.scoring.run_results import FinishedRun
from ens10.experiments.scoring.tables import FEW_DATES, interval_of
from ens10.metrics import Interval, summarise
from ens10.metrics.uncertainty import Method, blocks_in_words

Verdict = Literal["better", "worse", "unclear"]
_CRPS = ("crps_sum", "crps_weight", "crps_count")
_SIGNS = {"better": "▲", "worse": "▼", "unclear": "≈"}
_WORDS = {"better": "clearly better", "worse": "clearly worse", "unclear": "no clear difference"}
_FEWEST = 8  # dates of a season: fewer tell nothing


@dataclass(frozen=True)
class Comparison:
    """Comparison of a forecast with another one, paired by date.

    Attributes:
        other: name of the other forecast.
        skill: 1 - CRPS / CRPS of the other.
        difference: CRPS less that of the other.
        season: of the valid dates; None for all of them.
    """

    other: str
    skill: Interval
    difference: Interval
    season: str | None = None

    @property
    def verdict(self) -> Verdict:
        """The sign of the difference in words, or "unclear" if its interval contains 0."""
        if self.difference.upper < 0:
            return "better"
        return "worse" if self.difference.lower > 0 else "unclear"

    @property
    def sign(self) -> str:
        """The verdict as a sign."""
        return _SIGNS[self.verdict]

    @property
    def verdict_in_words(self) -> str:
        """The verdict in words."""
        return _WORDS[self.verdict]

    @property
    def has_interval(self) -> bool:
        """Whether the skill has an interval."""
        return bool(np.isfinite(self.skill.lower))


@dataclass(frozen=True)
class Line:
    """A row of the score card.

    Attributes:
        name: of the forecast.
        reference: comparison with the reference; None for the reference, or if there is none.
        best: comparison with the best other forecast; None if there is no other.
        seasons: comparison with the reference in each season.
    """

    name: str
    reference: Comparison | None
    best: Comparison | None
    seasons: tuple[Comparison, ...] = ()


def card_of_runs(group: Group) -> list[Line]:
    """Return the rows of a group's score card, in the order of its runs.

    The best other forecast has the lowest CRPS of all but the row's forecast and the optimum.
    """
    crps = {row.model: row.crps.value for row in group.rows}
    rivals = sorted(
        (run for run in group.runs if run.kind != "optimum"), key=lambda run: crps[run.name]
    )
    lines = []
    for run in group.runs:
        best = next((other for other in rivals if other is not run), None)
        reference_run = None if group.reference_run is run else group.reference_run
        lines.append(
            Line(
                run.name,
                compare_runs(run, reference_run)[0] if reference_run else None,
                compare_runs(run, best)[0] if best else None,
                tuple(compare_runs(run, reference_run, seasons=True)) if reference_run else (),
            )
        )
    return lines


def compare_runs(
    run: FinishedRun, other: FinishedRun, *, seasons: bool = False
) -> list[Comparison]:
    """Compare a run with another on all dates, or in each season if all have enough dates."""
    states, other_states = (one.states[list(_CRPS)] for one in (run, other))
    dates = states.sizes["time"]
    if not seasons:
        return [
            _compare(summarise(states, other_states, maps=False, method=_method(dates)), other.name)
        ]
    times = states["valid_time" if "valid_time" in states.coords else "time"]
    _, counts = np.unique(times.dt.season, return_counts=True)
    if len(counts) < 2 or counts.min() < _FEWEST:
        return []
    method = _method(int(counts.min()))
    scores = summarise(states, other_states, by=["season"], maps=False, method=method)
    return [
        _compare(scores.isel(season=place), other.name, str(season), place)
        for place, season in enumerate(scores["season"].to_numpy())
    ]


def _method(dates: int) -> Method:
    return "student" if dates < FEW_DATES else "bootstrap"


def _compare(
    scores: xr.Dataset, other: str, season: str | None = None, group: int = 0
) -> Comparison:
    skill, difference = (interval_of(scores, n, group) for n in ("crpss", "crps_difference"))
    return Comparison(other, skill, difference, season)


def card_table(lines: Sequence[Line], reference: str) -> dict[str, Any] | None:
    """Return the score card for its template; None if nothing is compared.

    Returns:
        Headings, caption, the cells of each forecast, and the place among them (`named`) of the
        comparisons with the best other forecast.
    """
    seasons = [one.season for one in max((line.seasons for line in lines), key=len)]
    has_reference = any(line.reference for line in lines)
    has_best = any(line.best for line in lines)
    if not has_reference and not has_best:
        return None
    heads = [
        "Forecast",
        *[f"Against {reference}"] * has_reference,
        *["Against the best other"] * has_best,
    ]
    rows = {
        line.name: [
            *[line.reference] * has_reference,
            *[line.best] * has_best,
            *(line.seasons or [None] * len(seasons)),
        ]
        for line in lines
    }
    caption = "CRPS skill: how much lower the CRPS is than that of another forecast, in percent"
    if seasons:
        caption += "; then by season of the valid dates (DJF is December to February)"
    return {
        "headings": [*heads, *(f"Against {reference}, {season}" for season in seasons)],
        "rows": rows,
        "caption": f"{caption}; intervals: {_intervals(rows.values())}",
        "named": int(has_reference) if has_best else None,
    }


def overview(
    titles: Sequence[str], cards: Sequence[Sequence[Line]], reference: str
) -> dict[str, Any]:
    """Return the skill of every forecast against the reference, a column for each group.

    Args:
        titles: of the groups.
        cards: their score cards.
        reference: name of the run that skill is measured against.

    Returns:
        As `card_table`.
    """
    columns = [{line.name: line.reference for line in card} for card in cards]
    names = dict.fromkeys(name for column in columns for name in column if name != reference)
    rows = {name: [column.get(name) for column in columns] for name in names}
    caption = f"CRPS skill against {reference} in percent, by target and lead time"
    return {
        "headings": ["Forecast", *titles],
        "rows": rows,
        "caption": f"{caption}; intervals: {_intervals(rows.values())}",
        "named": None,
    }


def _intervals(rows: Iterable[Sequence[Comparison | None]]) -> str:
    """Return the method of the intervals in words: Student's t if dates are too few for blocks."""
    differences = [cell.difference for cells in rows for cell in cells if cell]
    if all(difference.block_length is None for difference in differences):
        return "Student's t over the dates"
    return f"bootstrap, {blocks_in_words(differences)}"
