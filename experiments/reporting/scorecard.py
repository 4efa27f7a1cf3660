"""The score card: which forecasts are better than the reference, and than the best other."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np
import xarray as xr

from ens10.experiments import page
from ens10.experiments.finished import FinishedRun
from ens10.experiments.reporting.groups import Group
from ens10.experiments.tables import FEW_DATES, interval_of
from ens10.experiments.writers import ABSENT
from ens10.metrics import Interval, summarise
from ens10.metrics.uncertainty import Method, blocks_in_words

Verdict = Literal["better", "worse", "unclear"]
_CRPS = ("crps_sum", "crps_weight", "crps_count")
_SIGNS = {"better": "▲", "worse": "▼", "unclear": "≈"}
_SAID = {"better": "clearly better", "worse": "clearly worse", "unclear": "no clear difference"}
_LEGEND = (
    f"{_SIGNS['better']} on blue: {_SAID['better']}; {_SIGNS['worse']} on orange: "
    f"{_SAID['worse']}; {_SIGNS['unclear']}: {_SAID['unclear']}, the 95 % interval of the "
    "paired difference holds 0. One comparison in twenty would be called clear by chance alone: "
    "with many forecasts, look at the size of the skill too."
)
_FEWEST = 8  # dates of a season: fewer tell nothing


@dataclass(frozen=True)
class Compared:
    """A forecast against another, paired date by date.

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
        """Clear if the interval of the difference leaves out 0."""
        if self.difference.upper < 0:
            return "better"
        return "worse" if self.difference.lower > 0 else "unclear"


@dataclass(frozen=True)
class Line:
    """A row of the score card.

    Attributes:
        name: of the forecast.
        reference: compared with the reference; None if it is the reference, or there is none.
        best: compared with the best other forecast; None if there is no other.
        seasons: compared with the reference in each season.
    """

    name: str
    reference: Compared | None
    best: Compared | None
    seasons: tuple[Compared, ...] = ()


def score_card(group: Group) -> list[Line]:
    """The rows of a group's score card, in the order of its runs.

    The best other is the forecast with the lowest CRPS but the row's own and the optimum.
    """
    crps = {row.model: row.crps.value for row in group.rows}
    rivals = sorted(
        (run for run in group.runs if run.kind != "optimum"), key=lambda run: crps[run.name]
    )
    lines = []
    for run in group.runs:
        best = next((other for other in rivals if other is not run), None)
        against = None if group.against is run else group.against
        lines.append(
            Line(
                run.name,
                compared(run, against)[0] if against else None,
                compared(run, best)[0] if best else None,
                tuple(compared(run, against, seasons=True)) if against else (),
            )
        )
    return lines


def compared(run: FinishedRun, other: FinishedRun, *, seasons: bool = False) -> list[Compared]:
    """A run against another, on all dates or in each season that has enough of them."""
    mine, its = (one.states[list(_CRPS)] for one in (run, other))
    dates = mine.sizes["time"]
    if not seasons:
        return [_compared(summarise(mine, its, maps=False, method=_method(dates)), other.name)]
    when = mine["valid_time" if "valid_time" in mine.coords else "time"]
    _, counts = np.unique(when.dt.season, return_counts=True)
    if len(counts) < 2 or counts.min() < _FEWEST:
        return []
    method = _method(int(counts.min()))
    scores = summarise(mine, its, by=["season"], maps=False, method=method)
    return [
        _compared(scores.isel(season=place), other.name, str(season), place)
        for place, season in enumerate(scores["season"].to_numpy())
    ]


def _method(dates: int) -> Method:
    return "student" if dates < FEW_DATES else "bootstrap"


def _compared(
    scores: xr.Dataset, other: str, season: str | None = None, group: int = 0
) -> Compared:
    skill, difference = (interval_of(scores, n, group) for n in ("crpss", "crps_difference"))
    return Compared(other, skill, difference, season)


def card_table(lines: Sequence[Line], reference: str) -> str:
    """The score card as HTML: signs, words and colours say the same."""
    if not any(line.reference or line.best for line in lines):
        return page.paragraphs("There is no other forecast to compare with.")
    seasons = [one.season for one in max((line.seasons for line in lines), key=len)]
    heads = ["Forecast"]
    heads += [f"Against {reference}"] if any(line.reference for line in lines) else []
    heads += ["Against the best other"] if any(line.best for line in lines) else []
    heads += [f"Against {reference}, {season}" for season in seasons]
    body = []
    for line in lines:
        cells: list[Compared | None] = [line.reference] if f"Against {reference}" in heads else []
        cells += [line.best] if "Against the best other" in heads else []
        cells += line.seasons or [None] * len(seasons)
        told = "".join(_cell(cell, named=cell is line.best) for cell in cells)
        body.append(f'<tr><th scope="row">{escape(line.name)}</th>{told}</tr>')
    caption = "CRPS skill: how much lower the CRPS is than that of another forecast, in percent"
    if seasons:
        caption += "; then by season of the valid dates (DJF is December to February)"
    shown = [cell for line in lines for cell in (line.reference, line.best, *line.seasons) if cell]
    caption += f"; intervals: {_intervals(shown)}"
    table = page.table_of(heads, body, caption)
    return f"{table}\n{page.paragraphs(_LEGEND, kind='note')}"


def overview(titles: Sequence[str], cards: Sequence[Sequence[Line]], reference: str) -> str:
    """The skill of every forecast against the reference, a column for each group.

    Args:
        titles: of the groups.
        cards: their score cards.
        reference: name of the run that skill is measured against.
    """
    named = [{line.name: line.reference for line in card} for card in cards]
    names = dict.fromkeys(name for held in named for name in held if name != reference)
    body = []
    for name in names:
        told = "".join(_cell(held.get(name), named=False) for held in named)
        body.append(f'<tr><th scope="row">{escape(name)}</th>{told}</tr>')
    caption = f"CRPS skill against {reference} in percent, by target and lead time"
    caption += (
        f"; intervals: {_intervals([cell for held in named for cell in held.values() if cell])}"
    )
    return page.table_of(["Forecast", *titles], body, caption)


def _intervals(shown: Sequence[Compared]) -> str:
    """The method of the intervals: Student's t where dates are too few for blocks."""
    if all(cell.difference.block_length is None for cell in shown):
        return "Student's t over the dates"
    return f"bootstrap, {blocks_in_words(cell.difference for cell in shown)}"


def _cell(cell: Compared | None, *, named: bool) -> str:
    if cell is None:
        return f'<td class="number">{ABSENT}</td>'
    skill = _percent(cell.skill.value)
    bounds = ""
    if np.isfinite(cell.skill.lower):
        bounds = f"[{_percent(cell.skill.lower)}, {_percent(cell.skill.upper)}]"
    than = f" {cell.other}" if named else ""
    sign = f'<span aria-hidden="true">{_SIGNS[cell.verdict]}</span>'
    said = f'<span class="unseen">{_SAID[cell.verdict]}</span>'
    small = f" <small>{bounds}</small>" if bounds else ""
    other = f" <small>{escape(than.strip())}</small>" if than else ""
    return f'<td class="number {cell.verdict}">{sign} {skill} {said}{small}{other}</td>'


def _percent(share: float) -> str:
    text = f"{100 * share:.1f}"
    return text.lstrip("-") if not float(text) else text.replace("-", "−")
