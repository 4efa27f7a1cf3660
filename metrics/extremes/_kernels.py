"""Compiled loops over points that rank members among the sorted quantiles of their climate.

Blocks of points are copied to a buffer that fits the L1 cache, and checked on the way. The place
of a member is the number of quantiles below it: counting them all, for many points at once, is
faster than a search in each. Everything after the comparison is in float64.
"""

import math

import numba
import numpy as np

from ens10.compiled import OPTIONS

BLOCK = 64  # points: with 101 quantiles 26 KB in float32
FINE, UNSORTED, PARTLY_NAN = 0, 1, 2
_TO_SHARE = 2 / np.pi


@numba.njit(**OPTIONS)
def _take(q, first, last, block, descents):  # type: ignore[no-untyped-def]
    """Copy the quantiles of a block, and count at each point the pairs that do not ascend."""
    descents[:] = 0
    block[:, last - first :] = 0
    for k in range(q.shape[0]):
        for p in range(last - first):
            block[k, p] = q[k, first + p]
    for k in range(1, q.shape[0]):
        for p in range(descents.size):
            descents[p] += np.int32(1) - np.int32(block[k, p] >= block[k - 1, p])


@numba.njit(**OPTIONS)
def _state_of(block, p):  # type: ignore[no-untyped-def]
    """Return the status of quantiles that do not ascend; all NaN means a point without climate."""
    missing = 0
    for k in range(block.shape[0]):
        missing += np.isnan(block[k, p])
    if missing == block.shape[0]:
        return FINE
    return PARTLY_NAN if missing else UNSORTED


@numba.njit(**OPTIONS)
def inspect(q):  # type: ignore[no-untyped-def]
    """Check that the quantiles (K, N) ascend; return a status code and the first bad point."""
    block, descents = np.empty((q.shape[0], BLOCK), q.dtype), np.empty(BLOCK, np.int32)
    for first in range(0, q.shape[1], BLOCK):
        last = min(first + BLOCK, q.shape[1])
        _take(q, first, last, block, descents)
        for p in range(last - first):
            if descents[p] and _state_of(block, p):
                return _state_of(block, p), first + p
    return FINE, 0


@numba.njit(**OPTIONS)
def _count(block, x, places):  # type: ignore[no-untyped-def]
    """Count the quantiles below a member (equal ones are not below)."""
    places[:] = 0
    for k in range(block.shape[0]):
        for p in range(places.size):
            places[p] += np.int32(block[k, p] < x[p])


@numba.njit(**OPTIONS)
def _share(block, p, j, x, below, above):  # type: ignore[no-untyped-def]
    """Return 2/pi arcsin sqrt(u) for the climate's linear cdf u, computed from the nearer end."""
    top = below.size
    if j == 0 or j == top:
        u, v = below[max(j - 1, 0)], above[max(j - 1, 0)]
    else:
        lower, upper, value = np.float64(block[j - 1, p]), np.float64(block[j, p]), np.float64(x)
        slope = (below[j] - below[j - 1]) / (upper - lower)
        u, v = below[j - 1] + (value - lower) * slope, above[j] + (upper - value) * slope
    if u <= v:
        return _TO_SHARE * math.asin(math.sqrt(u))
    return 1 - _TO_SHARE * math.asin(math.sqrt(v))


@numba.njit(**OPTIONS)
def exact(x, q, below, above, skip, out):  # type: ignore[no-untyped-def]
    """Write the exact EFI of members (M, N) with climate quantiles (K, N) to out (N,).

    Args:
        x: members.
        q: quantiles.
        below: their levels p, (K,).
        above: 1 - p.
        skip: True to leave out missing members.
        out: float64.

    Returns:
        A status code, as `inspect` returns it, and the point.
    """
    block, descents = np.empty((q.shape[0], BLOCK), q.dtype), np.empty(BLOCK, np.int32)
    member, places = np.zeros(BLOCK, x.dtype), np.empty(BLOCK, np.int32)
    total, count = np.empty(BLOCK), np.empty(BLOCK, np.int32)
    for first in range(0, x.shape[1], BLOCK):
        last = min(first + BLOCK, x.shape[1])
        _take(q, first, last, block, descents)
        total[:], count[:] = 0, 0
        for i in range(x.shape[0]):
            member[: last - first] = x[i, first:last]
            _count(block, member, places)
            for p in range(last - first):
                if not np.isnan(member[p]):
                    count[p] += 1
                    total[p] += _share(block, p, places[p], member[p], below, above)
        for p in range(last - first):
            if descents[p] and _state_of(block, p):
                return _state_of(block, p), first + p
            bad = descents[p] or count[p] == 0 or (count[p] < x.shape[0] and not skip)
            out[first + p] = np.nan if bad else 2 * total[p] / count[p] - 1
    return FINE, 0


@numba.njit(**OPTIONS)
def operational(x, q, tables, epsilon, skip, out):  # type: ignore[no-untyped-def]
    """Write ECMWF's operational EFI of members (M, N) with climate quantiles (K, N) to out (N,).

    Args:
        x: members.
        q: quantiles.
        tables: of `efi.operational_tables`, (3, K + 1).
        epsilon: intervals of the climate that end at or below it are left out; NaN for none.
        skip: True to leave out missing members.
        out: float64.

    Returns:
        A status code, as `inspect` returns it, and the point.
    """
    block, descents = np.empty((q.shape[0], BLOCK), q.dtype), np.empty(BLOCK, np.int32)
    member, places = np.zeros(BLOCK, x.dtype), np.empty(BLOCK, np.int32)
    total, count = np.empty(BLOCK), np.empty(BLOCK, np.int32)
    start = np.empty(BLOCK, np.int32)
    with_epsilon = not np.isnan(epsilon)
    for first in range(0, x.shape[1], BLOCK):
        last = min(first + BLOCK, x.shape[1])
        _take(q, first, last, block, descents)
        total[:], count[:], start[:] = 0, 0, 0
        if with_epsilon:
            for k in range(1, q.shape[0]):
                for p in range(BLOCK):
                    start[p] += np.int32(block[k, p] <= epsilon)
        for i in range(x.shape[0]):
            member[: last - first] = x[i, first:last]
            _count(block, member, places)
            for p in range(last - first):
                if not np.isnan(member[p]):
                    count[p] += 1
                    inside = places[p] > start[p]
                    total[p] += tables[0, places[p]] if inside else tables[1, start[p]]
        for p in range(last - first):
            if descents[p] and _state_of(block, p):
                return _state_of(block, p), first + p
            bad = descents[p] or count[p] == 0 or (count[p] < x.shape[0] and not skip)
            most = tables[2, start[p]]
            scale = max(most, epsilon) if with_epsilon else np.pi / 2
            out[first + p] = np.nan if bad else (total[p] / count[p] + most) / scale
    return FINE, 0


@numba.njit(**OPTIONS)
def staircase(member_quantiles, q, out):  # type: ignore[no-untyped-def]
    """Write the EFI as the ENS-10 authors computed it to out (N,).

    Args:
        member_quantiles: quantiles of the members, (K, N).
        q: quantiles of the climate at the same levels, (K, N).
        out: float64.
    """
    K = q.shape[0]
    for p in range(q.shape[1]):
        total, first = 0.0, 0
        for k in range(1, K - 1):
            while first < K - 1 and member_quantiles[first, p] < q[k, p]:
                first += 1
            level = k / (K - 1)
            total += (level - first / (K - 1)) / math.sqrt(level * (1 - level))
        out[p] = total * 2 / np.pi / (K - 1)


@numba.njit(**OPTIONS)
def crossing(x, q, partners, out):  # type: ignore[no-untyped-def]
    """Write the crossing-point forecast to out (N,).

    Args:
        x: members of each point, sorted, (M, N).
        q: quantiles at K evenly spaced levels, (K, N).
        partners: (K,), for each level the first member of the upper half whose level is not lower;
            M if there is none.
        out: float64.
    """
    M, K = x.shape[0], q.shape[0]
    for p in range(x.shape[1]):
        above, value = False, 0.0
        highest = np.float64(q[K - 1, p])
        for k in range(1, K - 1):
            c, i = np.float64(q[k, p]), partners[k]
            above = above or (i > M // 2 and x[i - 1, p] >= c)
            if i == M or not above:
                continue
            if x[i, p] < c:
                value = (i + 0.5) / M
                break
            if i == M - 1 and x[i, p] > c and highest > c:
                part = (np.float64(x[i, p]) - c) / (highest - c)
                value = min((k + part * (K - 1 - k)) / (K - 1), 1.0)
        out[p] = np.nan if np.isnan(x[M - 1, p]) or np.isnan(highest) else value
