"""The table of scores of several runs: rows of numbers, and the columns of text made of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.experiments.scoring.run_results import FinishedRun
from ens10.experiments.scoring.writers import (
    ABSENT,
    MARKDOWN,
    NOT_CLEAR,
    Column,
    csv_of_records,
    escape_markup,
    latex_of,
    markdown_of,
    number,
)
from ens10.metrics import Interval, interval, summarise
from ens10.metrics.uncertainty import (
    REPLICATES,
    Floats,
    Method,
    Sums,
    blocks_in_words,
    mean_of,
    paired_sums,
)

_WEIGHTS = {
    "cell": "grid points weighted by the exact area of their cells",
    "cos": "grid points weighted by the cosine of latitude",
    "none": "grid points unweighted",
}
FEW_DATES = 20  # the bootstrap over dates needs tens of them


@dataclass(frozen=True)
class ScoreRow:
    """One run's scores, with confidence intervals over dates; None where one is undefined.

    Args:
        crps: plain estimator for members, closed form for normals.
        crpss: 1 - CRPS / CRPS of the reference, paired.
        above: name of the run in the row above.
        difference: CRPS less that of the row above, paired; below 0 this one is better.
        attained: (CRPS_reference - CRPS) / (CRPS_reference - CRPS_optimum), paired.
        crps_fair: fair CRPS, of ensembles only.
        spread_error: ratio of spread to RMSE of the mean; 1 is calibrated.
        seconds: duration of its fit.
        dates: number of scored dates.
        weights: area weights, "cell", "cos" or "none".
        method: of the intervals, "bootstrap" or "student".
    """

    model: str
    kind: str
    forecast: str
    members: int | None
    units: str
    crps: Interval
    crpss: Interval | None
    above: str | None
    difference: Interval | None
    attained: Interval | None
    crps_fair: Interval | None
    rmse: Interval | None
    spread_error: Interval | None
    parameters: int | None
    seconds: float | None
    dates: int
    weights: str
    confidence: float
    method: Method


def score_table(
    runs: Sequence[FinishedRun],
    reference: str = "raw",
    *,
    confidence: float = 0.95,
    method: Method | None = None,
    seed: int = 0,
) -> list[ScoreRow]:
    """Return the rows of the table: the reference, then from worst to best CRPS, the optimum last.

    Args:
        runs: scored on the same dates and points.
        reference: name of the run that skill is measured against. Without a run called "raw",
            the default, the columns against it are empty.
        confidence: of the intervals.
        method: of the intervals; None for "student" below `FEW_DATES` dates, else "bootstrap".
        seed: of the bootstrap.

    Raises:
        UnknownNameError: another reference than "raw" that is not among the runs.
        ArgumentError: two optima; runs scored on different points.
        MissingDataError: runs scored on different dates.
    """
    names = [run.name for run in runs]
    if reference not in names and reference != "raw":
        raise UnknownNameError("reference", reference, names)
    optima = [run for run in runs if run.kind == "optimum"]
    if len(optima) > 1:
        raise ArgumentError("runs", f"two optima: {optima[0].name} and {optima[1].name}")
    interval_method = method or _method(runs)
    reference_run = next((run for run in runs if run.name == reference), None)
    rows = []
    above: FinishedRun | None = None
    for run in _sort_runs(runs, reference):
        best = optima[0] if optima else None
        rows.append(_row(run, above, reference_run, best, (confidence, interval_method, seed)))
        above = run
    return rows


IntervalSettings = tuple[float, Method, int]


def _method(runs: Sequence[FinishedRun]) -> Method:
    dates = min((run.states.sizes["time"] for run in runs), default=0)
    return "student" if dates < FEW_DATES else "bootstrap"


def _sort_runs(runs: Sequence[FinishedRun], reference: str) -> list[FinishedRun]:
    def place(run: FinishedRun) -> tuple[int, float, str]:
        group = 2 if run.kind == "optimum" else int(run.name != reference)
        crps = run.states["crps_sum"].sum() / run.states["crps_weight"].sum()
        return group, -float(crps), run.name

    return sorted(runs, key=place)


def _row(
    run: FinishedRun,
    above: FinishedRun | None,
    reference_run: FinishedRun | None,
    best: FinishedRun | None,
    settings: IntervalSettings,
) -> ScoreRow:
    confidence, method, seed = settings
    compare = partial(summarise, run.states, confidence=confidence, method=method, seed=seed)
    baseline = reference_run if reference_run is not run else None
    scores = compare(baseline.states if baseline else None)
    step_scores = compare(above.states) if above else xr.Dataset()
    attained = None
    if baseline and best and best is not run:
        attained = attained_skill(run.states, baseline.states, best.states, settings)
    members = run.states.attrs.get("members")
    crps = _get_interval(scores, "crps")
    if crps is None:
        raise ArgumentError("runs", f"{run.name} was scored without the CRPS")
    return ScoreRow(
        model=run.name,
        kind=run.kind,
        forecast=str(run.states.attrs.get("forecast_kind", "unknown")),
        members=None if members is None else int(members),
        units=run.units,
        crps=crps,
        crpss=_get_interval(scores, "crpss"),
        above=above.name if above else None,
        difference=_get_interval(step_scores, "crps_difference"),
        attained=attained,
        crps_fair=_get_interval(scores, "crps_fair"),
        rmse=_get_interval(scores, "rmse"),
        spread_error=_get_interval(scores, "spread_error"),
        parameters=run.provenance.get("parameters"),
        seconds=run.provenance.get("seconds"),
        dates=int(scores["dates"]),
        weights=str(run.states.attrs.get("weights", "unknown")),
        confidence=confidence,
        method=method,
    )


def interval_of(scores: xr.Dataset, name: str, group: int = 0) -> Interval:
    """Return a score of `summarise` with its bounds and block length.

    Args:
        scores: of all dates, or of one group, selected from those of all groups.
        name: of the score.
        group: index of the group, by which the block lengths are ordered.
    """
    value, lower, upper = (float(scores[f"{name}{part}"]) for part in ("", "_lower", "_upper"))
    length = np.atleast_1d(scores[name].attrs.get("block_length", np.nan))[group]
    return Interval(value, lower, upper, None if np.isnan(length) else float(length))


def _get_interval(scores: xr.Dataset, name: str) -> Interval | None:
    return interval_of(scores, name) if name in scores else None


def attained_skill(
    states: xr.Dataset, reference: xr.Dataset, optimum: xr.Dataset, settings: IntervalSettings
) -> Interval:
    """Return the share of the possible improvement over the reference, paired over dates.

    (CRPS_reference - CRPS) / (CRPS_reference - CRPS_optimum); 0 is the reference, 1 the optimum.

    Args:
        states: of the forecast.
        reference: of the reference.
        optimum: of the best forecast that is possible.
        settings: confidence, method and seed, as for `interval`.

    Raises:
        MissingDataError: different dates.
        ArgumentError: different points.
    """
    confidence, method, seed = settings
    sums = paired_sums(states, reference, "crps")
    best = paired_sums(states, optimum, "crps")
    sums |= {"best_sum": best["reference_sum"], "best_weight": best["reference_weight"]}
    order = np.argsort(states["time"].to_numpy(), kind="stable")
    positions = order[sums["weight"][order] != 0]
    return interval(
        {k: v[positions] for k, v in sums.items()},
        _attained_fraction,
        confidence=confidence,
        method=method,
        seed=seed,
    )


def _attained_fraction(s: Sums) -> Floats:
    crps, reference, best = (
        mean_of({"sum": s[f"{of}sum"], "weight": s[f"{of}weight"]})
        for of in ("", "reference_", "best_")
    )
    return mean_of({"sum": reference - crps, "weight": reference - best})


def columns(rows: Sequence[ScoreRow], *, seconds: bool = False) -> list[Column]:
    """Return the columns that have values, with four significant digits of the CRPS.

    Args:
        rows: of `score_table`.
        seconds: whether to show the duration of each fit, which differs from run to run.
    """
    units = f" ({rows[0].units})" if rows and rows[0].units else ""
    digits = decimals(rows[0].crps.value) if rows else 0

    def make_column(heading: str, cell: Callable[[ScoreRow], str]) -> Column:
        return Column(heading, tuple(map(cell, rows)))

    all_columns = [
        Column("Model", tuple(row.model for row in rows), numeric=False),
        Column("Forecast", tuple(map(_forecast, rows)), numeric=False),
        make_column(f"CRPS{units}", lambda row: _with_bounds(row.crps, digits)),
        make_column("CRPSS (%)", lambda row: _with_bounds(row.crpss, 1, 100)),
        make_column("Attained skill (%)", lambda row: _with_bounds(row.attained, 1, 100)),
        make_column(f"Δ CRPS to row above{units}", lambda row: _difference(row.difference, digits)),
        make_column(f"Fair CRPS{units}", lambda row: _with_bounds(row.crps_fair, digits)),
        make_column(f"RMSE{units}", lambda row: _with_bounds(row.rmse, digits, bounds=False)),
        make_column("Spread/error", lambda row: _with_bounds(row.spread_error, 3, bounds=False)),
        make_column("Parameters", lambda row: _count(row.parameters)),
    ]
    if seconds:
        all_columns.append(make_column("Fit (s)", lambda row: _seconds(row.seconds)))
    return [column for column in all_columns if set(column.cells) != {ABSENT}]


def notes(rows: Sequence[ScoreRow]) -> list[str]:
    """Return notes on the numbers: estimators, weights and intervals."""
    first = rows[0]
    if first.method == "bootstrap":
        intervals = (
            i for r in rows for i in (r.crps, r.crpss, r.attained, r.difference, r.crps_fair)
        )
        method_text = f"{REPLICATES} circular block bootstrap samples, {blocks_in_words(intervals)}"
    else:
        method_text = "Student's t on jackknife values, which takes dates as independent"
    sentences = [
        "CRPS (lower is better): plain estimator for members, closed form for normals; "
        f"{_WEIGHTS.get(first.weights, first.weights)}.",
        f"In brackets: {100 * first.confidence:g} % confidence interval over the "
        f"{first.dates} test dates ({method_text}); comparisons are paired date by date.",
    ]
    if any(row.difference for row in rows):
        sentences.append(f"{NOT_CLEAR} marks a difference whose interval holds 0.")
    return sentences


def markdown(rows: Sequence[ScoreRow]) -> str:
    """Return the table in GitHub's Markdown with its notes; equal scores give equal bytes."""
    notes_text = " ".join(escape_markup(note, MARKDOWN) for note in notes(rows))
    return f"{markdown_of(columns(rows))}\n{notes_text}\n"


def latex(rows: Sequence[ScoreRow]) -> str:
    """Return the table as a LaTeX tabular with the rules of the package booktabs."""
    return latex_of(columns(rows), notes(rows))


def to_csv(rows: Sequence[ScoreRow]) -> str:
    """Return all columns as CSV in full precision, intervals as three; empty if undefined."""
    return csv_of_records(ScoreRow, rows)


def _forecast(row: ScoreRow) -> str:
    if row.members is None:
        return row.forecast
    return f"{row.members} member{'s' if row.members > 1 else ''}"


def decimals(value: float) -> int:
    """Return the number of decimals that shows four digits of a value."""
    if not math.isfinite(value) or value == 0:
        return 3
    return min(9, max(0, 3 - math.floor(math.log10(abs(value)))))


def _with_bounds(
    score: Interval | None, decimals: int, factor: float = 1, *, bounds: bool = True
) -> str:
    if score is None or math.isnan(score.value):
        return ABSENT
    form = f".{decimals}f"
    value = number(factor * score.value, form)
    if not bounds or math.isnan(score.lower):
        return value
    lower, upper = (number(factor * x, form) for x in (score.lower, score.upper))
    return f"{value} [{lower}, {upper}]"


def _difference(difference: Interval | None, decimals: int) -> str:
    text = _with_bounds(difference, decimals)
    unclear = difference is not None and difference.lower <= 0 <= difference.upper
    return f"{text} {NOT_CLEAR}" if unclear else text


def _count(number: int | None) -> str:
    return ABSENT if number is None else f"{number:,}"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ABSENT
    return f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}"
