"""Diagnostics that the scores of a run do not keep: maps of bias and spread, and reliability.

They are computed from the run's predictions, which are read in blocks of dates.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.experiments.runs.reading import PREDICTIONS, open_forecast, reading
from ens10.grid import area_weights
from ens10.metrics import event_sums, merge_states
from ens10.metrics.distributions import kind_of
from ens10.metrics.scores.pairs import Pair
from ens10.stations import as_row, as_stations

Floats = npt.NDArray[np.float64]
BINS = 10  # of probability
QUANTILE = 0.9  # of the truth at each grid point, above which an event begins
_DIMS = ("time", "latitude", "longitude")
_BLOCK = 2**24  # numbers of a forecast that are read at once
_CENTRE, _LOW, _HIGH = 0.5, 0.1587, 0.8413  # of quantiles: median, and half the width of 1 sigma


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Bias, spread and reliability of a run's predictions.

    Attributes:
        bias: mean of the forecast less the truth, over latitude and longitude or station.
        spread: root of the mean variance.
        ratio: spread over the root mean squared error of the mean; 1 is calibrated.
        events: sums for `ens10.metrics.reliability_diagram` of truth above its quantile.
    """

    bias: xr.DataArray
    spread: xr.DataArray
    ratio: xr.DataArray
    events: xr.Dataset


def diagnose(folder: Path, dates: npt.NDArray[np.datetime64]) -> Diagnosis | None:
    """Compute bias, spread and reliability from the predictions of a run.

    Args:
        folder: of the run.
        dates: dates that were scored; predictions of other dates are not used.

    Returns:
        The diagnostics; None if the folder has no predictions of these dates with their truth on
        one grid.

    Raises:
        FileError: the predictions are damaged or incomplete.
        MissingDataError: they lack a coordinate.
        UnknownNameError: they are of an unknown kind.
    """
    if not (folder / PREDICTIONS).exists():
        return None
    forecast, truth = open_forecast(folder)
    kind = kind_of(forecast)
    if truth is not None:
        forecast, truth = as_row(forecast), as_row(truth)
    if truth is None or set(truth.dims) != set(_DIMS) or not np.isin(dates, truth["time"]).all():
        return None
    selection = {"time": dates}
    with reading(folder):
        return _diagnose(
            forecast.sel(selection), truth.sel(selection).transpose(*_DIMS).load(), kind.core_dims()
        )


def _diagnose(forecast: xr.Dataset, truth: xr.DataArray, core: tuple[str, ...]) -> Diagnosis:
    threshold: Any = truth.quantile(QUANTILE, "time").to_numpy().astype(truth.dtype)
    totals = np.zeros((4, *truth.shape[1:]))  # error, its square, variance, number
    parts = []
    for dates in _blocks(forecast):
        block, probabilities = forecast.isel(time=dates).load(), []
        for n in range(block.sizes["time"]):
            case = _case(block.isel(time=n), truth[dates.start + n].to_numpy(), core)
            totals += _moments(case)
            probabilities.append(case.above(threshold))
        parts.append(_events(probabilities, truth[dates], threshold))
    error, error2, variance, count = totals
    divisor = np.where(count > 0, count, np.nan)
    members = forecast.sizes.get("number")
    inflation = 1.0 if members is None else (members + 1) / members
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt(inflation * variance / error2)
    template = truth.isel(time=0, drop=True)
    return Diagnosis(
        bias=as_stations(template.copy(data=error / divisor)),
        spread=as_stations(template.copy(data=np.sqrt(variance / divisor))),
        ratio=as_stations(template.copy(data=ratio)),
        events=merge_states(parts),
    )


def _blocks(forecast: xr.Dataset) -> list[slice]:
    dates = forecast.sizes["time"]
    size = sum(v.size for v in forecast.data_vars.values()) // max(1, dates)
    step = max(1, _BLOCK // max(1, size))
    return [slice(first, first + step) for first in range(0, dates, step)]


def _case(forecast: xr.Dataset, y: Any, core: tuple[str, ...]) -> Pair:
    """Return the forecast of a date, core dimension first, paired with its truth."""
    order = (*core, "latitude", "longitude")
    arrays = {
        str(name): v.transpose(*(d for d in order if d in v.dims)).to_numpy()
        for name, v in forecast.data_vars.items()
    }
    return Pair(kind_of(forecast).from_variables(arrays, forecast.coords), y)


def _moments(case: Pair) -> Floats:
    """Return error of the centre, its square, variance and 1 (4, lat, lon); 0 where missing."""
    try:
        if {"error", "variance"} <= case.offers:
            error, variance = case.field("error"), case.field("variance")
        else:
            middle, low, high = (case.quantile(level) for level in (_CENTRE, _LOW, _HIGH))
            error, variance = middle - case.y, ((high - low) / 2) ** 2
    except NotImplementedError:  # a family whose moments have no closed form
        return np.zeros((4, *case.y.shape))
    fields = np.stack([error, np.square(error, dtype=np.float64), variance, np.ones(error.shape)])
    return np.where(np.isfinite(fields).all(axis=0), fields, 0.0)


def _events(probabilities: list[Any], truth: xr.DataArray, threshold: Floats) -> xr.Dataset:
    outcome = (truth > threshold).where(truth.notnull() & np.isfinite(threshold))
    probability = truth.copy(data=np.stack(probabilities).astype(np.float64))
    rows = xr.DataArray(area_weights(truth["latitude"].to_numpy()), dims="latitude")
    rows = rows.assign_coords(latitude=truth["latitude"])
    arrays = [array.reset_coords(drop=True) for array in (probability, outcome)]
    return event_sums(*arrays, dim="all", weights=rows, nan="omit", bins=BINS)
