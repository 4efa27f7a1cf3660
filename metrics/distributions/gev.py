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
    gamma_change,
    gammainc_by_shape,
    power_change,
    upper_near_0,
)

# Formulas that divide by the shape cancel near 0; there the part that does is interpolated.
_NEAR = 0.05
_NODES = 0.015 * np.array([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5])
_MOST_Z, _MOST_SHAPE, _MOST_GAMMA = 1e300, 2.0, 150.0
_ZETAS = (math.pi**2 / 6, 1.2020569031595942, math.pi**4 / 90)  # of 2, 3, 4


def _exponent(z: Any, shape: Any) -> Any:
    """Return -log t, which is infinite at and beyond the end of the support."""
    near = np.abs(shape) < 1e-200  # log1p keeps the digits of all others
    safe = np.where(near, 1.0, shape)
    inside = shape * z > -1
    with np.errstate(all="ignore"):
        exponent = np.where(near, z, np.log1p(np.where(inside, shape * z, 0.0)) / safe)
    beyond = np.where(shape > 0, -math.inf, math.inf)  # below the support, or above it
    return np.where(inside | np.isnan(z * shape), exponent, beyond)


def _z(mu: Any, sigma: Any, y: Any) -> Any:
    d = y - mu
    with np.errstate(all="ignore"):
        z = np.where(sigma == 0, np.sign(d) * _MOST_Z, d / np.where(sigma == 0, 1.0, sigma))
    return np.clip(z, -_MOST_Z, _MOST_Z)


def _parts(t: Any, xi: Any, *, slope: bool = True) -> tuple[Any, Any]:
    """Return the CRPS less z (2 F - 1) at t, and its derivative by the shape, away from shape 0.

    Without `slope` the derivative is NaN.

    It is 2 E[X; S < t] - E[X] - (E max(X, X') - E[X]) of X = (S^-shape - 1) / shape with an
    exponential S. Gamma functions that overflow are taken by their logarithms.
    """
    a = 1 - xi
    log_full, below = special.gammaln(a), special.gammainc(a, t)
    full = special.gamma(np.minimum(a, _MOST_GAMMA))
    vast = a > _MOST_GAMMA
    doubled = np.where(vast, np.exp(log_full + xi * math.log(2)), 2.0**xi * full)
    full_below = np.where(
        vast,
        np.exp(log_full + np.log(below)),
        full * below,
    )
    partial = (full_below + np.expm1(-t)) / xi
    beyond = np.isinf(doubled)
    value = np.where(beyond, math.inf, 2 * partial - (doubled - 1) / xi)
    if not slope:
        return value, np.full_like(value, math.nan)
    psi, by_a = special.psi(a), gammainc_by_shape(a, t)
    full_by_a = np.where(
        by_a == 0, 0.0, np.where(vast, np.exp(np.minimum(log_full, 700.0)), full) * by_a
    )
    by_partial = -(psi * full_below + full_by_a + partial) / xi
    by_double = (doubled * (math.log(2) - psi) - (doubled - 1) / xi) / xi
    return value, np.where(beyond, -math.inf, 2 * by_partial - by_double)


def _heavy_parts(exponent: Any, t: Any, xi: Any) -> tuple[Any, Any]:
    """Return the result of `_parts` for shapes from 1/2 to 2; at 1 single gamma functions diverge.

    With a = 1 - shape, 2 gamma(a, t) - 2^(1 - a) Gamma(a) is
    2 [Gamma(1 + a) (1 - 2^-a) / a - Gamma(a, t)]: finite at a = 0, and its analytic continuation.
    """
    a = 1 - xi
    (change, by_change), (halving, by_halving) = gamma_change(a), power_change(a, -math.log(2))
    upper, by_upper = upper_near_0(a, t, -exponent)
    full, by_full = 1 + a * change, change + a * by_change
    # (1 - 2^-a) / a is less the change of a power of 1/2
    sum_of_parts = 2 * (-full * halving - upper) + 2 * np.expm1(-t) + 1
    by_a = 2 * (-by_full * halving - full * by_halving - by_upper)
    value = sum_of_parts / xi
    return value, -(by_a + value) / xi


def _remainder(exponent: Any, t: Any, xi: Any, *, slope: bool = True) -> tuple[Any, Any]:
    """Return the CRPS less z (2 F - 1) and its derivative by the shape, for every shape below 2."""
    far, heavy = np.abs(xi) >= _NEAR, (xi > 0.5) & (xi < 2)
    usual = np.where(far & (xi <= 0.5), xi, 0.5)
    value, by_shape = map(np.asarray, _parts(t, usual, slope=slope))
    if heavy.any():
        others = _heavy_parts(np.where(heavy, exponent, 0.0), t, np.where(heavy, xi, 1.0))
        value, by_shape = (
            np.where(heavy, h, v) for h, v in zip(others, (value, by_shape), strict=True)
        )
    near = ~far & ~np.isnan(xi + t)
    if near.any():
        at, where = np.broadcast_to(t, value.shape)[near], np.broadcast_to(xi, value.shape)[near]
        every = [_parts(at, np.full_like(at, node), slope=False) for node in _NODES]
        nodes = np.stack([value_at_node for value_at_node, _ in every])
        value[near], by_shape[near] = _interpolate(nodes, where)
    undefined = np.isnan(xi + t)
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


def _terms(mu: Any, sigma: Any, shape: Any, y: Any, *, slope: bool = True) -> tuple[Any, ...]:
    exponent = _exponent(_z(mu, sigma, y), shape)
    with np.errstate(over="ignore"):
        t = np.exp(-exponent)
    by_y = 2 * np.exp(-t) - 1
    arguments = (np.asarray(v, np.float64) for v in (exponent, t, shape))
    remainder, by_shape = _remainder(*arguments, slope=slope)
    return by_y, remainder, by_shape


def _value(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> Any:
    by_y, remainder, _ = _terms(mu, sigma, shape, y, slope=False)
    score = np.where(sigma == 0, np.abs(y - mu), (y - mu) * by_y + sigma * remainder)
    return np.where((shape >= _MOST_SHAPE) & (sigma > 0), math.inf, score)


def _partials(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> tuple[Any, ...]:
    by_y, remainder, by_shape = _terms(mu, sigma, shape, y)
    by_y = np.where(sigma == 0, np.sign(y - mu), by_y)
    undefined = shape >= _MOST_SHAPE  # where the score is infinite, it has no slope
    partials = (-by_y, remainder, sigma * by_shape, by_y)
    return tuple(np.where(undefined, 0.0, part) for part in partials)


def _cdf(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> Any:
    with np.errstate(over="ignore"):
        level = np.exp(-np.exp(-_exponent(_z(mu, sigma, y), shape)))
    level = np.where((sigma == 0) & (y == mu), 0.5, level)
    return np.where(_any_nan(mu, sigma, shape, y), np.nan, level)


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
    tiny = np.abs(shape * z) < 1e-3
    safe = np.where(tiny, 1.0, shape)
    # d exponent / d shape; its series where z shape is small
    series = -(z**2) / 2 + 2 * shape * z**3 / 3 - 3 * shape**2 * z**4 / 4
    series = series + 4 * shape**3 * z**5 / 5 - 5 * shape**4 * z**6 / 6
    by_shape = np.where(tiny, series, (z * inverse - exponent) / safe)
    partials = (
        -by_z / sigma,
        (1 - z * by_z) / sigma,
        exponent + (1 + shape - t) * by_shape,
        by_z / sigma,
    )
    return tuple(np.where(outside, 0.0, part) for part in partials)


def _moments(shape: Any) -> tuple[Any, Any]:
    """Return mean and variance of the standard distribution, by their limits near shape 0."""
    near = np.abs(shape) < 1e-5
    safe = np.where(near, 1e-5, shape)
    first = np.expm1(special.gammaln(1 - np.where(safe >= 1, 0.5, safe))) / safe
    mean = np.where(near, np.euler_gamma + shape * (np.euler_gamma**2 + math.pi**2 / 6) / 2, first)
    low = np.abs(shape) < 1e-3
    half = np.where(low, 1e-3, np.where(shape >= 0.5, 0.25, shape))
    square = special.gamma(1 - 2 * half) - special.gamma(1 - half) ** 2
    variance = np.where(low, _small_variance(shape), square / half**2)
    # a NaN is above no bound
    return np.where(shape >= 1, math.inf, mean), np.where(shape >= 0.5, math.inf, variance)


def _small_variance(shape: Any) -> Any:
    """Return (Gamma(1 - 2 s) - Gamma(1 - s)^2) / s^2 to second order, for s near 0."""
    g, z2, z3, z4 = np.euler_gamma, *_ZETAS
    second = 3.5 * z4 + 1.5 * z2**2 + 4 * g * z3 + 2 * g**2 * z2
    return z2 + (2 * z3 + 2 * g * z2) * shape + second * shape**2


def _mean(_ops: Any, mu: Any, sigma: Any, shape: Any) -> Any:
    return mu + sigma * _moments(shape)[0]


def _variance(_ops: Any, mu: Any, sigma: Any, shape: Any) -> Any:
    return sigma**2 * _moments(shape)[1] + 0 * mu


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
    kernels: ClassVar = {
        "crps": Kernel(_value, _partials, on_host=True, double=True),
        "log_score": Kernel(
            _log_score, _log_score_partials, on_host=True, double=True, positive=("sigma",)
        ),
        "cdf": Kernel(_cdf, on_host=True, double=True),
        "mean": Kernel(_mean, double=True),
        "variance": Kernel(_variance, double=True),
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

    The closed form of Friederichs & Thorarinsdottir (2012, doi:10.1002/env.2176), arranged so
    that nothing cancels near shape 0 (relative error below 1e-12), and continued through shape 1,
    where its gamma functions have a pole and the score has none: the integral of
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
