"""A case study: raw ensemble, corrected forecasts and truth of one event in one region.

    ens10 case --date 2006-01-03 --region europe runs/raw runs/emos_local runs/unet

The extreme forecast index (EFI) is that of the raw ensemble against the climate of the same model.
A corrected forecast has none here: it would have to be compared with a climate of corrected
forecasts, of all training years; against the raw climate the index would show the correction of
the bias as an extreme event.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.channels import step_number
from ens10.command_options import EventOptions
from ens10.errors import ArgumentError, Ens10Error
from ens10.experiments.reporting.case_inputs import Source, date_index, open_sources, part_of_grid
from ens10.experiments.runs import provenance
from ens10.experiments.runs.reading import reading
from ens10.grid import area_weights
from ens10.metrics import efi
from ens10.metrics.distributions import ClosedForm, Quantiles, kind_of
from ens10.metrics.scores.pairs import Pair
from ens10.options import chosen, takes
from ens10.protocol import Protocol

Floats = npt.NDArray[np.float64]
_LEVELS = 101  # of a climate that is made here
_ONE_SIGMA = (0.158655, 0.841345)  # probabilities one deviation from a normal's mean
_GRID = ("latitude", "longitude")
EXTREME = 0.5  # |EFI| from which ECMWF's charts show an index


@dataclass(frozen=True, eq=False)
class ForecastMaps:
    """One forecast of the event, each map over latitude and longitude of the region.

    Attributes:
        name: of the run.
        centre: the mean; of quantiles the median.
        spread: standard deviation of the forecast; of quantiles half the width of the central
            68 %.
        error: centre less truth.
        crps: at each point; the plain estimator for members.
        gain: CRPS of the raw ensemble less this one; positive is better. None for the raw one.
    """

    name: str
    centre: xr.DataArray
    spread: xr.DataArray
    error: xr.DataArray
    crps: xr.DataArray
    gain: xr.DataArray | None


@dataclass(frozen=True, eq=False)
class Event:
    """One event in one region: truth, departure from the climate, EFI and forecasts.

    Attributes:
        target: the variable.
        units: of it.
        start: date of the forecasts.
        valid: date of the event.
        region: name, or "S,W,N,E" in degrees, as in the call of `read_event`.
        truth: over latitude and longitude of the region.
        departure: truth less the median of the raw model's climate, or None without a climate.
        efi: of the raw ensemble, or None.
        climate: how the climate was made, or why there is none.
        weights: area of each point's cell, (latitude,).
        forecasts: the raw ensemble first.
    """

    target: str
    units: str
    start: np.datetime64
    valid: np.datetime64
    region: str
    truth: xr.DataArray
    departure: xr.DataArray | None
    efi: xr.DataArray | None
    climate: str
    weights: xr.DataArray
    forecasts: tuple[ForecastMaps, ...]


@takes(EventOptions)
def read_event(
    runs: Sequence[Path | str],
    date: str,
    region: str,
    options: EventOptions | None = None,
    **named: Any,
) -> Event:
    """Read the event of one date and region from the predictions of runs.

    Args:
        runs: run folders or predictions stores of one target, step and grid.
        date: valid date, such as 2006-01-03.
        region: a name of `case_inputs.REGIONS`, or "S,W,N,E" in degrees.
        options: where the raw ensemble and its climate come from; None for the defaults.
        **named: single options.

    Raises:
        ArgumentError: a date that a run lacks (the nearest is named), a region without points,
            runs that do not belong together.
        FileError, MissingDataError, UnknownNameError: as `open_sources` and `model_climate`.
    """
    options = chosen(EventOptions, options, named)
    others, basis = open_sources(runs, options.raw, options.step)
    rows, columns = part_of_grid(region, basis.forecast["latitude"], basis.forecast["longitude"])
    part = {"latitude": rows, "longitude": columns}
    places = {source.name: date_index(source, date) for source in (basis, *others)}
    truth = _read_truth([basis, *others], places, part)
    forecasts = [
        _read_maps(source, places[source.name], part, truth) for source in (basis, *others)
    ]
    first, *rest = forecasts
    with_gains = [first, *(replace(one, gain=first.crps - one.crps) for one in rest)]
    departure, index, origin = _departure_and_efi(
        basis, places[basis.name], part, truth, options.climate, others
    )
    area = area_weights(basis.forecast["latitude"].to_numpy())[rows]
    facts = others[0].provenance
    return Event(
        target=str(facts.get("target") or truth.name or "truth"),
        units=str(truth.attrs.get("units", "")),
        start=basis.forecast["time"].to_numpy()[places[basis.name]],
        valid=basis.valid[places[basis.name]],
        region=region,
        truth=truth,
        departure=departure,
        efi=index,
        climate=origin,
        weights=xr.DataArray(area, {"latitude": truth["latitude"]}, ("latitude",)),
        forecasts=tuple(with_gains),
    )


def _read_truth(
    sources: Sequence[Source], places: Mapping[str, int], part: Mapping[str, Any]
) -> xr.DataArray:
    """Return the truth of the event; raise ArgumentError if the runs have different ones."""
    truths: list[tuple[str, xr.DataArray]] = []
    for source in sources:
        if source.truth is not None:
            with reading(source.path):
                field = source.truth.isel(time=places[source.name], **part).load()
            truths.append((source.name, field.reset_coords(drop=True)))
    first, truth = truths[0]
    for name, field in truths[1:]:
        if not np.allclose(truth.to_numpy(), field.to_numpy(), rtol=1e-5, atol=0, equal_nan=True):
            reason = f"{first} and {name} have different truth on that date"
            raise ArgumentError("runs", reason, "Give runs of the same data")
    if not bool(truth.notnull().any()):
        raise ArgumentError("region", "the truth is missing at all of its points")
    return truth


def _read_maps(
    source: Source, place: int, part: Mapping[str, Any], truth: xr.DataArray
) -> ForecastMaps:
    with reading(source.path):
        field = source.forecast.isel(time=place, **part).load()
    arrays = {str(name): values.to_numpy() for name, values in field.data_vars.items()}
    forecast = kind_of(source.forecast).from_variables(arrays, field.coords)
    if isinstance(forecast, Quantiles):
        centre, low, high = (forecast.quantile(level) for level in (0.5, *_ONE_SIGMA))
        spread = (high - low) / 2
    elif isinstance(forecast, ClosedForm):
        missing = np.full(truth.shape, np.nan)
        centre = forecast.mean if "mean" in forecast.formulas else missing
        spread = np.sqrt(forecast.variance) if "variance" in forecast.formulas else missing
    else:
        members = arrays["members"].astype(np.float64)
        centre, spread = members.mean(axis=0), members.std(axis=0, ddof=1)
    maps = {
        "centre": centre,
        "spread": spread,
        "crps": Pair(forecast, truth.to_numpy()).field("crps"),
    }
    fields = {name: truth.copy(data=np.asarray(v, np.float64)) for name, v in maps.items()}
    return ForecastMaps(source.name, error=fields["centre"] - truth, gain=None, **fields)


def _departure_and_efi(
    basis: Source,
    place: int,
    part: Mapping[str, Any],
    truth: xr.DataArray,
    climate: Path | str | None,
    others: Sequence[Source],
) -> tuple[xr.DataArray | None, xr.DataArray | None, str]:
    """Return the departure from the climate's median, the EFI, and the climate's origin."""
    store = climate if climate is not None else basis.store
    channel = basis.provenance.get("target") or others[0].provenance.get("target")
    if store is None or channel is None:
        return None, None, "none: the runs do not say from which store; give it with --climate"
    protocol_source = basis if basis.provenance.get("protocol") else others[0]
    forecast = basis.forecast.isel(time=[place])
    try:
        rules = provenance.rules_of(protocol_source.provenance)
        quantiles, text = _climate(store, str(channel), forecast, rules)
        region_quantiles = quantiles.isel(time=0, **part).load().reset_coords(drop=True)
    except Ens10Error as error:
        if climate is not None:
            raise
        return None, None, f"none: {error}"
    # the store's coordinates of the same grid may differ by rounding
    region_quantiles = region_quantiles.assign_coords({dim: truth[dim] for dim in _GRID}).transpose(
        "quantile", *_GRID
    )
    members = forecast["members"].isel(time=0, **part).load().reset_coords(drop=True)
    index = efi(
        members.drop_attrs(),
        region_quantiles.drop_attrs(),
        member_dim="number",
        quantile_dim="quantile",
    )
    return truth - region_quantiles.sel(quantile=0.5, method="nearest", drop=True), index, text


def _climate(
    store: Path | str, channel: str, forecast: xr.Dataset, rules: Protocol
) -> tuple[xr.DataArray, str]:
    """Return the store's climate, or one of the protocol's climate years, and its origin."""
    from ens10.experiments.runs.raw_ensemble import open_climate
    from ens10.quantiles import model_climate

    try:
        return open_climate(store, channel, forecast), "the one that the store keeps"
    except Ens10Error:  # none for this channel, step or date
        step = step_number(forecast["step"].item()) if "step" in forecast.coords else None
        dates = forecast["time"].to_numpy()
        quantiles = model_climate(
            store, channel, step=step, dates=dates, protocol=rules, levels=_LEVELS
        )
        count = int(quantiles["members"].to_numpy()[0])
        years = rules.efi.years
        years_text = "the training years" if years == "train" else f"{years} years"
        text = f"{count:,} members of {years_text}, from a window of {rules.efi.window} start dates"
        return quantiles, f"{text} (protocol {rules.name})"


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
    valid = field.notnull()
    shares = (weights * valid).transpose(*field.dims).to_numpy().astype(np.float64)
    if not shares.sum() > 0:
        return float("nan")
    return float((shares * field.where(valid, 0).to_numpy()).sum() / shares.sum())


def numbers_of(event: Event) -> list[Numbers]:
    """Return the means of each forecast over the region, the raw ensemble first."""
    return [_numbers(event, forecast) for forecast in event.forecasts]


def _numbers(event: Event, forecast: ForecastMaps) -> Numbers:
    def mean(field: xr.DataArray) -> float:
        return area_mean(field, event.weights)

    gain, undefined = forecast.gain, float("nan")
    raw = mean(event.forecasts[0].crps.where(forecast.crps.notnull()))
    by_efi = undefined
    if event.efi is not None:
        by_efi = area_mean(forecast.crps, event.weights * abs(event.efi).fillna(0))
    return Numbers(
        name=forecast.name,
        centre=mean(forecast.centre),
        error=mean(forecast.error),
        rmse=float(np.sqrt(mean(forecast.error**2))),
        spread=float(np.sqrt(mean(forecast.spread**2))),
        crps=mean(forecast.crps),
        gain=undefined if gain is None else mean(gain),
        skill=1.0 - mean(forecast.crps) / raw if gain is not None and raw > 0 else undefined,
        better=undefined if gain is None else mean((gain > 0).where(gain.notnull())),
        crps_extreme=by_efi,
    )


def event_facts(event: Event) -> dict[str, float]:
    """Return statistics of truth, departure and EFI over the region, by name."""
    truth = event.truth
    facts = {
        "points": float(truth.notnull().sum()),
        "truth, mean": area_mean(truth, event.weights),
        "truth, least": float(truth.min()),
        "truth, most": float(truth.max()),
    }
    if event.departure is not None and event.efi is not None:
        size = abs(event.efi)
        extreme = (size > EXTREME).where(size.notnull())
        facts["departure from the model climate's median, mean"] = area_mean(
            event.departure, event.weights
        )
        facts["EFI of the raw ensemble, mean"] = area_mean(event.efi, event.weights)
        facts[f"share of the area with |EFI| above {EXTREME:g}"] = area_mean(extreme, event.weights)
    return facts
