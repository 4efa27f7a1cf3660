"""Compiled energy scores: distances of all pairs in one pass over blocks that fit the cache."""

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
