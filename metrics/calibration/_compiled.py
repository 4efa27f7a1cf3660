"""Compiled loops over points, for numpy arrays whose members come first."""

import numba
import numpy as np

from ens10.compiled import OPTIONS

_TILE = 1024  # points


@numba.njit(**OPTIONS)
def count_below(x, y, below, equal, present):  # type: ignore[no-untyped-def]
    """Count the members below each observation, equal to it, and present (not NaN).

    Args:
        x: members, (M, points).
        y: observations, (points,).
        below: output, (points,) of int32 zeros.
        equal: output, the same shape and dtype.
        present: output, the same shape and dtype; 0 where the observation is NaN.
    """
    M, points = x.shape
    for first in range(0, points, _TILE):  # the counts stay in the nearest cache
        # as arrays of their own, or the loop is not vectorised
        last = first + _TILE
        observed, valid = y[first:last], present[first:last]
        under, same = below[first:last], equal[first:last]
        for m in range(M):
            members = x[m, first:last]
            for p in range(observed.size):
                value, truth = members[p], observed[p]
                under[p] += np.int32(value < truth)
                same[p] += np.int32(value == truth)
                valid[p] += np.int32((value == value) & (truth == truth))


@numba.njit(**OPTIONS)
def add_counts(index, counts):  # type: ignore[no-untyped-def]
    """Count each index in its row; -1 counts in the last column.

    Args:
        index: (rows, points), integers.
        counts: output, (rows, columns) float64; the counts are added to it.
    """
    rows, points = index.shape
    for row in range(rows):
        for p in range(points):
            counts[row, index[row, p]] += 1.0


@numba.njit(**OPTIONS)
def add_alpha_beta(x, w, alpha, beta, low, high):  # type: ignore[no-untyped-def]
    """Add the weighted alpha and beta of Hersbach (2000) of points to sums over bins.

    Args:
        x: members less the observation, (M, rows, points); not read where w is 0.
        w: weights, (rows, points).
        alpha: output, (rows, M + 1) float64; the sums of alpha are added to it.
        beta: output, (rows, M + 1) float64; the sums of beta are added to it.
        low: output, (rows,); the weight of observations below all members is added to it.
        high: output, (rows,); the weight of observations above all members is added to it.
    """
    M, rows, points = x.shape
    sorted_x = np.empty(M, x.dtype)
    for row in range(rows):
        for p in range(points):
            weight = np.float64(w[row, p])
            if weight == 0:
                continue
            for m in range(M):  # insertion sort: M is small
                value, k = x[m, row, p], m
                while k > 0 and sorted_x[k - 1] > value:
                    sorted_x[k] = sorted_x[k - 1]
                    k -= 1
                sorted_x[k] = value
            if sorted_x[0] > 0:
                beta[row, 0] += weight * sorted_x[0]
                low[row] += weight
            for m in range(1, M):
                a, b = np.float64(sorted_x[m - 1]), np.float64(sorted_x[m])
                inside = min(max(0.0, a), b)
                alpha[row, m] += weight * (inside - a)
                beta[row, m] += weight * (b - inside)
            if sorted_x[M - 1] < 0:
                alpha[row, M] -= weight * sorted_x[M - 1]
                high[row] += weight
