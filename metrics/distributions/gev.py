"""The generalised extreme value distribution of a location, a scale and a shape.

With z = (y - mu) / sigma its distribution function is exp(-t), t = (1 + shape z)^(-1/shape), or
exp(-z) at shape 0: a positive shape has the heavy tail above, a negative one a bound.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from ens10.metrics._reduce import Over
from ens10.metrics.distributions.base import LOCATION, SCALE, ClosedForm
from ens10.metrics.distributions.formula import Kernel, Parameter
from ens10.metrics.distributions.gamma_functions import (
    GAMMA_CHANGE,
    gamma_change,
    gammainc_by_shape,
    power_change,
    upper_near_0,
)

# Formulas that divide differences by the shape lose digits as 1e-16 / shape. Nearer to 0 than this
# a polynomial of degree 9 takes their place. Its error is the tenth Taylor coefficient times the
# product of the distances to the nodes, at most 1e-14 here; at the nodes rounding is 1e-14.
_NEAR = 0.05
_NODES = 0.015 * np.array([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5])
_MOST_Z = 1e300  # overflows in no product
# E|X - X'| / 2 is infinite, as 1 - F falls like z^(-1/shape) and its square must be integrable
_MOST_SHAPE = 2.0
_MOST_GAMMA = 150.0  # an argument whose gamma function is finite
_SMALL = 0.1  # a shape below which the variance is a series
# (c(-2 s) - c(-s)) / s in powers of s, see `_standard_variance`
_CHANGE = np.polynomial.Polynomial(
    [c * ((-2.0) ** n - (-1.0) ** n) for n, c in enumerate(GAMMA_CHANGE)][1:]
)


def _exponent(z: Any, shape: Any) -> Any:
    """Return -log t, which is infinite at and beyond the end of the support."""
    near = np.abs(shape) < 1e-200  # log1p keeps the digits of all others
    safe = np.where(near, 1.0, shape)
    inside = shape * z > -1
    with np.errstate(all="ignore"):
        exponent = np.where(near, z, np.log1p(np.where(inside, shape * z, 0.0)) / safe)
    beyond = np.where(shape > 0, -math.inf, math.inf)  # below the support, or above it
    return np.where(inside | np.isnan(z * shape), exponent, beyond)


def by_shape_of_exponent(z: Any, shape: Any) -> Any:
    """Return the derivative of -log t by the shape, at a fixed z inside the support.

    It is (z / (1 + shape z) - log(1 + shape z) / shape) / shape, which cancels where shape z is
    small: below 1e-3 six terms of its series have an error of 1e-18.
    """
    exponent = _exponent(z, shape)
    tiny = np.abs(shape * z) < 1e-3
    safe, near = np.where(tiny, 1.0, shape), np.where(tiny, z, 0.0)
    series = sum((-1) ** n * n / (n + 1) * shape ** (n - 1) * near ** (n + 1) for n in range(1, 7))
    inside = np.where(tiny | ~np.isfinite(exponent), 1.0, 1 + shape * z)
    return np.where(tiny, series, (z / inside - np.where(np.isinf(exponent), 0, exponent)) / safe)


def _z(mu: Any, sigma: Any, y: Any) -> Any:
    d = y - mu
    with np.errstate(all="ignore"):
        z = np.where(sigma == 0, np.sign(d) * _MOST_Z, d / np.where(sigma == 0, 1.0, sigma))
    return np.clip(z, -_MOST_Z, _MOST_Z)


def _remainder_away_from_0(t: Any, shape: Any, *, slope: bool = True) -> tuple[Any, Any]:
    """Return the result of `_remainder` for shapes up to 1/2 that are not near 0.

    It is 2 E[X; S < t] - E[X] - (E max(X, X') - E[X]) of X = (S^-shape - 1) / shape with an
    exponential S: `partial` is E[X; S < t], and (`doubled` - 1) / shape is E max(X, X'). Gamma
    functions that overflow are taken by their logarithms.
    """
    # with a = 1 - shape: full is Gamma(a), below P(a, t), full_below their product, doubled
    # 2^shape Gamma(a)
    a = 1 - shape
    log_full, below = special.gammaln(a), special.gammainc(a, t)
    full = special.gamma(np.minimum(a, _MOST_GAMMA))
    vast = a > _MOST_GAMMA
    doubled = np.where(vast, np.exp(log_full + shape * math.log(2)), 2.0**shape * full)
    full_below = np.where(vast, np.exp(log_full + np.log(below)), full * below)
    partial = (full_below + np.expm1(-t)) / shape
    beyond = np.isinf(doubled)
    value = np.where(beyond, math.inf, 2 * partial - (doubled - 1) / shape)
    if not slope:
        return value, np.full_like(value, math.nan)
    psi, by_a = special.psi(a), gammainc_by_shape(a, t)
    full_by_a = np.where(
        by_a == 0, 0.0, np.where(vast, np.exp(np.minimum(log_full, 700.0)), full) * by_a
    )
    by_partial = -(psi * full_below + full_by_a + partial) / shape
    by_double = (doubled * (math.log(2) - psi) - (doubled - 1) / shape) / shape
    return value, np.where(beyond, -math.inf, 2 * by_partial - by_double)


def _remainder_through_1(exponent: Any, t: Any, shape: Any) -> tuple[Any, Any]:
    """Return the result of `_remainder_away_from_0` for shapes from 1/2 to 2.

    At 1 its gamma functions diverge, but not their difference.
    With a = 1 - shape, 2 gamma(a, t) - 2^(1 - a) Gamma(a) is
    2 [Gamma(1 + a) (1 - 2^-a) / a - Gamma(a, t)]: finite at a = 0, and its analytic continuation.
    """
    a = 1 - shape
    (change, by_change), (halving, by_halving) = gamma_change(a), power_change(a, -math.log(2))
    upper, by_upper = upper_near_0(a, t, -exponent)
    full, by_full = 1 + a * change, change + a * by_change
    # (1 - 2^-a) / a is less the change of a power of 1/2
    sum_of_parts = 2 * (-full * halving - upper) + 2 * np.expm1(-t) + 1
    by_a = 2 * (-by_full * halving - full * by_halving - by_upper)
    value = sum_of_parts / shape
    return value, -(by_a + value) / shape


def _remainder(exponent: Any, t: Any, shape: Any, *, slope: bool = True) -> tuple[Any, Any]:
    """Return R of the CRPS, sigma (z (2 F - 1) + R), and its derivative by the shape.

    R depends on t and the shape alone, and is the derivative of the CRPS by sigma. Near shape 0 it
    is a polynomial through `_NODES`; otherwise it is that of `_remainder_away_from_0` up to 1/2 and
    of `_remainder_through_1` from there to 2. From 2 on, where the CRPS is infinite, the result has
    no meaning.

    Args:
        exponent: -log t.
        t: -log F(y).
        shape: of the distributions.
        slope: False if no derivative is needed; it may then be NaN.

    Returns:
        R, and its derivative at a fixed t: that of the CRPS over sigma at a fixed y, in which the
        changes of t cancel.
    """
    far, heavy = np.abs(shape) >= _NEAR, (shape > 0.5) & (shape < 2)
    usual = np.where(far & (shape <= 0.5), shape, 0.5)
    value, by_shape = map(np.asarray, _remainder_away_from_0(t, usual, slope=slope))
    if heavy.any():
        others = _remainder_through_1(
            np.where(heavy, exponent, 0.0), t, np.where(heavy, shape, 1.0)
        )
        value, by_shape = (
            np.where(heavy, h, v) for h, v in zip(others, (value, by_shape), strict=True)
        )
    near = ~far & ~np.isnan(shape + t)
    if near.any():
        at, where = np.broadcast_to(t, value.shape)[near], np.broadcast_to(shape, value.shape)[near]
        every = [_remainder_away_from_0(at, np.full_like(at, node), slope=False) for node in _NODES]
        nodes = np.stack([value_at_node for value_at_node, _ in every])
        value[near], by_shape[near] = _interpolate(nodes, where)
    undefined = np.isnan(shape + t)
    return np.where(undefined, np.nan, value), np.where(undefined, np.nan, by_shape)


def _interpolate(values: Any, x: Any) -> tuple[Any, Any]:
    """Return the polynomial through values at the nodes, and its slope."""
    value, slope = np.zeros_like(x), np.zeros_like(x)
    for i, node in enumerate(_NODES):
        others = np.delete(_NODES, i)
        polynomial = np.poly1d(others, r=True) / np.prod(node - others)
        value += values[i] * polynomial(x)
        slope += values[i] * polynomial.deriv()(x)
    return value, slope


def _crps_terms(mu: Any, sigma: Any, shape: Any, y: Any, *, slope: bool = True) -> tuple[Any, ...]:
    """Return the slopes of the CRPS by y, by sigma and, over sigma, by the shape.

    The CRPS is the sum of (y - mu) and sigma times their slopes, as both have its unit.
    """
    exponent = _exponent(_z(mu, sigma, y), shape)
    with np.errstate(over="ignore"):
        t = np.exp(-exponent)
    by_y = 2 * np.exp(-t) - 1
    arguments = (np.asarray(v, np.float64) for v in (exponent, t, shape))
    by_sigma, by_shape = _remainder(*arguments, slope=slope)
    return by_y, by_sigma, by_shape


def _crps(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> Any:
    by_y, by_sigma, _ = _crps_terms(mu, sigma, shape, y, slope=False)
    score = np.where(sigma == 0, np.abs(y - mu), (y - mu) * by_y + sigma * by_sigma)
    return np.where((shape >= _MOST_SHAPE) & (sigma > 0), math.inf, score)


def _crps_partials(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> tuple[Any, ...]:
    by_y, by_sigma, by_shape = _crps_terms(mu, sigma, shape, y)
    by_y = np.where(sigma == 0, np.sign(y - mu), by_y)
    undefined = shape >= _MOST_SHAPE  # where the score is infinite, it has no slope
    partials = (-by_y, by_sigma, sigma * by_shape, by_y)
    return tuple(np.where(undefined, 0.0, part) for part in partials)


def _cdf(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> Any:
    with np.errstate(over="ignore"):
        level = np.exp(-np.exp(-_exponent(_z(mu, sigma, y), shape)))
    level = np.where((sigma == 0) & (y == mu), 0.5, level)
    return np.where(_any_nan(mu, sigma, shape, y), np.nan, level)


def _cdf_partials(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> tuple[Any, ...]:
    z = _z(mu, sigma, y)
    exponent = _exponent(z, shape)
    outside = np.isinf(exponent) | (sigma == 0)
    inside = np.where(outside, 0.0, exponent)
    t = np.exp(-inside)
    density = np.where(outside, 0.0, t * np.exp(-t))  # of -log t
    by_z = density / np.where(outside, 1.0, 1 + shape * z)
    by_y = by_z / np.where(sigma == 0, 1.0, sigma)
    by_sigma, turn = (np.where(outside, 0.0, part) for part in (z, by_shape_of_exponent(z, shape)))
    return -by_y, -by_sigma * by_y, density * turn, by_y


def _any_nan(*arrays: Any) -> Any:
    """Return True where an argument is NaN, which the exponent does not propagate."""
    return np.any([np.isnan(array) for array in arrays], axis=0)


def _log_score(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> Any:
    exponent = _exponent(_z(mu, sigma, y), shape)
    with np.errstate(over="ignore", invalid="ignore"):
        score = np.log(sigma) + (1 + shape) * exponent + np.exp(-exponent)
    score = np.where(np.isinf(exponent) | np.isinf(y), math.inf, score)
    return np.where(_any_nan(mu, sigma, shape, y), np.nan, score)


def _log_score_partials(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> tuple[Any, ...]:
    z = _z(mu, sigma, y)
    exponent = _exponent(z, shape)
    outside = np.isinf(exponent) | np.isinf(y)
    exponent = np.where(outside, 0.0, exponent)
    with np.errstate(over="ignore"):
        t = np.exp(-exponent)
    inverse = 1 / np.where(outside, 1.0, 1 + shape * z)
    by_z = (1 + shape - t) * inverse
    by_shape = by_shape_of_exponent(z, shape)
    partials = (
        -by_z / sigma,
        (1 - z * by_z) / sigma,
        exponent + (1 + shape - t) * by_shape,
        by_z / sigma,
    )
    return tuple(np.where(outside, 0.0, part) for part in partials)


def _standard_mean(shape: Any) -> tuple[Any, Any]:
    """Return the mean of the standard distribution, (Gamma(1 - shape) - 1) / shape, and slope."""
    heavy = shape >= 1  # a NaN is above no bound
    value, slope = gamma_change(-np.where(heavy, 0.0, shape))
    return np.where(heavy, math.inf, -value), np.where(heavy, 0.0, slope)


def _standard_variance(shape: Any) -> tuple[Any, Any]:
    """Return (Gamma(1 - 2 s) - Gamma(1 - s)^2) / s^2 and its derivative by the shape s.

    Near 0, where it cancels, it is -2 (c(-2 s) - c(-s)) / s - c(-s)^2 with the Taylor series of
    c(a) = (Gamma(1 + a) - 1) / a: exact to rounding for |s| < 0.1, as its radius is 1.
    """
    near, heavy = np.abs(shape) < _SMALL, shape >= 0.5
    change, by_change = gamma_change(-np.where(near, shape, 0.0))
    at = np.where(near, shape, 0.0)
    close = -2 * _CHANGE(at) - change**2
    by_close = -2 * _CHANGE.deriv()(at) + 2 * change * by_change
    s = np.where(near | heavy, 0.25, shape)
    double, square = special.gamma(1 - 2 * s), special.gamma(1 - s) ** 2
    far = (double - square) / s**2
    by_far = 2 * (special.psi(1 - s) * square - special.psi(1 - 2 * s) * double) / s**2
    value, slope = np.where(near, close, far), np.where(near, by_close, by_far - 2 * far / s)
    return np.where(heavy, math.inf, value), np.where(heavy, 0.0, slope)


def _mean(_ops: Any, mu: Any, sigma: Any, shape: Any) -> Any:
    return mu + sigma * _standard_mean(shape)[0]


def _mean_partials(_ops: Any, mu: Any, sigma: Any, shape: Any) -> tuple[Any, ...]:
    value, slope = _standard_mean(shape)
    return 1.0 + 0.0 * mu, np.where(np.isinf(value), 0.0, value), sigma * slope


def _variance(_ops: Any, mu: Any, sigma: Any, shape: Any) -> Any:
    return sigma**2 * _standard_variance(shape)[0] + 0 * mu


def _variance_partials(_ops: Any, mu: Any, sigma: Any, shape: Any) -> tuple[Any, ...]:
    value, slope = _standard_variance(shape)
    return 0.0 * mu, 2 * sigma * np.where(np.isinf(value), 0.0, value), sigma**2 * slope


def _quantile(_ops: Any, mu: Any, sigma: Any, shape: Any, p: Any) -> Any:
    exponent = -np.log(-np.log(p))
    near = np.abs(shape) < 1e-200
    z = np.where(near, exponent, np.expm1(shape * exponent) / np.where(near, 1.0, shape))
    return mu + np.where(sigma == 0, 0.0, sigma * z)


@dataclass(eq=False)
class GEV(ClosedForm, kind="gev"):
    """Generalised extreme value distribution at each grid point.

    Args:
        mu: location, (..., H, W), target units.
        sigma: scale, 0 or more, with the shape and units of `mu`.
        shape: above 0 the tail is heavy, below 0 there is an upper bound; no unit.
        positive: True to skip the check that the parameters are valid.
    """

    mu: Any
    sigma: Any
    shape: Any
    positive: bool = False

    parameters: ClassVar = {
        "mu": LOCATION,
        "sigma": SCALE,
        "shape": Parameter(unit="1", long_name="shape of the forecast"),
    }
    oracles = "mpmath in 40 digits"
    kernels: ClassVar = {
        "crps": Kernel(_crps, _crps_partials, on_host=True, double=True),
        "log_score": Kernel(
            _log_score, _log_score_partials, on_host=True, double=True, positive=("sigma",)
        ),
        "cdf": Kernel(_cdf, _cdf_partials, on_host=True, double=True),
        "mean": Kernel(_mean, _mean_partials, on_host=True, double=True),
        "variance": Kernel(_variance, _variance_partials, on_host=True, double=True),
    }
    inverse = _quantile
    inverse_on_host = True

    def twcrps(self, y: Any, lower: Any, upper: Any) -> Any:
        """Return the threshold-weighted CRPS, by that of the censored distribution."""
        from ens10.metrics.distributions.censored_gev import CensoredGEV

        censored = CensoredGEV(self.mu, self.sigma, self.shape, positive=self.positive)
        return censored.twcrps(y, lower, upper)


def crps_gev(
    mu: Any,
    sigma: Any,
    shape: Any,
    y: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of generalised extreme value distributions, elementwise.

    With t = -log F(y) and the lower incomplete gamma function it is

        (mu - y - sigma / shape) (1 - 2 F(y))
            - (sigma / shape) [2^shape Gamma(1 - shape) - 2 gamma(1 - shape, t)],

    the closed form of Friederichs & Thorarinsdottir (2012, doi:10.1002/env.2176). It is arranged so
    that nothing cancels near shape 0 (relative error below 1e-12), and continued through shape 1,
    where the gamma functions have a pole and the score has none: the integral of
    (F - 1{x >= y})^2 is finite for shapes below 2, without a mean too. It is inf for shapes of 2
    and more, with gradient 0. Tensors are computed on the host; gradients are analytic.

    Args:
        mu: locations, any shape.
        sigma: scales, 0 or more, in the unit of `mu`.
        shape: above 0 the tail is heavy, below 0 there is an upper bound; no unit.
        y: observations.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Raises:
        ArgumentError: a negative sigma, arrays that do not match.
    """
    return GEV.formula("crps")(mu, sigma, shape, y, check=check, dim=dim, weights=weights, nan=nan)
