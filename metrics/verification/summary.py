"""Final scores with confidence bounds from additive states."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.aggregation import PARTS, finish_mean
from ens10.metrics.calibration import spread_inflation
from ens10.metrics.uncertainty import (
    REPLICATES,
    Floats,
    Method,
    Sums,
    check_paired_dates,
    default_block_length,
    difference_of,
    interval,
    mean_of,
    mean_sums,
    paired_sums,
    skill_of,
)

GROUPS = ("season", "month", "year")
_SEASONS = ("DJF", "MAM", "JJA", "SON")
_COMPARED = {"crps": "crpss", "crps_fair": "crpss_fair"}
_LONG_NAMES = {
    "crps": "mean continuous ranked probability score",
    "crps_fair": "mean fair continuous ranked probability score",
    "rmse": "root mean squared error of the mean",
    "spread_error": "ratio of spread to root mean squared error",
    "crpss": "skill score of the mean CRPS against the reference",
    "crpss_fair": "skill score of the mean fair CRPS against the reference",
    "crps_difference": "mean CRPS less that of the reference",
    "crps_fair_difference": "mean fair CRPS less that of the reference",
}


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
) -> xr.Dataset:
    """Scores with confidence bounds over dates, from the states of `score_states`.

    Args:
        states: of the forecast, merged over all its dates.
        reference_states: of the forecast that it is compared with, on the same dates and points.
        by: groups of dates that are scored apart, each a dimension of the result: "season",
            "month" or "year" of the valid date. Maps and histograms are of all dates.
        confidence: probability that a pair of bounds is meant to cover the truth.
        method: "bootstrap" or "student"; see `uncertainty.interval`.
        seed: of the bootstrap.
        replicates: of the bootstrap.
        block_length: dates in a block of the bootstrap; None for the cube root of their number.

    Returns:
        Each of `crps`, `crps_fair`, `rmse`, `spread_error` that the states hold, with `_lower`
        and `_upper`; `count` (points scored) and `dates`; the maps `crps_map`, `crps_fair_map`;
        the histograms as they were. With a reference `crps_difference` and the skill score
        `crpss` (and `crps_fair_difference`, `crpss_fair` where both have the fair score), paired
        and with bounds, and `crpss_map`, `crpss_fair_map`.

    Raises:
        UnknownNameError: another method or group.
        MissingDataError: dates that only one of the two forecasts has.
        ArgumentError: forecasts scored on different points; states without a date.
    """
    if not states.sizes.get("time"):
        raise ArgumentError("states", "they hold no dates")
    for name in by:
        if name not in GROUPS:
            raise UnknownNameError("by", name, GROUPS)
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
    result = _grouped(states.sortby("time"), reference_states, tuple(by), bounds)
    result = result.merge(_maps(states, reference_states)).merge(_histograms(states))
    told: dict[str, Any] = {"confidence": confidence, "interval": method}
    if method == "bootstrap":
        length = block_length or default_block_length(states.sizes["time"])
        told |= {"replicates": replicates, "block_length": length, "seed": seed}
    if reference_states is not None:
        told["reference_kind"] = reference_states.attrs.get("forecast_kind", "unknown")
    return result.assign_attrs(states.attrs | told)


def _grouped(
    states: xr.Dataset, reference: xr.Dataset | None, by: tuple[str, ...], bounds: Any
) -> xr.Dataset:
    if not by:
        return _scores(states, reference, bounds)
    labels = _labels(states, by[0])
    order = [s for s in _SEASONS if s in labels] if by[0] == "season" else list(np.unique(labels))
    parts = []
    for label in order:
        dates = states["time"].to_numpy()[labels == label]
        other = None if reference is None else reference.sel(time=dates)
        parts.append(_grouped(states.sel(time=dates), other, by[1:], bounds))
    index = xr.DataArray(order, dims=by[0], coords={by[0]: order}, name=by[0])
    return xr.concat(parts, index, join="outer", coords="minimal", compat="override")


def _labels(states: xr.Dataset, group: str) -> npt.NDArray[Any]:
    when = states["valid_time" if "valid_time" in states.coords else "time"]
    labels: npt.NDArray[Any] = getattr(when.dt, group).to_numpy()
    return labels


def _scores(states: xr.Dataset, reference: xr.Dataset | None, bounds: Any) -> xr.Dataset:
    found: dict[str, tuple[Sums, Any, dict[str, Any]]] = {}
    for name in _COMPARED:
        if f"{name}_sum" in states:
            found[name] = (mean_sums(states, name), mean_of, states[f"{name}_sum"].attrs)
    found |= _moment_scores(states)
    for name, skill in _COMPARED.items():
        if reference is not None and f"{name}_sum" in states and f"{name}_sum" in reference:
            paired = paired_sums(states, reference, name)
            units = {k: v for k, v in states[f"{name}_sum"].attrs.items() if k == "units"}
            found[f"{name}_difference"] = (paired, difference_of, units)
            found[skill] = (paired, skill_of, {"units": "1"})
    result = xr.Dataset(_counts(states))
    for name, (sums, statistic, attrs) in found.items():
        scored = sums["weight"] != 0  # dates without truth say nothing about the uncertainty
        made = bounds({k: v[scored] for k, v in sums.items()}, statistic)
        named = attrs | {"long_name": _LONG_NAMES[name]}
        for suffix, value in (("", made.value), ("_lower", made.lower), ("_upper", made.upper)):
            result[f"{name}{suffix}"] = xr.DataArray(value, attrs=named)
    return result


def _moment_scores(states: xr.Dataset) -> dict[str, tuple[Sums, Any, dict[str, Any]]]:
    """RMSE and spread/error ratio, as statistics of summed squares."""
    if "error2_sum" not in states:
        return {}
    squared = mean_sums(states, "error2")
    units = str(states["error2_sum"].attrs.get("units", ""))
    attrs = {"units": units.removeprefix("(").removesuffix(")2")} if units else {}
    found: dict[str, Any] = {"rmse": (squared, lambda s: np.sqrt(mean_of(s)), attrs)}
    if "variance_sum" in states:
        sums = squared | {"variance": states["variance_sum"].to_numpy()}
        factor = spread_inflation(states.attrs.get("members"))

        def ratio(s: Sums) -> Floats:
            # both sums are over the same points and weights
            return np.sqrt(mean_of({"sum": factor * s["variance"], "weight": s["sum"]}))

        found["spread_error"] = (sums, ratio, {"units": "1"})
    return found


def _counts(states: xr.Dataset) -> dict[str, int]:
    counted = next(
        (states[f"{n}_count"] for n in (*_COMPARED, "error2") if f"{n}_sum" in states), 0
    )
    if isinstance(counted, int):
        return {}
    return {"count": int(counted.sum()), "dates": int((counted > 0).sum())}


def _maps(states: xr.Dataset, reference: xr.Dataset | None) -> xr.Dataset:
    maps = xr.Dataset()
    for name, skill in _COMPARED.items():
        parts = [f"{name}_map_{part}" for part in PARTS]
        if parts[0] not in states:
            continue
        maps[f"{name}_map"] = finish_mean(states, f"{name}_map")
        if reference is not None and parts[0] in reference:
            other = finish_mean(reference, f"{name}_map")
            other = other.assign_coords(states[parts[0]].coords)
            maps[f"{skill}_map"] = (
                1.0 - maps[f"{name}_map"] / other.where(other > 0)
            ).assign_attrs(units="1", long_name=_LONG_NAMES[skill])
    return maps


def _histograms(states: xr.Dataset) -> xr.Dataset:
    return states[[name for name in ("rank_count", "pit_count") if name in states]].reset_coords(
        drop=True
    )
