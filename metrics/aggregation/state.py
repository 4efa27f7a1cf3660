"""Means kept as sums, so that blocks of dates, processes and files merge exactly.

The state of a mean called `crps` is three variables over the dimensions that are kept:
`crps_sum` (sum of weight times score), `crps_weight` (sum of weights) and `crps_count` (number of
points). Histogram counts are states as they are. States add; only finishing divides.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError

NanPolicy = Literal["omit", "propagate"]
PARTS = ("sum", "weight", "count")


def mean_state(
    name: str,
    score: xr.DataArray,
    *,
    keep: Sequence[str] = (),
    weights: xr.DataArray | None = None,
    nan: NanPolicy = "omit",
) -> xr.Dataset:
    """The additive state of a weighted mean.

    Args:
        name: of the mean; begins the names of the three variables.
        score: the values of the points.
        keep: dimensions that stay; the others are summed over.
        weights: over some of the dimensions of `score`; 1 everywhere if None.
        nan: "omit" leaves missing points and their weights out; "propagate" lets one missing
            point make its sum NaN.

    Returns:
        `{name}_sum`, `{name}_weight` (float64) and `{name}_count` (int64) over `keep`.

    Raises:
        UnknownNameError: another policy.
    """
    if nan not in get_args(NanPolicy):
        raise UnknownNameError("nan", nan, get_args(NanPolicy))
    dims = [d for d in score.dims if d not in keep]
    present = score.notnull()
    w = present.astype(np.float64)
    if weights is not None:
        w = w * weights
    values = score.astype(np.float64)
    if nan == "omit":
        values = values.where(present, 0.0)
    total = xr.dot(values, w, dim=dims) if nan == "omit" else (values * w).sum(dims, skipna=False)
    total.attrs = {k: v for k, v in score.attrs.items() if k in ("units", "estimator")}
    parts = (total, w.sum(dims), present.sum(dims).astype(np.int64))
    named = {f"{name}_{part}": field for part, field in zip(PARTS, parts, strict=True)}
    return xr.Dataset(named)


def merge_states(states: Iterable[xr.Dataset]) -> xr.Dataset:
    """The state of all points together.

    Coordinates are joined (dates that only one state has are kept) and what coincides is added.

    Args:
        states: of the same scores, over disjoint sets of points: a date that is given twice
            counts twice.

    Returns:
        A Dataset like each of them.

    Raises:
        ArgumentError: no states, or states of different scores, units or settings.
    """
    merged = list(states)
    if not merged:
        raise ArgumentError("states", "there are none to merge")
    return reduce(_add, merged)


def _add(first: xr.Dataset, second: xr.Dataset) -> xr.Dataset:
    pairs: tuple[tuple[str, object, object], ...] = (
        ("variables", sorted(map(str, first)), sorted(map(str, second))),
        ("settings", first.attrs, second.attrs),
        ("units", _units(first), _units(second)),
        ("steps", _step(first), _step(second)),
    )
    for what, a, b in pairs:
        if a != b:
            raise ArgumentError("states", f"different {what}: {a} and {b}")
    bare = (first.reset_coords(drop=True), second.reset_coords(drop=True))
    one, two = xr.align(*bare, join="outer", fill_value=0)
    added: xr.Dataset = one + two
    for name, field in first.items():
        added[name] = added[name].astype(field.dtype).assign_attrs(field.attrs)
    # A coordinate that is no index, such as valid_time, is known where one of them knows it.
    loose = [str(c) for c in first.coords if c not in first.indexes and c in second.coords]
    known = {
        c: first[c].reset_coords(drop=True).combine_first(second[c].reset_coords(drop=True))
        for c in loose
    }
    return added.assign_coords(known).assign_attrs(first.attrs)


def _units(state: xr.Dataset) -> dict[str, tuple[object, object]]:
    return {str(k): (v.attrs.get("units"), v.attrs.get("estimator")) for k, v in state.items()}


def _step(state: xr.Dataset) -> object:
    return state["step"].item() if "step" in state.coords and not state["step"].dims else None


def finish_mean(state: xr.Dataset, name: str) -> xr.DataArray:
    """The mean called `name` over the dimensions that its state kept; NaN where no weight is."""
    weight = state[f"{name}_weight"]
    mean = state[f"{name}_sum"] / weight.where(weight > 0)
    return mean.assign_attrs(state[f"{name}_sum"].attrs).rename(name)


def total_over(state: xr.Dataset, dim: str) -> xr.Dataset:
    """The state with one dimension summed away."""
    return state.sum(dim, skipna=False, keep_attrs=True)
