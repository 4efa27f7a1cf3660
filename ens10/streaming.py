"""Compiled loops over large fields whose results go to memory past the caches.

Writing a field the ordinary way first reads what was there into the cache. Fields that are larger
than the nearest caches are gone from there again before a model sees them, so that reading was for
nothing: stores with LLVM's `nontemporal` mark leave it out (as the system's memcpy does for large
blocks), which makes unpacking about as fast as memory is. numba has no word for such stores, so
a line of 16 floats is written here in LLVM's own terms. All loops release the interpreter lock.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ens10.compiled import OPTIONS

Field = npt.NDArray[np.float32]
Move = Callable[[int, Field, Field], None]  # of a field's number, from one place to another
LINE = 16  # float32 numbers in 64 bytes, a cache line of most machines
WORTH_IT = 2**16  # numbers: smaller fields stay in the cache for whoever reads them next
_FLOAT, _DOUBLE, _INT32 = ir.FloatType(), ir.DoubleType(), ir.IntType(32)


def _vector(scalar: Any) -> Any:
    return ir.VectorType(scalar, LINE)


def _splat(builder: Any, scalar: Any) -> Any:
    """A vector with the same number in all places."""
    whole = ir.Constant(_vector(scalar.type), ir.Undefined)
    for n in range(LINE):
        whole = builder.insert_element(whole, scalar, ir.Constant(_INT32, n))
    return whole


def _of(value: float, kind: Any = _FLOAT) -> Any:
    return ir.Constant(_vector(kind), [ir.Constant(kind, value)] * LINE)


def _line(formula: Callable[..., Any]) -> Any:
    """An intrinsic (out, i, *values): a line of `out` from i on, by a formula in LLVM's terms.

    Of the values, arrays become vectors of their numbers from i on, and scalars vectors of one
    number.
    """

    @intrinsic
    def line(typing: Any, out: Any, i: Any, *values: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            def place(n: int, kind: Any) -> Any:
                array = context.make_array(signature.args[n])(context, builder, arguments[n])
                first = builder.gep(array.data, [arguments[1]])
                return builder.bitcast(first, _vector(kind).as_pointer())

            vectors = []
            for n, given in enumerate(signature.args[2], 2):
                value = builder.extract_value(arguments[2], n - 2)
                if isinstance(given, types.Array):
                    array = context.make_array(given)(context, builder, value)
                    kind = context.get_value_type(given.dtype)
                    first = builder.gep(array.data, [arguments[1]])
                    pointer = builder.bitcast(first, _vector(kind).as_pointer())
                    vectors.append(builder.load(pointer, align=given.dtype.bitwidth // 8))
                else:
                    vectors.append(_splat(builder, value))
            stored = builder.store(formula(builder, *vectors), place(0, _FLOAT), align=4 * LINE)
            mark = builder.module.add_metadata([ir.Constant(_INT32, 1)])
            stored.set_metadata("nontemporal", mark)
            return context.get_dummy_value()

        return types.void(out, i, types.StarArgTuple(values)), generate

    return line


def _fencing(typing: Any) -> Any:  # noqa: ARG001
    """What was stored past the caches is there for other threads from here on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


_fence: Any = intrinsic(_fencing)


@_line
def _single_line(builder: Any, codes: Any, scale: Any, reference: Any) -> Any:
    numbers = builder.sitofp(builder.zext(codes, _vector(_INT32)), _vector(_FLOAT))
    return builder.fadd(builder.fmul(numbers, scale), reference)


@_line
def _gap_line(builder: Any, codes: Any, gap: Any, scale: Any, reference: Any) -> Any:
    numbers = builder.sitofp(builder.zext(codes, _vector(_INT32)), _vector(_FLOAT))
    values = builder.fadd(builder.fmul(numbers, scale), reference)
    return builder.select(builder.icmp_unsigned("==", codes, gap), _of(float("nan")), values)


@_line
def _copied_line(builder: Any, values: Any) -> Any:  # noqa: ARG001
    return values


@_line
def _standardised_line(builder: Any, values: Any, mean: Any, scale: Any) -> Any:
    value = builder.fdiv(builder.fsub(values, mean), scale)
    apart = builder.fsub(value, value)  # NaN for NaN and for infinite numbers
    return builder.select(builder.fcmp_unordered("uno", apart, apart), _of(0.0), value)


@numba.njit(**OPTIONS)
def _lines(out, past_caches):  # type: ignore[no-untyped-def]
    """Where the lines of `out` that go past the caches begin and end; nowhere if it is small."""
    if out.size < WORTH_IT or not past_caches:
        return 0, 0
    first = (-out.ctypes.data % (4 * LINE)) // 4
    return first, first + (out.size - first) // LINE * LINE


@numba.njit(**OPTIONS)
def _single(codes, scale, reference, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = np.float32(codes[i]) * scale + reference


@numba.njit(**OPTIONS)
def _with_gaps(codes, gap, scale, reference, out):  # type: ignore[no-untyped-def]
    missing = np.float32(np.nan)
    for i in range(out.size):
        value = np.float32(codes[i]) * scale + reference
        out[i] = missing if codes[i] == gap else value


@numba.njit(**OPTIONS)
def _standardised(values, mean, scale, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        value = (values[i] - mean[i]) / scale[i]
        out[i] = value if np.isfinite(value) else np.float32(0)


@numba.njit(**OPTIONS)
def unpack_single(codes, scale, reference, out, past_caches):  # type: ignore[no-untyped-def]
    """Writes code * scale + reference.

    Args:
        codes: shape (points,), uint16.
        scale: float32.
        reference: float32.
        out: shape (points,), float32, contiguous.
        past_caches: False for ordinary stores, if `out` is read next.
    """
    first, last = _lines(out, past_caches)
    _single(codes[:first], scale, reference, out[:first])
    for i in range(first, last, LINE):
        _single_line(out, i, codes, scale, reference)
    _single(codes[last:], scale, reference, out[last:])
    _fence()


@numba.njit(**OPTIONS)
def unpack_with_gaps(codes, gap, scale, reference, out, past_caches):  # type: ignore[no-untyped-def]
    """Like `unpack_single`, with NaN where a code is `gap` (uint16)."""
    first, last = _lines(out, past_caches)
    _with_gaps(codes[:first], gap, scale, reference, out[:first])
    for i in range(first, last, LINE):
        _gap_line(out, i, codes, gap, scale, reference)
    _with_gaps(codes[last:], gap, scale, reference, out[last:])
    _fence()


@numba.njit(**OPTIONS)
def copy(values, out, past_caches):  # type: ignore[no-untyped-def]
    """Copies float32 numbers; both contiguous and of one shape (points,)."""
    first, last = _lines(out, past_caches)
    out[:first] = values[:first]
    for i in range(first, last, LINE):
        _copied_line(out, i, values)
    out[last:] = values[last:]
    _fence()


@numba.njit(**OPTIONS)
def _standardise(values, mean, scale, out):  # type: ignore[no-untyped-def]
    first, last = _lines(out, True)
    _standardised(values[:first], mean[:first], scale[:first], out[:first])
    for i in range(first, last, LINE):
        _standardised_line(out, i, values, mean, scale)
    _standardised(values[last:], mean[last:], scale[last:], out[last:])
    _fence()


def standardise(
    values: npt.NDArray[np.float32],
    mean: npt.NDArray[np.float32],
    scale: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None:
    """Writes (values - mean) / scale, and 0 where that is NaN or infinite.

    An infinite value is a gap, as it is to masks and statistics: the largest number in its place
    would be finite, and the loss of a network finite and senseless.

    Args:
        values: any shape, contiguous.
        mean: of the same size, contiguous.
        scale: like `mean`.
        out: like `values`, which it may be.
    """
    _standardise(values.reshape(-1), mean.reshape(-1), scale.reshape(-1), out.reshape(-1))
