"""A distribution between bounds so close together that its closed form cancels."""

from typing import Any

import numpy as np

from ens10.metrics.families._shapes import TERMS, Parts, Shape, Window

# exact for polynomials of degree 17: the product of two series whose terms fall like 0.3^n / n!
_NODES, _WEIGHTS = (a.tolist() for a in np.polynomial.legendre.leggauss(9))


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


def _horner(coefficients: list[Any], x: Any) -> Any:
    total = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total
