"""From a forecast and the truth to a Dataset of scores with confidence bounds."""

from collections.abc import Sequence
from typing import Any

import xarray as xr

from ens10.grid import Weighting
from ens10.metrics.aggregation import NanPolicy
from ens10.metrics.uncertainty import Method, check_paired_dates
from ens10.metrics.verification.alignment import GRID, checked_forecast, matched_truth
from ens10.metrics.verification.states import PIT_BINS, available_scores, score_states
from ens10.metrics.verification.summary import summarise


def verify(
    forecast: xr.Dataset,
    truth: xr.DataArray,
    scores: Sequence[str] | None = None,
    *,
    weights: Weighting = "cell",
    by: Sequence[str] = (),
    reference: xr.Dataset | None = None,
    nan: NanPolicy = "omit",
    bins: int = PIT_BINS,
    seed: int = 0,
    confidence: float = 0.95,
    method: Method = "bootstrap",
    block_length: int | None = None,
) -> xr.Dataset:
    """Scores of a forecast, with confidence bounds over dates: `summarise(score_states(...))`.

    With a reference, points where either forecast is missing are left out of both.

    Args:
        forecast: as for `score_states`.
        truth: as for `score_states`.
        scores: as for `score_states`.
        weights: "cell" areas, "cos" or "none".
        by: as for `summarise`.
        reference: a forecast of the same dates, often the raw ensemble, for skill scores.
        nan: "omit" or "propagate".
        bins: of the PIT histogram.
        seed: of the random ranks and of the bootstrap.
        confidence: of the bounds.
        method: "bootstrap" or "student" (for few dates).
        block_length: dates in a block of the bootstrap.

    Returns:
        As `summarise`.

    Raises:
        ArgumentError, UnknownNameError, MissingDataError: as `score_states` and `summarise`.
    """
    observed = matched_truth(checked_forecast(forecast), truth)
    if "valid_time" in forecast.coords:
        observed = observed.assign_coords(valid_time=forecast["valid_time"])
    settings: Any = {"weights": weights, "nan": nan, "bins": bins, "seed": seed}
    reference_states = None
    if reference is not None:
        check_paired_dates(forecast, reference)
        for each in (forecast, reference):
            observed = observed.where(_present(checked_forecast(each), observed))
        compared = [s for s in available_scores(reference) if s in ("crps", "crps_fair")]
        reference_states = score_states(reference, observed, compared, **settings)
    return summarise(
        score_states(forecast, observed, scores, **settings),
        reference_states,
        by=by,
        confidence=confidence,
        method=method,
        seed=seed,
        block_length=block_length,
    )


def _present(forecast: xr.Dataset, observed: xr.DataArray) -> xr.DataArray:
    """Where all of a forecast is there, on the dates and coordinates of the truth."""
    there = forecast.sel(time=observed["time"]).notnull().to_array("variable").all("variable")
    if "number" in there.dims:
        there = there.all("number")
    return there.reset_coords(drop=True).assign_coords({d: observed[d] for d in GRID})
