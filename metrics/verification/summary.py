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
from ens10.metrics.verification.alignment import APART
from ens10.metrics.verification.zones import ZONES

DATES = ("season", "month", "year")
GROUPS = (*DATES, *APART, *ZONES)
_SEASONS = ("DJF", "MAM", "JJA", "SON")


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
    """Scores with confidence bounds over dates, from the states of `score_states`.

    Args:
        states: of the forecast, merged over all its dates.
        reference_states: of the forecast that it is compared with, on the same dates and points.
        by: groups that are scored apart, each a dimension of the result: "season", "month" or
            "year" of the valid date; "step" or "level"; and the zones that the states were made
            for ("latitude_band", "surface", "region": all of them or none). Maps and histograms
            are of all dates, steps and levels.
        confidence: probability that a pair of bounds is meant to cover the truth.
        method: "bootstrap" or "student"; see `uncertainty.interval`.
        seed: of the bootstrap.
        replicates: of the bootstrap.
        block_length: dates in a block of the bootstrap; None for the length that the dependence
            of the dates asks for, of each score (`default_block_length`). It is the attribute
            `block_length` of each score: a number, or one for each group in their order.
        maps: False leaves out the maps.

    Returns:
        Each score that the states hold all means of (see `scores.registry.METRICS`), with
        `_lower` and `_upper`; `count` (points scored) and `dates`; the maps `crps_map` and
        `crps_fair_map`; the histograms unchanged. With a reference `crps_difference` and the
        skill score `crpss` (and likewise for the other scores that both have), paired and with
        bounds, and `crpss_map`, `crpss_fair_map`.

    Raises:
        UnknownNameError: another method or group.
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
    if reference_states is not None:
        check_paired_dates(states, reference_states)
        reference_states = reference_states.sel(time=states["time"])
    held = _Held(states.sortby("time"), by)
    other = None if reference_states is None else _Held(reference_states.sortby("time"), by)
    result = _grouped(held, other, bounds)
    if maps:
        result = result.merge(_maps(states, reference_states))
    result = result.merge(_histograms(states))
    told: dict[str, Any] = {"confidence": confidence, "interval": method}
    if method == "bootstrap":
        told |= {"replicates": replicates, "block_length": block_length or "auto", "seed": seed}
    if reference_states is not None:
        told["reference_kind"] = reference_states.attrs.get("forecast_kind", "unknown")
    return result.assign_attrs(states.attrs | told)


class _Held:
    """States cut into groups."""

    def __init__(self, states: xr.Dataset, by: Sequence[str]) -> None:
        self.states, self.by = states, tuple(by)
        for name in by:
            if name not in GROUPS:
                raise UnknownNameError("by", name, GROUPS)
        zones = [name for name in by if name in ZONES]
        made = [str(d) for d in states.dims if d in ZONES]
        if zones and set(zones) != set(made):
            had = f"for {' and '.join(made)}" if made else "without zones"
            raise ArgumentError("by", f"the states were made {had}", f"Score again, by {zones}")
        absent = [name for name in by if name in APART and name not in states.dims]
        if absent:
            raise ArgumentError("by", f"the states are of one {absent[0]} alone")
        self.infix = "zone_" if zones else ""
        self.labels = {name: self._labels(name) for name in by}

    def _labels(self, name: str) -> list[Any]:
        if name not in DATES:
            found: list[Any] = self.states[name].to_numpy().tolist()
            return found
        there = np.unique(self._of_dates(name)).tolist()
        return [s for s in _SEASONS if s in there] if name == "season" else there

    def _of_dates(self, name: str) -> npt.NDArray[Any]:
        """The group of each date (and step): of valid dates."""
        when = self.states["valid_time" if "valid_time" in self.states.coords else "time"]
        labels: npt.NDArray[Any] = getattr(when.dt, name).to_numpy()
        return labels

    def sums(self, mean: str, chosen: Mapping[str, Any]) -> dict[str, Floats] | None:
        """The sums of a mean over time, in one group; None if the states have them not."""
        if f"{mean}_sum" not in self.states:
            return None
        return {part: self._of(f"{mean}_{self.infix}{part}", chosen) for part in PARTS}

    def _of(self, name: str, chosen: Mapping[str, Any]) -> Floats:
        values = self.states[name]
        for group, label in chosen.items():
            if group in DATES:
                inside = self._of_dates(group) == label
                dims = ("time", "step") if inside.ndim == 2 else ("time",)
                values = values.where(xr.DataArray(inside, dims=dims), 0)
            else:
                values = values.isel({group: self.labels[group].index(label)})
        rest = [d for d in values.dims if d != "time"]
        summed: Floats = values.sum(rest, skipna=False).to_numpy()
        return summed

    @property
    def scores(self) -> list[NamedMetric]:
        """The scores whose means the states hold, in the order of the table."""
        others = ("_map_sum", "_zone_sum")
        held = [str(v) for v in self.states if str(v).endswith("_sum")]
        numbers: dict[str, list[float | None]] = {base: [] for base in STATISTICS}
        for name in held:
            if not name.endswith(others):
                statistic, number = statistic_of(name.removesuffix("_sum"))
                numbers[statistic.name].append(number)
        return [
            NamedMetric(name if n is None else f"{name}_{n:g}", score, n)
            for name, score in METRICS.items()
            for n in numbers[score.means[0]]
            if all(n in numbers[mean] for mean in score.means)
        ]


def _grouped(held: _Held, other: _Held | None, bounds: Any) -> xr.Dataset:
    sizes = [len(labels) for labels in held.labels.values()]
    found: dict[str, xr.Variable] = {}
    lengths: dict[str, list[float]] = {}
    for place in np.ndindex(*sizes):
        chosen = {name: held.labels[name][i] for name, i in zip(held.by, place, strict=True)}
        for name, variable in _scores(held, other, chosen, bounds).items():
            if name not in found:
                dtype = variable.dtype
                blank = np.full(sizes, np.nan if dtype.kind == "f" else 0, dtype)
                found[name] = xr.Variable(held.by, blank, variable.attrs)
                lengths[name] = []
            found[name].values[place] = variable.values
            lengths[name].append(variable.attrs.get("block_length", np.nan))
    for name, each in lengths.items():
        if not np.isnan(each).all():
            found[name].attrs["block_length"] = each if held.by else each[0]
    known = held.states.coords
    attrs = {k: dict(known[k].attrs) if k in known else {} for k in held.by}
    return xr.Dataset(found, coords={k: (k, v, attrs[k]) for k, v in held.labels.items()})


@dataclass(frozen=True)
class _Statistic:
    """A number to be made of sums over time."""

    sums: Sums
    of: Callable[[Sums], Floats]
    attrs: dict[str, Any]


def _scores(
    held: _Held, other: _Held | None, chosen: Mapping[str, Any], bounds: Any
) -> dict[str, xr.Variable]:
    made: dict[str, _Statistic] = {}
    counted = None
    for one in held.scores:
        sums = [held.sums(mean, chosen) for mean in one.means]
        known = [s for s in sums if s is not None]
        counted = known[0]["count"] if counted is None else counted
        made[one.name] = _own(held, one, known)
    for one in held.scores:
        paired = _paired(held, other, one, chosen) if one.score.skill and other else None
        if paired is not None:
            units = {k: v for k, v in made[one.name].attrs.items() if k == "units"}
            name = f"{one.name} less that of the reference"
            told = units | {"long_name": f"mean {name}" if one.number is None else name}
            made[f"{one.name}_difference"] = _Statistic(paired, difference_of, told)
            told = {"units": "1", "long_name": f"skill score of {one.name} against the reference"}
            made[one.skill] = _Statistic(paired, skill_of, told)
    found: dict[str, xr.Variable] = {}
    if counted is not None:
        found["count"] = xr.Variable((), int(counted.sum()))
        found["dates"] = xr.Variable((), int((counted > 0).sum()))
    for name, statistic in made.items():
        missing = np.isnan(np.sum([*statistic.sums.values()], axis=0))
        scored = (statistic.sums["weight"] != 0) | missing  # dates left out say nothing of bounds
        value = bounds({k: v[scored] for k, v in statistic.sums.items()}, statistic.of)
        for suffix, number in (("", value.value), ("_lower", value.lower), ("_upper", value.upper)):
            found[f"{name}{suffix}"] = xr.Variable((), np.float64(number), statistic.attrs)
        if value.block_length is not None:
            found[name].attrs["block_length"] = value.block_length
    return found


def _own(held: _Held, one: NamedMetric, sums: Sequence[dict[str, Floats]]) -> _Statistic:
    """A score from the sums of its means."""
    members = held.states.attrs.get("members")
    together = {"weight": sums[0]["weight"]}
    for n, mean in enumerate(sums):
        together |= {f"sum{n}": mean["sum"], f"weight{n}": mean["weight"]}

    def of(s: Sums) -> Floats:
        means = [
            mean_of({"sum": s[f"sum{n}"], "weight": s[f"weight{n}"]}) for n in range(len(sums))
        ]
        return one.score.finish(means, members)

    attrs = dict(held.states[f"{one.means[0]}_sum"].attrs)
    if one.score.units == "1":
        attrs["units"] = "1"
    elif one.score.units == "truth" and STATISTICS[one.score.means[0]].units == "truth2" and attrs:
        attrs["units"] = str(attrs["units"]).removeprefix("(").removesuffix(")2")
    return _Statistic(together, of, attrs | {"long_name": one.long_name})


def _paired(
    held: _Held, other: _Held | None, one: NamedMetric, chosen: Mapping[str, Any]
) -> dict[str, Floats] | None:
    """The sums of a mean of two forecasts, date by date."""
    mean = one.means[0]
    mine, its = held.sums(mean, chosen), other.sums(mean, chosen) if other else None
    if mine is None or its is None:
        return None
    for part in ("count", "weight"):
        if not np.allclose(mine[part], its[part], rtol=1e-9):
            raise ArgumentError(
                "reference",
                f"its {mean} has other points than the forecast's (their {part}s differ)",
                "Mask the truth where either is missing, and weight both alike",
            )
    return {k: mine[k] for k in ("sum", "weight")} | {
        f"reference_{k}": its[k] for k in ("sum", "weight")
    }


def _maps(states: xr.Dataset, reference: xr.Dataset | None) -> xr.Dataset:
    maps = xr.Dataset()
    for name, mean in STATISTICS.items():
        parts = [f"{name}_map_{part}" for part in PARTS]
        if not mean.on_map or parts[0] not in states:
            continue
        maps[f"{name}_map"] = finish_mean(states, f"{name}_map")
        if reference is not None and parts[0] in reference:
            other = finish_mean(reference, f"{name}_map")
            other = other.assign_coords(states[parts[0]].coords)
            skill = METRICS[name].skill
            told = f"skill score of {name} against the reference"
            maps[f"{skill}_map"] = (
                1.0 - maps[f"{name}_map"] / other.where(other > 0)
            ).assign_attrs(units="1", long_name=told)
    return maps


def _histograms(states: xr.Dataset) -> xr.Dataset:
    """Histograms as they are, and the decomposition of the CRPS from its sums."""
    counts = [name for name in ("rank_count", "pit_count") if name in states]
    found = states[counts].reset_coords(drop=True)
    prefix = "hersbach_"
    sums = states[[str(v) for v in states if str(v).startswith(prefix)]].reset_coords(drop=True)
    if not sums:
        return found
    bare = sums.rename({v: str(v).removeprefix(prefix) for v in sums})
    made = hersbach_decomposition(bare)
    return found.merge(made.rename({v: f"{prefix}{v}" for v in made.data_vars}))
