"""The numbers of a case study: means over the region, weighted by the area of the cells."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np
import xarray as xr

from ens10.experiments.case import Event, Shown
from ens10.experiments.writers import csv_of

EXTREME = 0.5  # |EFI| from which ECMWF's charts show an index


@dataclass(frozen=True)
class Numbers:
    """Means of one forecast over the region; NaN where one is not defined.

    Attributes:
        name: of the run.
        centre: mean of the forecast (median of quantiles), in the units of the target.
        error: centre less truth.
        rmse: root of the mean squared error of the centre.
        spread: root of the mean variance.
        crps: of the points.
        gain: CRPS of the raw ensemble less this one.
        skill: 1 - CRPS / CRPS of the raw ensemble.
        better: share of the area where this CRPS is below the raw one.
        crps_extreme: CRPS weighted by |EFI| as well, sum(w |EFI| CRPS) / sum(w |EFI|).
    """

    name: str
    centre: float
    error: float
    rmse: float
    spread: float
    crps: float
    gain: float
    skill: float
    better: float
    crps_extreme: float


def area_mean(field: xr.DataArray, weights: xr.DataArray) -> float:
    """Weighted mean of the points that have a value.

    Args:
        field: over latitude and longitude.
        weights: over any of its dimensions.

    Returns:
        NaN without any value.
    """
    known = field.notnull()
    shares = (weights * known).transpose(*field.dims).to_numpy().astype(np.float64)
    if not shares.sum() > 0:
        return float("nan")
    return float((shares * field.where(known, 0).to_numpy()).sum() / shares.sum())


def numbers_of(event: Event) -> list[Numbers]:
    """The numbers of each forecast, the raw ensemble first."""
    return [_numbers(event, shown) for shown in event.forecasts]


def _numbers(event: Event, shown: Shown) -> Numbers:
    def mean(field: xr.DataArray) -> float:
        return area_mean(field, event.weights)

    raw = event.forecasts[0].crps.where(shown.crps.notnull())
    none = float("nan")
    by_efi = none
    if event.efi is not None:
        by_efi = area_mean(shown.crps, event.weights * abs(event.efi).fillna(0))
    compared = shown.gain is not None
    return Numbers(
        name=shown.name,
        centre=mean(shown.centre),
        error=mean(shown.error),
        rmse=float(np.sqrt(mean(shown.error**2))),
        spread=float(np.sqrt(mean(shown.spread**2))),
        crps=mean(shown.crps),
        gain=mean(shown.gain) if shown.gain is not None else none,
        skill=1.0 - mean(shown.crps) / mean(raw) if compared and mean(raw) > 0 else none,
        better=mean((shown.gain > 0).where(shown.gain.notnull()))
        if shown.gain is not None
        else none,
        crps_extreme=by_efi,
    )


def event_facts(event: Event) -> dict[str, float]:
    """Numbers of the event itself: truth, departure and EFI over the region."""
    truth = event.truth
    made = {
        "points": float(truth.notnull().sum()),
        "truth, mean": area_mean(truth, event.weights),
        "truth, least": float(truth.min()),
        "truth, most": float(truth.max()),
    }
    if event.departure is not None and event.efi is not None:
        size = abs(event.efi)
        extreme = (size > EXTREME).where(size.notnull())
        made["departure from the model climate's median, mean"] = area_mean(
            event.departure, event.weights
        )
        made["EFI of the raw ensemble, mean"] = area_mean(event.efi, event.weights)
        made[f"share of the area with |EFI| above {EXTREME:g}"] = area_mean(extreme, event.weights)
    return made


def to_csv(rows: Sequence[Numbers]) -> str:
    """All numbers with nine digits; empty where undefined."""
    return csv_of([field.name for field in fields(Numbers)], map(astuple, rows), ".9g")
