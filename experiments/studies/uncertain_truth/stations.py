"""Methods that are fitted to and scored against analyses at made-up stations."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from ens10.experiments.studies.uncertain_truth.analyses import AGAINST, analysis
from ens10.experiments.studies.unseen_places import make_stations
from ens10.metrics import score_states
from ens10.models.statistical import EMOS, AnomalyEMOS, Raw, StatisticalMethod, fit

METHODS: Mapping[str, StatisticalMethod] = {
    "raw": Raw(),
    "emos_global": EMOS(),
    "emos_local": EMOS(local=True),
    "emos_samos": AnomalyEMOS(),
}
CASES = (  # deviation of the analysis error (K), its kind, correlation with the model's error
    (0.0, "none", 0.0),
    (0.5, "random", 0.0),
    (0.5, "correlated", 0.7),
    (1.0, "random", 0.0),
    (1.0, "correlated", 0.7),
)
_TRAINING = 2 / 3  # of the dates


def scores(
    members: xr.DataArray, truth: xr.DataArray, error: float, correlation: float
) -> dict[str, list[float]]:
    """Return each method's CRPS against the true state, the analysis, and that with its error.

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
    for error, kind, correlation in CASES:
        found = scores(members, truth, error, correlation)
        label = f"{error:g} K, {kind}" if error else "none"
        columns = [*zip(AGAINST, *found.values(), strict=True)]
        rows += [[label, *column] for column in (columns if error else columns[:1])]
    return rows
