"""Compiled variogram scores, in float64 because the difference of powers cancels."""

from typing import Any

import numba
import numpy as np

from ens10.compiled import OPTIONS

_POINTS = 64  # a block, copied once so that the points of one variable and member are neighbours


def variogram_scores(x: Any, y: Any, pairs: Any, order: float, fair: bool) -> Any:
    """Return variogram scores.

    Args:
        x: members, (members, variables, points).
        y: observations, (variables, points).
        pairs: weights of pairs of variables, both ways added, (variables, variables).
        order: exponent p of the differences.
        fair: True to subtract the sampling variance of the members.

    Returns:
        Shape (points,), float64.
    """
    M, D, N = x.shape
    unknown = np.isnan(x).any(axis=(0, 1)) | np.isnan(y).any(axis=0)
    score = np.where(unknown, np.nan, 0.0)  # also where a NaN has no weight
    block = np.empty((D, M + 1, _POINTS))
    for first in range(0, N, _POINTS):
        last = min(first + _POINTS, N)
        block[:, :M, : last - first] = np.moveaxis(x[:, :, first:last], 0, 1)
        block[:, M, : last - first] = y[:, first:last]
        _add(block[:, :, : last - first], pairs, order, fair, score[first:last])
    return score


@numba.njit(**OPTIONS)
def _power(gap, order):  # type: ignore[no-untyped-def]
    size = abs(gap)
    if order == 0.5:
        return np.sqrt(size)
    if order == 1.0:
        return size
    if order == 2.0:
        return size * size
    return size**order


@numba.njit(**OPTIONS)
def _add(block, pairs, order, fair, score):  # type: ignore[no-untyped-def]
    D, n = block.shape[0], block.shape[2]
    M = block.shape[1] - 1
    truth, total, squares = np.empty(n), np.empty(n), np.empty(n)
    for k in range(D):
        for m in range(k):
            if pairs[k, m] == 0.0:
                continue
            for p in range(n):
                truth[p] = _power(block[k, M, p] - block[m, M, p], order)
                total[p], squares[p] = 0.0, 0.0
            for i in range(M):
                for p in range(n):
                    away = _power(block[k, i, p] - block[m, i, p], order) - truth[p]
                    total[p] += away
                    squares[p] += away * away
            for p in range(n):
                mean = total[p] / M
                value = mean * mean
                if fair:
                    value -= (squares[p] / M - mean * mean) / (M - 1)
                score[p] += pairs[k, m] * value
