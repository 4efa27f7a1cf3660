"""Compiled CRPS of ensembles and its gradient, in blocks of points that fit the L1 cache.

A block contains the members less the observation, one row per member. Rows are padded to a
multiple of four, so that four or eight rows at a time stay in the processor's registers. All inner
loops run over points with constant stride, so that the compiler uses vector instructions. The
interpreter lock is released; compiled code is cached on disk.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS
from ens10.metrics import _few_member_loops as few
from ens10.metrics._sorting_networks import exchanges, minmax

# of a block: 10 members (12 rows) are 12 KB in single precision, and the L1 cache has 32 KB or more
POINTS = 256
Array = npt.NDArray[Any]


@numba.njit(**OPTIONS)
def sort_four(rows):  # type: ignore[no-untyped-def]
    """Sort four rows at each point."""
    n = POINTS
    for p in range(n):
        a, b = minmax(rows[p], rows[n + p])
        c, d = minmax(rows[2 * n + p], rows[3 * n + p])
        a, c = minmax(a, c)
        b, d = minmax(b, d)
        b, c = minmax(b, c)
        rows[p], rows[n + p], rows[2 * n + p], rows[3 * n + p] = a, b, c, d


@numba.njit(**OPTIONS)
def _sort_bitonic(a, b, c, d):  # type: ignore[no-untyped-def]
    """Sort four numbers that first rise and then fall, or are a rotation of such numbers."""
    a, c = minmax(a, c)
    b, d = minmax(b, d)
    a, b = minmax(a, b)
    c, d = minmax(c, d)
    return a, b, c, d


@numba.njit(**OPTIONS)
def merge_fours(low, high):  # type: ignore[no-untyped-def]
    """Merge two sorted groups of four rows: the four lowest to `low`, the others to `high`."""
    n = POINTS
    for p in range(n):
        a, h = minmax(low[p], high[3 * n + p])
        b, g = minmax(low[n + p], high[2 * n + p])
        c, f = minmax(low[2 * n + p], high[n + p])
        d, e = minmax(low[3 * n + p], high[p])
        low[p], low[n + p], low[2 * n + p], low[3 * n + p] = _sort_bitonic(a, b, c, d)
        high[p], high[n + p], high[2 * n + p], high[3 * n + p] = _sort_bitonic(e, f, g, h)


@numba.njit(**OPTIONS)
def sort_rows(rows, merges):  # type: ignore[no-untyped-def]
    """Sort groups of four rows, then merge the groups by a sorting network of groups."""
    four = 4 * POINTS
    for first in range(0, rows.size, four):
        sort_four(rows[first : first + four])
    for q in range(len(merges)):
        i, j = merges[q, 0] * four, merges[q, 1] * four
        merge_fours(rows[i : i + four], rows[j : j + four])


@numba.njit(**OPTIONS)
def _centre(members, y, row, distance):  # type: ignore[no-untyped-def]
    for p in range(row.size):
        gap = members[p] - y[p]
        row[p] = gap
        distance[p] += abs(gap)


@numba.njit(**OPTIONS)
def _add_gap(high, low, weight, total):  # type: ignore[no-untyped-def]
    for p in range(total.size):
        total[p] += (high[p] - low[p]) * weight


@numba.njit(**OPTIONS)
def _divide(distance, spread, M):  # type: ignore[no-untyped-def]
    for p in range(distance.size):
        distance[p] /= M
    for p in range(spread.size):
        spread[p] /= M * M


@numba.njit(**OPTIONS)
def _subtract(distance, spread, factor, out):  # type: ignore[no-untyped-def]
    for p in range(out.size):
        out[p] = distance[p] - factor * spread[p]


@numba.njit(**OPTIONS)
def _crps(x, y, factor, out, merges):  # type: ignore[no-untyped-def]
    """CRPS of the ensembles at points that lie one after the other in memory.

    Args:
        x: members, (M, P).
        y: observations, (P,).
        factor: of the spread term.
        out: output, (P,).
        merges: sorting network of the groups of four members.
    """
    M, P = x.shape
    kind, n = x.dtype.type, POINTS
    rows = np.empty((M + 3) // 4 * 4 * n, x.dtype)
    sums = np.empty((2, n), x.dtype)
    for start in range(0, P, n):
        stop = min(start + n, P)
        size = stop - start
        distance, spread = sums[0, :size], sums[1, :size]
        distance[:], spread[:] = 0, 0
        rows[(M - 1) * n :] = np.inf  # rows that fill the last group are sorted to the end
        for m in range(M):
            _centre(x[m, start:stop], y[start:stop], rows[m * n : m * n + size], distance)
        sort_rows(rows, merges)
        for k in range(M // 2):  # the sum of (2k - M + 1) x_(k), in pairs so that less cancels
            low, high = k * n, (M - 1 - k) * n
            share = kind(M - 1 - 2 * k)
            _add_gap(rows[high : high + size], rows[low : low + size], share, spread)
        _divide(distance, spread, kind(M))
        _subtract(distance, spread, factor, out[start:stop])


@numba.njit(**OPTIONS)
def _side(u, v):  # type: ignore[no-untyped-def]
    """Return 1, 0 or -1 for u above, equal to or below v; 0 for NaN."""
    return np.int32(u > v) - np.int32(u < v)


@numba.njit(**OPTIONS)
def _count_four(x, four, count):  # type: ignore[no-untyped-def]
    """Add the sides of x on which four rows lie."""
    n = POINTS
    for p in range(n):
        u = x[p]
        count[p] += (_side(u, four[p]) + _side(u, four[n + p])) + (
            _side(u, four[2 * n + p]) + _side(u, four[3 * n + p])
        )


@numba.njit(**OPTIONS)
def _chain(x, count, grad, side, pair, by_x, by_y):  # type: ignore[no-untyped-def]
    """Compute the derivatives by one member, times `grad`, and subtract them from those by y."""
    kind = x.dtype.type
    for p in range(by_x.size):
        slope = kind(_side(x[p], kind(0))) * side - kind(count[p]) * pair
        slope *= grad[p]
        by_x[p] = slope
        by_y[p] -= slope


@numba.njit(**OPTIONS)
def _gradients(x, y, grad, side, pair, by_x, by_y):  # type: ignore[no-untyped-def]
    """Derivatives of a flat piece: sign(x_i - y) side - (members below less above x_i) pair."""
    M, P = x.shape
    n = POINTS
    rows = np.empty((M + 3) // 4 * 4 * n, x.dtype)
    count, scratch = np.empty(n, np.int32), np.zeros(n, x.dtype)
    rows[(M - 1) * n :] = np.nan  # rows that fill the last group are on neither side
    for start in range(0, P, n):
        stop = min(start + n, P)
        size = stop - start
        for m in range(M):
            _centre(x[m, start:stop], y[start:stop], rows[m * n : m * n + size], scratch[:size])
        total = by_y[start:stop]
        total[:] = 0
        for m in range(M):
            row = rows[m * n : (m + 1) * n]
            count[:] = 0
            for four in range(0, rows.size, 4 * n):
                _count_four(row, rows[four : four + 4 * n], count)
            upstream, by_member = grad[start:stop], by_x[m, start:stop]
            _chain(row[:size], count[:size], upstream, side, pair, by_member, total)


@lru_cache(maxsize=64)
def merges_of(M: int) -> npt.NDArray[np.int64]:
    """Return the sorting network of the groups of four of M members."""
    return exchanges(-(-M // 4))


def crps(x: Array, y: Any, factor: float) -> Array:
    """Return the CRPS of ensembles.

    Args:
        x: members first, (M, ...), float32 or float64; any memory layout.
        y: observations that broadcast to (...), of the same dtype.
        factor: the a of the spread term.
    """
    points = x.ndim - 1
    x, axes = np.require(x, requirements="A"), in_memory_order(x, points)
    back = np.argsort(np.array(axes[1:], np.int64))
    order = tuple(axis - 1 for axis in axes[1:])
    x, y = x.transpose(axes), np.broadcast_to(y, x.shape[1:]).transpose(order)
    out = np.empty(x.shape[1:], x.dtype)
    if y.size:
        kind = x.dtype.type
        for (members, observed), (scores,) in flat_pieces([x, y], [out], points):
            is_few = len(x) <= few.MOST and members.strides[-1] == x.itemsize
            loop, how = (few.crps, (0,) * len(x)) if is_few else (_crps, merges_of(len(x)))
            loop(members, contiguous(observed), kind(factor), scores, how)
    return out.transpose(back)


def gradients(x: Array, y: Array, grad: Array, factor: float) -> tuple[Array, Array]:
    """Return the derivatives of ensemble scores by members and observations, times `grad`.

    With M members sign(x_i - y) / M - factor / M^2 (members below x_i less members above), where
    equal members share their places; 0 where a NaN is.

    Args:
        x: members first, (M, ...), float32 or float64; any memory layout.
        y: (...), of the same dtype.
        grad: like y.
        factor: the a of the spread term.

    Returns:
        By x, with axes in the order of x in memory, and by y.
    """
    M, points = x.shape[0], x.ndim - 1
    axes = in_memory_order(x, points)
    back = np.argsort(np.array(axes, np.int64))
    order = tuple(axis - 1 for axis in axes[1:])
    x, y, grad = x.transpose(axes), y.transpose(order), grad.transpose(order)
    by_x, by_y = np.empty_like(x), np.empty(x.shape[1:], x.dtype)
    side, pair = x.dtype.type(1 / M), x.dtype.type(factor / M**2)
    if x.size:
        for (members, observed, outer), results in flat_pieces([x, y, grad], [by_x, by_y], points):
            inputs = members, contiguous(observed), contiguous(outer)
            _gradients(*inputs, side, pair, *results)
    return by_x.transpose(back), by_y.transpose(back[1:] - 1)


_SMALL = 2**20  # numbers: copying a smaller piece takes less time than calls for its parts


def in_memory_order(array: Array, points: int) -> tuple[int, ...]:
    """Return the axes of an array, its last `points` axes sorted by decreasing stride."""
    lead = array.ndim - points
    tail = sorted(range(lead, array.ndim), key=lambda axis: -abs(array.strides[axis]))
    return (*range(lead), *tail)


def flat_pieces(
    inputs: Sequence[Array], outputs: Sequence[Array], points: int
) -> Iterator[tuple[list[Array], list[Array]]]:
    """Split arrays along their first point axes until the rest is flat in memory.

    Args:
        inputs: arrays whose last `points` axes have one shape; copied where a small piece is not
            flat. Their pieces are read-only.
        outputs: likewise; their pieces are always views.
        points: number of point axes.

    Yields:
        The pieces of inputs and of outputs, their point axes joined into one.
    """
    arrays = [*inputs, *outputs]
    if not all(_is_flat(a, points) for a in outputs) or not (
        inputs[0].size <= _SMALL or all(_is_flat(a, points) for a in inputs)
    ):
        for part in zip(*(np.moveaxis(a, a.ndim - points, 0) for a in arrays), strict=True):
            yield from flat_pieces(part[: len(inputs)], part[len(inputs) :], points - 1)
        return
    flat = [a.reshape(*a.shape[: a.ndim - points], -1) for a in arrays]
    for a in flat[: len(inputs)]:
        a.flags.writeable = False  # one type for the compiler, whatever the caller holds
    yield flat[: len(inputs)], flat[len(inputs) :]


def _is_flat(array: Array, points: int) -> bool:
    """Return True if the point axes can be joined without a copy."""
    axes = [axis for axis in range(array.ndim - points, array.ndim) if array.shape[axis] > 1]
    return all(array.strides[a] == array.strides[b] * array.shape[b] for a, b in pairwise(axes))


def contiguous(array: Array) -> Array:
    """Return an aligned array whose numbers lie side by side, read-only; a copy if need be."""
    array = np.require(array, requirements=["C", "A"]).view()
    array.flags.writeable = False
    return array
