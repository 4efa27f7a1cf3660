"""The generalised extreme value distribution whose part below a bound is a mass on the bound.

Scheuerer (2014, doi:10.1002/qj.2183) uses it for precipitation, with the bound 0. With F = exp(-t),
t = (1 + shape z)^(-1/shape), the integral of F^2 up to z is 2^shape Gamma(-shape, 2 t), and that of
(1 - F)^2 above z a power series in t.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from ens10.metrics._ops import ops_of
from ens10.metrics._reduce import Over
from ens10.metrics.distributions.base import LOWER, ClosedForm
from ens10.metrics.distributions.formula import Kernel
from ens10.metrics.distributions.gamma_functions import (
    UNIT_POINTS,
    UNIT_WEIGHTS,
    gammainc_by_shape,
    upper_near_0,
)
from ens10.metrics.distributions.gev import (
    _NEAR,
    _NODES,
    GEV,
    _cdf,
    _cdf_partials,
    _crps,
    _crps_partials,
    _exponent,
    _interpolate,
    _log_score,
    _log_score_partials,
    _quantile,
    _remainder,
    _z,
    by_shape_of_exponent,
)

_MOST_SHAPE = 0.6  # that heads forecast
_GUMBEL = (0.5772156649015329, 0.9890559953279726, 0.9074790760808863)  # of the mean, in powers
_HEAVIEST = 2.0  # a shape from which on the score is infinite
_TERMS = 32  # of the series in t, up to t = 1: the next one is 2^32 / 32! = 2e-26
_CLOSE = 0.3  # change of -log t across which a quadrature of F^2 is exact to rounding


def _upper_gamma(a: Any, t: Any, log_t: Any) -> tuple[Any, Any]:
    """Return Gamma(a, t) and its derivative by a, for a above -2."""
    heavy, light = a <= -1, a > 0.5
    shape = np.where(light, 0.0, np.where(heavy, a + 1, a))
    value, slope = upper_near_0(shape, t, log_t)
    # Gamma(a, t) = (Gamma(a + 1, t) - t^a e^-t) / a
    safe = np.where(heavy, a, -1.0)
    edge = np.exp(np.where(heavy, safe * np.maximum(log_t, -700 / 2) - t, -math.inf))
    lower = (value - edge) / safe
    by_lower = (slope - np.where(edge == 0, 0.0, edge * log_t) - lower) / safe
    value, slope = np.where(heavy, lower, value), np.where(heavy, by_lower, slope)
    b, at = a[light], t[light]
    full, above = special.gamma(b), special.gammaincc(b, at)
    value[light] = full * above
    slope[light] = full * (special.psi(b) * above - gammainc_by_shape(b, at))
    return value, slope


def _tail_series(t: Any, log_t: Any, shape: Any, weights: list[float]) -> tuple[Any, Any]:
    """Return the sum of w_n t^(n - shape) / (n - shape) from n = 1, and its derivative by shape."""
    total, slope = np.zeros_like(t), np.zeros_like(t)
    for n, weight in enumerate(weights, 1):
        if weight:
            term = weight * np.exp((n - shape) * log_t) / (n - shape)
            total, slope = total + term, slope + term * (1 / (n - shape) - log_t)
    return total, slope


_SQUARE = [(-1) ** n * (2.0**n - 2) / math.factorial(n) for n in range(1, _TERMS)]  # (1 - e^-t)^2
_PLAIN = [(-1) ** (n + 1) / math.factorial(n) for n in range(1, _TERMS)]  # 1 - e^-t


def _lower_integral(z: Any, shape: Any) -> tuple[Any, Any]:
    """Return the integral of the squared cdf of the standard GEV up to z, and its shape slope."""
    exponent = _exponent(z, shape)
    beyond = (exponent == math.inf) & (shape < 0)  # above the end of the support
    end = np.where(beyond, -1 / np.where(beyond, shape, -1.0), 0.0)
    log_t = np.clip(-exponent, -1e4, 700.0)
    t = np.exp(log_t)
    part, by_a = _upper_gamma(-shape, 2 * t, log_t + math.log(2))
    power = 2.0**shape
    edge = np.exp(-shape * log_t - 2 * t)  # t^-shape F^2
    by_t = edge * np.where(beyond, 0.0, by_shape_of_exponent(z, shape))
    slope = power * (math.log(2) * part - by_a) + np.where(edge == 0, 0.0, by_t)
    empty = exponent == -math.inf  # below the support
    value = np.where(empty, 0.0, power * part + np.where(beyond, z - end, 0.0))
    return value, np.where(empty, 0.0, slope - np.where(beyond, end**2, 0.0))


def _upper_integral(z: Any, shape: Any, below: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the integral of (1 - F)^2 above z, and its derivative by the shape.

    Args:
        z: points.
        shape: below 2.
        below: result of `_lower_integral` there, which is subtracted from the score where t > 1.
    """
    exponent = _exponent(z, shape)
    low_t = exponent >= 0
    at = np.where(low_t, exponent, 0.0)
    log_t = -np.minimum(at, 1e4)
    t = np.exp(log_t)
    value, slope = _tail_series(t, log_t, shape, _SQUARE)
    turn = np.where(low_t & np.isfinite(exponent), by_shape_of_exponent(z, shape), 0.0)
    slope = slope - np.expm1(-t) ** 2 * np.exp(-shape * log_t) * turn
    high_t = ~low_t
    value, slope, shape = np.asarray(value), np.asarray(slope), np.broadcast_to(shape, low_t.shape)
    with np.errstate(over="ignore"):
        t = np.exp(-exponent[high_t])
    remainder, by_shape = _remainder(exponent[high_t], t, shape[high_t])
    value[high_t] = z[high_t] * (2 * np.exp(-t) - 1) + remainder - below[0][high_t]
    slope[high_t] = by_shape - below[1][high_t]
    return value, slope


def _between_integral(lo: Any, hi: Any, shape: Any, change: Any) -> Any:
    """Return the integral of F^2 from lo to hi, by quadrature where they are close.

    `change` is the difference of `_lower_integral`, which cancels there.
    """
    near = np.abs(_exponent(hi, shape) - _exponent(lo, shape)) < _CLOSE
    gap, total = np.where(near, hi - lo, 0.0), np.zeros_like(change)
    for point, weight in zip(UNIT_POINTS, UNIT_WEIGHTS, strict=True):
        total = total + weight * np.exp(-2 * np.exp(-_exponent(lo + point * gap, shape)))
    return np.where(near, gap * total, change)


def _standard(mu: Any, sigma: Any, lower: Any, y: Any) -> tuple[Any, Any, Any]:
    """Return z of y brought above the bound, that of the bound, and the distance to the bound."""
    inside = np.maximum(y, lower)
    return _z(mu, sigma, inside), _z(mu, sigma, lower), np.maximum(lower - y, 0.0)


def _score(sigma: Any, shape: Any, hi: Any, lo: Any) -> tuple[Any, Any]:
    """Return the score between the bound and above over sigma, and its derivative by the shape."""
    shape = np.where(shape >= _HEAVIEST, 0.0, shape)  # NaN stays
    hi, lo = (np.where(sigma == 0, 0.0, z) for z in (hi, lo))
    at_y, at_bound = _lower_integral(hi, shape), _lower_integral(lo, shape)
    above = _upper_integral(hi, shape, at_y)
    between = _between_integral(lo, hi, shape, at_y[0] - at_bound[0])
    return between + above[0], at_y[1] - at_bound[1] + above[1]


def _value_censored(ops: Any, mu: Any, sigma: Any, shape: Any, lower: Any, y: Any) -> Any:
    hi, lo, outside = _standard(mu, sigma, lower, y)
    value = np.maximum(sigma * _score(sigma, shape, hi, lo)[0], 0.0)
    at_0 = np.abs(np.maximum(y, lower) - np.maximum(mu, lower))
    value = np.where(sigma == 0, at_0, value)
    value = np.where((shape >= _HEAVIEST) & (sigma > 0), math.inf, value) + outside
    value = np.where(np.isinf(y), math.inf, value)
    free = _crps(ops, mu, sigma, shape, y) if np.isinf(lower).any() else value
    return _where_bounded(lower, value, free)


def _where_bounded(lower: Any, value: Any, free: Any) -> Any:
    """Return the value, that of the GEV without a bound, NaN for a bound that is missing."""
    return np.where(np.isnan(lower), np.nan, np.where(np.isinf(lower), free, value))


def _partials_censored(
    ops: Any, mu: Any, sigma: Any, shape: Any, lower: Any, y: Any
) -> tuple[Any, ...]:
    hi, lo, outside = _standard(mu, sigma, lower, y)
    score, by_shape = _score(sigma, shape, hi, lo)
    levels = [np.exp(-np.exp(-np.maximum(_exponent(z, shape), -700.0))) for z in (hi, lo)]
    by_z, by_lo = 2 * levels[0] - 1, -(levels[1] ** 2)
    by_sigma = score - hi * by_z - np.where(by_lo == 0, 0.0, lo * by_lo)
    point = sigma == 0
    by_z = np.where(point, np.sign(np.maximum(y, lower) - np.maximum(mu, lower)), by_z)
    by_lo = np.where(point, np.where(mu < lower, -by_z, 0.0), by_lo)
    by_sigma, by_shape = (np.where(point, 0.0, part) for part in (by_sigma, sigma * by_shape))
    below_bound = outside > 0
    parts = (
        -(by_z + by_lo),
        by_sigma,
        by_shape,
        by_lo + np.where(below_bound, by_z + 1, 0.0),
        np.where(below_bound, -1.0, by_z),
    )
    flat = (shape >= _HEAVIEST) & ~point  # an infinite score has no slope
    finite = [np.where(flat | np.isinf(y), 0.0, part) for part in parts]
    free = finite
    if np.isinf(lower).any():
        mu_, sigma_, shape_, y_ = _crps_partials(ops, mu, sigma, shape, y)
        free = [mu_, sigma_, shape_, np.zeros_like(y_), y_]
    return tuple(_where_bounded(lower, p, f) for f, p in zip(free, finite, strict=True))


def _cdf_censored(ops: Any, mu: Any, sigma: Any, shape: Any, lower: Any, y: Any) -> Any:
    at_point = np.where((sigma == 0) & (mu <= y), 1.0, _cdf(ops, mu, sigma, shape, y))
    return _where_bounded(lower, np.where(y < lower, 0.0 * at_point, at_point), at_point)


def _cdf_below(ops: Any, mu: Any, sigma: Any, shape: Any, lower: Any, y: Any) -> Any:
    at_point = np.where((sigma == 0) & (mu >= y), 0.0, _cdf(ops, mu, sigma, shape, y))
    return _where_bounded(lower, np.where(y <= lower, 0.0 * at_point, at_point), at_point)


def _log_score_censored(ops: Any, mu: Any, sigma: Any, shape: Any, lower: Any, y: Any) -> Any:
    with np.errstate(over="ignore"):
        mass = np.exp(-_exponent(_z(mu, sigma, lower), shape))  # -log F
    score = np.where(y == lower, mass, _log_score(ops, mu, sigma, shape, y))
    score = np.where(y < lower, math.inf, score) + 0 * (mu + sigma + shape)
    return _where_bounded(lower, score, score)


def _log_score_partials_censored(
    ops: Any, mu: Any, sigma: Any, shape: Any, lower: Any, y: Any
) -> tuple[Any, ...]:
    by_mu, by_sigma, by_shape, by_y = _log_score_partials(ops, mu, sigma, shape, y)
    lo = np.where(np.isinf(lower), 0.0, _z(mu, sigma, lower))
    exponent = _exponent(lo, shape)
    finite = np.isfinite(exponent)
    exponent = np.where(finite, exponent, 0.0)
    with np.errstate(over="ignore"):
        t = np.where(finite, np.exp(-exponent), 0.0)
    by_lo = -t / np.where(finite, 1 + shape * lo, 1.0)  # of t by z
    turn = np.where(finite, by_shape_of_exponent(lo, shape), 0.0)
    zero, at, none = np.zeros_like(by_y), y == lower, y < lower
    mass = (-by_lo / sigma, -by_lo * lo / sigma, -t * turn, by_lo / sigma, zero)
    free = (by_mu, by_sigma, by_shape, zero, by_y)
    return tuple(np.where(none, 0.0, np.where(at, m, f)) for m, f in zip(mass, free, strict=True))


def _cdf_partials_censored(
    ops: Any, mu: Any, sigma: Any, shape: Any, lower: Any, y: Any
) -> tuple[Any, ...]:
    by_mu, by_sigma, by_shape, by_y = _cdf_partials(ops, mu, sigma, shape, y)
    parts = by_mu, by_sigma, by_shape, 0.0 * by_y, by_y
    return tuple(np.where(y <= lower, 0.0, part) for part in parts)


def _mean(_ops: Any, mu: Any, sigma: Any, shape: Any, lower: Any) -> Any:
    about = sigma * _moments(mu, sigma, shape, lower)[0][0]
    value = _where_bounded(lower, lower + about, mu + about)
    return np.where(sigma == 0, np.maximum(mu, lower), value)


def _mean_partials(_ops: Any, mu: Any, sigma: Any, shape: Any, lower: Any) -> tuple[Any, ...]:
    (about, _), (by_shape, _), lo, mass = _moments(mu, sigma, shape, lower)
    point = sigma == 0
    above = np.where(point, 1.0 * (mu > lower), mass)
    by_sigma, by_shape = (np.where(point, 0.0, x) for x in (about + lo * mass, sigma * by_shape))
    flat = np.isinf(about)  # an infinite mean has no slope
    return tuple(np.where(flat, 0.0, x) for x in (above, by_sigma, by_shape, 1 - above))


def _variance(_ops: Any, mu: Any, sigma: Any, shape: Any, lower: Any) -> Any:
    (first, second), *_ = _moments(mu, sigma, shape, lower)
    variance = sigma**2 * np.maximum(second - first**2, 0.0)
    variance = np.where(sigma == 0, 0.0 * (mu + shape), variance)
    return _where_bounded(lower, variance, variance)


def _variance_partials(_ops: Any, mu: Any, sigma: Any, shape: Any, lower: Any) -> tuple[Any, ...]:
    (first, second), (by_first, by_second), lo, mass = _moments(mu, sigma, shape, lower)
    by_lo = -2 * first * (1 - mass)
    by_sigma = 2 * (second - first**2) - lo * by_lo  # it is homogeneous of degree 2
    parts = (-by_lo, by_sigma, sigma * (by_second - 2 * first * by_first), by_lo)
    flat = np.isinf(second) | (sigma == 0)
    return tuple(np.where(flat, 0.0, sigma * part) for part in parts)


def _moments(mu: Any, sigma: Any, shape: Any, lower: Any) -> tuple[Any, ...]:
    """Return moments about the bound b, or about mu without one, at a sigma above 0.

    Returns:
        E[(X - b) / sigma; X > b] and that of its square; their derivatives by the shape; the
        standard bound (0 without one); and P(X > b).
    """
    free = np.isinf(lower)
    lo = np.where(free, 0.0, _z(mu, sigma, lower))
    with np.errstate(over="ignore"):
        t = np.where(free, math.inf, np.exp(-_exponent(lo, shape)))
    near = np.abs(shape) < _NEAR
    parts = _partial_moments(t, np.where(near, _NEAR, shape))
    nodes = zip(*(_partial_moments(t, np.full_like(t, node))[:2] for node in _NODES), strict=True)
    smooth = [_interpolate(np.stack(values), np.where(near, shape, 0.0)) for values in nodes]
    every = zip(parts, [value for value, _ in smooth] + [slope for _, slope in smooth], strict=True)
    # beyond the support, where t is 0, the limits are 0
    first, second, *slopes = (
        np.where(t == 0, 0.0, np.where(near, inner, outer)) for outer, inner in every
    )
    mass = -np.expm1(-t)

    def about(one: Any, two: Any, none: Any) -> tuple[Any, Any]:
        return np.where(t == 0, 0.0, one - lo * none), np.where(
            t == 0, 0.0, two - 2 * lo * one + lo**2 * none
        )

    value, square = about(first, second, mass)
    moments = np.where(shape >= 1, math.inf, value), np.where(shape >= 0.5, math.inf, square)
    # the bound's own share in the slopes is 0: the distance vanishes there
    return moments, about(slopes[0], slopes[1], 0.0), lo, mass


def _partial_moments(t: Any, shape: Any) -> tuple[Any, ...]:
    """Return E[Z; Z > z], E[Z^2; Z > z] of a standard GEV with t(z) = t, and slopes at fixed t.

    The shape is not 0, and the slopes are the derivatives by it.
    """
    parts, slopes = [], []
    for k in range(3):
        a = np.maximum(1 - k * shape, 1e-8)
        full, share = special.gamma(a), special.gammainc(a, t)
        parts.append(full * share)
        at = np.where(np.isinf(t), 0.0, t)
        slopes.append(-k * full * (special.psi(a) * share + gammainc_by_shape(a, at)))
    first = (parts[1] - parts[0]) / shape
    second = (parts[2] - 2 * parts[1] + parts[0]) / shape**2
    by_first = slopes[1] / shape - first / shape
    return first, second, by_first, (slopes[2] - 2 * slopes[1]) / shape**2 - 2 * second / shape


def _quantile_censored(ops: Any, mu: Any, sigma: Any, shape: Any, lower: Any, p: Any) -> Any:
    return np.maximum(_quantile(ops, mu, sigma, shape, p), lower)


@dataclass(eq=False)
class CensoredGEV(ClosedForm, kind="censored_gev"):
    """Generalised extreme value distribution with its part below a bound on the bound.

    Args:
        mu: location before censoring, (..., H, W), target units.
        sigma: scale before censoring, 0 or more, target units.
        shape: above 0 the tail is heavy, below 0 there is an upper bound; no unit.
        lower: the bound, target units, such as 0 for precipitation; -inf for none.
        positive: True to skip the check that the parameters are valid.
    """

    mu: Any
    sigma: Any
    shape: Any
    lower: Any = -np.inf
    positive: bool = False

    parameters: ClassVar = {**GEV.parameters, "lower": LOWER}
    oracles = "quadrature"
    kernels: ClassVar = {
        "crps": Kernel(_value_censored, _partials_censored, on_host=True, double=True),
        "log_score": Kernel(
            _log_score_censored,
            _log_score_partials_censored,
            on_host=True,
            double=True,
            positive=("sigma",),
        ),
        "cdf": Kernel(_cdf_censored, _cdf_partials_censored, on_host=True, double=True),
        "cdf_below": Kernel(_cdf_below, _cdf_partials_censored, on_host=True, double=True),
        "mean": Kernel(_mean, _mean_partials, on_host=True, double=True),
        "variance": Kernel(_variance, _variance_partials, on_host=True, double=True),
    }
    inverse = _quantile_censored
    inverse_on_host = True
    head_channels = 3
    amounts = True

    @classmethod
    def from_moments(cls, mean: Any, std: Any, third: Any, unit: Any, **options: Any) -> Any:  # noqa: ARG003
        """Build a forecast of shape 0.6 tanh(third), see `ClosedForm`; from tensors.

        `std` is the deviation that shape 0 would have, and mu is such that the mean is `mean`.
        """
        ops = ops_of(mean)
        shape = _MOST_SHAPE * ops.tanh(third)
        sigma = std * (math.sqrt(6) / math.pi)
        near = ops.abs(shape) < 1e-3
        safe = ops.where(near, shape * 0 + 1e-3, shape)
        direct = ops.expm1(ops.gammaln(1 - safe)) / safe
        # (Gamma(1 - shape) - 1) / shape cancels near 0; the next term is 1e-9 there
        series = _GUMBEL[0] + shape * (_GUMBEL[1] + shape * _GUMBEL[2])
        mu = mean - sigma * ops.where(near, series, direct)
        return cls(mu, sigma, shape, options.get("lower", -math.inf), True)

    def twcrps(self, y: Any, lower: Any, upper: Any) -> Any:
        """Return the threshold-weighted CRPS: above a bound it is the CRPS censored there."""
        ops = self.ops
        y, own = self._as_field(y), self._as_field(self.lower)

        def above(bound: Any) -> Any:
            finite = bound < math.inf
            at = ops.where(finite, bound, 0.0 * y)
            beyond = CensoredGEV(
                self.mu, self.sigma, self.shape, ops.maximum(own, at), self.positive
            )
            return ops.where(finite, beyond.crps(ops.maximum(y, at)), 0.0 * y)

        return above(self._as_field(lower)) - above(self._as_field(upper))


def crps_censored_gev(
    mu: Any,
    sigma: Any,
    shape: Any,
    y: Any,
    *,
    lower: Any = -math.inf,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of extreme value distributions that are censored at a lower bound.

    The closed form of Scheuerer (2014, doi:10.1002/qj.2183) for max(lower, X) with a GEV variable
    X, as the integrals of F^2 from the bound to y and of (1 - F)^2 above y. For y below the bound
    the distance to it is added. It is inf for shapes of 2 and more, with gradient 0. Tensors are
    computed on the host; gradients are analytic.

    Args:
        mu: locations before censoring, any shape.
        sigma: scales, 0 or more, in the unit of `mu`.
        shape: above 0 the tail is heavy, below 0 there is an upper bound; no unit.
        y: observations.
        lower: the bound; -inf for none, which is `crps_gev`.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Raises:
        ArgumentError: a negative sigma, arrays that do not match.
    """
    formula = CensoredGEV.formula("crps")
    return formula(mu, sigma, shape, lower, y, check=check, dim=dim, weights=weights, nan=nan)
