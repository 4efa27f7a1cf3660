"""One line of points in the processor's registers: ensembles of few members, sorted there.

numba's loops over members would store and load every number for every exchange. With the number of
members known to the compiler, a sorting network needs two instructions for each exchange of a
whole line; numba has no word for that, so it is written here in LLVM's own terms (as the loops in
`ens10.streaming`). No operation is fused or put in another order: the scores are those that
numpy's operations give, bit for bit.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ens10.metrics.ensemble._network import exchanges

LINE = 16  # points at a time


class _Line:
    """Vectors of the type of a numba array's numbers, loaded from and stored to arrays."""

    def __init__(self, context: Any, builder: Any, kinds: Any, values: Any) -> None:
        self.context, self.builder, self.kinds, self.values = context, builder, kinds, values
        self.kind = context.get_value_type(kinds[0].dtype)
        self.vector = ir.VectorType(self.kind, LINE)
        self.align = kinds[0].dtype.bitwidth // 8
        name = f"llvm.fabs.v{LINE}f{8 * self.align}"
        size = ir.FunctionType(self.vector, [self.vector])
        self.size = builder.module.declare_intrinsic(name, fnty=size)

    def place(self, n: int, offset: Any) -> Any:
        """A pointer to the line that begins `offset` numbers into argument n."""
        array = self.context.make_array(self.kinds[n])(self.context, self.builder, self.values[n])
        first = self.builder.gep(array.data, [offset])
        return self.builder.bitcast(first, self.vector.as_pointer())

    def load(self, n: int, offset: Any) -> Any:
        return self.builder.load(self.place(n, offset), align=self.align)

    def store(self, vector: Any, n: int, offset: Any) -> None:
        self.builder.store(vector, self.place(n, offset), align=self.align)

    def of(self, value: float) -> Any:
        return ir.Constant(self.vector, [ir.Constant(self.kind, float(value))] * LINE)

    def centred(self, members: int) -> list[Any]:
        """Members less observations: of arguments x, first, between, y, at."""
        b, (_, first, between, _, at) = self.builder, self.values[:5]
        y = self.load(3, at)
        found = []
        for m in range(members):
            far = b.mul(between, ir.Constant(between.type, m))
            found.append(b.fsub(self.load(0, b.add(first, far)), y))
        return found


def _terms_line(typing, x, first, between, y, at, distance, spread, members):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Sum of |x_i - y| and sum over pairs of |x_i - x_j| for a line of points.

    Args:
        typing: of numba.
        x: memory of the members.
        first: place of the line's first member.
        between: numbers from one member to the next.
        y: memory of the observations.
        at: place of the line in `y`, `distance` and `spread`.
        distance: written.
        spread: written.
        members: a tuple as long as there are members, so that the compiler knows how many.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        line, M = _Line(context, builder, signature.args, values), members.count
        b, sorted_ = builder, line.centred(M)
        total = b.call(line.size, [sorted_[0]])
        for vector in sorted_[1:]:
            total = b.fadd(total, b.call(line.size, [vector]))
        for i, j in exchanges(M):
            u, v = sorted_[i], sorted_[j]
            below = b.fcmp_ordered("<", u, v)
            sorted_[i], sorted_[j] = b.select(below, u, v), b.select(below, v, u)
        pairs = line.of(0.0)
        for k in range(M // 2):
            gap = b.fsub(sorted_[M - 1 - k], sorted_[k])
            pairs = b.fadd(pairs, b.fmul(gap, line.of(M - 1 - 2 * k)))
        line.store(total, 5, values[4])
        line.store(pairs, 6, values[4])
        return context.get_dummy_value()

    return types.void(x, first, between, y, at, distance, spread, members), generate


def _slopes_line(typing, x, first, between, y, at, slopes, row, by, members):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Derivatives of the score by each member for a line of points; 0 where members are equal.

    sign(x_i - y) by[0] - (members below less members above) by[1], written to `slopes`, whose
    members are `row` numbers apart. The other arguments are those of `terms_line`.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        line, M = _Line(context, builder, signature.args, values), members.count
        b, d = builder, line.centred(M)
        narrow = ir.VectorType(ir.IntType(line.align * 8), LINE)
        zero = line.of(0.0)

        def sides(u: Any, v: Any) -> tuple[Any, Any]:
            """All bits set (that is -1) where u is above, and where it is below v."""
            above, below = b.fcmp_ordered(">", u, v), b.fcmp_ordered("<", u, v)
            return b.sext(above, narrow), b.sext(below, narrow)

        counts = [ir.Constant(narrow, [0] * LINE)] * M
        for i in range(M):
            for j in range(i + 1, M):
                above, below = sides(d[i], d[j])
                counts[i] = b.add(b.sub(counts[i], above), below)
                counts[j] = b.sub(b.add(counts[j], above), below)
        factors = []
        for n in (0, 1):
            array = context.make_array(signature.args[7])(context, builder, values[7])
            factor, wide = b.load(b.gep(array.data, [ir.Constant(values[6].type, n)])), zero
            for k in range(LINE):
                wide = b.insert_element(wide, factor, ir.Constant(ir.IntType(32), k))
            factors.append(wide)
        for i in range(M):
            above, below = sides(d[i], zero)
            side = b.sitofp(b.sub(below, above), line.vector)
            count = b.sitofp(counts[i], line.vector)
            slope = b.fsub(b.fmul(side, factors[0]), b.fmul(count, factors[1]))
            far = b.mul(values[6], ir.Constant(values[6].type, i))
            line.store(slope, 5, b.add(far, values[4]))
        return context.get_dummy_value()

    return types.void(x, first, between, y, at, slopes, row, by, members), generate


terms_line: Any = intrinsic(_terms_line)
slopes_line: Any = intrinsic(_slopes_line)
