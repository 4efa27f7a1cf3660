"""Compiled choice of the k largest weights at each point, and the gradient that judges it."""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ens10.compiled import OPTIONS
from ens10.models.layers.smoe._rows import incorrect

_POINTS = 32  # at a time: the keys of all experts stay in the nearest cache
_INDEX = 16  # bits of a key that hold the expert


@numba.njit(**OPTIONS)
def _keys(bits, expert, keys):  # type: ignore[no-untyped-def]
    """Integers in the order of the numbers, NaN last, and of equal ones the first expert last."""
    for p in range(bits.size):
        value: Any = np.int64(bits[p])
        size = value & 0x7FFFFFFF
        key = size if value >= 0 else -size
        key = 0x7FFFFFFF if size > 0x7F800000 else key
        keys[p] = (key << _INDEX) | expert


def _exchanging(typing, keys, low, high):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Puts the lower key of each of the points into row `low`, the other into row `high`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        line = ir.VectorType(ir.IntType(64), _POINTS)
        width = ir.Constant(values[1].type, _POINTS)
        places = [
            builder.bitcast(builder.gep(array.data, [builder.mul(row, width)]), line.as_pointer())
            for row in values[1:]
        ]
        u, v = (builder.load(place, align=8) for place in places)
        below = builder.icmp_signed("<", u, v)
        builder.store(builder.select(below, u, v), places[0], align=8)
        builder.store(builder.select(below, v, u), places[1], align=8)
        return context.get_dummy_value()

    return types.void(keys, low, high), generate


_exchange: Any = intrinsic(_exchanging)


@numba.njit(**OPTIONS)
def choose(bits, pairs, band, chosen):  # type: ignore[no-untyped-def]
    """The experts of the k largest weights in order; of equal ones the first.

    Args:
        bits: (E, P) float32 as int32.
        pairs: exchanges of a sorting network that bring the k largest to the end.
        band: first point and the one after the last.
        chosen: (P, k), written.
    """
    E, k = bits.shape[0], chosen.shape[1]
    keys = np.zeros((E, _POINTS), np.int64)
    for start in range(band[0], band[1], _POINTS):
        n = min(_POINTS, band[1] - start)
        for e in range(E):
            _keys(bits[e, start : start + n], E - 1 - e, keys[e, :n])
        for q in range(pairs.shape[0]):
            _exchange(keys, pairs[q, 0], pairs[q, 1])
        for r in range(k):
            for p in range(n):
                chosen[start + p, r] = E - 1 - (keys[E - 1 - r, p] & (2**_INDEX - 1))


@numba.njit(**OPTIONS)
def _others(values, others, factor):  # type: ignore[no-untyped-def]
    for w in range(values.size):
        values[w] = (values[w] - others[w]) * factor


@numba.njit(**OPTIONS)
def _count(judged, h, area, limits, half, allowed, share):  # type: ignore[no-untyped-def]
    """Adds the number of samples in which each choice of row h was incorrect to share (k, W)."""
    N, k, _, W = judged.shape
    for n in range(N):
        for r in range(k):
            for w in range(W):
                wrong = incorrect(judged[n, r, h, w], area[h, w], limits[n], half, allowed)
                share[r, w] += 1 if wrong else 0


@numba.njit(**OPTIONS)
def classify(gradient, chosen, judged, area, limits, half, allowed, factor, band):  # type: ignore[no-untyped-def]
    """The classification gradient of a map of weights, see `classification_gradient`.

    Args:
        gradient: (E, H, W) sigmoid(R), replaced.
        chosen: (H, W, k) indices.
        judged: (N, k, H, W) gradients of the output of the samples with this map.
        area: (H, W) or negative; see `incorrect`, also for the next three.
        limits: (N,).
        half: factor of errors.
        allowed: errors.
        factor: of the gradient.
        band: first row and the one after the last.
    """
    E, _, W = gradient.shape
    N, k = judged.shape[:2]
    share, others = np.zeros((k, W), gradient.dtype), np.zeros(W, gradient.dtype)
    for h in range(band[0], band[1]):
        share[:], others[:] = 0, 0
        _count(judged, h, area, limits, half, allowed, share)
        for r in range(k):
            for w in range(W):
                share[r, w] /= N
                others[w] += share[r, w]
        for w in range(W):
            others[w] /= max(E - k, 1)
        for e in range(E):
            _others(gradient[e, h], others, factor)
        for w in range(W):
            for r in range(k):
                gradient[chosen[h, w, r], h, w] += (others[w] - (1 - share[r, w])) * factor
