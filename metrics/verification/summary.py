"""Final scores with confidence bounds from additive states."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._sums import ratio
from ens10.metrics.calibration import hersbach_decomposition
from ens10.metrics.distributions.forecast_dataset import STEP_AND_LEVEL
from ens10.metrics.groups import date_groups
from ens10.metrics.scores.registry import METRICS, STATISTICS, NamedMetric, statistic_of
from ens10.metrics.states import PARTS, finish_mean, group_state, total_over
from ens10.metrics.uncertainty import (
    REPLICATES,
    Floats,
    Method,
    Sums,
    check_paired_dates,
    difference_of,
    interval,
    mean_sums,
    paired_sums,
    skill_of,
)
from ens10.metrics.verification.zones import ZONES

DATES = ("season", "month", "year")
GROUPS = (*DATES, *STEP_AND_LEVEL, *ZONES)


def summarise(
    states: xr.Dataset,
    reference_states: xr.Dataset | None = None,
    *,
    by: Sequence[str] = (),
    confidence: float = 0.95,
    method: Method = "bootstrap",
    seed: int = 0,
    replicates: int = REPLICATES,
    block_length: int | None = None,
    maps: bool = True,
) -> xr.Dataset:
    """Compute scores with confidence bounds over dates, from the states of `score_states`.

    Args:
        states: states of the forecast, merged over all its dates.
        reference_states: states of the reference forecast, on the same dates and points.
        by: groups that are scored separately, each a dimension of the result: "season", "month" or
            "year" of the valid date; "step" or "level"; and the zones that the states were made
            for ("latitude_band", "surface", "region": all of them or none). Maps and histograms
            are of all dates, steps and levels.
        confidence: nominal coverage of the confidence bounds.
        method: "bootstrap" or "student"; see `uncertainty.interval`.
        seed: seed of the bootstrap.
        replicates: number of bootstrap replicates.
        block_length: dates in a block of the bootstrap; None to estimate it for each score from
            the dependence of the dates (`default_block_length`). The attribute `block_length` of
            each score contains it: a number, or one for each group in their order.
        maps: False leaves out the maps.

    Returns:
        Each score that the states hold all means of (see `scores.registry.METRICS`), with
        `_lower` and `_upper`; `count` (points scored) and `dates`; the maps `crps_map` and
        `crps_fair_map`; the histograms unchanged. With a reference `crps_difference` and the
        skill score `crpss` (and likewise for the other scores that both have), paired and with
        bounds, and `crpss_map`, `crpss_fair_map`.

    Raises:
        UnknownNameError: an unknown method or group.
        MissingDataError: dates that only one of the two forecasts has.
        ArgumentError: forecasts scored on different points; states without a date, or without the
            groups.
    """
    if not states.sizes.get("time"):
        raise ArgumentError("states", "they hold no dates")
    bounds = partial(
        interval,
        method=method,
        confidence=confidence,
        seed=seed,
        replicates=replicates,
        block_length=block_length,
    )
    states, other = states.sortby("time"), None
    if reference_states is not None:
        check_paired_dates(states, reference_states)
        reference_states = reference_states.sel(time=states["time"])
        other = _sums_of_means(reference_states, by)
    result = _scores_by_group(_sums_of_means(states, by), other, tuple(by), bounds)
    if maps:
        result = result.merge(_maps(states, reference_states))
    result = result.merge(_histograms(states))
    attrs: dict[str, Any] = {"confidence": confidence, "interval": method}
    if method == "bootstrap":
        attrs |= {"replicates": replicates, "block_length": block_length or "auto", "seed": seed}
    if reference_states is not None:
        attrs["reference_kind"] = reference_states.attrs.get("forecast_kind", "unknown")
    return result.assign_attrs(states.attrs | attrs)


def _sums_of_means(states: xr.Dataset, by: Sequence[str]) -> xr.Dataset:
    """Return the sums of all means, of the zones if `by` has some.

    Raises:
        UnknownNameError, ArgumentError: groups that are unknown, or that the states lack.
    """
    for name in by:
        if name not in GROUPS:
            raise UnknownNameError("by", name, GROUPS)
    zones = [name for name in by if name in ZONES]
    in_states = [str(d) for d in states.dims if d in ZONES]
    if zones and set(zones) != set(in_states):
        had = f"for {' and '.join(in_states)}" if in_states else "without zones"
        raise ArgumentError("by", f"the states were made {had}", f"Score again, by {zones}")
    absent = [name for name in by if name in STEP_AND_LEVEL and name not in states.dims]
    if absent:
        raise ArgumentError("by", f"the states are of one {absent[0]} alone")
    infix = "_zone" if zones else ""
    means = [v.removesuffix("_sum") for v in map(str, states) if v.endswith("_sum")]
    means = [mean for mean in means if not mean.endswith(("_map", "_zone"))]
    names = {f"{mean}{infix}_{part}": f"{mean}_{part}" for mean in means for part in PARTS}
    return states[list(names)].rename(names)


def _metrics_of(sums: xr.Dataset) -> list[NamedMetric]:
    """Return the scores whose means the sums contain, in the order of the registry."""
    numbers: dict[str, list[float | None]] = {name: [] for name in STATISTICS}
    for variable in map(str, sums):
        if variable.endswith("_sum"):
            statistic, number = statistic_of(variable.removesuffix("_sum"))
            numbers[statistic.name].append(number)
    return [
        NamedMetric(name if n is None else f"{name}_{n:g}", metric, n)
        for name, metric in METRICS.items()
        for n in numbers[metric.means[0]]
        if all(n in numbers[mean] for mean in metric.means)
    ]


def _dates_in_group(
    sums: xr.Dataset, dates: Mapping[str, xr.DataArray], place: Mapping[str, int]
) -> xr.Dataset:
    """Return the sums of each date in one group, over time alone.

    Args:
        sums: over time, and any of step, level and zones.
        dates: shares of the dates in seasons, months or years.
        place: position of the group along each dimension of the groups.
    """
    sums = sums.isel({d: i for d, i in place.items() if d not in dates}, drop=True)
    over = [str(d) for d in sums.dims if d != "time"]
    if not dates or not sums.data_vars:  # a reference may have none of the scores
        return total_over(sums, over)
    shares = [
        share.isel({d: [i] if d == name else i for d, i in place.items() if d in share.dims})
        for name, share in dates.items()
    ]
    return group_state(sums, shares, over=over).isel(dict.fromkeys(dates, 0), drop=True)


@dataclass(frozen=True)
class _Estimate:
    """A statistic of sums over dates, for which confidence bounds are computed."""

    sums: Sums
    function: Callable[[Sums], Floats]
    attrs: dict[str, Any]


def _scores_by_group(
    sums: xr.Dataset, other: xr.Dataset | None, by: tuple[str, ...], bounds: Any
) -> xr.Dataset:
    """Return the scores of each group, with their bounds."""
    dates: dict[str, Any] = {d: date_groups(sums, d) for d in by if d in DATES}  # type: ignore[arg-type]
    coords = {d: dates.get(d, sums)[d].variable.to_base_variable() for d in by}
    sizes = [coord.size for coord in coords.values()]
    variables: dict[str, xr.Variable] = {}
    lengths: dict[str, list[float]] = {}
    for place in np.ndindex(*sizes):
        at = dict(zip(by, place, strict=True))
        group = _dates_in_group(sums, dates, at)
        reference = None if other is None else _dates_in_group(other, dates, at)
        for name, score in _scores(group, reference, bounds).items():
            if name not in variables:
                blank = np.full(sizes, np.nan if score.dtype.kind == "f" else 0, score.dtype)
                variables[name] = xr.Variable(by, blank, score.attrs)
                lengths[name] = []
            variables[name].values[place] = score.values
            lengths[name].append(score.attrs.get("block_length", np.nan))
    for name, each in lengths.items():
        if not np.isnan(each).all():
            variables[name].attrs["block_length"] = each if by else each[0]
    return xr.Dataset(variables, coords)


def _scores(sums: xr.Dataset, other: xr.Dataset | None, bounds: Any) -> dict[str, xr.Variable]:
    """Return the scores of one group, with bounds and the numbers of points and dates."""
    estimates: dict[str, _Estimate] = {}
    variables: dict[str, xr.Variable] = {}
    metrics = _metrics_of(sums)
    for metric in metrics:
        estimates[metric.name] = _estimate(sums, metric)
        if not variables:
            count = sums[f"{metric.means[0]}_count"].to_numpy()
            variables["count"] = xr.Variable((), int(count.sum()))
            variables["dates"] = xr.Variable((), int((count > 0).sum()))
    if other is not None:
        for metric in metrics:
            if metric.score.skill and f"{metric.means[0]}_sum" in other:
                estimates |= _differences(sums, other, metric)
    for name, estimate in estimates.items():
        missing = np.isnan(np.sum([*estimate.sums.values()], axis=0))
        valid = (estimate.sums["weight"] != 0) | missing  # dates left out do not count for bounds
        value = bounds({k: v[valid] for k, v in estimate.sums.items()}, estimate.function)
        for suffix, number in (("", value.value), ("_lower", value.lower), ("_upper", value.upper)):
            variables[f"{name}{suffix}"] = xr.Variable((), np.float64(number), estimate.attrs)
        if value.block_length is not None:
            variables[name].attrs["block_length"] = value.block_length
    return variables


def _estimate(sums: xr.Dataset, metric: NamedMetric) -> _Estimate:
    """Return a score as a function of the sums of its means."""
    members = sums.attrs.get("members")
    each = [mean_sums(sums, mean) for mean in metric.means]
    combined_sums = {"weight": each[0]["weight"]}
    for n, mean in enumerate(each):
        combined_sums |= {f"{part}{n}": values for part, values in mean.items()}

    def function(s: Sums) -> Floats:
        means = [ratio(s[f"sum{n}"], s[f"weight{n}"]) for n in range(len(each))]
        return metric.score.finish(means, members)

    return _Estimate(
        combined_sums, function, _attributes(sums, metric) | {"long_name": metric.long_name}
    )


def _attributes(sums: xr.Dataset, metric: NamedMetric) -> dict[str, Any]:
    """Return units (and estimator) of a score, from those of its first mean."""
    attrs = dict(sums[f"{metric.means[0]}_sum"].attrs)
    squared = STATISTICS[metric.score.means[0]].units == "truth2"
    if metric.score.units == "1":
        attrs["units"] = "1"
    elif metric.score.units == "truth" and squared and attrs:
        attrs["units"] = str(attrs["units"]).removeprefix("(").removesuffix(")2")
    return attrs


def _differences(sums: xr.Dataset, other: xr.Dataset, metric: NamedMetric) -> dict[str, _Estimate]:
    """Return the difference from the reference and the skill score, paired date by date."""
    paired = paired_sums(sums, other, metric.means[0])
    name = f"{metric.name} less that of the reference"
    attrs = {k: v for k, v in _attributes(sums, metric).items() if k == "units"}
    attrs["long_name"] = f"mean {name}" if metric.number is None else name
    skill_attrs = {"units": "1", "long_name": f"skill score of {metric.name} against the reference"}
    return {
        f"{metric.name}_difference": _Estimate(paired, difference_of, attrs),
        metric.skill: _Estimate(paired, skill_of, skill_attrs),
    }


def _maps(states: xr.Dataset, reference: xr.Dataset | None) -> xr.Dataset:
    """Return maps of the means over dates, and of their skill."""
    maps = xr.Dataset()
    for name, statistic in STATISTICS.items():
        first = f"{name}_map_sum"
        if not statistic.on_map or first not in states:
            continue
        maps[f"{name}_map"] = mean = finish_mean(states, f"{name}_map")
        if reference is not None and first in reference:
            other = finish_mean(reference, f"{name}_map").assign_coords(states[first].coords)
            long_name = f"skill score of {name} against the reference"
            skill = (1.0 - mean / other.where(other > 0)).assign_attrs(
                units="1", long_name=long_name
            )
            maps[f"{METRICS[name].skill}_map"] = skill
    return maps


def _histograms(states: xr.Dataset) -> xr.Dataset:
    """Return the histograms unchanged, and the decomposition of the CRPS from its sums."""
    counts = [name for name in ("rank_count", "pit_count") if name in states]
    histograms = states[counts].reset_coords(drop=True)
    prefix = "hersbach_"
    sums = states[[str(v) for v in states if str(v).startswith(prefix)]].reset_coords(drop=True)
    if not sums:
        return histograms
    bare = sums.rename({v: str(v).removeprefix(prefix) for v in sums})
    parts = hersbach_decomposition(bare)
    return histograms.merge(parts.rename({v: f"{prefix}{v}" for v in parts.data_vars}))
