"""Additive states: sums over points that add over dates, blocks, processes, files and groups.

A `Statistic` turns arrays of points into sums; a `Metric` is a pure function of sums (both are in
`statistic.py`). Sums over disjoint sets of points add (`state_merging.merge_states`); only a metric
divides.

A state is a Dataset whose variables are sums. The state of a weighted mean called `crps` is three
variables over the dimensions that are kept: `crps_sum` (sum of weight times score), `crps_weight`
(sum of weights) and `crps_count` (number of points). A dimension of a state is one that was kept
(`time`, `step`, `level`, `latitude`, ...), one of groups (`latitude_band`, `surface`, `season`,
...), whose coordinate holds their names, or one of bins (`rank`, `bin`, ...).
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.metrics._dispatch import fill_masked
from ens10.metrics._sums import ratio, weighted_sums
from ens10.metrics.groups import By, crossed_shares, sums_by_group
from ens10.metrics.statistic import Metric, Part, PointStatistic, StateVariable, Statistic

__all__ = [
    "PARTS",
    "Metric",
    "NanPolicy",
    "Part",
    "PointStatistic",
    "StateVariable",
    "Statistic",
    "finish_mean",
    "group_state",
    "mean_state",
    "skill_score",
    "total_over",
]
NanPolicy = Literal["omit", "propagate"]
PARTS = ("sum", "weight", "count")  # of the state of a mean


def mean_state(
    name: str,
    score: xr.DataArray,
    *,
    keep: str | Sequence[str] = (),
    weights: xr.DataArray | None = None,
    nan: NanPolicy = "omit",
    by: By = None,
) -> xr.Dataset:
    """Return the additive state (sums) of a weighted mean; lazy where the score is.

    Args:
        name: name of the mean; prefix of the three variables.
        score: the values of the points.
        keep: dimension or dimensions that are not summed over. To group dates, keep `time` and
            call `group_state` on the merged state of all dates.
        weights: over some of the dimensions of `score`, at least 0; 1 everywhere if None.
        nan: "omit" leaves missing points and their weights out; "propagate" returns NaN sums if
            a point is missing.
        by: groups of points that are summed separately, such as `latitude_bands` or `land_sea`, or
            several of them, crossed; each is a further dimension. A point's weight is multiplied
            by its share in the group.

    Returns:
        `{name}_sum`, `{name}_weight` (float64) and `{name}_count` (int64) over `keep` and the
        groups. A point counts in every group that it has a share in.

    Examples:
        >>> import xarray
        >>> from ens10.metrics import finish_mean, mean_state, merge_states
        >>> crps = xarray.DataArray([[1.0, 2.0], [3.0, 6.0]], dims=("time", "x"))
        >>> states = [mean_state("crps", crps[t], keep=()) for t in (0, 1)]
        >>> float(finish_mean(merge_states(states), "crps"))
        3.0

    Raises:
        UnknownNameError: an unknown policy for NaN.
        ArgumentError: weights or groups on other coordinates than the score's or with dimensions
            that it lacks; negative or missing weights; a kept dimension that does not exist.
    """
    if nan not in get_args(NanPolicy):
        raise UnknownNameError("nan", nan, get_args(NanPolicy))
    score, weights = fill_masked(score), fill_masked(weights)
    keep = [keep] if isinstance(keep, str) else keep
    for dim in keep:
        if dim not in score.dims:
            raise ArgumentError("keep", f"{name} has no dimension {dim!r}, only {score.dims}")
    dims = [str(d) for d in score.dims if d not in keep]
    if weights is not None:
        check_fits("weights", weights, score)
        _check_weights(weights)
    share = crossed_shares(by, score)

    def add(values: xr.DataArray, dims: list[str]) -> xr.DataArray:
        return sums_by_group(values, share, dims)

    # what neither weights nor groups depend on is summed first, in one pass over the points
    w = xr.DataArray(1.0) if weights is None else weights.drop_attrs()
    factors = {*w.dims, *(() if share is None else share.dims)}
    free, dims = [d for d in dims if d not in factors], [d for d in dims if d in factors]
    values = score.drop_attrs()
    number = values.count(free).astype(np.float64)
    values = values.fillna(0.0) if nan == "omit" else values
    rows = values.sum(free, skipna=False, dtype=np.float64)
    total, weight = weighted_sums(rows, w, dims, number=number, add=add)
    count = sums_by_group(number, None if share is None else share > 0, dims)
    attrs = {k: v for k, v in score.attrs.items() if k in ("units", "estimator")}
    parts = (total.assign_attrs(attrs), weight, count.round().astype(np.int64))
    return xr.Dataset({f"{name}_{part}": f for part, f in zip(PARTS, parts, strict=True)})


def check_fits(argument: str, array: xr.DataArray, score: xr.DataArray) -> None:
    """Refuse coordinates that xarray would align silently, dropping points.

    Raises:
        ArgumentError: dimensions that the score lacks, or other coordinates.
    """
    extra = sorted(set(map(str, array.dims)) - set(map(str, score.dims)))
    if extra:
        raise ArgumentError(argument, f"dimensions {extra} that the score lacks")
    for dim in array.dims:
        index, other = score.indexes.get(dim), array.indexes.get(dim)
        same_size = array.sizes[dim] == score.sizes[dim]
        if not same_size or (index is not None and other is not None and not index.equals(other)):
            raise ArgumentError(
                argument,
                f"its {dim} ({array.sizes[dim]}) is not that of the score ({score.sizes[dim]})",
                "Make it for the score's own coordinates, in their order",
            )


def _check_weights(weights: xr.DataArray) -> None:
    if weights.chunks is None and not bool((weights >= 0).all()):
        raise ArgumentError(
            "weights", "negative or missing values", "Use weight 0 to leave a point out"
        )


def group_state(state: xr.Dataset, by: By, *, over: Sequence[str] | None = None) -> xr.Dataset:
    """Sum a state over groups of the points of its dimensions, such as seasons of dates.

    For example: `group_state(state, date_groups(state, "season"))`.

    Args:
        state: a state with the dimensions of the groups.
        by: groups, such as `date_groups`, `latitude_bands` or `group_masks`, or several of them,
            crossed. Their shares must be 0 or 1, so that counts stay whole numbers.
        over: dimensions that are summed over; None for all dimensions of the groups, () to split
            the state without a sum.

    Returns:
        The state with the groups as dimensions in place of `over`. Variables without any of the
        dimensions in `over`, such as the maps of all dates, are left out.

    Raises:
        ArgumentError: a state without these dimensions, groups on different coordinates, shares
            between 0 and 1.
    """
    share = crossed_shares(by, None)
    if share is None:
        raise ArgumentError("by", "no groups are given")
    names = [str(share.dims[i]) for i in range(share.attrs["groups"])]
    within = [str(d) for d in share.dims if d not in names]
    if not bool(((share == 0) | (share == 1)).all()):
        raise ArgumentError("by", "shares between 0 and 1", "Pass them to mean_state as `by`")
    requested = within if over is None else list(over)
    grouped = {}
    for name, sums in state.items():
        dims = [d for d in requested if d in sums.dims]
        if dims or (not requested and set(within) <= set(sums.dims)):
            absent = [d for d in within if d not in sums.dims]
            if absent:
                raise ArgumentError("by", f"{name} has not kept {absent}, on which groups depend")
            check_fits("by", share.isel(dict.fromkeys(names, 0), drop=True), sums)
            grouped_sums = sums_by_group(sums.astype(np.float64), share, dims)
            grouped_sums = grouped_sums.round() if sums.dtype.kind in "iu" else grouped_sums
            grouped[name] = grouped_sums.astype(sums.dtype).assign_attrs(sums.attrs)
    if not grouped:
        raise ArgumentError("state", f"no variable has kept {requested}, only {dict(state.sizes)}")
    return xr.Dataset(grouped, attrs=state.attrs)


def finish_mean(state: xr.Dataset, name: str) -> xr.DataArray:
    """Return the mean `name` from its sums; NaN where the weights sum to 0.

    Raises:
        UnknownNameError: the state has no such mean.
    """
    names = [str(k).removesuffix("_weight") for k in state if str(k).endswith("_weight")]
    if name not in names:
        raise UnknownNameError("name", name, names)
    total = state[f"{name}_sum"]
    return ratio(total, state[f"{name}_weight"]).assign_attrs(total.attrs).rename(name)


def total_over(state: xr.Dataset, dim: str | Sequence[str]) -> xr.Dataset:
    """Sum a state over one dimension or several.

    Raises:
        ArgumentError: the state does not have the dimension.
    """
    for name in [dim] if isinstance(dim, str) else dim:
        if name not in state.dims:
            raise ArgumentError(
                "dim", f"the state has no dimension {name!r}, only {set(state.dims)}"
            )
    return state.sum(dim, skipna=False, keep_attrs=True)


def skill_score(state: xr.Dataset, reference: xr.Dataset, name: str) -> xr.DataArray:
    """Return the skill score 1 - mean / mean of the reference, from two states.

    The mean of the skill scores of dates or points is a different number: an easy date counts as
    much as a hard one, and a date on which the reference is nearly perfect can outweigh all
    others. Therefore sum over dates and points first (`total_over`, `group_state`) and call this
    function last. On the limits of skill scores see Wheatcroft 2019,
    doi:10.1016/j.ijforecast.2018.11.010.

    Args:
        state: state of the forecast; each point of its dimensions gets a skill score.
        reference: state of the reference, over the same dimensions.
        name: name of the mean, such as "crps".

    Returns:
        1 is perfect, 0 no better than the reference; NaN where either has no weight or the
        reference's mean is 0.

    Raises:
        MissingDataError: coordinates (dates, steps, groups) that only one of the two has.
        ArgumentError: the two were scored on different points, in other units, or by another
            estimator.
    """
    parts = [f"{name}_{part}" for part in PARTS]
    sums, reference_sums = state[parts], reference[parts]
    for key in ("units", "estimator"):
        a, b = (s[parts[0]].attrs.get(key) for s in (sums, reference_sums))
        if a is not None and b is not None and a != b:
            raise ArgumentError("reference", f"its {name} has other {key} ({b}) than {a}")
    reference_sums = _order_like(sums, reference_sums)
    check_same_points(sums, reference_sums, name)
    mean, reference_mean = finish_mean(sums, name), finish_mean(reference_sums, name)
    skill = 1.0 - mean / reference_mean.where(reference_mean != 0)
    attrs = {"units": "1", "long_name": f"skill score of the mean {name}"}
    return skill.drop_attrs().assign_attrs(attrs).rename(f"{name}_skill")


def check_same_points(state: xr.Dataset, reference: xr.Dataset, name: str) -> None:
    """Refuse a comparison of means of different points.

    Raises:
        ArgumentError: numbers or weights of points differ.
    """
    for part in ("count", "weight"):
        points, other = state[f"{name}_{part}"], reference[f"{name}_{part}"]
        same = points.sizes == other.sizes and np.allclose(
            points, other.transpose(*points.dims), rtol=1e-9
        )
        if not same:
            raise ArgumentError(
                "reference",
                f"its {name} has other points than the forecast's (their {name}_{part} differ)",
                "Mask the truth where either is missing, and weight both alike",
            )


def _order_like(state: xr.Dataset, other: xr.Dataset) -> xr.Dataset:
    """Return the other state with coordinates in the order of the first."""
    unpaired = []
    for dim, index in state.indexes.items():
        if dim not in other.indexes:
            unpaired.append(f"{dim} (only in the forecast)")
            continue
        for side, only in (
            ("forecast", index.difference(other.indexes[dim])),
            ("reference", other.indexes[dim].difference(index)),
        ):
            unpaired += [f"{dim} {str(v)[:19]} (only in the {side})" for v in only]
    unpaired += [f"{d} (only in the reference)" for d in set(other.dims) - set(state.dims)]
    if unpaired:
        raise MissingDataError("skill score", unpaired, "Score both on the same dates and points")
    return other.sel(dict(state.indexes.items())).transpose(*state.dims)
