"""Final scores with confidence bounds from additive states."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.calibration import hersbach_decomposition
from ens10.metrics.distributions.forecast_dataset import STEP_AND_LEVEL
from ens10.metrics.groups import SEASONS
from ens10.metrics.scores.registry import METRICS, STATISTICS, NamedMetric, statistic_of
from ens10.metrics.states import PARTS, finish_mean
from ens10.metrics.uncertainty import (
    REPLICATES,
    Floats,
    Method,
    Sums,
    check_paired_dates,
    difference_of,
    interval,
    mean_of,
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
    other = None
    if reference_states is not None:
        check_paired_dates(states, reference_states)
        reference_states = reference_states.sel(time=states["time"])
        other = _GroupedStates(reference_states.sortby("time"), by)
    result = _scores_by_group(_GroupedStates(states.sortby("time"), by), other, bounds)
    if maps:
        result = result.merge(_maps(states, reference_states))
    result = result.merge(_histograms(states))
    attrs: dict[str, Any] = {"confidence": confidence, "interval": method}
    if method == "bootstrap":
        attrs |= {"replicates": replicates, "block_length": block_length or "auto", "seed": seed}
    if reference_states is not None:
        attrs["reference_kind"] = reference_states.attrs.get("forecast_kind", "unknown")
    return result.assign_attrs(states.attrs | attrs)


class _GroupedStates:
    """States that are summed over time group by group."""

    def __init__(self, states: xr.Dataset, by: Sequence[str]) -> None:
        self.states, self.by = states, tuple(by)
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
        self.infix = "zone_" if zones else ""
        self.labels = {name: self._labels(name) for name in by}

    def _labels(self, name: str) -> list[Any]:
        if name not in DATES:
            labels: list[Any] = self.states[name].to_numpy().tolist()
            return labels
        present = np.unique(self._labels_of_dates(name)).tolist()
        return [s for s in SEASONS if s in present] if name == "season" else present

    def _labels_of_dates(self, name: str) -> npt.NDArray[Any]:
        """Return the group of each date (and step), by its valid date."""
        when = self.states["valid_time" if "valid_time" in self.states.coords else "time"]
        labels: npt.NDArray[Any] = getattr(when.dt, name).to_numpy()
        return labels

    def sums(self, mean: str, group: Mapping[str, Any]) -> dict[str, Floats] | None:
        """Return the sums of a mean for each date in one group; None if the states lack them."""
        if f"{mean}_sum" not in self.states:
            return None
        return {part: self._sum(f"{mean}_{self.infix}{part}", group) for part in PARTS}

    def _sum(self, name: str, group: Mapping[str, Any]) -> Floats:
        values = self.states[name]
        for dim, label in group.items():
            if dim in DATES:
                inside = self._labels_of_dates(dim) == label
                dims = ("time", "step") if inside.ndim == 2 else ("time",)
                values = values.where(xr.DataArray(inside, dims=dims), 0)
            else:
                values = values.isel({dim: self.labels[dim].index(label)})
        total: Floats = values.sum([d for d in values.dims if d != "time"], skipna=False).to_numpy()
        return total

    @property
    def metrics(self) -> list[NamedMetric]:
        """Return the scores whose means the states contain, in the order of the registry."""
        numbers: dict[str, list[float | None]] = {name: [] for name in STATISTICS}
        for variable in map(str, self.states):
            if variable.endswith("_sum") and not variable.endswith(("_map_sum", "_zone_sum")):
                statistic, number = statistic_of(variable.removesuffix("_sum"))
                numbers[statistic.name].append(number)
        return [
            NamedMetric(name if n is None else f"{name}_{n:g}", metric, n)
            for name, metric in METRICS.items()
            for n in numbers[metric.means[0]]
            if all(n in numbers[mean] for mean in metric.means)
        ]


@dataclass(frozen=True)
class _Estimate:
    """A statistic of sums over dates, for which confidence bounds are computed."""

    sums: Sums
    function: Callable[[Sums], Floats]
    attrs: dict[str, Any]


def _scores_by_group(
    states: _GroupedStates, other: _GroupedStates | None, bounds: Any
) -> xr.Dataset:
    """Return the scores of each group, with their bounds."""
    sizes = [len(labels) for labels in states.labels.values()]
    variables: dict[str, xr.Variable] = {}
    lengths: dict[str, list[float]] = {}
    for place in np.ndindex(*sizes):
        group = {name: states.labels[name][i] for name, i in zip(states.by, place, strict=True)}
        for name, score in _scores(states, other, group, bounds).items():
            if name not in variables:
                blank = np.full(sizes, np.nan if score.dtype.kind == "f" else 0, score.dtype)
                variables[name] = xr.Variable(states.by, blank, score.attrs)
                lengths[name] = []
            variables[name].values[place] = score.values
            lengths[name].append(score.attrs.get("block_length", np.nan))
    for name, each in lengths.items():
        if not np.isnan(each).all():
            variables[name].attrs["block_length"] = each if states.by else each[0]
    coords = states.states.coords
    attrs = {k: dict(coords[k].attrs) if k in coords else {} for k in states.by}
    return xr.Dataset(variables, {k: (k, v, attrs[k]) for k, v in states.labels.items()})


def _scores(
    states: _GroupedStates, other: _GroupedStates | None, group: Mapping[str, Any], bounds: Any
) -> dict[str, xr.Variable]:
    """Return the scores of one group, with bounds and the numbers of points and dates."""
    estimates: dict[str, _Estimate] = {}
    variables: dict[str, xr.Variable] = {}
    for metric in states.metrics:
        sums = [sums for mean in metric.means if (sums := states.sums(mean, group)) is not None]
        estimates[metric.name] = _estimate(states, metric, sums)
        if not variables:
            count = sums[0]["count"]
            variables["count"] = xr.Variable((), int(count.sum()))
            variables["dates"] = xr.Variable((), int((count > 0).sum()))
    for metric in states.metrics if other is not None else ():
        if metric.score.skill:
            estimates |= _differences(states, other, metric, group)
    for name, estimate in estimates.items():
        missing = np.isnan(np.sum([*estimate.sums.values()], axis=0))
        valid = (estimate.sums["weight"] != 0) | missing  # dates left out do not count for bounds
        value = bounds({k: v[valid] for k, v in estimate.sums.items()}, estimate.function)
        for suffix, number in (("", value.value), ("_lower", value.lower), ("_upper", value.upper)):
            variables[f"{name}{suffix}"] = xr.Variable((), np.float64(number), estimate.attrs)
        if value.block_length is not None:
            variables[name].attrs["block_length"] = value.block_length
    return variables


def _estimate(
    states: _GroupedStates, metric: NamedMetric, sums: Sequence[dict[str, Floats]]
) -> _Estimate:
    """Return a score as a function of the sums of its means."""
    members = states.states.attrs.get("members")
    combined_sums = {"weight": sums[0]["weight"]}
    for n, mean in enumerate(sums):
        combined_sums |= {f"sum{n}": mean["sum"], f"weight{n}": mean["weight"]}

    def function(s: Sums) -> Floats:
        means = [
            mean_of({"sum": s[f"sum{n}"], "weight": s[f"weight{n}"]}) for n in range(len(sums))
        ]
        return metric.score.finish(means, members)

    attrs = _attributes(states, metric)
    return _Estimate(combined_sums, function, attrs | {"long_name": metric.long_name})


def _attributes(states: _GroupedStates, metric: NamedMetric) -> dict[str, Any]:
    """Return units (and estimator) of a score, from those of its first mean."""
    attrs = dict(states.states[f"{metric.means[0]}_sum"].attrs)
    squared = STATISTICS[metric.score.means[0]].units == "truth2"
    if metric.score.units == "1":
        attrs["units"] = "1"
    elif metric.score.units == "truth" and squared and attrs:
        attrs["units"] = str(attrs["units"]).removeprefix("(").removesuffix(")2")
    return attrs


def _differences(
    states: _GroupedStates,
    other: _GroupedStates | None,
    metric: NamedMetric,
    group: Mapping[str, Any],
) -> dict[str, _Estimate]:
    """Return the difference from the reference and the skill score, paired date by date."""
    sums = _paired_sums(states, other, metric.means[0], group)
    if sums is None:
        return {}
    name = f"{metric.name} less that of the reference"
    attrs = {k: v for k, v in _attributes(states, metric).items() if k == "units"}
    attrs["long_name"] = f"mean {name}" if metric.number is None else name
    skill_attrs = {"units": "1", "long_name": f"skill score of {metric.name} against the reference"}
    return {
        f"{metric.name}_difference": _Estimate(sums, difference_of, attrs),
        metric.skill: _Estimate(sums, skill_of, skill_attrs),
    }


def _paired_sums(
    states: _GroupedStates, other: _GroupedStates | None, mean: str, group: Mapping[str, Any]
) -> dict[str, Floats] | None:
    """Return the sums of a mean of two forecasts, date by date; None if one lacks them."""
    sums, reference_sums = states.sums(mean, group), other.sums(mean, group) if other else None
    if sums is None or reference_sums is None:
        return None
    for part in ("count", "weight"):
        if not np.allclose(sums[part], reference_sums[part], rtol=1e-9):
            raise ArgumentError(
                "reference",
                f"its {mean} has other points than the forecast's (their {part}s differ)",
                "Mask the truth where either is missing, and weight both alike",
            )
    return {k: sums[k] for k in ("sum", "weight")} | {
        f"reference_{k}": reference_sums[k] for k in ("sum", "weight")
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
