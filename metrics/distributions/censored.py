"""Censored distributions: those of a variable that is moved to the nearest of two bounds.

The probability beyond a bound becomes a point mass on it. With V(x) the integral of F^2 up to x
less x F(x)^2, the derivative of the CRPS by sigma is V(z) + V(-z) - V(l) - V(-u); those by the
bounds are -F(l)^2 and (1 - F(u))^2, that by y is 2 F(z) - 1; and it is homogeneous in all of them.
"""

from functools import partial
from typing import Any, NamedTuple

from ens10.metrics.distributions.formula import Function, Kernel
from ens10.metrics.distributions.shapes import Shape, square_between, times

FAR = 1e6  # of a standard variable: 0 or 1 in probability


class Standard(NamedTuple):
    """A censored distribution in units of its scale.

    Args:
        z: (clipped_y - mu) / sigma.
        lower: (lower bound - mu) / sigma.
        upper: (upper bound - mu) / sigma.
        clipped_y: y clipped to the bounds.
        excess: y - clipped_y.
    """

    z: Any
    lower: Any
    upper: Any
    clipped_y: Any
    excess: Any


def standard(ops: Any, arguments: tuple[Any, ...]) -> Standard:
    """Return the censored distribution in standard units, from mu, sigma, lower, upper and y."""
    mu, sigma, a, b, y = arguments
    clipped_y = ops.minimum(ops.maximum(y, a), b)
    divisor = ops.where(sigma == 0, ops.full_like(sigma, 1.0), sigma)
    z, lo, hi = (
        ops.where(sigma == 0, FAR * ops.sign(x - mu), (x - mu) / divisor) for x in (clipped_y, a, b)
    )
    excess = ops.where(y == clipped_y, ops.full_like(y, 0.0), y - clipped_y)  # y may be inf
    return Standard(z, lo, hi, clipped_y, excess)


def crps(shape: Shape, ops: Any, *arguments: Any) -> Any:
    """Return the CRPS: the integrals of F^2 below y and of (1 - F)^2 above it."""
    mu, sigma, a, b, _ = arguments
    s = standard(ops, arguments)
    scale = ops.where(sigma == 0, ops.full_like(sigma, 1.0), sigma)
    to_y = s.clipped_y - mu
    below = square_between(ops, shape, (a - mu, to_y), (s.lower, s.z), scale)
    above = square_between(ops, shape, (mu - b, -to_y), (-s.upper, -s.z), scale)
    at_0 = ops.abs(s.clipped_y - ops.minimum(ops.maximum(mu, a), b))
    return ops.abs(s.excess) + ops.where(sigma == 0, at_0, below + above)


def crps_partials(shape: Shape, ops: Any, *arguments: Any) -> tuple[Any, ...]:
    """Return the derivatives of the CRPS by mu, sigma, lower, upper and y."""
    s = standard(ops, arguments)
    by_z, by_l, by_u = _by_points(ops, shape, s)
    side, zero = ops.sign(s.excess), ops.full_like(by_z, 0.0)
    # beyond a bound it is the bound that y is moved to
    by_a = by_l + ops.where(side < 0, by_z + 1, zero)
    by_b = by_u + ops.where(side > 0, by_z - 1, zero)
    by_y = ops.where(side == 0, by_z, side)
    return -(by_z + by_l + by_u), _by_scale(ops, shape, s), by_a, by_b, by_y


def _by_points(ops: Any, shape: Shape, s: Standard) -> tuple[Any, Any, Any]:
    by_z = shape.cdf(ops, s.z) - shape.cdf(ops, -s.z)
    return by_z, -(shape.cdf(ops, s.lower) ** 2), shape.cdf(ops, -s.upper) ** 2


def _by_scale(ops: Any, shape: Shape, s: Standard) -> Any:
    at_z = shape.square_part(ops, s.z) + shape.square_part(ops, -s.z)
    return at_z - shape.square_part(ops, s.lower) - shape.square_part(ops, -s.upper)


def cdf_partials(shape: Shape, ops: Any, *arguments: Any) -> tuple[Any, ...]:
    """Return the derivatives of P(Y <= y) by mu, sigma, lower, upper and y; 0 on the bounds."""
    _, sigma, a, b, y = arguments
    s, zero = standard(ops, arguments), ops.full_like(sigma, 0.0)
    inside = (y > a) & (y < b) & (sigma > 0)
    by_y = ops.exp(shape.log_density(ops, s.z)) / ops.where(inside, sigma, 1.0 + zero)
    by_y = ops.where(inside, by_y, zero)
    return -by_y, -times(ops, by_y, s.z), zero, zero, by_y


def cdf(shape: Shape, ops: Any, *arguments: Any) -> Any:
    """Return P(Y <= y)."""
    return _censored_cdf(ops, shape, arguments, upto=True)


def cdf_below(shape: Shape, ops: Any, *arguments: Any) -> Any:
    """Return P(Y < y)."""
    return _censored_cdf(ops, shape, arguments, upto=False)


def _censored_cdf(ops: Any, shape: Shape, arguments: tuple[Any, ...], *, upto: bool) -> Any:
    _, sigma, a, b, y = arguments
    s = standard(ops, arguments)
    inner = shape.cdf(ops, s.z)
    jump = ops.full_like(inner, 1.0 if upto else 0.0)
    inner = ops.where((sigma == 0) & (s.z == 0), jump, inner)  # all probability on one point
    none = (y < a) if upto else (y <= a)
    full = (y >= b) if upto else (y > b)
    step = ops.where(none, ops.full_like(inner, 0.0), ops.full_like(inner, 1.0))
    return ops.where((none | full) & (inner == inner), step, inner)


def log_score(shape: Shape, ops: Any, *arguments: Any) -> Any:
    """Return -log of the density between the bounds, or of the mass on them; inf outside."""
    sigma, a, b, y = arguments[1:]
    s = standard(ops, arguments)
    between = ops.log(sigma) - shape.log_density(ops, s.z)
    score = ops.where(y == a, -shape.log_cdf(ops, s.lower), between)
    score = ops.where(y == b, -shape.log_cdf(ops, -s.upper), score)
    return ops.where(s.excess == 0, score, ops.abs(s.excess) * float("inf"))


def log_score_partials(shape: Shape, ops: Any, *arguments: Any) -> tuple[Any, ...]:
    """Return the derivatives of the log score by mu, sigma, lower, upper and y.

    On a bound the derivative by y is 0; outside the bounds all are 0.
    """
    sigma, a, b, y = arguments[1:]
    s = standard(ops, arguments)
    slope, zero = shape.slope(ops, s.z), ops.full_like(s.z, 0.0)
    at_a = ops.where(y == a, shape.hazard(ops, -s.lower), zero)
    at_b = ops.where(y == b, shape.hazard(ops, s.upper), zero)
    at_bound = (y == a) | (y == b)
    by_mu = ops.where(at_bound, at_a - at_b, -slope)
    on_bounds = times(ops, at_a, s.lower) - times(ops, at_b, s.upper)
    by_sigma = ops.where(at_bound, on_bounds, 1 - s.z * slope)
    by_y = ops.where(at_bound, zero, slope)
    partials = by_mu, by_sigma, -at_a, at_b, by_y
    none = ops.where(s.excess == s.excess, zero, s.excess)  # NaN stays
    return tuple(ops.where(s.excess == 0, x / sigma, none) for x in partials)


def mean(shape: Shape, ops: Any, *arguments: Any) -> Any:
    """Return E Y, from mu, sigma, lower and upper."""
    mu, sigma, a, b = arguments
    s = standard(ops, (*arguments, mu))
    on_a, on_b = shape.cdf(ops, s.lower), shape.cdf(ops, -s.upper)
    between = shape.partial_mean(ops, s.lower) - shape.partial_mean(ops, s.upper)
    return mu + times(ops, on_a, a - mu) + times(ops, on_b, b - mu) + sigma * between


def variance_normal(shape: Shape, ops: Any, *arguments: Any) -> Any:
    """Return Var Y of a normal, from mu, sigma, lower and upper."""
    sigma = arguments[1]
    s = standard(ops, (*arguments, arguments[0]))
    on_a, on_b = shape.cdf(ops, s.lower), shape.cdf(ops, -s.upper)
    f_a, f_b = shape.partial_mean(ops, s.lower), shape.partial_mean(ops, s.upper)
    first = times(ops, on_a, s.lower) + times(ops, on_b, s.upper) + f_a - f_b
    ends = times(ops, on_a, s.lower**2) + times(ops, on_b, s.upper**2)
    inner = times(ops, f_a, s.lower) - times(ops, f_b, s.upper)
    second = ends + 1 - on_a - on_b + inner
    return sigma**2 * ops.maximum(second - first**2, 0.0)


def mean_partials(shape: Shape, ops: Any, *arguments: Any) -> tuple[Any, ...]:
    """Return the derivatives of the mean by mu, sigma, lower and upper.

    They are the expectations of 1 and of the standard variable between the bounds, and the masses.
    """
    s = standard(ops, (*arguments, arguments[0]))
    on_a, on_b = shape.cdf(ops, s.lower), shape.cdf(ops, -s.upper)
    # in the tail that both bounds are in, where probabilities keep their digits
    beyond = shape.cdf(ops, -s.lower) - on_b
    between = ops.where(s.lower > 0, beyond, shape.cdf(ops, s.upper) - on_a)
    by_sigma = shape.partial_mean(ops, s.lower) - shape.partial_mean(ops, s.upper)
    return between, by_sigma, on_a, on_b


def variance_partials(
    shape: Shape, variance: Function, ops: Any, *arguments: Any
) -> tuple[Any, ...]:
    """Return the derivatives of the variance, which is homogeneous of degree 2."""
    mu, sigma, a, b = arguments
    s, middle = standard(ops, (*arguments, mu)), mean(shape, ops, *arguments)
    by_a = 2 * times(ops, shape.cdf(ops, s.lower), a - middle)
    by_b = 2 * times(ops, shape.cdf(ops, -s.upper), b - middle)
    rest = 2 * variance(ops, *arguments) - times(ops, by_a, a - mu) - times(ops, by_b, b - mu)
    point = sigma == 0
    by_sigma = rest / ops.where(point, ops.full_like(sigma, 1.0), sigma)
    return -(by_a + by_b), ops.where(point, 0.0 * mu, by_sigma), by_a, by_b


def kernels(shape: Shape, variance: Function) -> dict[str, Kernel]:
    """Return the closed forms of a shape's censored distributions.

    Args:
        shape: the standard distribution.
        variance: (ops, mu, sigma, lower, upper) to the variance.
    """
    log = Kernel(
        partial(log_score, shape), partial(log_score_partials, shape), True, positive=("sigma",)
    )
    return {
        "crps": Kernel(partial(crps, shape), partial(crps_partials, shape), double=True),
        "log_score": log,
        "cdf": Kernel(partial(cdf, shape), partial(cdf_partials, shape), double=True),
        "cdf_below": Kernel(partial(cdf_below, shape), partial(cdf_partials, shape), double=True),
        "mean": Kernel(partial(mean, shape), partial(mean_partials, shape), double=True),
        "variance": Kernel(variance, partial(variance_partials, shape, variance), double=True),
    }


def quantile(standard_quantile: Function, ops: Any, *arguments: Any) -> Any:
    """Return the quantile, from mu, sigma, lower, upper and p, clipped to the bounds."""
    mu, sigma, a, b, p = arguments
    return ops.minimum(ops.maximum(mu + sigma * standard_quantile(ops, p), a), b)
