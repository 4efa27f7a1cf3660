"""The additive states of a forecast's scores: small, mergeable, and all that scoring keeps."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.grid import Weighting, area_weights
from ens10.metrics.extremes import FrozenEFI
from ens10.metrics.states import PARTS, NanPolicy
from ens10.metrics.verification import blocks
from ens10.metrics.verification.alignment import APART, GRID, Join, Matched, left_out, matched
from ens10.metrics.verification.distributions import case_of
from ens10.metrics.verification.kinds import kind_of
from ens10.metrics.verification.raw import RawIndex
from ens10.metrics.verification.raw_input import with_raw
from ens10.metrics.verification.table import MEANS, available, mean_of_name, wanted
from ens10.metrics.verification.working import TRUTH, Part, Plan, joined, load_both, work
from ens10.metrics.verification.zones import ZONES, Box, Zones, zones_of
from ens10.progress import track

PIT_BINS = 20
_TABLE_DIMS = {"rank_count": ("rank",), "pit_count": ("pit_bin",)}


def score_states(
    forecast: xr.Dataset,
    truth: xr.DataArray,
    scores: Sequence[str] | None = None,
    *,
    weights: Weighting = "cell",
    by: Sequence[str] = (),
    nan: NanPolicy = "omit",
    join: Join = "exact",
    bins: int = PIT_BINS,
    seed: int = 0,
    bands: Any = None,
    land: xr.DataArray | None = None,
    regions: Mapping[str, Box] | None = None,
    scheduler: Any = None,
    progress: bool = False,
    raw: xr.Dataset | xr.DataArray | FrozenEFI | None = None,
    climate: xr.DataArray | None = None,
    efi_method: str = "exact",
    scores_raw: bool = False,
) -> xr.Dataset:
    """The additive states of scores of a forecast, date by date.

    Lazy input is read once, in blocks of dates (whole chunks of its own), so memory does not grow
    with them. Every number is a sum over one date, or is added date by date: the result is the
    same to the last bit whatever the blocks, and wherever they are worked on.

    Args:
        forecast: dimensions time [, step] [, level], latitude, longitude and those of its
            `attrs["forecast_kind"]`: "normal" with `mu` and `sigma`; "ensemble" with `members`
            over `number`; "quantiles" with `values` over `quantile`, whose coordinate is their
            probabilities; or a family of `families.registry` with its parameters.
        truth: matched to it by `alignment.matched`.
        scores: some of `table.SCORES` ("crps", "crps_fair", "rmse", "bias", "spread_error",
            "log_score", "brier_T", "quantile_score_P", "coverage_P", "width_P" with numbers T
            and P), "eecrps" (with `raw`), "histogram", and of ensembles "hersbach"; None for the
            usual ones that the forecast has.
        weights: of the rows of the grid: "cell" areas, "cos" or "none".
        by: zones that are summed apart beside the whole: "latitude_band", "surface", "region".
        nan: "omit" leaves out points where truth or forecast is missing (they are not counted);
            "propagate" makes NaN of the date. Maps and histograms always omit.
        join: "exact" refuses dates without truth, or without any value; "inner" leaves them out
            and warns.
        bins: of the PIT histogram.
        seed: of the random ranks among ties, and of the position within a rank.
        bands: edges of latitude bands, as for `groups.latitude_bands`.
        land: share of land on the grid, for "surface".
        regions: boxes by name, as for `groups.region_boxes`.
        scheduler: where blocks are worked on, as for `blocks.in_order`.
        progress: whether to show a progress bar.
        raw: the raw ensemble on the same dates and grid, whose extreme forecast index weights the
            CRPS to the EECRPS: a forecast of members, or an index that `extremes.frozen_efi` made
            (as a `FrozenEFI` of DataArrays, or what its `to_dataarray` gives). Never the forecast
            that is scored: that is seen by its values date by date, and by `forecast_name` in
            the attributes of both.
        climate: quantiles of the model climate, by date, over time [, step] [, level], quantile,
            latitude, longitude; as of `ens10.quantiles.stored_climate`.
        efi_method: "exact", "ecmwf" or "ens10-paper", as for `extremes.efi`.
        scores_raw: the forecast is the raw ensemble itself, and has to be.

    Returns:
        For each mean that the scores are made of (`crps`, `error2`, ...) its `_sum`, `_weight`
        and `_count` over time [, step] [, level], and `_zone_sum`, ... with the dimensions of
        `by`; `crps_map_sum`, `_weight` and `_count` over latitude and longitude, unweighted;
        `pit_count(pit_bin)` and, of ensembles, `rank_count(rank)`, unweighted counts;
        `hersbach_alpha(bin)`, ... of all dates.

    Raises:
        UnknownNameError: another kind of forecast, score, weighting, policy, zone or scheduler.
        ArgumentError: a score that this forecast has not; a negative sigma; other dimensions;
            units that differ; a forecast weighted by its own index; an address at which no
            scheduler answers.
        MissingDataError: variables, dates or grid points that are missing.
    """
    places = [name for name in by if name not in ZONES]
    if places:
        raise UnknownNameError("by", places[0], ZONES)
    zones = zones_of(forecast, by, bands=bands, land=land, regions=regions)
    forecasts, index = with_raw(
        [matched(forecast, truth, join)],
        scores,
        raw=raw,
        climate=climate,
        method=efi_method,
        scores_raw=scores_raw,
        join=join,
    )
    return states_of(
        forecasts,
        [scores],
        index=index,
        weights=weights,
        zones=zones,
        nan=nan,
        join=join,
        bins=bins,
        seed=seed,
        scheduler=scheduler,
        progress=progress,
    )[0]


def states_of(
    forecasts: Sequence[Matched],
    scores: Sequence[Sequence[str] | None],
    *,
    index: RawIndex | None = None,
    weights: Weighting,
    zones: Zones | None,
    nan: NanPolicy,
    join: Join,
    bins: int,
    seed: int,
    scheduler: Any,
    progress: bool,
) -> list[xr.Dataset]:
    """The states of forecasts of the same dates, on the points where none is missing.

    Each date is read once. Arguments as for `score_states`; `index` as of `with_raw`.
    """
    if nan not in get_args(NanPolicy):
        raise UnknownNameError("nan", nan, get_args(NanPolicy))
    if bins < 1:
        raise ArgumentError("bins", f"expected one or more, got {bins}")
    first = forecasts[0].forecast
    asked = [
        wanted(names, kind_of(one.forecast).name, one.forecast.sizes.get("number"))
        for names, one in zip(scores, forecasts, strict=True)
    ]
    means = [tuple(dict.fromkeys(m for s in named for m in s.means)) for named, _ in asked]
    tables = tuple(named for _, named in asked)
    rows = area_weights(first["latitude"].to_numpy(), weights)
    plan = Plan(tuple(means), tables, rows, zones, nan, bins, seed)
    slices = list(blocks.blocks_of(first, beside=0 if index is None else index.size))
    # One by one: a part keeps what was read of it.
    todo = (
        ([one.part(dates) for one in forecasts], None if index is None else index.part(dates))
        for dates in slices
    )
    collected = [_Collected(one, plan, n) for n, one in enumerate(forecasts)]
    results = blocks.in_order(load_both, partial(work, plan), todo, scheduler)
    for parts in track(results, "blocks", len(slices), progress):
        for one, part in zip(collected, parts, strict=True):
            one.add(part)
    told: dict[str, Any] = {"weights": weights, "nan": nan}
    if index is not None:
        told |= {"efi_source": index.made.source, "efi_method": index.method}
    made = [one.states(plan, told) for one in collected]
    empty = np.max([one.empty() for one in collected], axis=0)
    return _checked_dates(made, empty, nan, join)


class _Collected:
    """The sums of one forecast, block after block."""

    def __init__(self, one: Matched, plan: Plan, n: int) -> None:
        self.forecast, self.truth, self.means = one.forecast, one.truth, plan.means[n]
        self.parts: list[Part] = []
        self.counts: dict[str, npt.NDArray[np.int64]] = {}
        shape = tuple(one.forecast.sizes[d] for d in GRID)
        on_map = [name for name in self.means if MEANS[mean_of_name(name)[0]].on_map]
        self.maps = {name: (np.zeros(shape), np.zeros(shape, np.int64)) for name in on_map}

    def add(self, part: Part) -> None:
        from ens10.metrics.verification.sums import add_map

        for name, fields in part.maps.items():
            for field in fields:
                add_map(field, *self.maps[name])
        for table in part.tables:
            for name, counts in table.items():
                self.counts[name] = self.counts.get(name, 0) + counts
        part.maps, part.tables = {}, []
        self.parts.append(part)

    def empty(self) -> npt.NDArray[np.int64]:
        """What each date lacks altogether, shape (dates,): TRUTH or FORECAST, or 0."""
        empty = np.concatenate([part.empty for part in self.parts])
        return np.where((empty > 0).all(axis=(1, 2)), empty.max(axis=(1, 2)), 0)

    def states(self, plan: Plan, settings: dict[str, Any]) -> xr.Dataset:
        dims = ("time", *(d for d in APART if d in self.forecast.dims))
        sizes = tuple(self.forecast.sizes[d] for d in dims)
        found: dict[str, Any] = {}
        for name in self.means:
            attrs = self._attributes(name)
            for part, values in joined([p.sums for p in self.parts], name).items():
                found[f"{name}_{part}"] = (dims, values.reshape(sizes), _only(part, attrs))
            if plan.zones is not None:
                over = tuple(plan.zones.labels)
                for part, values in joined([p.zones for p in self.parts], name).items():
                    shaped = plan.zones.sums(values)
                    shaped = shaped.reshape(*sizes, *shaped.shape[3:])
                    found[f"{name}_zone_{part}"] = ((*dims, *over), shaped, _only(part, attrs))
            if name in self.maps:
                total, count = self.maps[name]
                for part, grid in zip(PARTS, (total, count.astype(float), count), strict=True):
                    found[f"{name}_map_{part}"] = (GRID, grid, _only(part, attrs))
        for name, counts in self.counts.items():
            dims = _TABLE_DIMS.get(name, ("bin",) if np.ndim(counts) else ())
            found[name] = (dims, counts)
        states = xr.Dataset(found).assign_coords(self._coordinates(plan))
        kind = {"forecast_kind": kind_of(self.forecast).name, **settings}
        members = self.forecast.sizes.get("number")
        return states.assign_attrs(kind | ({"members": members} if members else {}))

    def _attributes(self, name: str) -> dict[str, str]:
        kind, base = kind_of(self.forecast), mean_of_name(name)[0]
        like = self.forecast[kind.united[0]] if kind.united else self.truth
        units = like.attrs.get("units")
        attrs = {"truth": units, "truth2": f"({units})2" if units else None, "1": "1"}
        found = {"units": attrs[MEANS[base].units]} if attrs[MEANS[base].units] else {}
        if base in ("crps", "crps_fair"):
            found["estimator"] = "fair" if base == "crps_fair" else case_of(kind.name).estimator
        return {k: str(v) for k, v in found.items()}

    def _coordinates(self, plan: Plan) -> dict[str, Any]:
        kept = ("time", "valid_time", *APART, *(GRID if self.maps else ()))
        held = self.forecast.coords  # in the order in which a store happened to list them
        coords: dict[str, Any] = {k: _writable(held[k]) for k in kept if k in held}
        if "rank_count" in self.counts:
            coords["rank"] = np.arange(self.counts["rank_count"].size)
        if "pit_count" in self.counts:
            coords["pit_bin"] = (np.arange(plan.bins) + 0.5) / plan.bins
        if "hersbach_alpha" in self.counts:
            coords["bin"] = np.arange(self.counts["hersbach_alpha"].size)
        if plan.zones is not None:
            coords |= {name: list(labels) for name, labels in plan.zones.labels.items()}
        return coords


def _only(part: str, attrs: dict[str, str]) -> dict[str, str]:
    return attrs if part == "sum" else {}


def _checked_dates(
    states: list[xr.Dataset], empty: npt.NDArray[np.int64], nan: NanPolicy, join: Join
) -> list[xr.Dataset]:
    """The states without dates that hold no value, which are named."""
    if nan == "propagate" or not empty.any():
        return states
    dates = np.datetime_as_string(states[0]["time"].to_numpy(), unit="s")
    told = [
        f"{date} (all {'truth' if what == TRUTH else 'of the forecast'} is NaN)"
        for date, what in zip(dates[empty > 0], empty[empty > 0], strict=True)
    ]
    if join == "exact":
        raise MissingDataError("values", told, 'Leave such dates out with join="inner"')
    if (empty > 0).all():
        raise MissingDataError("values", told)
    left_out(len(told), empty.size, "no values", told)
    return [one.isel(time=empty == 0) for one in states]


def available_scores(forecast: xr.Dataset) -> tuple[str, ...]:
    """The names of the scores that are made of a forecast when none are named."""
    return available(kind_of(forecast).name, forecast.sizes.get("number"))


def _writable(coordinate: xr.DataArray) -> xr.Variable:
    """The coordinate as netCDF keeps it: time differences as hours."""
    variable = coordinate.variable.compute()
    if variable.dtype.kind != "m":
        return variable.to_base_variable()
    hours = variable.to_numpy() / np.timedelta64(1, "h")
    return xr.Variable(variable.dims, hours, {"units": "hours"})
