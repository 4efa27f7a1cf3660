"""Compiled loops of the normal CRPS: values and derivatives in vector instructions.

No library at hand has an erf or exp that numba puts into vector instructions, so both are written
out. With t = |z| / sqrt(2), erf(t) = 1 - exp(-t^2) Q(w) w, where w = k / (t + k) and Q is a
polynomial fitted to exp(t^2) erfc(t) w^-1 with the weight exp(-t^2): at most 3e-10 off in single
precision (8 terms, k = 2) and 2e-17 in double precision (15 terms, k = 3), before rounding.
"""

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.extending import intrinsic

from ens10.compiled import OPTIONS
from ens10.metrics.ensemble._compiled import begin, put, take
from ens10.metrics.ensemble._walk import held, walk

_BLOCK = 512  # points at a time, always all of them: no rest that is computed in another way
_FUSED: dict[str, Any] = {**OPTIONS, "fastmath": {"contract"}}
Array = npt.NDArray[np.floating[Any]]

_ERFCX4 = tuple(
    np.float32(c)
    for c in (0.28517472411809736, 0.24581573787303468, 0.4314072956104874, -0.34820288158931184,
              0.9740549028725476, -0.8769913661586803, 0.339717197147019, -0.050975609629378145)
)  # fmt: skip
_ERFCX8 = (
    0.1881084478150893, 0.1872397776374942, 0.184388906156507, 0.12373953840718639,
    0.23083549970010195, -0.1192142844051419, 0.30164290527301957, 0.015221899144791256,
    -0.5280000210330373, 1.0641197465924255, -1.1823150629360824, 0.7821367239328941,
    -0.31023776713941825, 0.06902935756581433, -0.006695666711643918,
)  # fmt: skip
_TAYLOR8 = tuple(1 / math.factorial(n) for n in range(13))  # of exp, to |x| <= log(2) / 2
_TAYLOR4 = tuple(np.float32(c) for c in _TAYLOR8[:8])
_ROUND8, _ROUND4 = 1.5 * 2.0**52, np.float32(1.5 * 2.0**23)  # added: an integer in the low bits
_LOG2E8, _LOG2E4 = math.log2(math.e), np.float32(math.log2(math.e))
_LN2_8, _LN2_4 = math.log(2), np.float32(math.log(2))
_HALF8, _HALF4 = 0.5**0.5, np.float32(0.5**0.5)
_REST8, _REST4 = np.pi**-0.5, np.float32(np.pi**-0.5)
_PEAK8, _PEAK4 = (2 / np.pi) ** 0.5, np.float32((2 / np.pi) ** 0.5)
_END8, _END4 = 26.0, np.float32(9.0)  # exp(-t^2) is nothing beside 1, and not yet subnormal


def _low_bits_power(typing, shifted):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """2 to the power of the integer in the low bits of a number: moved to where exponents are."""
    bits, low, bias = {32: (32, 23, 127), 64: (64, 52, 1023)}[shifted.bitwidth]

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        whole = ir.IntType(bits)
        number = builder.bitcast(values[0], whole)
        number = builder.shl(builder.add(number, whole(bias)), whole(low))
        return builder.bitcast(number, context.get_value_type(signature.return_type))

    return shifted(shifted), generate


_power: Any = intrinsic(_low_bits_power)


@numba.njit(**_FUSED)
def _exp4(x):  # type: ignore[no-untyped-def]
    """The exponential of float32 in [-87, 0]."""
    c = _TAYLOR4
    shifted = x * _LOG2E4 + _ROUND4
    r = (x * _LOG2E4 - (shifted - _ROUND4)) * _LN2_4
    q = ((c[7] * r + c[6]) * r + c[5]) * r + c[4]
    q = (((q * r + c[3]) * r + c[2]) * r + c[1]) * r + c[0]
    return q * _power(shifted)


@numba.njit(**_FUSED)
def _exp8(x):  # type: ignore[no-untyped-def]
    """The exponential of float64 in [-708, 0]."""
    c = _TAYLOR8
    shifted = x * _LOG2E8 + _ROUND8
    r = (x * _LOG2E8 - (shifted - _ROUND8)) * _LN2_8
    q = ((((c[12] * r + c[11]) * r + c[10]) * r + c[9]) * r + c[8]) * r + c[7]
    q = (((((q * r + c[6]) * r + c[5]) * r + c[4]) * r + c[3]) * r + c[2]) * r + c[1]
    q = q * r + c[0]
    return q * _power(shifted)


@numba.njit(**_FUSED)
def _partials4(d, s):  # type: ignore[no-untyped-def]
    """Derivatives by d = y - mu and by sigma; finite for all numbers."""
    c, zero, one, two = _ERFCX4, np.float32(0), np.float32(1), np.float32(2)
    size = abs(d)
    t = size / abs(s) * _HALF4
    t = t if t < _END4 else _END4  # s = 0, too
    t = t if size > zero else zero
    w = two / (t + two)
    q = ((c[7] * w + c[6]) * w + c[5]) * w + c[4]
    q = ((((q * w + c[3]) * w + c[2]) * w + c[1]) * w + c[0]) * w
    e = _exp4(-t * t)
    side = one if d > zero else zero
    side = -one if d < zero else side
    return side * (one - q * e), _PEAK4 * e - _REST4


@numba.njit(**_FUSED)
def _partials8(d, s):  # type: ignore[no-untyped-def]
    c = _ERFCX8
    size = abs(d)
    t = size / abs(s) * _HALF8
    t = t if t < _END8 else _END8
    t = t if size > 0.0 else 0.0
    w = 3.0 / (t + 3.0)
    q = ((((c[14] * w + c[13]) * w + c[12]) * w + c[11]) * w + c[10]) * w + c[9]
    q = ((((q * w + c[8]) * w + c[7]) * w + c[6]) * w + c[5]) * w + c[4]
    q = ((((q * w + c[3]) * w + c[2]) * w + c[1]) * w + c[0]) * w
    e = _exp8(-t * t)
    side = 1.0 if d > 0.0 else 0.0
    side = -1.0 if d < 0.0 else side
    return side * (1.0 - q * e), _PEAK8 * e - _REST8


@numba.njit(**OPTIONS)
def _fetch(memory, first, step, n, kept):  # type: ignore[no-untyped-def]
    """A block of numbers: where they are if they lie side by side, else copied."""
    if step == 1 and n == _BLOCK:
        return memory[first : first + _BLOCK]
    take(memory, first, step, kept[:n])
    return kept


def _score_loop(partials: Any) -> Any:
    """Scores, block by block, and the lowest sigma or 0."""

    @numba.njit(**_FUSED)
    def values(mu, sigma, y, out, lowest):  # type: ignore[no-untyped-def]
        for p in range(_BLOCK):
            d, s = y[p] - mu[p], sigma[p]
            by_d, by_s = partials(d, s)
            out[p] = d * by_d + s * by_s  # the score is homogeneous of degree 1
            lowest[p] = s if s < lowest[p] else lowest[p]

    @numba.njit(**OPTIONS)
    def score(mu, sigma, y, shape, steps, firsts, out):  # type: ignore[no-untyped-def]
        places, kept = np.zeros(4, np.int64), np.zeros((4, _BLOCK), mu.dtype)
        lowest = np.zeros(_BLOCK, mu.dtype)
        for row in range(np.prod(shape[:-1])):
            begin(row, shape, steps, firsts, places)
            for start in range(0, shape[-1], _BLOCK):
                n, at = min(_BLOCK, shape[-1] - start), places + start * steps[:, -1]
                if n < _BLOCK:
                    kept[1] = 0  # what an earlier block left counts as seen
                a = _fetch(mu, at[0], steps[0, -1], n, kept[0])
                b = _fetch(sigma, at[1], steps[1, -1], n, kept[1])
                c = _fetch(y, at[2], steps[2, -1], n, kept[2])
                values(a, b, c, kept[3], lowest)
                put(kept[3, :n], out, at[3], steps[3, -1])
        return lowest.min()

    return score


def _gradient_loop(partials: Any) -> Any:
    """Derivatives by mu and sigma, block by block."""

    @numba.njit(**_FUSED)
    def slopes(mu, sigma, y, grad, by_mu, by_sigma):  # type: ignore[no-untyped-def]
        for p in range(_BLOCK):
            by_d, by_s = partials(y[p] - mu[p], sigma[p])
            by_mu[p] = -grad[p] * by_d
            by_sigma[p] = grad[p] * by_s

    @numba.njit(**OPTIONS)
    def gradient(mu, sigma, y, grad, shape, steps, firsts, by_mu, by_sigma):  # type: ignore[no-untyped-def]
        places, kept = np.zeros(6, np.int64), np.zeros((6, _BLOCK), mu.dtype)
        for row in range(np.prod(shape[:-1])):
            begin(row, shape, steps, firsts, places)
            for start in range(0, shape[-1], _BLOCK):
                n, at = min(_BLOCK, shape[-1] - start), places + start * steps[:, -1]
                a = _fetch(mu, at[0], steps[0, -1], n, kept[0])
                b = _fetch(sigma, at[1], steps[1, -1], n, kept[1])
                c = _fetch(y, at[2], steps[2, -1], n, kept[2])
                d = _fetch(grad, at[3], steps[3, -1], n, kept[3])
                slopes(a, b, c, d, kept[4], kept[5])
                put(kept[4, :n], by_mu, at[4], steps[4, -1])
                put(kept[5, :n], by_sigma, at[5], steps[5, -1])

    return gradient


_PARTIALS = {np.dtype(np.float32): _partials4, np.dtype(np.float64): _partials8}
_SCORES = {dtype: _score_loop(partials) for dtype, partials in _PARTIALS.items()}
_GRADIENTS = {dtype: _gradient_loop(partials) for dtype, partials in _PARTIALS.items()}


def scores(mu: Array, sigma: Array, y: Array) -> tuple[Array, bool]:
    """CRPS of normals of one shape and dtype, and whether some sigma is negative."""
    out = np.empty(mu.shape, mu.dtype)
    if not out.size:
        return out, False
    given = [held(a) for a in (mu, sigma, y)]
    way = walk(mu.shape, [*given, held(out)])
    memory = (*(a.memory for a in given), way.shape, way.steps, way.firsts)
    lowest = _SCORES[mu.dtype](*memory, out.reshape(-1))
    return out, bool(lowest < 0)


def gradients(mu: Array, sigma: Array, y: Array, grad: Array) -> tuple[Array, Array]:
    """Derivatives by mu (less those by y) and by sigma, times `grad`; all of one shape."""
    by_mu, by_sigma = np.empty(mu.shape, mu.dtype), np.empty(mu.shape, mu.dtype)
    if by_mu.size:
        given = [held(a) for a in (mu, sigma, y, grad)]
        way = walk(mu.shape, [*given, held(by_mu), held(by_sigma)])
        memory = (*(a.memory for a in given), way.shape, way.steps, way.firsts)
        _GRADIENTS[mu.dtype](*memory, by_mu.reshape(-1), by_sigma.reshape(-1))
    return by_mu, by_sigma
