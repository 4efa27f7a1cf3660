"""Compiled choice of the k largest weights at each point."""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ens10.compiled import OPTIONS
from ens10.metrics.ensemble._network import exchanges

_POINTS = 32  # at a time: the keys of all experts stay in the nearest cache
_INDEX = 16  # bits of a key that hold the expert
# Keys are compared as doubles, for which processors have faster instructions: added to integers
# of less than 51 bits this gives normal positive numbers in the same order.
_AS_DOUBLE = 0x4338 << 48
_AHEAD = 128  # points


def _key(b: Any, value: Any, expert: Any) -> Any:
    """Keys in the order of the numbers, NaN last, and of equal ones the first expert last."""
    narrow, points = value.type, value.type.count
    wide = ir.VectorType(ir.IntType(64), points)

    def of(number: int, vector: Any = narrow) -> Any:
        return ir.Constant(vector, [ir.Constant(vector.element, number)] * points)

    size = b.and_(value, of(0x7FFFFFFF))
    key = b.select(b.icmp_signed("<", value, of(0)), b.sub(of(0), size), size)
    key = b.select(b.icmp_signed(">", size, of(0x7F800000)), of(0x7FFFFFFF), key)
    low = b.add(expert, ir.Constant(ir.IntType(64), _AS_DOUBLE))
    whole = b.insert_element(of(0, wide), low, ir.Constant(ir.IntType(32), 0))
    whole = b.shuffle_vector(whole, whole, of(0, ir.VectorType(ir.IntType(32), points)))
    return b.add(b.shl(b.sext(key, wide), of(_INDEX, wide)), whole)


def _ordered(b: Any, u: Any, v: Any) -> tuple[Any, Any]:
    """The lower and the higher of each two keys, given as doubles."""
    kind = ir.FunctionType(u.type, [u.type, u.type])
    names = (f"llvm.{name}.v{u.type.count}f64" for name in ("minnum", "maxnum"))
    # not by a select: of one that is stored LLVM makes a masked store, which is slow
    lower, higher = (cgutils.get_or_insert_function(b.module, kind, name) for name in names)
    return (b.call(lower, [u, v], fastmath=("nnan",)), b.call(higher, [u, v], fastmath=("nnan",)))


def _keying(typing, bits, first, expert, keys, at):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Keys of one expert at _POINTS points."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        narrow, wide = (ir.VectorType(ir.IntType(n), _POINTS) for n in (32, 64))

        def place(n: int, vector: Any) -> Any:
            array = context.make_array(signature.args[n])(context, builder, values[n])
            return builder.bitcast(builder.gep(array.data, [values[n + 1]]), vector.as_pointer())

        value = builder.load(place(0, narrow), align=4)
        builder.store(_key(builder, value, values[2]), place(3, wide), align=8)
        return context.get_dummy_value()

    return types.void(bits, first, expert, keys, at), generate


def _exchanging(typing, keys, low, high):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Puts the lower of each two keys into the row that begins at `low`, the other at `high`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        line = ir.VectorType(ir.DoubleType(), _POINTS).as_pointer()
        places = [builder.bitcast(builder.gep(array.data, [row]), line) for row in values[1:]]
        pair = (builder.load(place, align=8) for place in places)
        for key, place in zip(_ordered(builder, *pair), places, strict=True):
            builder.store(key, place, align=8)
        return context.get_dummy_value()

    return types.void(keys, low, high), generate


def _besting(typing, bits, first, apart, groups, keys, group, points):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The largest keys of all experts in order, as many as a group has, kept in registers.

    Every group is sorted; the larger half of it and those found so far is sorted again.
    """
    g, n = group.count, points.count

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        b, long = builder, ir.IntType(64)
        narrow, line = ir.VectorType(ir.IntType(32), n), ir.VectorType(ir.DoubleType(), n)
        weights, found = (
            context.make_array(signature.args[i])(context, b, values[i]).data for i in (0, 4)
        )
        lowest = ir.Constant(line, [ir.Constant(line.element, 0.0)] * n)
        best = [cgutils.alloca_once_value(b, lowest) for _ in range(g)]

        def exchange(some: list[Any], i: int, j: int) -> None:
            some[i], some[j] = _ordered(b, some[i], some[j])

        with cgutils.for_range(b, values[3]) as loop:
            new = []
            for i in range(g):
                expert = b.add(b.mul(loop.index, ir.Constant(long, g)), ir.Constant(long, i))
                place = b.gep(weights, [b.add(values[1], b.mul(expert, values[2]))])
                _prefetch(b, b.gep(place, [ir.Constant(long, _AHEAD)]))
                value = b.load(b.bitcast(place, narrow.as_pointer()), align=4)
                reverse = b.sub(ir.Constant(long, 2**_INDEX - 1), expert)
                new.append(b.bitcast(_key(b, value, reverse), line))
            for i, j in exchanges(g).tolist():
                exchange(new, i, j)
            top = [_ordered(b, b.load(best[i]), new[g - 1 - i])[1] for i in range(g)]
            distance = g // 2
            while distance:
                for i in range(g):
                    if not i & distance:
                        exchange(top, i, i + distance)
                distance //= 2
            for place, key in zip(best, top, strict=True):
                b.store(key, place)
        for i, place in enumerate(best):
            there = b.gep(found, [ir.Constant(long, (g - 1 - i) * n)])
            b.store(b.load(place), b.bitcast(there, line.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(bits, first, apart, groups, keys, group, points), generate


def _prefetch(b: Any, place: Any) -> None:
    """Asks for a number that will be needed: there are more streams than a processor foresees."""
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    function = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    b.call(function, [b.bitcast(place, byte), *(ir.Constant(word, n) for n in (0, 3, 1))])


_keys: Any = intrinsic(_keying)
_exchange: Any = intrinsic(_exchanging)
_best: Any = intrinsic(_besting)


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
def choose_few(bits, group, points, band, chosen):  # type: ignore[no-untyped-def]
    """As `choose`, for a k that the registers hold.

    Args:
        bits: (E, P) float32 as int32; a multiple of a group of experts.
        group: a tuple of a power of two length, k or more.
        points: a tuple as long as points are looked at together, not more than the band has.
        band: first point and the one after the last.
        chosen: (P, k), written.
    """
    E, P = bits.shape
    k, n, flat = chosen.shape[1], len(points), bits.reshape(-1)
    keys = np.zeros(len(group) * n, np.int64)
    for place in range(band[0], band[1], n):
        start = min(place, band[1] - n)  # the last points twice, if need be
        _best(flat, start, P, E // len(group), keys, group, points)
        for r in range(k):
            for p in range(n):
                chosen[start + p, r] = 2**_INDEX - 1 - (keys[r * n + p] & (2**_INDEX - 1))
