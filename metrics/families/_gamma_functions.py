"""Ratios of gamma functions in forms that keep their digits at large and at equal arguments."""

from typing import Any

import numpy as np
from scipy import special

_LARGE = 16.0  # above it six terms of the asymptotic series have 16 digits
# of log Gamma(x + 1/2) - log Gamma(x) - log(x) / 2 in odd powers of 1 / x
_HALF_STEP = [-1 / 8, 1 / 192, -1 / 640, 17 / 14336, -31 / 18432, 691 / 180224]
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(10)
UNIT_POINTS, UNIT_WEIGHTS = 0.5 * (_POINTS + 1), 0.5 * _WEIGHTS  # of the interval [0, 1]


def half_step(ops: Any, x: Any) -> Any:
    """Log Gamma(x + 1/2) - log Gamma(x) - log(x) / 2 for x > 0; 0 at inf.

    The difference of two log-gamma functions loses all digits at large x (Tricomi & Erdelyi 1951,
    doi:10.2140/pjm.1951.1.133); there it is the asymptotic series, whose terms are small.
    """
    small = x < _LARGE
    low = ops.where(small, x, ops.full_like(x, 1.0))
    direct = ops.gammaln(low + 0.5) - ops.gammaln(low) - 0.5 * ops.log(low)
    r = 1 / ops.where(small, ops.full_like(x, _LARGE), x)
    return ops.where(small, direct, r * _horner(_HALF_STEP, r * r))


def half_step_slope(ops: Any, x: Any) -> Any:
    """The derivative of `half_step`; the digamma functions cancel in the same way."""
    small = x < _LARGE
    low = ops.where(small, x, ops.full_like(x, 1.0))
    direct = ops.digamma(low + 0.5) - ops.digamma(low) - 0.5 / low
    r = 1 / ops.where(small, ops.full_like(x, _LARGE), x)
    powers = [-(2 * i + 1) * c for i, c in enumerate(_HALF_STEP)]
    return ops.where(small, direct, r * r * _horner(powers, r * r))


def mean_half_step_slope(x: Any, change: Any) -> Any:
    """The mean of the derivative of log Gamma(x + 1/2) / Gamma(x) between x and x + change.

    A difference of two values of that logarithm, divided by a small change, cancels; the mean of
    the derivative does not. Numpy arrays, with changes well below x.
    """
    total = 0.0
    for point, weight in zip(UNIT_POINTS, UNIT_WEIGHTS, strict=True):
        at = x + change * point
        total = total + weight * (special.psi(at + 0.5) - special.psi(at))
    return total


def _horner(coefficients: list[float], x: Any) -> Any:
    total: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total
