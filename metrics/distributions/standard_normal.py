"""The standard normal distribution within bounds.

With Mills' ratio R(x) = (1 - Phi(x)) / phi(x), what a far tail needs is written in h and k, the
small differences 1/R(x) - x and sqrt(2) R(sqrt(2) x) / R(x)^2 - x: the large terms, which are
those of an exponential distribution, then cancel on paper.
"""

import math
from fractions import Fraction
from typing import Any

from ens10.metrics.distributions.shapes import TERMS, Parts, Window, times

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_PI = 1 / math.sqrt(math.pi)
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_BEYOND = 1e3  # its square is finite, its density 0, in every dtype
_FAR = 12.0  # above it the asymptotic series of R has 14 good digits


def cdf(ops: Any, x: Any) -> Any:
    """Phi(x)."""
    return ops.ndtr(x)


def quantile(ops: Any, p: Any) -> Any:
    """The x where Phi(x) = p."""
    return ops.ndtri(p)


def log_cdf(ops: Any, x: Any) -> Any:
    """Log Phi(x)."""
    return ops.log_ndtr(x)


def log_density(_ops: Any, x: Any) -> Any:
    """Log phi(x)."""
    return -0.5 * x * x - LOG_SQRT_2PI


def log_ratio(_ops: Any, r: Any, d: Any) -> Any:
    """Log phi(r + d) / phi(r)."""
    return -0.5 * d * (2 * r + d)


def slope(_ops: Any, x: Any) -> Any:
    """-phi'(x) / phi(x) = x."""
    return x


def hazard(ops: Any, x: Any) -> Any:
    """phi(x) / (1 - Phi(x))."""
    return 1 / _mills(ops, x)


def partial_mean(ops: Any, x: Any) -> Any:
    """-E[X; X <= x] = phi(x)."""
    return ops.exp(-0.5 * x * x) * (SQRT_HALF * INV_SQRT_PI)


def square_part(ops: Any, x: Any) -> Any:
    """2 phi(x) Phi(x) - Phi(sqrt(2) x) / sqrt(pi)."""
    return 2 * partial_mean(ops, x) * ops.ndtr(x) - INV_SQRT_PI * ops.ndtr(x / SQRT_HALF)


def square_integral(ops: Any, x: Any) -> Any:
    """Return the integral of Phi^2 up to x, less x if x > 0; by Mills' ratio far below 0."""
    t = ops.minimum(ops.abs(x), _BEYOND)
    ratio, density = _mills(ops, t), partial_mean(ops, t)
    tail = 2 * ratio - t * ratio * ratio - _mills(ops, t / SQRT_HALF) / SQRT_HALF
    below = density * density * tail
    return ops.where(x < 0, below, 2 * density * (1 - t * ratio) - INV_SQRT_PI - below)


def crps_slopes(ops: Any, d: Any, sigma: Any) -> tuple[Any, Any]:
    """Return 2 Phi(z) - 1 and 2 phi(z) - 1 / sqrt(pi), z = d / sigma; finite for all numbers.

    They are the derivatives of the CRPS by d = y - mu and by sigma, with their limits at sigma = 0.
    The CRPS is d and sigma times these, because it is homogeneous of degree 1 (Euler's theorem).
    """
    z = ops.clipped_ratio(d, sigma, _BEYOND)
    density = ops.exp(z * z * -0.5) * (2 * INV_SQRT_PI * SQRT_HALF)
    return ops.erf(z * SQRT_HALF), density - INV_SQRT_PI


def central_parts(ops: Any, window: Window) -> Parts:
    """Return the `Parts` of a window that contains 0 and is not narrow."""
    z, lo, hi = window.z, window.lower, window.upper
    p = ops.ndtr(hi) - ops.ndtr(lo)
    at_l, at_u = partial_mean(ops, lo) / p, partial_mean(ops, hi) / p
    double = ops.ndtr(hi / SQRT_HALF) - ops.ndtr(lo / SQRT_HALF)
    return Parts(
        r=ops.full_like(z, 0.0),
        to_z=z,
        to_lower=lo,
        to_upper=hi,
        level=-LOG_SQRT_2PI - ops.log(p),
        cdf=(ops.ndtr(z) - ops.ndtr(lo)) / p,
        below=at_l - partial_mean(ops, z) / p,
        mean=at_l - at_u,
        square=1 + times(ops, at_l, lo) - times(ops, at_u, hi),
        gini=INV_SQRT_PI * double / p**2 - at_l - at_u,
        at_lower=at_l,
        at_upper=at_u,
    )


def tail_parts(ops: Any, window: Window) -> Parts:
    """Return the `Parts` of a window above 0 that is not narrow.

    q and e are P(X > z | X > lower) and P(X > upper | X > lower).
    """
    z, lo, hi, d, w = window.z, window.lower, window.upper, window.d, window.w
    first = 1 / _mills(ops, lo)
    at_u = ops.exp(-0.5 * w * (hi + lo)) * first
    q = ops.exp(-0.5 * d * (z + lo)) * first * _mills(ops, z)
    e = at_u * _mills(ops, hi)
    p = -ops.expm1(-0.5 * w * (hi + lo) + ops.log(_mills(ops, hi) * first))
    h_l, k_l = _h(ops, lo), _k(ops, lo)
    h_u, k_u = e * _h(ops, hi), e * _k(ops, hi)
    mean = (h_l - h_u - times(ops, e, w)) / p
    return Parts(
        r=lo,
        to_z=d,
        to_lower=ops.full_like(lo, 0.0),
        to_upper=w,
        level=ops.log(first / p),
        cdf=(1 - q) / p,
        below=(h_l - q * _h(ops, z) - times(ops, q, d)) / p,
        mean=mean,
        square=1 - lo * mean - times(ops, at_u, w) / p,
        gini=(k_l - e * k_u) / p**2 - (h_l + h_u) / p - times(ops, e, w) / p**2,
        at_lower=first / p,
        at_upper=at_u / p,
    )


def far_slope(ops: Any, r: Any, k: Any) -> tuple[Any, Any]:
    """Return the derivative by mu of a tail score; the exponential rate is r."""
    return k / ops.maximum(r, 1.0), r > 1e4


def is_narrow(ops: Any, middle: Any, h: Any) -> Any:
    """Return True if the Taylor series suffices for a window of half width h."""
    return (h * ops.abs(middle) < 0.3) & (h < 0.2)


def taylor(ops: Any, middle: Any, h: Any) -> list[Any]:
    """Return the coefficients of phi(middle + h t) / phi(middle) in powers of t."""
    a, b = -middle * h, -h * h
    coefficients = [ops.full_like(h, 1.0), a]
    for n in range(1, TERMS - 1):
        coefficients.append((a * coefficients[n] + b * coefficients[n - 1]) / (n + 1))
    return coefficients


def _mills(ops: Any, x: Any) -> Any:
    return ops.erfcx(x * SQRT_HALF) * (math.sqrt(math.pi) * SQRT_HALF)


def _h(ops: Any, x: Any) -> Any:
    """Return 1 / R(x) - x for x >= 0."""
    return _near_or_far(ops, x, 1 / _mills(ops, x) - x, _H)


def _k(ops: Any, x: Any) -> Any:
    """Return sqrt(2) R(sqrt(2) x) / R(x)^2 - x for x >= 0."""
    near = _mills(ops, x / SQRT_HALF) / (SQRT_HALF * _mills(ops, x) ** 2) - x
    return _near_or_far(ops, x, near, _K)


def _near_or_far(ops: Any, x: Any, near: Any, series: list[float]) -> Any:
    """Return `near`, or where x is large the series in t = 1 / x^2, times x t."""
    safe = ops.maximum(x, _FAR)
    t = 1 / safe / safe
    total = ops.full_like(x, series[-1])
    for c in series[-2::-1]:
        total = total * t + c
    return ops.where(x > _FAR, total / safe, near)


def _series(n: int) -> tuple[list[float], list[float]]:
    """Return n - 1 coefficients of (1/S(t) - 1) / t and of (S(t/2)/S(t)^2 - 1) / t.

    S is the asymptotic series of Mills' ratio, R(x) = S(1/x^2) / x.
    """
    s = [Fraction((-1) ** k * math.prod(range(1, 2 * k, 2))) for k in range(n)]
    inverse = [Fraction(1)]
    for k in range(1, n):
        inverse.append(-sum((s[j] * inverse[k - j] for j in range(1, k + 1)), Fraction(0)))
    squared = _product(inverse, inverse)
    halved = [c / 2**k for k, c in enumerate(s)]
    return [float(c) for c in inverse[1:]], [float(c) for c in _product(halved, squared)[1:]]


def _product(a: list[Fraction], b: list[Fraction]) -> list[Fraction]:
    return [sum((a[j] * b[k - j] for j in range(k + 1)), Fraction(0)) for k in range(len(a))]


_H, _K = _series(14)
