"""Methods that are fitted to and scored against analyses at made-up stations."""

from collections.abc import Mapping
from itertools import product

import numpy as np
import xarray as xr

from ens10.experiments.studies.uncertain_truth.analyses import (
    AGAINST,
    CORRELATIONS,
    NONE,
    analysis,
)
from ens10.experiments.studies.unseen_places import make_stations
from ens10.metrics import score_states
from ens10.models.statistical import EMOS, AnomalyEMOS, Raw, StatisticalMethod, fit

METHODS: Mapping[str, StatisticalMethod] = {
    "raw": Raw(),
    "emos_global": EMOS(),
    "emos_local": EMOS(local=True),
    "emos_samos": AnomalyEMOS(),
}
CASES = ((0.0, NONE), *product((0.5, 1.0), CORRELATIONS))  # deviation (K) and kind of the errors
_TRAINING = 2 / 3  # of the dates


def scores(
    members: xr.DataArray, truth: xr.DataArray, error: float, correlation: float
) -> dict[str, list[float]]:
    """Return the CRPS of each method that is fitted to analyses.

    There are three of each: against the true state; against the analyses; and against these with
    their error added to the forecast.

    Args:
        members: of the forecast.
        truth: the true state.
        error: of the analysis.
        correlation: see `analysis`.
    """
    noise = np.random.default_rng(1).normal(size=truth.shape)
    analysed = analysis(members.mean("number"), truth, error, correlation, noise)
    first = round(members.sizes["time"] * _TRAINING)
    past, later = {"time": slice(0, first)}, {"time": slice(first, None)}
    found = {}
    for name, method in METHODS.items():
        forecast = fit(method, members.isel(past), analysed.isel(past))(members.isel(later))
        pairs = ((truth, 0.0), (analysed, 0.0), (analysed, error))
        found[name] = [_crps(forecast, one.isel(later), e) for one, e in pairs]
    return found


def _crps(forecast: xr.Dataset, truth: xr.DataArray, error: float) -> float:
    states = score_states(forecast, truth, ["crps"], weights="none", truth_error=error)
    return float(states["crps_sum"].sum() / states["crps_weight"].sum())


def station_rows() -> list[list[str | float]]:
    """Return error of the analysis, what is scored against, and the CRPS of each method, by row."""
    members, truth = make_stations()
    rows: list[list[str | float]] = []
    for error, kind in CASES:
        found = scores(members, truth, error, CORRELATIONS.get(kind, 0.0))
        label = f"{error:g} K, {kind}" if error else "none"
        columns = [*zip(AGAINST, *found.values(), strict=True)]
        rows += [[label, *column] for column in (columns if error else columns[:1])]
    return rows
