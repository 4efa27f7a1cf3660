"""The additive states of a forecast's scores: small, mergeable, and all that scoring keeps."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import Weighting, area_weights
from ens10.metrics._kernels_numpy import crps_terms
from ens10.metrics.aggregation import NanPolicy, mean_state, merge_states
from ens10.metrics.calibration import observation_ranks, pit_counts, pit_normal
from ens10.metrics.crps import crps_normal, spread_factor
from ens10.metrics.verification.alignment import GRID, checked_forecast, matched_truth

SCORES = ("crps", "crps_fair", "rmse", "spread_error", "histogram")
PIT_BINS = 20
_BLOCK_VALUES = 2**24  # values of a forecast in memory at once: 64 MiB in float32
# The means that each score is made of: squared error of the mean, and predicted variance.
MEANS = {
    "crps": ("crps",),
    "crps_fair": ("crps_fair",),
    "rmse": ("error2",),
    "spread_error": ("error2", "variance"),
}


def score_states(
    forecast: xr.Dataset,
    truth: xr.DataArray,
    scores: Sequence[str] | None = None,
    *,
    weights: Weighting = "cell",
    nan: NanPolicy = "omit",
    bins: int = PIT_BINS,
    seed: int = 0,
) -> xr.Dataset:
    """The additive states of scores of a forecast, date by date.

    Lazy input is read in blocks of dates (its own chunks), so memory does not grow with them.

    Args:
        forecast: `attrs["forecast_kind"]` "normal" with `mu` and `sigma` (time, latitude,
            longitude), or "ensemble" with `members` (time, number, latitude, longitude).
        truth: matched to it by `alignment.matched_truth`.
        scores: some of `SCORES`; None for all that the forecast has.
        weights: of the rows of the grid: "cell" areas, "cos" or "none".
        nan: "omit" leaves out points where truth or forecast is missing (they are not counted);
            "propagate" makes NaN of the date. Maps and histograms always omit.
        bins: of the PIT histogram.
        seed: of the random ranks among ties, and of the position within a rank.

    Returns:
        For each mean (`crps`, `crps_fair`, `error2`, `variance`) its `_sum`, `_weight`, `_count`
        over time; `crps_map_sum`, `_weight` and `_count` over latitude and longitude, unweighted;
        `pit_count(pit_bin)` and, of ensembles, `rank_count(rank)`, unweighted counts.

    Raises:
        UnknownNameError: another kind of forecast, score, weighting or policy.
        ArgumentError: a score that this forecast has not; a negative sigma; other dimensions.
        MissingDataError: variables, dates or grid points that are missing.
    """
    checked = checked_forecast(forecast)
    observed = matched_truth(checked, truth)
    members = checked.sizes.get("number")
    wanted = _wanted(scores, checked)
    rows = xr.DataArray(area_weights(checked["latitude"].to_numpy(), weights), dims="latitude")
    blocks = []
    for dates in _blocks(checked):
        block, y = checked.isel(time=dates).load(), observed.isel(time=dates).load()
        made = _ensemble_block if members else _normal_block
        blocks.append(_states_of(*made(block, y, wanted, bins, seed), rows, nan))
    if not blocks:
        raise ArgumentError("forecast", "it holds no dates")
    states = merge_states(blocks)
    kept = {k: v for k, v in checked.coords.items() if k in ("step", "valid_time")}
    states = states.assign_coords({str(k): _writable(v) for k, v in kept.items()})
    kind = {"forecast_kind": forecast.attrs["forecast_kind"], "weights": weights, "nan": nan}
    return states.assign_attrs(kind | ({"members": members} if members else {}))


def available_scores(forecast: xr.Dataset) -> tuple[str, ...]:
    """The names of the scores that a forecast has: a normal and one member have no fair CRPS."""
    members = forecast.sizes.get("number")
    undefined = {None: ("crps_fair",), 1: ("crps_fair", "spread_error")}.get(members, ())
    return tuple(s for s in SCORES if s not in undefined)


def _wanted(scores: Sequence[str] | None, forecast: xr.Dataset) -> tuple[str, ...]:
    available = available_scores(forecast)
    for score in scores or ():
        if score not in SCORES:
            raise UnknownNameError("scores", score, SCORES)
        if score not in available:
            M = forecast.sizes.get("number")
            what = "a normal forecast" if M is None else f"an ensemble of {M} member"
            raise ArgumentError("scores", f"{score} is undefined for {what}")
    return available if scores is None else tuple(scores)


def _blocks(forecast: xr.Dataset) -> Iterator[slice]:
    """Dates that are read together: whole chunks of lazy data, as many as memory allows."""
    n = forecast.sizes["time"]
    each = max(1, _BLOCK_VALUES * n // max(1, sum(v.size for v in forecast.values())))
    parts = [v.variable.chunksizes for v in forecast.values()]
    chunks = {part["time"] for part in parts if "time" in part}
    lengths = min(chunks, key=len) if chunks else (1,) * n
    start = stop = 0
    for length in lengths:
        if stop > start and stop + length - start > each:
            yield slice(start, stop)
            start = stop
        stop += length
    if stop > start:
        yield slice(start, stop)


Fields = dict[str, xr.DataArray]
Counts = dict[str, xr.DataArray]


def _normal_block(
    forecast: xr.Dataset, y: xr.DataArray, wanted: Sequence[str], bins: int, _seed: int
) -> tuple[Fields, Counts]:
    mu, sigma = forecast["mu"], forecast["sigma"]
    fields: Fields = {}
    if "crps" in wanted:
        fields["crps"] = crps_normal(mu, sigma, y)
    fields |= _moments(mu - y, sigma.astype(np.float64) ** 2, wanted, mu)
    if "histogram" not in wanted:
        return fields, {}
    return fields, {"pit_count": _pit_count(pit_normal(mu, sigma, y), bins)}


def _ensemble_block(
    forecast: xr.Dataset, y: xr.DataArray, wanted: Sequence[str], bins: int, seed: int
) -> tuple[Fields, Counts]:
    members = forecast["members"].transpose("number", "time", *GRID)
    M = members.sizes["number"]
    centred = (members - y).to_numpy()

    def field(values: Any, **attrs: str) -> xr.DataArray:
        units = {k: v for k, v in members.attrs.items() if k == "units"}
        return y.copy(data=values).assign_attrs(units | attrs)

    fields: Fields = {}
    if {"crps", "crps_fair"} & set(wanted):
        distance, spread = crps_terms(centred)
        for name, estimator in (("crps", "plain"), ("crps_fair", "fair")):
            if name in wanted:
                values = distance - spread.dtype.type(spread_factor(M, estimator)) * spread
                fields[name] = field(values, estimator=estimator)
    error = field(centred.mean(axis=0))
    variance = field(centred.var(axis=0, ddof=1)) if "spread_error" in wanted else error
    fields |= _moments(error, variance, wanted, members)
    if "histogram" not in wanted:
        return fields, {}
    return fields, _rank_counts(members, y, bins, seed)


def _moments(
    error: xr.DataArray, variance: xr.DataArray, wanted: Sequence[str], like: xr.DataArray
) -> Fields:
    """Squared error of the mean and variance, both missing where one is: the same points."""
    needed = {mean for score in wanted for mean in MEANS.get(score, ())}
    error2 = error.astype(np.float64) ** 2
    both = {"error2": error2, "variance": variance.where(error2.notnull())}
    units = {"units": f"({like.attrs['units']})2"} if "units" in like.attrs else {}
    return {k: v.drop_attrs().assign_attrs(units) for k, v in both.items() if k in needed}


def _rank_counts(members: xr.DataArray, y: xr.DataArray, bins: int, seed: int) -> Counts:
    """Rank and PIT counts; the random numbers depend on the date alone, not on the blocks."""
    M = members.sizes["number"]
    ranks, values = np.zeros(M + 1, dtype=np.int64), np.zeros(bins, dtype=np.int64)
    for i, date in enumerate(y["time"].to_numpy().astype("datetime64[s]").astype(np.int64)):
        # Dates before 1970 are negative, which a seed must not be.
        rng = np.random.default_rng([seed, int(date) % 2**63])
        ties, within = rng.random((2, *y.shape[1:]))
        rank = observation_ranks(members.values[:, i], y.values[i], ties)
        there = rank >= 0
        ranks += np.bincount(rank[there], minlength=M + 1)
        values += pit_counts((rank + within)[there] / (M + 1), bins)
    counted = xr.DataArray(ranks, dims="rank", coords={"rank": np.arange(M + 1)})
    return {"rank_count": counted, "pit_count": _pit(values)}


def _pit_count(values: xr.DataArray, bins: int) -> xr.DataArray:
    return _pit(pit_counts(values.to_numpy(), bins))


def _pit(counts: Any) -> xr.DataArray:
    bins = len(counts)
    centres = (np.arange(bins) + 0.5) / bins
    return xr.DataArray(counts, dims="pit_bin", coords={"pit_bin": centres})


def _states_of(fields: Fields, counts: Counts, rows: xr.DataArray, nan: NanPolicy) -> xr.Dataset:
    parts = [
        mean_state(name, field.reset_coords(drop=True), keep=("time",), weights=rows, nan=nan)
        for name, field in fields.items()
    ]
    parts += [
        mean_state(f"{name}_map", fields[name].reset_coords(drop=True), keep=GRID)
        for name in ("crps", "crps_fair")
        if name in fields
    ]
    return xr.merge([*parts, xr.Dataset(counts)], join="exact", compat="no_conflicts")


def _writable(coordinate: xr.DataArray) -> xr.Variable:
    """The coordinate as netCDF keeps it: time differences as hours."""
    variable = coordinate.variable.compute()
    if variable.dtype.kind != "m":
        return variable
    hours = variable.to_numpy() / np.timedelta64(1, "h")
    return xr.Variable(variable.dims, hours, {"units": "hours"})
