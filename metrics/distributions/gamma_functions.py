"""Gamma functions where scipy's are inaccurate: ratios, incomplete functions, derivatives.

Differences of log-gamma functions cancel at large and at equal arguments. scipy's incomplete gamma
functions stop after 2,000 terms, which are too few above a shape of some 10^5 (P is then off by a
factor of 10 at five deviations). Above `_LARGE` this is the uniform expansion of Temme (1979,
doi:10.1137/0510071): with mu = x / a - 1 and eta^2 / 2 = mu - log(1 + mu),
P = Phi(eta sqrt(a)) - phi(eta sqrt(a)) / sqrt(a) sum c_j(eta) / a^j.
"""

import math
import sys
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
from scipy import special

from ens10.metrics._ops import NUMPY

_MOST_TERMS = 200_000
# Shapes above which series suffice: three terms of Temme's (relative error 2e-15, by mpmath, at
# three deviations below the mean), five of Stirling's (the next is 691 / 360360 / a^11 = 1e-16)
_LARGE, _STIRLING = 1e4, 16.0
_MANY = 0.1  # of Q, above which it is 1 - P and loses at most a digit
_TINY = 1e-3  # a shape below which scipy's P underflows before it is near 1
# of mu, below which log(1 + mu) - mu is a series: |mu / (2 + mu)| <= 1/3, and (1/3)^37 is 2e-18
_CLOSE = 0.5
# of t, below which the upper function of a shape near 0 is a power series (2^32 / 32! is 2e-26);
# above it 48 nodes of Gauss and Laguerre have a relative error of 1e-13 (against mpmath)
_FEW = 2.0
_zeta: Any = special.zeta  # which has no type hints
_LAGUERRE = np.polynomial.laguerre.laggauss(48)
_INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
_GAMMA_REMAINDER = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188]  # of log Gamma, in 1 / x
_PSI_REMAINDER = [-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132]  # of digamma, in 1 / x^2
_LARGE_HALF_STEP = 16.0  # above it six terms of the asymptotic series have 16 digits
# of log Gamma(x + 1/2) - log Gamma(x) - log(x) / 2 in odd powers of 1 / x
_HALF_STEP = [-1 / 8, 1 / 192, -1 / 640, 17 / 14336, -31 / 18432, 691 / 180224]
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(10)
UNIT_POINTS, UNIT_WEIGHTS = 0.5 * (_POINTS + 1), 0.5 * _WEIGHTS  # of the interval [0, 1]


def functions_for(ops: Any) -> Any:
    """Return the module with the functions of this one, for arrays or for tensors.

    Formulas that are written once, over `ops`, take `lower`, `upper` and `step` from it.

    Args:
        ops: `NUMPY` for arrays, and this module; else for tensors, `gamma_functions_torch`.
    """
    return sys.modules[__name__] if ops is NUMPY else import_module(f"{__name__}_torch")


def lower(a: Any, x: Any) -> Any:
    """Return P(a, x) for a > 0, x >= 0, float64, with a small relative error."""
    large = a > _LARGE
    few, at = np.where(large, 1.0, a), np.where(large, 1.0, x)
    below = special.gammainc(few, at)
    tiny = few < _TINY
    if np.any(tiny):
        below = np.where(tiny, 1 - upper(few, at), below)
    if np.any(large):
        _, _, z, correction, _ = _temme(np.where(large, a, 1.0), np.where(large, x, 1.0))
        below = np.where(large, np.maximum(special.ndtr(z) - correction, 0.0), below)
    return below


def upper(a: Any, x: Any) -> Any:
    """Return Q(a, x) for a > 0, x >= 0, float64, with a small relative error.

    It is 1 - P(a, x) where that loses at most a digit: scipy's Q costs up to 30 times as much.
    """
    a, x = np.broadcast_arrays(a, x)
    large = a > _LARGE
    few, at = np.where(large, 1.0, a), np.where(large, 1.0, x)
    above = np.asarray(1 - special.gammainc(few, at))
    small = ~(above > _MANY) | (few < _TINY)
    above[small] = np.maximum(special.gammaincc(few[small], at[small]), 0.0)
    if np.any(large):
        _, _, z, correction, _ = _temme(np.where(large, a, 1.0), np.where(large, x, 1.0))
        above = np.where(large, np.maximum(special.ndtr(-z) + correction, 0.0), above)
    return above


def step(a: Any, x: Any) -> Any:
    """Return P(a, x) - P(a + 1, x) = x^a e^-x / Gamma(a + 1).

    At a large shape its exponent is the small difference of large terms, taken about x = a.
    """
    a, x = np.broadcast_arrays(a, np.minimum(x, 1e300))
    value = np.asarray(np.exp(special.xlogy(a, x) - x - special.gammaln(a + 1)))
    large = a > _STIRLING
    shape, at = a[large], x[large]
    exponent = -shape * excess((at - shape) / shape) - _stirling_remainder(shape)
    value[large] = np.exp(exponent) * _INV_SQRT_2PI / np.sqrt(shape)
    return value


def log_less_digamma(a: Any, x: Any) -> Any:
    """Return log x - digamma(a + 1) without cancellation at large a; x above 0."""
    large = a > _STIRLING
    shape, few = np.where(large, a, _STIRLING), np.where(large, 1.0, a)
    r = 1 / shape
    correction = 0.5 * r + r * r * np.polynomial.polynomial.polyval(r * r, _PSI_REMAINDER)
    about = np.log1p(np.where(large, (x - shape) / shape, 0.0)) - correction
    return np.where(large, about, np.log(x) - special.psi(few + 1))


def excess(mu: Any) -> Any:
    """Return mu - log(1 + mu); by the series of artanh(mu / (2 + mu)) where mu is small."""
    close = np.abs(mu) < _CLOSE
    near = np.where(close, mu, 0.0)
    r = near / (2 + near)
    odd = np.polynomial.polynomial.polyval(r * r, [1 / (2 * n + 3) for n in range(17)])
    return np.where(close, r * near - 2 * r**3 * odd, mu - np.log1p(np.where(close, 1.0, mu)))


def gammainc_by_shape(a: Any, x: Any) -> Any:
    """Return dP(a, x)/da for a > 0 and any x, with an absolute error near 1e-15.

    From P(a, x) = g sum_n x^n / ((a + 1) ... (a + n)), g = x^a e^-x / Gamma(a + 1), term by
    term; all terms are positive. Where P is 0 or 1 to rounding the derivative is 0. Of large
    shapes it is the derivative of Temme's expansion, because the sum has some 9 sqrt(a) terms.

    Args:
        a: shapes, float64 arrays.
        x: of the same shape.
    """
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    result = np.where(np.isnan(a) | np.isnan(x), np.nan, 0.0)
    inside = (x > 0) & (x < a + 9 * np.sqrt(a) + 45) & np.isfinite(a)
    large = inside & (a > _LARGE)
    if large.any():
        result[large] = _temme_by_shape(a[large], x[large])
    inside &= ~large
    if inside.any():
        result[inside] = _series(a[inside], x[inside])
    return result


def upper_near_0(a: Any, t: Any, log_t: Any) -> tuple[Any, Any]:
    """Return Gamma(a, t) for a in (-1, 1/2], finite also at the pole of Gamma(a), and d/da.

    Below `_FEW` it is (Gamma(1 + a) - 1) / a - (t^a - 1) / a less a power series; above it, the
    integral of exp(-s) (t + s)^(a - 1).

    Args:
        a: shapes, float64 arrays.
        t: 0 or more; inf gives 0.
        log_t: its logarithm, which is finite where t underflows.
    """
    a, t, log_t = np.broadcast_arrays(a, t, log_t)
    value, slope = np.empty(t.shape), np.empty(t.shape)
    few = t < _FEW
    value[few], slope[few] = _upper_series(a[few], t[few], log_t[few])
    value[~few], slope[~few] = _upper_integral(a[~few], np.minimum(t[~few], 1e3))
    return value, slope


def power_change(a: Any, logarithm: Any) -> tuple[Any, Any]:
    """Return (exp(a l) - 1) / a, whose limit is l at a = 0, and its derivative by a."""
    x = a * logarithm
    none, small = a == 0, np.abs(x) < 0.1
    value = np.where(none, logarithm, np.expm1(x) / np.where(none, 1.0, a))
    series = np.polynomial.polynomial.polyval(
        np.where(small, x, 0.0), [1 / (math.factorial(n) * (n + 2)) for n in range(12)]
    )
    direct = (logarithm * np.exp(x) - value) / np.where(none, 1.0, a)
    return value, np.where(small, logarithm * logarithm * series, direct)


def gamma_change(a: Any) -> tuple[Any, Any]:
    """Return (Gamma(1 + a) - 1) / a for a > -1, and its derivative; Taylor series near 0."""
    small = np.abs(a) < 0.2
    near, far = np.where(small, a, 0.0), np.where(small, 1.0, a)
    full = special.gamma(1 + far)
    value = (full - 1) / far
    slope = (full * special.psi(1 + far) - value) / far
    polynomial = np.polynomial.Polynomial(GAMMA_CHANGE)
    return (
        np.where(small, polynomial(near), value),
        np.where(small, polynomial.deriv()(near), slope),
    )


def _upper_series(a: Any, t: Any, log_t: Any) -> tuple[Any, Any]:
    (full, by_full), (power, by_power) = gamma_change(a), power_change(a, log_t)
    total, slope, term = np.zeros_like(t), np.zeros_like(t), np.ones_like(t)
    for n in range(1, 32):
        term = -term * t / n
        total, slope = total + term / (a + n), slope - term / (a + n) ** 2
    t_to_a = np.exp(a * log_t)  # it may overflow only beyond the series' place
    series = t_to_a * total
    by_series = np.where(total == 0, 0.0, t_to_a * (slope + log_t * total))
    return full - power - series, by_full - by_power - by_series


def _upper_integral(a: Any, t: Any) -> tuple[Any, Any]:
    value, slope = np.zeros_like(t), np.zeros_like(t)
    for point, weight in zip(*_LAGUERRE, strict=True):
        logarithm = np.log(t + point)
        term = weight * np.exp((a - 1) * logarithm - t)
        value, slope = value + term, slope + term * logarithm
    return value, slope


def _temme(a: Any, x: Any) -> tuple[Any, ...]:
    """Return mu, eta, eta sqrt(a), the correction to the normal cdf, and sum c_j / a^j."""
    mu = (np.minimum(x, 1e300) - a) / a
    eta = np.clip(np.sign(mu) * np.sqrt(2 * np.maximum(excess(mu), 0.0)), -0.6, 0.6)
    total = sum(c(eta) / a**j for j, c in enumerate(_C))
    z = np.sign(mu) * np.sqrt(2 * a * np.maximum(excess(mu), 0.0))
    return mu, eta, z, _density(z) / np.sqrt(a) * total, total


def _temme_by_shape(a: Any, x: Any) -> Any:
    mu, eta, z, correction, _ = _temme(a, x)
    at_centre = mu == 0
    safe = np.where(at_centre, 1.0, eta)
    log = np.log1p(mu)
    by_eta = sum(c.deriv()(eta) / a**j for j, c in enumerate(_C))
    by_a = sum(-j * c(eta) / a ** (j + 1) for j, c in enumerate(_C))
    change = by_a - by_eta * np.where(at_centre, 1.0, mu / safe) / a
    normal = -np.where(at_centre, 1.0, log / safe)  # times the density over sqrt(a)
    return _density(z) / np.sqrt(a) * (normal - change) - correction * (log - 0.5 / a)


def _density(z: Any) -> Any:
    return _INV_SQRT_2PI * np.exp(-0.5 * z * z)


def _stirling_remainder(x: Any) -> Any:
    """Return log Gamma(x + 1) less its Stirling approximation x log x - x + log(2 pi x) / 2."""
    return np.polynomial.polynomial.polyval(1 / (x * x), _GAMMA_REMAINDER) / x


def _series(a: Any, x: Any) -> Any:
    slope = log_less_digamma(a, x)
    term = step(a, x)
    total = result = term * slope
    index = np.arange(len(a))  # points whose sum has not ended
    for n in range(1, _MOST_TERMS):
        term = term * (x / (a + n))
        slope = slope - 1 / (a + n)
        increment = term * slope
        total = total + increment
        if n % 8 == 0:
            unfinished = (np.abs(increment) > 1e-18) | (x >= a + n)
            result[index] = total
            if not unfinished.any():
                break
            a, x, term, slope, total, index = (
                v[unfinished] for v in (a, x, term, slope, total, index)
            )
    return result


def _expansions(terms: int) -> list[Any]:
    """Return Temme's c_0 to c_2 in powers of eta, from mu d mu = eta (1 + mu) d eta."""
    a: list[Any] = [Fraction(0), Fraction(1)]
    for n in range(2, terms + 6):
        a.append((a[n - 1] - sum(a[j] * (n + 1 - j) * a[n + 1 - j] for j in range(2, n))) / (n + 1))
    inverse: list[Any] = [Fraction(1)]  # of mu / eta
    for n in range(1, terms + 4):
        inverse.append(-sum(a[j + 1] * inverse[n - j] for j in range(1, n + 1)))
    c = [inverse[1:]]
    for gamma in (Fraction(-1, 12), Fraction(1, 288)):
        size = len(c[-1]) - 2
        c.append([(n + 2) * c[-1][n + 2] + gamma * inverse[n + 1] for n in range(size)])
    return [np.polynomial.Polynomial([float(v) for v in one]) for one in c]


def _gamma_series(terms: int) -> list[float]:
    """Return the coefficients of (Gamma(1 + a) - 1) / a, from those of log Gamma."""
    log = [0.0, -float(np.euler_gamma)]
    log += [(-1) ** n * float(_zeta(n)) / n for n in range(2, terms + 1)]
    full = [1.0]
    for n in range(1, terms + 1):
        full.append(sum(k * log[k] * full[n - k] for k in range(1, n + 1)) / n)
    return full[1:]


def half_step(ops: Any, x: Any) -> Any:
    """Return log Gamma(x + 1/2) - log Gamma(x) - log(x) / 2 for x > 0; 0 at inf.

    The difference of two log-gamma functions loses all digits at large x (Tricomi & Erdelyi 1951,
    doi:10.2140/pjm.1951.1.133); there it is the asymptotic series, whose terms are small.
    """
    small = x < _LARGE_HALF_STEP
    low = ops.where(small, x, ops.full_like(x, 1.0))
    direct = ops.gammaln(low + 0.5) - ops.gammaln(low) - 0.5 * ops.log(low)
    r = 1 / ops.where(small, ops.full_like(x, _LARGE_HALF_STEP), x)
    return ops.where(small, direct, r * _horner(_HALF_STEP, r * r))


def half_step_slope(ops: Any, x: Any) -> Any:
    """Return the derivative of `half_step`, without cancellation of the digamma functions."""
    small = x < _LARGE_HALF_STEP
    low = ops.where(small, x, ops.full_like(x, 1.0))
    direct = ops.digamma(low + 0.5) - ops.digamma(low) - 0.5 / low
    r = 1 / ops.where(small, ops.full_like(x, _LARGE_HALF_STEP), x)
    powers = [-(2 * i + 1) * c for i, c in enumerate(_HALF_STEP)]
    return ops.where(small, direct, r * r * _horner(powers, r * r))


def mean_half_step_slope(x: Any, change: Any) -> Any:
    """Return the mean derivative of log(Gamma(x + 1/2) / Gamma(x)) from x to x + change.

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


_C, GAMMA_CHANGE = _expansions(16), _gamma_series(30)
