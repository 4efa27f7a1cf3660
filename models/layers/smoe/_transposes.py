"""Rows of a field from channels first to channels last and back, a square of numbers at a time.

A square is transposed in the processor's registers. numba's loops would load or store numbers one
by one, each in another line of the cache.
"""

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ens10.compiled import OPTIONS


def _transposed(builder: Any, vectors: list[Any]) -> list[Any]:
    """Lane j of vector i to lane i of vector j, for as many vectors as lanes."""
    count, vectors, distance = len(vectors), list(vectors), 1
    word = ir.IntType(32)
    while distance < count:  # squares of four blocks: the two off the diagonal change places
        first = [n if not n & distance else count + (n ^ distance) for n in range(count)]
        second = [n ^ distance if not n & distance else count + n for n in range(count)]
        for i in range(count):
            if not i & distance:
                pair = vectors[i], vectors[i | distance]
                for place, lanes in ((i, first), (i | distance, second)):
                    mask = ir.Constant(ir.VectorType(word, count), lanes)
                    vectors[place] = builder.shuffle_vector(*pair, mask)
        distance *= 2
    return vectors


def _square(add: bool) -> Any:
    """target[t + j beside + i] = source[s + i apart + j], or added to it."""

    def typed(typing, source, s, apart, target, t, beside, lanes):  # type: ignore[no-untyped-def]  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds, lanes = signature.args, signature.args[-1].count
            wide = ir.VectorType(context.get_value_type(kinds[0].dtype), lanes).as_pointer()

            def places(n: int) -> list[Any]:
                """Of the vectors in argument n, from the two arguments after it."""
                array, found, place = context.make_array(kinds[n]), [], values[n + 1]
                data = array(context, builder, values[n]).data
                for _ in range(lanes):
                    found.append(builder.bitcast(builder.gep(data, [place]), wide))
                    place = builder.add(place, values[n + 2])
                return found

            align = kinds[0].dtype.bitwidth // 8
            vectors = [builder.load(place, align=align) for place in places(0)]
            for place, vector in zip(places(3), _transposed(builder, vectors), strict=True):
                total = builder.fadd(builder.load(place, align=align), vector) if add else vector
                builder.store(total, place, align=align)
            return context.get_dummy_value()

        return types.void(source, s, apart, target, t, beside, lanes), generate

    return intrinsic(typed)


_copy, _add = _square(False), _square(True)


@numba.njit(**OPTIONS)
def to_columns(rows, at, apart, C, W, line, place, size, lanes):  # type: ignore[no-untyped-def]
    """line[place + w size + c] = rows[at + c apart + w], for C channels and W columns.

    `lanes` is a tuple as long as a side of the squares.
    """
    n = len(lanes)
    channels, columns = C - C % n, W - W % n
    for w in range(0, columns, n):
        for c in range(0, channels, n):
            _copy(rows, at + c * apart + w, apart, line, place + w * size + c, size, lanes)
    for c in range(C):
        for w in range(columns if c < channels else 0, W):
            line[place + w * size + c] = rows[at + c * apart + w]


@numba.njit(**OPTIONS)
def from_columns(line, place, size, rows, at, apart, C, W, lanes):  # type: ignore[no-untyped-def]
    """The reverse of `to_columns`."""
    n = len(lanes)
    channels, columns = C - C % n, W - W % n
    for w in range(0, columns, n):
        for c in range(0, channels, n):
            _copy(line, place + w * size + c, size, rows, at + c * apart + w, apart, lanes)
    for c in range(C):
        for w in range(columns if c < channels else 0, W):
            rows[at + c * apart + w] = line[place + w * size + c]


@numba.njit(**OPTIONS)
def add_columns(line, place, size, rows, at, apart, C, W, lanes):  # type: ignore[no-untyped-def]
    """As `from_columns`, but added to what is in the rows."""
    n = len(lanes)
    channels, columns = C - C % n, W - W % n
    for w in range(0, columns, n):
        for c in range(0, channels, n):
            _add(line, place + w * size + c, size, rows, at + c * apart + w, apart, lanes)
    for c in range(C):
        for w in range(columns if c < channels else 0, W):
            rows[at + c * apart + w] += line[place + w * size + c]
