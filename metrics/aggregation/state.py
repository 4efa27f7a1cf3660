"""Means kept as sums, so that blocks of dates, processes and files merge exactly.

The state of a mean called `crps` is three variables over the dimensions that are kept:
`crps_sum` (sum of weight times score), `crps_weight` (sum of weights) and `crps_count` (number of
points). Histogram counts are states as they are. States add; only finishing divides.

A dimension of a state is one that was kept (`time`, `step`, `level`, `latitude`, ...) or one of
groups (`latitude_band`, `surface`, `region`, `season`, ...), whose coordinate holds their names.
"""

from collections.abc import Sequence
from functools import reduce
from math import prod
from operator import mul
from typing import Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.aggregation.members import By, combined, summed

NanPolicy = Literal["omit", "propagate"]
PARTS = ("sum", "weight", "count")


def mean_state(
    name: str,
    score: xr.DataArray,
    *,
    keep: str | Sequence[str] = (),
    weights: xr.DataArray | None = None,
    nan: NanPolicy = "omit",
    by: By = None,
) -> xr.Dataset:
    """The additive state of a weighted mean; lazy where the score is.

    Args:
        name: of the mean; begins the names of the three variables.
        score: the values of the points.
        keep: a dimension, or several, that stay; the others are summed over. To group dates, keep
            `time` and call `group_state` when all dates are there.
        weights: over some of the dimensions of `score`, at least 0; 1 everywhere if None.
        nan: "omit" leaves missing points and their weights out; "propagate" lets one missing
            point make its sum NaN.
        by: groups of points that are summed apart, such as `latitude_bands` or `land_sea`, or
            several of them, crossed; each is a further dimension. A point's weight is multiplied
            by its share in the group.

    Returns:
        `{name}_sum`, `{name}_weight` (float64) and `{name}_count` (int64) over `keep` and the
        groups. A point counts in every group that it has a share in.

    Raises:
        UnknownNameError: another policy.
        ArgumentError: weights or groups on other coordinates than the score's or with dimensions
            that it lacks; negative or missing weights; a kept dimension that is not there.
    """
    if nan not in get_args(NanPolicy):
        raise UnknownNameError("nan", nan, get_args(NanPolicy))
    keep = [keep] if isinstance(keep, str) else keep
    for dim in keep:
        if dim not in score.dims:
            raise ArgumentError("keep", f"{name} has no dimension {dim!r}, only {score.dims}")
    dims = [str(d) for d in score.dims if d not in keep]
    if weights is not None:
        check_fits("weights", weights, score)
        _check_weights(weights)
    share = combined(by, score)
    total, weight, count = _complete(score, weights, share, dims) or _parts(
        score, weights, share, dims, nan
    )
    total.attrs = {k: v for k, v in score.attrs.items() if k in ("units", "estimator")}
    named = (total, weight.drop_attrs(), count.drop_attrs().astype(np.int64))
    return xr.Dataset({f"{name}_{part}": f for part, f in zip(PARTS, named, strict=True)})


Parts = tuple[xr.DataArray, xr.DataArray, xr.DataArray]


def _complete(
    score: xr.DataArray,
    weights: xr.DataArray | None,
    share: xr.DataArray | None,
    dims: list[str],
) -> Parts | None:
    """The parts where no point is missing or infinite, which is seen from the first sums.

    What neither weights nor groups depend on is summed before all else, in one pass.
    """
    if score.chunks is not None:
        return None
    given = [array.drop_attrs() for array in (weights, share) if array is not None]
    w = reduce(mul, given, xr.DataArray(1.0))
    loose = [d for d in dims if d not in w.dims]
    rest = [d for d in dims if d in w.dims]
    rows = score.drop_attrs()
    rows = rows.sum(loose, skipna=False, dtype=np.float64) if loose else rows.astype(np.float64)
    if w.chunks is not None or not bool(np.isfinite(rows).all()):
        return None
    n = prod(score.sizes[d] for d in loose)
    total = xr.dot(rows, w, dim=rest, optimize=True) if w.dims else rows
    there = xr.ones_like(w) if share is None else (share > 0).broadcast_like(w).astype(np.float64)
    weight, count = (n * part.sum(rest).broadcast_like(total) for part in (w, there))
    return total, weight.transpose(*total.dims).copy(), count.transpose(*total.dims).copy()


def _parts(
    score: xr.DataArray,
    weights: xr.DataArray | None,
    share: xr.DataArray | None,
    dims: list[str],
    nan: NanPolicy,
) -> Parts:
    """The parts of lazy scores, or of those with missing points."""
    present = score.notnull()
    w = present.astype(np.float64)
    w = w if weights is None else w * weights
    values = score.astype(np.float64)
    if share is None:
        return _product_sum(values, w, dims, nan), w.sum(dims), present.sum(dims)
    weighted = (values.where(present, 0.0) if nan == "omit" else values) * w
    count = summed(present.astype(np.float64), share > 0, dims).round()
    return summed(weighted, share, dims), summed(w, share, dims), count


def _product_sum(
    values: xr.DataArray, w: xr.DataArray, dims: list[str], nan: NanPolicy
) -> xr.DataArray:
    if nan == "propagate":
        return (values * w).sum(dims, skipna=False)
    total: xr.DataArray = xr.dot(values.where(values.notnull(), 0.0), w, dim=dims)
    return total


def check_fits(argument: str, array: xr.DataArray, score: xr.DataArray) -> None:
    """Refuse what xarray would align in silence, leaving points out.

    Raises:
        ArgumentError: dimensions that the score lacks, or other coordinates.
    """
    extra = sorted(set(map(str, array.dims)) - set(map(str, score.dims)))
    if extra:
        raise ArgumentError(argument, f"dimensions {extra} that the score has not")
    for dim in array.dims:
        ours, other = score.indexes.get(dim), array.indexes.get(dim)
        same_size = array.sizes[dim] == score.sizes[dim]
        if not same_size or (ours is not None and other is not None and not ours.equals(other)):
            raise ArgumentError(
                argument,
                f"its {dim} ({array.sizes[dim]}) is not that of the score ({score.sizes[dim]})",
                "Make it for the score's own coordinates, in their order",
            )


def _check_weights(weights: xr.DataArray) -> None:
    if weights.chunks is None and not bool((weights >= 0).all()):
        raise ArgumentError("weights", "negative or missing values", "Give 0 to leave a point out")


def group_state(state: xr.Dataset, by: By, *, over: Sequence[str] | None = None) -> xr.Dataset:
    """The state with points of kept dimensions brought together in groups.

    Seasons are made of merged states in this way: `group_state(s, date_groups(s, "season"))`.

    Args:
        state: that kept the dimensions of the groups.
        by: groups, such as `date_groups`, `latitude_bands` or `group_masks`, or several of them,
            crossed. Their shares must be 0 or 1: counts stay whole numbers.
        over: dimensions that are summed over; None for all that the groups have.

    Returns:
        The state with dimensions of groups in their place. Variables without any of the
        dimensions in `over`, such as the maps of all dates, belong to no group and are left out.

    Raises:
        ArgumentError: a state without the dimensions, groups on other coordinates, shares
            between 0 and 1.
    """
    share = combined(by, None)
    if share is None:
        raise ArgumentError("by", "no groups are given")
    names = [str(share.dims[i]) for i in range(share.attrs["groups"])]
    within = [str(d) for d in share.dims if d not in names]
    if not bool(((share == 0) | (share == 1)).all()):
        raise ArgumentError("by", "shares between 0 and 1", "Give them to mean_state, with `by`")
    wanted = within if over is None else list(over)
    grouped = {}
    for name, field in state.items():
        dims = [d for d in wanted if d in field.dims]
        if dims:
            absent = [d for d in within if d not in field.dims]
            if absent:
                raise ArgumentError("by", f"{name} has not kept {absent}, on which groups depend")
            check_fits("by", share.isel(dict.fromkeys(names, 0), drop=True), field)
            made = summed(field.astype(np.float64), share, dims)
            made = made.round() if field.dtype.kind in "iu" else made
            grouped[name] = made.astype(field.dtype).assign_attrs(field.attrs)
    if not grouped:
        raise ArgumentError("state", f"no variable has kept {wanted}, only {dict(state.sizes)}")
    return xr.Dataset(grouped, attrs=state.attrs)


def finish_mean(state: xr.Dataset, name: str) -> xr.DataArray:
    """The mean called `name` over the dimensions that its state kept; NaN where no weight is.

    Raises:
        UnknownNameError: the state has no such mean.
    """
    known = [str(k).removesuffix("_weight") for k in state if str(k).endswith("_weight")]
    if name not in known:
        raise UnknownNameError("name", name, known)
    weight = state[f"{name}_weight"]
    mean = state[f"{name}_sum"] / weight.where(weight > 0)
    return mean.assign_attrs(state[f"{name}_sum"].attrs).rename(name)


def total_over(state: xr.Dataset, dim: str | Sequence[str]) -> xr.Dataset:
    """The state with one dimension, or several, summed away.

    Raises:
        ArgumentError: the state has not kept it.
    """
    for name in [dim] if isinstance(dim, str) else dim:
        if name not in state.dims:
            raise ArgumentError(
                "dim", f"the state has no dimension {name!r}, only {set(state.dims)}"
            )
    return state.sum(dim, skipna=False, keep_attrs=True)
