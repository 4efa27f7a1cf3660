"""The shift of tails (SOT): how far the tail of a forecast reaches beyond that of the climate."""

from functools import partial
from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._dispatch import Array
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.extremes._input import (
    bare,
    check_climate,
    checked_levels,
    member_quantiles,
    over_points,
    place_of,
    sorted_members,
)

MOST = 10.0  # shifts beyond are cut, as in ECMWF's products


def sot(
    members: Any,
    climate: Any,
    *,
    level: int,
    tail: int | None = None,
    member_dim: Dim,
    quantile_dim: Dim,
    levels: Any = None,
    epsilon: float | None = None,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Shift of tails: above 0 where a tenth of the members lies beyond the climate's tail.

    (Qf90 - Qc99) / (Qc99 - Qc90) for `level` 90 and (Qf10 - Qc1) / (Qc1 - Qc10) for 10, with the
    quantiles of the forecast (linear between its members) and of the climate; -1 where both have
    the same quantile at `level` (Zsoter 2006, ECMWF Newsletter 107). Values beyond -10 and 10 are
    cut to these. Where the denominator is 0 (a climate that does not vary in its tail, such as a
    dry one) there is no shift: NaN.
    Tensors are computed on the host, without gradient.

    Args:
        members: the ensemble, two or more.
        climate: quantiles of the model climate, ascending, in the unit of the members; see `efi`.
        level: in percent, such as 90 or 10; not 50.
        tail: in percent, further out than `level`; None for 99 or 1.
        member_dim: the member axis: a number for arrays, a name for DataArrays.
        quantile_dim: the quantile axis of the climate.
        levels: of the quantiles, in [0, 1]; None takes the coordinate `quantile_dim`.
        epsilon: for precipitation, above 0: members, and the climate at `level`, that are less
            count as 0, and a denominator that is not larger as 0.
        dim: dimensions of a weighted mean; None for the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.

    Returns:
        The shifts, without unit, as the kind of array that was given.

    Raises:
        ArgumentError: one member; levels that the climate lacks; other units or coordinates;
            quantiles that do not ascend or are NaN in part (lazy arrays: when computed).
    """
    far = (99 if level > 50 else 1) if tail is None else tail
    if not (50 < level < far <= 100 or 0 <= far < level < 50):
        raise ArgumentError(
            "level", f"{level} with tail {far}, in percent", "Give 90 with 99 or 10 with 1, say"
        )
    if epsilon is not None and not 0 < epsilon < np.inf:
        raise ArgumentError("epsilon", f"{epsilon} is not above 0")
    found = checked_levels(members, climate, member_dim, quantile_dim, levels)
    places = place_of(found, level / 100), place_of(found, far / 100)
    shift = apply(
        Score("sot", "shift of tails", _sot, units=False),
        {"members": members, "climate": bare(climate)},
        {"members": [member_dim], "climate": [quantile_dim]},
        options={"level": level / 100, "places": places, "epsilon": epsilon or 0.0},
        attrs={"level": level, "tail": far},
    )
    return mean_over(shift, dim, weights, nan)


def _sot(members: Array, climate: Array, **options: Any) -> Array:
    return over_points(partial(_points, **options), members, climate)


def _points(
    x: Array, q: Array, level: float, places: tuple[int, int], epsilon: float
) -> Array:  # fmt: skip
    check_climate(q)
    if epsilon > 0:
        x = np.where(x < epsilon, x.dtype.type(0), x)
    ordered, there = sorted_members(x)
    own = member_quantiles(ordered, there, np.array([level]))[0]
    inner, tail = (q[n].astype(np.float64) for n in places)
    if epsilon > 0:
        inner = np.where(inner < epsilon, 0.0, inner)
    width = tail - inner
    known = (there == x.shape[0]) & (np.abs(width) > epsilon)
    shift = np.full(x.shape[1], np.nan)
    np.divide(own - tail, width, out=shift, where=known)
    cut: Array = np.clip(shift, -MOST, MOST).astype(x.dtype)
    return cut
