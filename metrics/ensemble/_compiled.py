"""Compiled loops of the ensemble CRPS: terms and derivatives, blocks of points in the cache.

Ensembles of few members are sorted in registers, larger ones row by row by the same sorting
network. All release the interpreter lock; the first call of a dtype (and number of members)
compiles, later processes find the result on disk.
"""

from functools import lru_cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS
from ens10.metrics.ensemble._lines import LINE, terms_line
from ens10.metrics.ensemble._network import exchanges
from ens10.metrics.ensemble._walk import held, walk

FEW = 16  # most members that are sorted in registers
_BLOCK = 512  # points at a time

Array = npt.NDArray[np.floating[Any]]


@numba.njit(**OPTIONS)
def begin(row, shape, steps, firsts, places):  # type: ignore[no-untyped-def]
    """Where a row of the walk begins in each array."""
    places[:] = firsts
    for axis in range(shape.size - 2, -1, -1):
        at = row % shape[axis]
        row //= shape[axis]
        for n in range(places.size):
            places[n] += at * steps[n, axis]


# Slices of one dimension let the compiler use vector instructions.
@numba.njit(**OPTIONS)
def _copy(values, out):  # type: ignore[no-untyped-def]
    for p in range(out.size):
        out[p] = values[p]


@numba.njit(**OPTIONS)
def take(memory, first, step, out):  # type: ignore[no-untyped-def]
    """Copies what lies `step` numbers apart, from `first` on."""
    if step == 1:
        _copy(memory[first : first + out.size], out)
    elif step == 0:
        out[:] = memory[first]
    else:
        for p in range(out.size):
            out[p] = memory[first + p * step]


@numba.njit(**OPTIONS)
def put(values, out, first, step):  # type: ignore[no-untyped-def]
    """Copies to where the numbers lie `step` apart, from `first` on."""
    if step == 1:
        _copy(values, out[first : first + values.size])
    else:
        for p in range(values.size):
            out[first + p * step] = values[p]


@numba.njit(**OPTIONS)
def _finish(distance, spread, by):  # type: ignore[no-untyped-def]
    for p in range(distance.size):
        distance[p] = distance[p] / by[0] - by[2] * (spread[p] / by[1])


@numba.njit(**OPTIONS)
def _divide(values, by):  # type: ignore[no-untyped-def]
    for p in range(values.size):
        values[p] /= by


@numba.njit(**OPTIONS)
def _write(distance, spread, by, whole, scores, spreads, first, step):  # type: ignore[no-untyped-def]
    """A block of scores, or of their two terms."""
    if whole:
        _finish(distance, spread, by)
    else:
        _divide(distance, by[0])
        _divide(spread, by[1])
        put(spread, spreads, first, step)
    put(distance, scores, first, step)


@numba.njit(**OPTIONS)
def _terms_few(x, y, shape, steps, firsts, between, by, whole, members, scores, spreads):  # type: ignore[no-untyped-def]
    M, size = len(members), shape[-1]
    places = np.zeros(3, np.int64)
    kept = np.zeros(M * LINE, x.dtype)
    observed, distance = np.zeros(_BLOCK, x.dtype), np.zeros(_BLOCK, x.dtype)
    spread = np.zeros(_BLOCK, x.dtype)
    for row in range(np.prod(shape[:-1])):
        begin(row, shape, steps, firsts, places)
        for start in range(0, size, _BLOCK):
            n = min(_BLOCK, size - start)
            take(y, places[1] + start * steps[1, -1], steps[1, -1], observed[:n])
            step = steps[0, -1]
            for p in range(0, n, LINE):
                first = places[0] + (start + p) * step
                if step == 1 and p + LINE <= n:
                    terms_line(x, first, between, observed, p, distance, spread, members)
                else:
                    for m in range(M):
                        part = kept[m * LINE : m * LINE + min(LINE, n - p)]
                        take(x, first + m * between, step, part)
                    terms_line(kept, 0, LINE, observed, p, distance, spread, members)
            at, along = places[2] + start * steps[2, -1], steps[2, -1]
            _write(distance[:n], spread[:n], by, whole, scores, spreads, at, along)


@numba.njit(**OPTIONS)
def _less(row, observed, distance):  # type: ignore[no-untyped-def]
    for p in range(row.size):
        gap = row[p] - observed[p]
        row[p] = gap
        distance[p] += abs(gap)


@numba.njit(**OPTIONS)
def _exchange(low, high):  # type: ignore[no-untyped-def]
    for p in range(low.size):
        u, v = low[p], high[p]
        low[p] = u if u < v else v
        high[p] = v if u < v else u


@numba.njit(**OPTIONS)
def _add_gap(high, low, weight, total):  # type: ignore[no-untyped-def]
    for p in range(total.size):
        total[p] += (high[p] - low[p]) * weight


@numba.njit(**OPTIONS)
def _terms_many(x, y, shape, steps, firsts, between, by, whole, pairs, scores, spreads):  # type: ignore[no-untyped-def]
    M, size = int(by[0]), shape[-1]
    block = max(LINE, min(_BLOCK, 2**13 // M // LINE * LINE))
    places = np.zeros(3, np.int64)
    rows = np.zeros((M, block), x.dtype)
    ranks = np.empty(M // 2, x.dtype)
    for k in range(M // 2):
        ranks[k] = M - 1 - 2 * k
    observed, distance = np.zeros(block, x.dtype), np.zeros(block, x.dtype)
    spread = np.zeros(block, x.dtype)
    for row in range(np.prod(shape[:-1])):
        begin(row, shape, steps, firsts, places)
        for start in range(0, size, block):
            n = min(block, size - start)
            take(y, places[1] + start * steps[1, -1], steps[1, -1], observed[:n])
            distance[:n] = 0
            spread[:n] = 0
            for m in range(M):
                first = places[0] + start * steps[0, -1] + m * between
                take(x, first, steps[0, -1], rows[m, :n])
                _less(rows[m, :n], observed[:n], distance[:n])
            for q in range(len(pairs)):
                _exchange(rows[pairs[q, 0], :n], rows[pairs[q, 1], :n])
            for k in range(M // 2):
                _add_gap(rows[M - 1 - k, :n], rows[k, :n], ranks[k], spread[:n])
            at, along = places[2] + start * steps[2, -1], steps[2, -1]
            _write(distance[:n], spread[:n], by, whole, scores, spreads, at, along)


@lru_cache(maxsize=64)
def _few(M: int) -> tuple[int, ...]:
    return (0,) * M


def scores(x: Array, y: Any, factor: float) -> Array:
    """CRPS of ensembles.

    Args:
        x: members first, (M, ...), float32 or float64; any strides.
        y: what broadcasts to (...), of the same dtype.
        factor: the a of the spread term.
    """
    return _terms(x, y, factor)[0]


def terms(x: Array, y: Any) -> tuple[Array, Array]:
    """Mean of |x_i - y|, and 1 / M^2 times the sum over pairs of |x_i - x_j|; see `scores`."""
    return _terms(x, y, None)


def _terms(x: Array, y: Any, factor: float | None) -> tuple[Array, Array]:
    M, points = x.shape[0], x.shape[1:]
    out = np.empty(points, x.dtype)
    spread = out if factor is not None else np.empty_like(out)
    if not out.size:
        return out, spread
    members, observed = held(x), held(np.broadcast_to(y, points))
    between, order = members.steps[0], _without_members(members)
    way = walk(points, [order, observed, held(out)])
    by = np.array([M, M**2, 0 if factor is None else factor], x.dtype)
    loop: Any = _terms_few if M <= FEW else _terms_many
    network = _few(M) if M <= FEW else exchanges(M)
    memory = (members.memory, observed.memory, way.shape, way.steps, way.firsts)
    loop(*memory, between, by, factor is not None, network, out.reshape(-1), spread.reshape(-1))
    return out, spread


def _without_members(members: Any) -> Any:
    return type(members)(members.memory, members.first, members.steps[1:])
