"""Compiled derivatives of the ensemble CRPS by members and observations."""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS
from ens10.metrics.ensemble._compiled import FEW, begin, put, take
from ens10.metrics.ensemble._lines import LINE, slopes_line
from ens10.metrics.ensemble._network import exchanges
from ens10.metrics.ensemble._walk import Held, held, walk

_BLOCK = 256  # points at a time
Array = npt.NDArray[np.floating[Any]]


@numba.njit(**OPTIONS)
def _multiply(values, grad, total):  # type: ignore[no-untyped-def]
    """Times the derivative of what the scores went into; less its sum over members for y."""
    for p in range(values.size):
        value = values[p] * grad[p]
        values[p] = value
        total[p] -= value


@numba.njit(**OPTIONS)
def _write(slopes, n, grad, way, between, by_x, by_y, total):  # type: ignore[no-untyped-def]
    """A block of derivatives; `way` has the places and steps of by_x and by_y."""
    total[:n] = 0
    for m in range(slopes.shape[0]):
        _multiply(slopes[m, :n], grad[:n], total[:n])
        put(slopes[m, :n], by_x, way[0] + m * between, way[1])
    put(total[:n], by_y, way[2], way[3])


@numba.njit(**OPTIONS)
def _few(x, y, grad, shape, steps, firsts, betweens, by, members, by_x, by_y):  # type: ignore[no-untyped-def]
    M, size, step = len(members), shape[-1], steps[0, -1]
    places = np.zeros(5, np.int64)
    kept, slopes = np.zeros(M * LINE, x.dtype), np.zeros((M, _BLOCK), x.dtype)
    flat = slopes.reshape(-1)
    observed, outer = np.zeros(_BLOCK, x.dtype), np.zeros(_BLOCK, x.dtype)
    total = np.zeros(_BLOCK, x.dtype)
    for row in range(np.prod(shape[:-1])):
        begin(row, shape, steps, firsts, places)
        for start in range(0, size, _BLOCK):
            n = min(_BLOCK, size - start)
            take(y, places[1] + start * steps[1, -1], steps[1, -1], observed[:n])
            take(grad, places[2] + start * steps[2, -1], steps[2, -1], outer[:n])
            for p in range(0, n, LINE):
                first = places[0] + (start + p) * step
                if step == 1 and p + LINE <= n:
                    slopes_line(x, first, betweens[0], observed, p, flat, _BLOCK, by, members)
                else:
                    for m in range(M):
                        part = kept[m * LINE : m * LINE + min(LINE, n - p)]
                        take(x, first + m * betweens[0], step, part)
                    slopes_line(kept, 0, LINE, observed, p, flat, _BLOCK, by, members)
            ahead = (places[3] + start * steps[3, -1], steps[3, -1])
            way = (*ahead, places[4] + start * steps[4, -1], steps[4, -1])
            _write(slopes, n, outer, way, betweens[1], by_x, by_y, total)


@numba.njit(**OPTIONS)
def _subtract(row, observed):  # type: ignore[no-untyped-def]
    for p in range(row.size):
        row[p] -= observed[p]


@numba.njit(**OPTIONS)
def _exchange(low, high, origin, other):  # type: ignore[no-untyped-def]
    for p in range(low.size):
        u, v, i, j = low[p], high[p], origin[p], other[p]
        turned = v < u
        low[p] = v if turned else u
        high[p] = u if turned else v
        origin[p] = j if turned else i
        other[p] = i if turned else j


@numba.njit(**OPTIONS)
def _hand_back(sorted_, origin, rank, by, slopes):  # type: ignore[no-untyped-def]
    """The derivative of one order statistic, to the member that it is."""
    for p in range(sorted_.size):
        side = by[0] if sorted_[p] > 0 else by[2]
        side = -by[0] if sorted_[p] < 0 else side
        slopes[origin[p], p] = side - rank * by[1]


@numba.njit(**OPTIONS)
def _many(x, y, grad, shape, steps, firsts, betweens, by, pairs, by_x, by_y):  # type: ignore[no-untyped-def]
    M, size, step = int(by[3]), shape[-1], steps[0, -1]
    block = max(LINE, min(_BLOCK, 2**12 // M // LINE * LINE))
    places = np.zeros(5, np.int64)
    rows, slopes = np.zeros((M, block), x.dtype), np.zeros((M, block), x.dtype)
    origin = np.zeros((M, block), np.int32)
    observed, outer = np.zeros(block, x.dtype), np.zeros(block, x.dtype)
    total = np.zeros(block, x.dtype)
    for row in range(np.prod(shape[:-1])):
        begin(row, shape, steps, firsts, places)
        for start in range(0, size, block):
            n = min(block, size - start)
            take(y, places[1] + start * steps[1, -1], steps[1, -1], observed[:n])
            take(grad, places[2] + start * steps[2, -1], steps[2, -1], outer[:n])
            for m in range(M):
                origin[m, :n] = m
                take(x, places[0] + start * step + m * betweens[0], step, rows[m, :n])
                _subtract(rows[m, :n], observed[:n])
            for q in range(len(pairs)):
                i, j = pairs[q, 0], pairs[q, 1]
                _exchange(rows[i, :n], rows[j, :n], origin[i, :n], origin[j, :n])
            for k in range(M):
                rank = rows.dtype.type(2 * k - M + 1)
                _hand_back(rows[k, :n], origin[k, :n], rank, by, slopes)
            ahead = (places[3] + start * steps[3, -1], steps[3, -1])
            way = (*ahead, places[4] + start * steps[4, -1], steps[4, -1])
            _write(slopes, n, outer, way, betweens[1], by_x, by_y, total)


def gradients(x: Array, y: Array, grad: Array, factor: float) -> tuple[Array, Array]:
    """Derivatives of ensemble scores by members and observations, times `grad`.

    With M members sign(x_i - y) / M - factor / M^2 (members below x_i less members above), where
    up to 16 equal members share their places; 0 where a NaN is.

    Args:
        x: members first, (M, ...), float32 or float64; any strides.
        y: (...), of the same dtype.
        grad: like y.
        factor: the a of the spread term.

    Returns:
        By x, with axes in the order of x in memory, and by y.
    """
    M, points = x.shape[0], x.shape[1:]
    by_x, by_y = np.empty_like(x), np.empty(points, x.dtype)
    if not by_x.size:
        return by_x, by_y
    members, out = held(x), held(by_x, writeable=True)
    loops = [Held(a.memory, a.first, a.steps[1:]) for a in (members, out)]
    observed, outer = held(y), held(grad)
    way = walk(points, [loops[0], observed, outer, loops[1], held(by_y)])
    by = np.array([1 / M, factor / M**2, 0, M], x.dtype)
    loop: Any = _few if M <= FEW else _many
    network = (0,) * M if M <= FEW else exchanges(M)
    memory = (members.memory, observed.memory, outer.memory, way.shape, way.steps, way.firsts)
    betweens = np.array([members.steps[0], out.steps[0]])
    loop(*memory, betweens, by, network, out.memory, by_y.reshape(-1))
    return by_x, by_y
