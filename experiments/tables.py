"""The table of scores of several runs, as typed rows; `writers` turns it into text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.experiments.finished import FinishedRun
from ens10.metrics import Interval, interval, summarise
from ens10.metrics.uncertainty import Floats, Method, Sums, mean_of, paired_sums

FEW_DATES = 20  # the bootstrap over dates needs tens of them


@dataclass(frozen=True)
class Row:
    """One run's scores, with confidence intervals over dates; None where one is undefined.

    Args:
        crps: plain estimator for members, closed form for normals.
        crpss: 1 - CRPS / CRPS of the reference, paired.
        difference: CRPS less that of the row `above`, paired; below 0 this one is better.
        attained: (CRPS_reference - CRPS) / (CRPS_reference - CRPS_optimum), paired.
        crps_fair: fair CRPS, of ensembles only.
        spread_error: ratio of spread to RMSE of the mean; 1 is calibrated.
        seconds: that its fit took.
        dates: that were scored.
        weights: of the rows of the grid.
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
) -> list[Row]:
    """The rows of the table: the reference, then from worst to best CRPS, the optimum last.

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
    chosen = method or _method(runs)
    against = next((run for run in runs if run.name == reference), None)
    rows = []
    above: FinishedRun | None = None
    for run in _ordered(runs, reference):
        best = optima[0] if optima else None
        rows.append(_row(run, above, against, best, (confidence, chosen, seed)))
        above = run
    return rows


Bounds = tuple[float, Method, int]


def _method(runs: Sequence[FinishedRun]) -> Method:
    dates = min((run.states.sizes["time"] for run in runs), default=0)
    return "student" if dates < FEW_DATES else "bootstrap"


def _ordered(runs: Sequence[FinishedRun], reference: str) -> list[FinishedRun]:
    def place(run: FinishedRun) -> tuple[int, float, str]:
        group = 2 if run.kind == "optimum" else int(run.name != reference)
        crps = run.states["crps_sum"].sum() / run.states["crps_weight"].sum()
        return group, -float(crps), run.name

    return sorted(runs, key=place)


def _row(
    run: FinishedRun,
    above: FinishedRun | None,
    against: FinishedRun | None,
    best: FinishedRun | None,
    bounds: Bounds,
) -> Row:
    confidence, method, seed = bounds
    compared = against if against is not run else None
    other = compared.states if compared else None
    own = summarise(run.states, other, confidence=confidence, method=method, seed=seed)
    step = None
    if above:
        step = summarise(run.states, above.states, confidence=confidence, method=method, seed=seed)
    attained = None
    if compared and best and best is not run:
        attained = attained_skill(run.states, compared.states, best.states, bounds)
    members = run.states.attrs.get("members")
    crps = _known(own, "crps")
    if crps is None:
        raise ArgumentError("runs", f"{run.name} was scored without the CRPS")
    return Row(
        model=run.name,
        kind=run.kind,
        forecast=str(run.states.attrs.get("forecast_kind", "unknown")),
        members=None if members is None else int(members),
        units=run.units,
        crps=crps,
        crpss=_known(own, "crpss"),
        above=above.name if above else None,
        difference=_known(step, "crps_difference") if step is not None else None,
        attained=attained,
        crps_fair=_known(own, "crps_fair"),
        rmse=_known(own, "rmse"),
        spread_error=_known(own, "spread_error"),
        parameters=run.provenance.get("parameters"),
        seconds=run.provenance.get("seconds"),
        dates=int(own["dates"]),
        weights=str(run.states.attrs.get("weights", "unknown")),
        confidence=confidence,
        method=method,
    )


def interval_of(scores: xr.Dataset, name: str, group: int = 0) -> Interval:
    """A score of `summarise` with its bounds and block length.

    Args:
        scores: of one group; as a whole, or selected from those of all groups.
        name: of the score.
        group: its place among the groups, in whose order the block lengths are.
    """
    value, lower, upper = (float(scores[f"{name}{part}"]) for part in ("", "_lower", "_upper"))
    length = np.atleast_1d(scores[name].attrs.get("block_length", np.nan))[group]
    return Interval(value, lower, upper, None if np.isnan(length) else float(length))


def _known(scores: xr.Dataset, name: str) -> Interval | None:
    return interval_of(scores, name) if name in scores else None


def attained_skill(
    states: xr.Dataset, reference: xr.Dataset, optimum: xr.Dataset, bounds: Bounds
) -> Interval:
    """The share of the possible improvement that was made, paired over dates.

    (CRPS_reference - CRPS) / (CRPS_reference - CRPS_optimum); 0 is the reference, 1 the optimum.

    Args:
        states: of the forecast.
        reference: of the reference.
        optimum: of the best forecast that is possible.
        bounds: confidence, method and seed, as for `interval`.

    Raises:
        MissingDataError: different dates.
        ArgumentError: different points.
    """
    confidence, method, seed = bounds
    sums = paired_sums(states, reference, "crps")
    best = paired_sums(states, optimum, "crps")
    sums |= {"best_sum": best["reference_sum"], "best_weight": best["reference_weight"]}
    order = np.argsort(states["time"].to_numpy(), kind="stable")
    scored = order[sums["weight"][order] != 0]
    return interval(
        {k: v[scored] for k, v in sums.items()},
        _attained,
        confidence=confidence,
        method=method,
        seed=seed,
    )


def _attained(s: Sums) -> Floats:
    crps, reference, best = (
        mean_of({"sum": s[f"{of}sum"], "weight": s[f"{of}weight"]})
        for of in ("", "reference_", "best_")
    )
    return mean_of({"sum": reference - crps, "weight": reference - best})
