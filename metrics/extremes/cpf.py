"""The crossing-point forecast (CPF): the climate's level up to which a forecast warns."""

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
    check_even,
    checked_levels,
    over_points,
    read_only,
)

_FEWEST = 4


def cpf(
    members: Any,
    climate: Any,
    *,
    member_dim: Dim,
    quantile_dim: Dim,
    levels: Any = None,
    epsilon: float | None = None,
    symmetric: bool = False,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Crossing-point forecast: the level at which the cdfs of forecast and climate cross.

    Below it the forecast's quantiles exceed the climate's, from it on they do not: the rarest
    event that the forecast makes more likely than usual, as a level of the climate (Ben Bouallegue
    2021, doi:10.1080/16000870.2021.1913007). Found as in earthkit-meteo: the members of the upper
    half, at levels (i + 1/2) / M, are held against the climate's quantiles of the next lower
    level, and the crossing has the level of its member. Members that all lie above have the
    climate's cdf at the largest of them, linear over what the climate has beyond the last member's
    level; a forecast that nowhere exceeds the climate there has 0.
    Tensors are computed on the host, without gradient.

    Args:
        members: the ensemble, four or more.
        climate: quantiles of the model climate at evenly spaced levels from 0 to 1, ascending, in
            the unit of the members; see `efi`.
        member_dim: the member axis: a number for arrays, a name for DataArrays.
        quantile_dim: the quantile axis of the climate.
        levels: of the quantiles; None takes the coordinate `quantile_dim`.
        epsilon: forecasts whose members are all less have 0 (precipitation).
        symmetric: whether values below 1/2 are instead 1 less the CPF of the negated forecast and
            climate, so that both tails are told.
        dim: dimensions of a weighted mean; None for the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.

    Returns:
        Levels in [0, 1], as the kind of array that was given.

    Raises:
        ArgumentError: fewer than four members; other levels; other units or coordinates;
            quantiles that do not ascend or are NaN in part (lazy arrays: when computed); both
            `epsilon` and `symmetric`.
    """
    if epsilon is not None and symmetric:
        raise ArgumentError("epsilon", "it has no meaning in a symmetric CPF", "Give one of them")
    found = checked_levels(members, climate, member_dim, quantile_dim, levels)
    check_even(found, None, "a CPF")
    level = apply(
        Score("cpf", "crossing-point forecast", _cpf, units=False),
        {"members": members, "climate": bare(climate)},
        {"members": [member_dim], "climate": [quantile_dim]},
        options={"epsilon": epsilon, "symmetric": symmetric},
    )
    return mean_over(level, dim, weights, nan)


def _cpf(members: Array, climate: Array, epsilon: float | None, symmetric: bool) -> Array:
    if members.shape[0] < _FEWEST:
        raise ArgumentError(
            "members", f"{members.shape[0]} members have no upper half", "Give four or more"
        )
    return over_points(partial(_points, epsilon=epsilon, symmetric=symmetric), members, climate)


def _points(x: Array, q: Array, epsilon: float | None, symmetric: bool) -> Array:
    check_climate(q)
    ordered = np.sort(x, axis=0)  # NaN goes last
    level = _crossing(ordered, q)
    if symmetric:
        complete = ~np.isnan(ordered[-1])
        other = 1 - _crossing(-ordered[::-1], -q[::-1])
        level = np.where(complete & (level < 0.5), other, level)
    if epsilon is not None:
        level = np.where(ordered[-1] < epsilon, 0.0, level)
    return level.astype(x.dtype)


def _crossing(ordered: Array, q: Array) -> Array:
    from ens10.metrics.extremes import _kernels

    M, K = ordered.shape[0], q.shape[0]
    levels = (np.arange(M) + 0.5) / M
    # the first member of the upper half whose level is not below the quantile's
    partners = np.maximum(np.searchsorted(levels, np.arange(K) / (K - 1)), M // 2)
    level = np.empty(ordered.shape[1])
    _kernels.crossing(read_only(ordered), read_only(q), partners, level)
    return level
