"""Scores of forecasts against truth: additive states for each date, and final scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.grid import area_weights
from ens10.metrics.distributions.forecast_dataset import checked_forecast
from ens10.metrics.distributions.registry import kind_of
from ens10.metrics.scores.registry import (
    METRICS,
    default_scores,
    metric_of,
    required_inputs,
    select_scores,
    why_undefined,
)
from ens10.metrics.states import NanPolicy
from ens10.metrics.uncertainty import Method, check_paired_dates
from ens10.metrics.verification.alignment import (
    Join,
    MatchedForecast,
    check_same_grid,
    match_truth,
    warn_left_out,
)
from ens10.metrics.verification.block_scoring import TRUTH, ScoringPlan, collect_sums
from ens10.metrics.verification.climatology import (
    AlignedClimatology,
    Climate,
    align_climatology,
    quantile_of_climate,
)
from ens10.metrics.verification.dimension_names import DimensionNames
from ens10.metrics.verification.efi_weights import align_efi_weights
from ens10.metrics.verification.options import ScoringOptions
from ens10.metrics.verification.summary import summarise
from ens10.metrics.verification.truth_error import TRUTH_ERROR, with_truth_error
from ens10.metrics.verification.zones import ZONES, zones_of
from ens10.stations import has_stations


def verify(
    forecast: xr.Dataset | xr.DataArray,
    truth: xr.DataArray,
    scores: Sequence[str] | None = None,
    *,
    reference: xr.Dataset | xr.DataArray | None = None,
    options: ScoringOptions | None = None,
    confidence: float = 0.95,
    method: Method = "bootstrap",
    block_length: int | None = None,
    member_dim: str = "number",
    time_dim: str | None = None,
    **settings: Any,
) -> xr.Dataset:
    """Score a forecast, with confidence bounds over dates: `summarise(score_states(...))`.

    With a reference, points where either forecast is missing are left out of both.

    Args:
        forecast: members as a DataArray, or a Dataset with `attrs["forecast_kind"]`, see
            `score_states`. Dimensions have any names: those besides members, dates, `step` and
            `level` are the points, of one station (none), stations (one) or a grid (two).
        truth: the truth as a DataArray, over dates [, step] [, level] and the same points.
        scores: names of scores, see `score_states`; None for the usual ones.
        reference: a forecast of the same dates, often the raw ensemble, for skill scores; it may
            be the ensemble whose EFI weights the EECRPS.
        options: settings of scoring; `by` takes the groups of `summarise` too.
        confidence: nominal coverage of the confidence bounds.
        method: "bootstrap" or "student" (for few dates).
        block_length: dates in a block of the bootstrap; None for an automatic length.
        member_dim: dimension of the members.
        time_dim: dimension of the dates; None for `time`, or the only one that has dates.
        **settings: single settings of `ScoringOptions`, such as weights="cos", by=["season"] or
            join="inner", which replace those of `options`.

    Returns:
        The Dataset of `summarise`, over `station` or `latitude` and `longitude`.

    Examples:
        >>> import ens10
        >>> from ens10.metrics import verify
        >>> members = ens10.open_store("store.zarr", "sfc")["t2m"].isel(step=0)
        >>> truth = ens10.open_store("store.zarr", "truth")["t2m"].isel(step=0)
        >>> scores = verify(members, truth, ["crps"], method="student")
        >>> bool(scores["crps_lower"] < scores["crps"] < scores["crps_upper"])
        True

    Raises:
        ArgumentError, UnknownNameError, MissingDataError: those of `score_states`, `summarise`.
    """
    options = (options or ScoringOptions()).with_settings(settings)
    names = DimensionNames(member_dim, time_dim)
    other = None if reference is None else names.forecast(reference, "reference")
    forecast, truth = names.forecast(forecast), names.standard(truth, "truth")
    states, other = paired_states(forecast, truth, scores, reference=other, options=options)
    return summarise(
        states,
        other,
        by=options.by,
        confidence=confidence,
        method=method,
        seed=options.seed,
        block_length=block_length,
    )


def score_states(
    forecast: xr.Dataset,
    truth: xr.DataArray,
    scores: Sequence[str] | None = None,
    *,
    options: ScoringOptions | None = None,
    **settings: Any,
) -> xr.Dataset:
    """Return the additive states of scores of a forecast for each date.

    Lazy input is read once, in blocks of dates (whole chunks of its own), so memory does not grow
    with the number of dates. Every number is a sum over one date, or is added date by date: the
    result is bitwise the same for any blocks and any scheduler.

    Args:
        forecast: dimensions time [, step] [, level], latitude, longitude and those of its
            `attrs["forecast_kind"]`: "normal" with `mu` and `sigma`; "ensemble" with `members`
            over `number`; "quantiles" with `values` over `quantile`, whose coordinate is their
            probabilities; or a family of `ens10.metrics.FAMILIES` with its parameters.
        truth: DataArray over time [, step] [, level], latitude, longitude, matched by valid time.
        scores: names in `scores.registry.METRICS` and "histogram", and of ensembles "hersbach";
            `ens10 score --help` lists them. A number belongs to some names: a threshold
            ("brier_273.15"), a level ("quantile_score_0.9") or the share of an interval
            ("coverage_0.8"). "acc" needs `climatology`, "brier_local_0.95" `thresholds`, "eecrps"
            `raw`. None for the usual ones that the forecast has.
        options: settings of scoring.
        **settings: single settings of `ScoringOptions`, which replace those of `options`.

    Returns:
        For each mean that the scores are functions of (`crps`, `error2`, ...) its `_sum`,
        `_weight` and `_count` over time [, step] [, level], and `_zone_sum`, ... with the
        dimensions of `by`; `crps_map_sum`, `_weight` and `_count` over latitude and longitude,
        unweighted; `pit_count(pit_bin)` and, of ensembles, `rank_count(rank)`, unweighted counts;
        `hersbach_alpha(bin)`, ... of all dates.

    Raises:
        UnknownNameError: an unknown kind of forecast, score, setting, zone or scheduler.
        ArgumentError: a score that this forecast does not have; a negative sigma; other
            dimensions; units that differ; a forecast weighted by its own index; an address at
            which no scheduler answers.
        MissingDataError: variables, dates or grid points that are missing.
    """
    options = (options or ScoringOptions()).with_settings(settings)
    groups = [name for name in options.by if name not in ZONES]
    if groups:
        raise UnknownNameError("by", groups[0], ZONES)
    return paired_states(forecast, truth, scores, options=options)[0]


def paired_states(
    forecast: xr.Dataset,
    truth: xr.DataArray,
    scores: Sequence[str] | None = None,
    *,
    reference: xr.Dataset | None = None,
    options: ScoringOptions,
) -> tuple[xr.Dataset, xr.Dataset | None]:
    """Return the states of a forecast and of its reference, on the points that both have.

    Arguments and errors are those of `verify`; `by` may contain zones only.
    """
    if options.bins < 1:
        raise ArgumentError("bins", f"expected one or more, got {options.bins}")
    names = [scores]
    if options.truth_error and any(name.startswith("eecrps") for name in scores or ()):
        reason = "not defined for the EECRPS, whose weights are of the forecast without an error"
        raise ArgumentError("truth_error", reason, "Leave one of the two out")
    forecast = with_truth_error(forecast, options.truth_error)
    error = {k: v for k, v in forecast.attrs.items() if k == TRUTH_ERROR}
    if reference is None:
        forecasts = [match_truth(forecast, truth, options.join)]
    else:
        reference = with_truth_error(reference, options.truth_error)
        forecast, reference = _same_dates(forecast, reference, options.join)
        forecasts = [
            match_truth(forecast, truth, options.join),
            match_truth(reference, truth, options.join, "reference"),
        ]
        names.append(_reference_scores(scores, forecasts[1].forecast))
    forecasts, index = align_efi_weights(forecasts, scores, options.efi, options.join)
    first = forecasts[0].forecast
    metrics = [
        select_scores(each, kind_of(one.forecast).kind, one.forecast.sizes.get("number"))
        for each, one in zip(names, forecasts, strict=True)
    ]
    plan = ScoringPlan(
        tuple(tuple(dict.fromkeys(m for s in entries for m in s.means)) for entries, _ in metrics),
        tuple(tables for _, tables in metrics),
        area_weights(first["latitude"].to_numpy(), options.weights),
        zones_of(
            first,
            [name for name in options.by if name in ZONES],
            bands=options.bands,
            land=options.land,
            regions=options.regions,
        ),
        options.nan,
        options.bins,
        options.seed,
    )
    weights = "none" if has_stations(first) else options.weights  # a row's weights are equal
    attrs: dict[str, Any] = {"weights": weights, "nan": options.nan, **error}
    if index is not None:
        attrs |= {"efi_source": index.origin.source, "efi_method": index.method}
    climate = _climate(scores, forecasts[0], options)
    collected = collect_sums(forecasts, plan, index, climate, options)
    states = [one.states(plan, attrs) for one in collected]
    empty = np.max([one.empty() for one in collected], axis=0)
    states = _checked_dates(states, empty, options.nan, options.join)
    return states[0], states[1] if reference is not None else None


def _climate(
    scores: Sequence[str] | None, match: MatchedForecast, options: ScoringOptions
) -> Climate:
    """Return the mean state and the quantiles that the scores need, aligned with the forecast."""
    required, climate = required_inputs(scores), dict[str | float, AlignedClimatology]()
    if "climatology" in required:
        if options.climatology is None:
            reason = "acc is the correlation of anomalies from a climatology"
            raise ArgumentError("scores", reason, "Pass climatology (--climatology STORE)")
        climate["mean"] = align_climatology(match, options.climatology)
    for metric in required.get("thresholds", []):
        if options.thresholds is None:
            reason = f"{metric.name} needs quantiles of the climate"
            raise ArgumentError("scores", reason, "Pass thresholds (--climatology STORE)")
        level = float(metric.number or 0.0)
        climate[level] = align_climatology(match, quantile_of_climate(options.thresholds, level))
    return climate


def _checked_dates(
    states: list[xr.Dataset], empty: npt.NDArray[np.int64], nan: NanPolicy, join: Join
) -> list[xr.Dataset]:
    """Check the states for dates without any value, and drop these with join="inner"."""
    if nan == "propagate" or not empty.any():
        return states
    dates = np.datetime_as_string(states[0]["time"].to_numpy(), unit="s")
    empty_dates = [
        f"{date} (all {'truth' if cause == TRUTH else 'of the forecast'} is NaN)"
        for date, cause in zip(dates[empty > 0], empty[empty > 0], strict=True)
    ]
    if join == "exact":
        raise MissingDataError("values", empty_dates, 'Leave such dates out with join="inner"')
    if (empty > 0).all():
        raise MissingDataError("values", empty_dates)
    warn_left_out(len(empty_dates), empty.size, "no values", empty_dates)
    return [one.isel(time=empty == 0) for one in states]


def available_scores(forecast: xr.Dataset) -> tuple[str, ...]:
    """Return the names of the scores that are computed for a forecast by default."""
    return default_scores(kind_of(forecast).kind, forecast.sizes.get("number"))


def _same_dates(
    forecast: xr.Dataset, reference: xr.Dataset, join: Join
) -> tuple[xr.Dataset, xr.Dataset]:
    checked, other = checked_forecast(forecast), checked_forecast(reference, "reference")
    check_same_grid("reference", checked, other.to_dataarray())
    if join == "exact":
        check_paired_dates(checked, other)
        return forecast, reference.sel(time=forecast["time"])
    dates = forecast["time"].to_numpy()
    common = dates[np.isin(dates, reference["time"].to_numpy())]
    unpaired = np.setxor1d(dates, reference["time"].to_numpy())
    if unpaired.size:
        dates_of_one = [str(t)[:19] for t in unpaired]
        warn_left_out(
            unpaired.size, unpaired.size + common.size, "in one forecast only", dates_of_one
        )
    return forecast.sel(time=common), reference.sel(time=common)


def _reference_scores(scores: Sequence[str] | None, reference: xr.Dataset) -> list[str]:
    """Return the scores of the reference: those with a skill score that it supports."""
    kind, members = kind_of(reference, "reference").kind, reference.sizes.get("number")
    usual = [name for name, score in METRICS.items() if score.usual]
    compared = []
    for name in usual if scores is None else scores:
        base = name if name in METRICS else name.rpartition("_")[0]
        if base in METRICS and METRICS[base].skill and not why_undefined(base, kind, members):
            compared.append(metric_of(name).name)
    return compared
