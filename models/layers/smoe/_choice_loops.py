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


def _keying(typing, bits, first, expert, keys, at):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Integers in the order of the numbers, NaN last, and of equal ones the first expert last."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        narrow, wide = (ir.VectorType(ir.IntType(n), _POINTS) for n in (32, 64))

        def place(n: int, vector: Any) -> Any:
            array = context.make_array(signature.args[n])(context, builder, values[n])
            return builder.bitcast(builder.gep(array.data, [values[n + 1]]), vector.as_pointer())

        def of(number: int, vector: Any = narrow) -> Any:
            return ir.Constant(vector, [ir.Constant(vector.element, number)] * _POINTS)

        b, value = builder, builder.load(place(0, narrow), align=4)
        size = b.and_(value, of(0x7FFFFFFF))
        key = b.select(b.icmp_signed("<", value, of(0)), b.sub(of(0), size), size)
        key = b.select(b.icmp_signed(">", size, of(0x7F800000)), of(0x7FFFFFFF), key)
        whole = b.insert_element(of(0, wide), values[2], ir.Constant(ir.IntType(32), 0))
        whole = b.shuffle_vector(whole, whole, of(0))
        key = b.or_(b.shl(b.sext(key, wide), of(_INDEX, wide)), whole)
        b.store(key, place(3, wide), align=8)
        return context.get_dummy_value()

    return types.void(bits, first, expert, keys, at), generate


def _exchanging(typing, keys, low, high):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Puts the lower of each two keys into the row that begins at `low`, the other at `high`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        line = ir.VectorType(ir.IntType(64), _POINTS)
        places = [
            builder.bitcast(builder.gep(array.data, [row]), line.as_pointer()) for row in values[1:]
        ]
        u, v = (builder.load(place, align=8) for place in places)
        below = builder.icmp_signed("<", u, v)
        builder.store(builder.select(below, u, v), places[0], align=8)
        builder.store(builder.select(below, v, u), places[1], align=8)
        return context.get_dummy_value()

    return types.void(keys, low, high), generate


_keys: Any = intrinsic(_keying)
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
    keys, line = np.zeros((E + 1) * _POINTS, np.int64), np.zeros(_POINTS, np.int32)
    base = -keys.ctypes.data % 64 // 8  # a vector that crosses cache lines takes twice as long
    last = base + (E - 1) * _POINTS
    for start in range(band[0], band[1], _POINTS):
        n = min(_POINTS, band[1] - start)
        for e in range(E):
            if n == _POINTS:
                _keys(bits[e], start, E - 1 - e, keys, base + e * _POINTS)
            else:
                line[:n] = bits[e, start : start + n]
                _keys(line, 0, E - 1 - e, keys, base + e * _POINTS)
        for q in range(pairs.shape[0]):
            _exchange(keys, base + pairs[q, 0] * _POINTS, base + pairs[q, 1] * _POINTS)
        for r in range(k):
            for p in range(n):
                chosen[start + p, r] = E - 1 - (keys[last - r * _POINTS + p] & (2**_INDEX - 1))


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
