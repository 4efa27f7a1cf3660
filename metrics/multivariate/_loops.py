"""Compiled energy and variogram scores, over blocks that fit the cache."""

from typing import Any

import numba
import numpy as np

from ens10.compiled import OPTIONS

_POINTS = 256  # a block of points; times members and variables it stays in the second cache
_VARIABLES = 512  # a block of variables, whose sum of squares is in the arrays' own dtype


@numba.njit(**OPTIONS)
def over_points(x, factor, score):  # type: ignore[no-untyped-def]
    """Write scores of x, members less the observation (members, variables, points), to `score`."""
    M, D, N = x.shape
    squares, total = np.empty(_POINTS), np.empty(_POINTS)
    for first in range(0, N, _POINTS):
        n = min(_POINTS, N - first)
        total[:n] = 0.0
        for i in range(M):
            for j in range(i, M):  # j = i stands for the observation, which is 0
                squares[:n] = 0.0
                for d in range(D):
                    one, other = x[i, d, first : first + n], x[j, d, first : first + n]
                    if i == j:
                        for k in range(n):
                            squares[k] += np.float64(one[k]) * np.float64(one[k])
                    else:
                        for k in range(n):
                            gap = np.float64(one[k]) - np.float64(other[k])
                            squares[k] += gap * gap
                share = 1.0 / M if i == j else -factor / (M * M)
                for k in range(n):
                    total[k] += share * np.sqrt(squares[k])
        score[first : first + n] = total[:n]


# Sums may be taken in any order, which vector units need; NaN and infinity keep their meaning.
@numba.njit(**OPTIONS, fastmath={"reassoc", "contract", "nsz"})
def over_variables(x, factor, score):  # type: ignore[no-untyped-def]
    """Write scores of x with the points first, (points, members, variables), to `score`."""
    N, M, D = x.shape
    squares = np.empty((M, M))
    zero = x.dtype.type(0)
    for n in range(N):
        squares[:] = 0.0
        for first in range(0, D, _VARIABLES):
            last = min(first + _VARIABLES, D)
            for i in range(M):
                one = x[n, i, first:last]
                part = zero
                for d in range(last - first):
                    part += one[d] * one[d]
                squares[i, i] += part
                for j in range(i):
                    other = x[n, j, first:last]
                    part = zero
                    for d in range(last - first):
                        gap = one[d] - other[d]
                        part += gap * gap
                    squares[i, j] += part
        total = 0.0
        for i in range(M):
            total += np.sqrt(squares[i, i]) / M
            for j in range(i):
                total -= factor / (M * M) * np.sqrt(squares[i, j])
        score[n] = total


# A block is copied once, so that the points of one variable and member are neighbours.
_COPIED_POINTS = 64


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
    missing = np.isnan(x).any(axis=(0, 1)) | np.isnan(y).any(axis=0)
    score = np.where(missing, np.nan, 0.0)  # also where a NaN has no weight
    block = np.empty((D, M + 1, _COPIED_POINTS))
    for first in range(0, N, _COPIED_POINTS):
        last = min(first + _COPIED_POINTS, N)
        block[:, :M, : last - first] = np.moveaxis(x[:, :, first:last], 0, 1)
        block[:, M, : last - first] = y[:, first:last]
        _add_pairs(block[:, :, : last - first], pairs, order, fair, score[first:last])
    return score


@numba.njit(**OPTIONS)
def _power(difference, order):  # type: ignore[no-untyped-def]
    """Return |difference|^order; the usual orders without the slower `pow`."""
    size = abs(difference)
    if order == 0.5:
        return np.sqrt(size)
    if order == 1.0:
        return size
    if order == 2.0:
        return size * size
    return size**order


@numba.njit(**OPTIONS)
def _add_pairs(block, pairs, order, fair, score):  # type: ignore[no-untyped-def]
    """Add the contributions of all pairs of variables to the scores of a block of points.

    `block` is (variables, members and last the observation, points).
    """
    D, n = block.shape[0], block.shape[2]
    M = block.shape[1] - 1
    of_y, total, squares = np.empty(n), np.empty(n), np.empty(n)
    for k in range(D):
        for m in range(k):
            if pairs[k, m] == 0.0:
                continue
            for p in range(n):
                of_y[p] = _power(block[k, M, p] - block[m, M, p], order)
                total[p], squares[p] = 0.0, 0.0
            for i in range(M):
                for p in range(n):
                    d = _power(block[k, i, p] - block[m, i, p], order) - of_y[p]
                    total[p] += d
                    squares[p] += d * d
            for p in range(n):
                mean = total[p] / M
                value = mean * mean
                if fair:
                    value -= (squares[p] / M - mean * mean) / (M - 1)
                score[p] += pairs[k, m] * value
