"""A distribution between bounds so close together that its closed form cancels."""

from typing import Any

import numpy as np

from ens10.metrics.families._shapes import TERMS, Parts, Shape, Window

# exact for polynomials of degree 17: the product of two series whose terms fall like 0.3^n / n!
_NODES, _WEIGHTS = (a.tolist() for a in np.polynomial.legendre.leggauss(9))

_CLOSE = 0.5  # a distance over the scale at which the quadrature is exact to rounding


def narrow(ops: Any, shape: Shape, window: Window, middle: Any, h: Any) -> Parts:
    """The parts, from the Taylor series of the density about the middle of the window.

    Args:
        ops: numpy or torch.
        shape: the standard distribution.
        window: where it lies, 2 h wide.
        middle: the middle of it.
        h: half its width, small as `shape.is_narrow` says.
    """
    density = shape.taylor(ops, middle, h)
    c = [density[n] / (n + 1) for n in range(TERMS)]
    total = 2 * sum(c[0::2])
    moments = [
        2 * sum(density[n] / (n + power + 1) for n in range(power % 2, TERMS, 2))
        for power in (1, 2)
    ]
    t = window.d / h - 1
    start = _horner(c, -1.0)  # less the antiderivative at -1
    first = [density[n] / (n + 2) for n in range(TERMS)]
    gini: Any = 0.0
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        g = (node * _horner(c, node) + start) / total
        gini = gini + weight * g * (1 - g)
    return Parts(
        r=middle,
        to_z=h * t,
        to_lower=-h,
        to_upper=h,
        level=-ops.log(total * h),
        cdf=(t * _horner(c, t) + start) / total,
        below=h * (t * t * _horner(first, t) - _horner(first, -1.0)) / total,
        mean=h * moments[0] / total,
        square=h * h * moments[1] / total,
        gini=h * gini,
        at_lower=_horner(density, -1.0) / (total * h),
        at_upper=_horner(density, 1.0) / (total * h),
    )


def square_between(
    ops: Any, shape: Shape, ends: tuple[Any, Any], scaled: tuple[Any, Any], scale: Any
) -> Any:
    """The integral of F((x - mu) / scale)^2 over x between two ends.

    A difference of `Shape.square_integral` cancels where the ends are close together; there it is
    a quadrature, in which nothing is subtracted. What is linear stays in the unit of x.

    Args:
        ops: numpy or torch.
        shape: the standard distribution.
        ends: the lower one less mu and the upper one less mu.
        scaled: both over the scale; -inf at most for the lower one.
        scale: above 0.
    """
    (first, last), (lo, hi) = ends, scaled
    gap = last - first
    zero = ops.full_like(gap, 0.0)
    linear = ops.where(lo >= 0, gap, ops.where(last > 0, last, zero))
    linear = ops.where(last == last, linear, last)
    change = shape.square_integral(ops, hi) - shape.square_integral(ops, lo)
    found = linear + scale * change
    close = gap < _CLOSE * scale
    if ops.some(close):
        start, width = ops.where(close, lo, zero), ops.where(close, gap / scale, zero)
        mean: Any = 0.0
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            mean = mean + 0.5 * weight * shape.cdf(ops, start + 0.5 * (node + 1) * width) ** 2
        found = ops.where(close, gap * mean, found)
    return found


def _horner(coefficients: list[Any], x: Any) -> Any:
    total = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total
