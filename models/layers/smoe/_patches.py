"""What a point's chosen experts do with its patch, kept in the processor's registers.

A patch is what a filter sees: for each row of the filter a run of columns x channels numbers that
lie together. numba's loops would load and store every number for every expert; written in LLVM's
own terms (as the loops in `ens10.streaming`), the patch is loaded once and stays in vector
registers while the experts come by. The products of four experts are added up together.

The layout is known to the compiler from the lengths of three tuples: runs, vectors in a run and
numbers in a vector. Sums are added in another order than in a convolution.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_FUSED = ("contract",)  # a * b + c may round once
_TOGETHER = 4  # experts


class _Patch:
    """Vectors of a patch and of filters, in arrays of one type of number."""

    def __init__(self, context: Any, builder: Any, signature: Any, values: Any) -> None:
        self.context, self.builder = context, builder
        self.kinds, self.values = signature.args, values
        self.runs, self.vectors, self.lanes = (given.count for given in signature.args[-1])
        self.align = signature.args[0].dtype.bitwidth // 8
        self.kind = context.get_value_type(signature.args[0].dtype)

    def wide(self, lanes: int) -> Any:
        return ir.VectorType(self.kind, lanes)

    def add(self, place: Any, constant: int) -> Any:
        return self.builder.add(place, ir.Constant(place.type, constant))

    def pointer(self, n: int, place: Any) -> Any:
        """To a number of argument n, an array."""
        array = self.context.make_array(self.kinds[n])(self.context, self.builder, self.values[n])
        return self.builder.gep(array.data, [place])

    def vector(self, n: int, place: Any, lanes: int) -> Any:
        return self.builder.bitcast(self.pointer(n, place), self.wide(lanes).as_pointer())

    def load(self, n: int, place: Any, lanes: int | None = None) -> Any:
        return self.builder.load(self.vector(n, place, lanes or self.lanes), align=self.align)

    def store(self, vector: Any, n: int, place: Any) -> None:
        self.builder.store(vector, self.vector(n, place, vector.type.count), align=self.align)

    def number(self, n: int, place: Any) -> Any:
        """One number of an array; integers as places."""
        value = self.builder.load(self.pointer(n, place))
        kind: Any = self.kinds[n].dtype
        if kind not in types.integer_domain or kind.bitwidth == 64:
            return value
        widen = self.builder.sext if kind.signed else self.builder.zext
        return widen(value, ir.IntType(64))

    def spread(self, scalar: Any) -> Any:
        """The scalar in every lane."""
        whole = ir.Constant(self.wide(self.lanes), ir.Undefined)
        zero = ir.Constant(ir.IntType(32), 0)
        whole = self.builder.insert_element(whole, scalar, zero)
        return self.shuffled(whole, whole, [0] * self.lanes)

    def shuffled(self, one: Any, two: Any, lanes: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
        return self.builder.shuffle_vector(one, two, mask)

    def fused(self, one: Any, two: Any, total: Any) -> Any:
        product = self.builder.fmul(one, two, flags=_FUSED)
        return self.builder.fadd(total, product, flags=_FUSED)

    def patch_places(self, rows: int, first: int, at: int) -> list[Any]:
        """Of a patch's vectors: arguments with the runs' places, the first run, the column."""
        b, found = self.builder, []
        for run in range(self.runs):
            start = self.number(rows, self.add(self.values[first], run))
            start = b.add(start, self.values[at])
            found += [self.add(start, v * self.lanes) for v in range(self.vectors)]
        return found

    def filter_places(self, chosen: int, place: Any, filters: int) -> list[Any]:
        """Of a chosen expert's vectors: arguments `filters`, then its first number, its size."""
        b = self.builder
        start = b.mul(self.number(chosen, place), self.values[filters + 2])
        start = b.add(start, self.values[filters + 1])
        return [self.add(start, n * self.lanes) for n in range(self.runs * self.vectors)]

    def pairs(self, one: Any, two: Any) -> Any:
        """Neighbouring lanes added up: those of `one`, then those of `two`."""
        count = 2 * one.type.count if two is not None else one.type.count
        two = one if two is None else two
        even = self.shuffled(one, two, list(range(0, count, 2)))
        return self.builder.fadd(even, self.shuffled(one, two, list(range(1, count, 2))))

    def sums(self, vectors: list[Any]) -> Any:
        """The sums of the lanes of one, two or four vectors, as one vector."""
        while len(vectors) > 1:
            vectors = [self.pairs(a, b) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
        (total,) = vectors
        return total

    def reduced(self, vectors: list[Any]) -> Any:
        count, total = len(vectors), self.sums(vectors)
        while total.type.count > count:
            total = self.pairs(total, None)
        return total


def _dots(typing, out, o, x, rows, first, at, chosen, c, count, filters, start, size, layout):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Adds to out[o + r] the product of the patch and the chosen expert r, for r below count.

    Args:
        typing: of numba.
        out: numbers for each chosen expert.
        o: place of the first.
        x: where the patch is.
        rows: places in `x` where rows begin.
        first: the row of the first run.
        at: numbers from there to the patch.
        chosen: indices of experts.
        c: place of the first.
        count: of chosen experts.
        filters: of all experts.
        start: of an expert's numbers, those that the patch is to be multiplied with.
        size: numbers of an expert.
        layout: of the patch.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        p, b = _Patch(context, builder, signature, values), builder
        patch = [p.load(2, place) for place in p.patch_places(3, 4, 5)]

        def some(rank: Any, number: int) -> None:
            totals = []
            for n in range(number):
                places = p.filter_places(6, p.add(b.add(values[7], rank), n), 9)
                total = b.fmul(patch[0], p.load(9, places[0]))
                for vector, place in zip(patch[1:], places[1:], strict=True):
                    total = p.fused(vector, p.load(9, place), total)
                totals.append(total)
            place = b.add(values[1], rank)
            p.store(b.fadd(p.load(0, place, number), p.reduced(totals)), 0, place)

        four = ir.Constant(values[8].type, _TOGETHER)
        whole = b.udiv(values[8], four)
        with cgutils.for_range(b, whole) as loop:
            some(b.mul(loop.index, four), _TOGETHER)
        with cgutils.for_range(b, b.urem(values[8], four)) as loop:
            some(b.add(b.mul(whole, four), loop.index), 1)
        return context.get_dummy_value()

    arguments = (out, o, x, rows, first, at, chosen, c, count, filters, start, size, layout)
    return types.void(*arguments), generate


def _to_patch(typing, x, rows, first, at, chosen, c, count, filters, start, size, by, g, layout):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Adds to the patch by[g + r] times the chosen expert r; arguments as those of `_dots`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        p, b = _Patch(context, builder, signature, values), builder
        zero = ir.Constant(p.wide(p.lanes), [ir.Constant(p.kind, 0.0)] * p.lanes)
        totals = [cgutils.alloca_once_value(b, zero) for _ in range(p.runs * p.vectors)]
        with cgutils.for_range(b, values[6]) as loop:
            factor = p.spread(p.number(10, b.add(values[11], loop.index)))
            places = p.filter_places(4, b.add(values[5], loop.index), 7)
            for total, place in zip(totals, places, strict=True):
                b.store(p.fused(factor, p.load(7, place), b.load(total)), total)
        for total, place in zip(totals, p.patch_places(1, 2, 3), strict=True):
            p.store(b.fadd(p.load(0, place), b.load(total)), 0, place)
        return context.get_dummy_value()

    arguments = (x, rows, first, at, chosen, c, count, filters, start, size, by, g, layout)
    return types.void(*arguments), generate


def _to_filters(typing, x, rows, first, at, chosen, c, count, filters, start, size, by, g, layout):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Adds to each chosen expert r the patch times by[g + r]; arguments as those of `_dots`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        p, b = _Patch(context, builder, signature, values), builder
        patch = [p.load(0, place) for place in p.patch_places(1, 2, 3)]
        with cgutils.for_range(b, values[6]) as loop:
            factor = p.spread(p.number(10, b.add(values[11], loop.index)))
            places = p.filter_places(4, b.add(values[5], loop.index), 7)
            for vector, place in zip(patch, places, strict=True):
                p.store(p.fused(factor, vector, p.load(7, place)), 7, place)
        return context.get_dummy_value()

    arguments = (x, rows, first, at, chosen, c, count, filters, start, size, by, g, layout)
    return types.void(*arguments), generate


dots: Any = intrinsic(_dots)
to_patch: Any = intrinsic(_to_patch)
to_filters: Any = intrinsic(_to_filters)
