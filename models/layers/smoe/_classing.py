"""Compiled gradient of the routing classification loss."""

import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ens10.compiled import OPTIONS
from ens10.models.layers.smoe._rows import incorrect

_POINTS = 1024  # at a time: their gradients for all experts stay in the second cache
# Of a type of number: bits, bits after the point, those of log(2)'s leading part, terms of the
# series, and a number at which sigmoid is at its end
_NUMBERS = {types.float32: (32, 23, 9, 8, 87.0), types.float64: (64, 52, 20, 14, 708.0)}


def _sigmoiding(typing, x):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """1 / (1 + exp(-x)) as operations that LLVM does for many numbers at once.

    exp(y) = 2^n exp(r), |r| <= log(2) / 2, by its series; n is what rounding leaves in the last
    bits of a number so large that it has no others.
    """
    bits, after, leading, terms, end = _NUMBERS[x]
    high = round(math.log(2) * 2**leading) / 2**leading  # its products with n are exact

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        b, kind, word = builder, context.get_value_type(signature.return_type), ir.IntType(bits)

        def of(number: float) -> Any:
            return ir.Constant(kind, number)

        def fused(one: Any, two: Any, three: Any) -> Any:
            return b.fadd(b.fmul(one, two, flags=("contract",)), three, flags=("contract",))

        y = b.fneg(values[0])  # compared so that NaN stays
        y = b.select(b.fcmp_ordered("<", y, of(-end)), of(-end), y)
        y = b.select(b.fcmp_ordered(">", y, of(end)), of(end), y)
        large = of(1.5 * 2**after)
        rounded = fused(y, of(1 / math.log(2)), large)
        n = b.fsub(rounded, large)
        r = fused(n, of(high - math.log(2)), fused(n, of(-high), y))
        total = of(1 / math.factorial(terms - 1))
        for i in range(terms - 2, -1, -1):
            total = fused(total, r, of(1 / math.factorial(i)))
        power = b.shl(b.bitcast(rounded, word), ir.Constant(word, after))
        total = b.bitcast(b.add(b.bitcast(total, word), power), kind)
        return b.fdiv(of(1.0), b.fadd(total, of(1.0)))

    return x(x), generate


_sigmoid: Any = intrinsic(_sigmoiding)


@numba.njit(**OPTIONS)
def _others(weights, others, factor, gradient):  # type: ignore[no-untyped-def]
    """Of one expert, were it not chosen anywhere."""
    for p in range(weights.size):
        gradient[p] = (_sigmoid(weights[p]) - others[p]) * factor


@numba.njit(**OPTIONS)
def _count(judged, area, limit, share):  # type: ignore[no-untyped-def]
    for p in range(judged.size):
        wrong = incorrect(judged[p], area[p], limit)
        share[p] += judged.dtype.type(1) if wrong else judged.dtype.type(0)


@numba.njit(**OPTIONS)
def classify(weights, chosen, judged, area, limits, factor, band, gradient):  # type: ignore[no-untyped-def]
    """The classification gradient of a map of weights, see `classification_gradient`.

    Args:
        weights: (E, P) of the experts at P points.
        chosen: (P, k) indices.
        judged: (N, k, P) gradients of the output of the samples with this map.
        area: (P,) or negative; see `incorrect`, also for the limits.
        limits: (N,).
        factor: of the gradient.
        band: first point and the one after the last.
        gradient: (E, P), written.
    """
    E, (N, k, _) = weights.shape[0], judged.shape
    share, others = np.zeros((k, _POINTS), weights.dtype), np.zeros(_POINTS, weights.dtype)
    for start in range(band[0], band[1], _POINTS):
        stop = min(start + _POINTS, band[1])
        share[:], others[:] = 0, 0
        for r in range(k):
            for n in range(N):
                found = judged[n, r, start:stop]
                _count(found, area[start:stop], limits[n], share[r])
            for p in range(_POINTS):
                share[r, p] /= N
                others[p] += share[r, p]
        for p in range(_POINTS):
            others[p] /= max(E - k, 1)
        for e in range(E):
            _others(weights[e, start:stop], others, factor, gradient[e, start:stop])
        for p in range(stop - start):
            for r in range(k):
                gradient[chosen[start + p, r], start + p] += (
                    others[p] - (1 - share[r, p])
                ) * factor
