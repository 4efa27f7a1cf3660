"""Truncated distributions: those of a variable given that it lies between two bounds.

With G the distribution function, f_a and f_b the density at the bounds, and D the integral of
G (1 - G), the CRPS is E|Z - y| - D, and its derivatives by the bounds are 2 f_a (E(Z - y)+ - D)
and 2 f_b (D - E(y - Z)+); all others follow, because it is homogeneous in (mu, sigma, a, b, y).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from ens10.metrics.distributions.formula import Function, Kernel
from ens10.metrics.distributions.shapes import Parts, Shape, Window, narrow_parts, times

SMALLEST = 1e-300  # probability that has all its digits
TINY = 1e-150  # stands for a scale of 0; distances in units of it are finite


@dataclass(frozen=True)
class Standard:
    """A truncated distribution in units of its scale.

    Args:
        parts: the `Parts` of the window.
        window: the interval between the bounds; mirrored where its middle is below mu.
        flip: True where the window is mirrored.
        scale: sigma, or `TINY` where it is 0.
        excess: y less the nearest value within the bounds.
    """

    parts: Parts
    window: Window
    flip: Any
    scale: Any
    excess: Any


def standard(ops: Any, shape: Shape, arguments: tuple[Any, ...]) -> Standard:
    """Return the truncated distribution in standard units, from mu, sigma, lower, upper and y."""
    mu, sigma, a, b, y = arguments
    inside = ops.minimum(ops.maximum(y, a), b)
    scale = ops.where(sigma == 0, ops.full_like(sigma, TINY), sigma)
    z, lo, hi = ((x - mu) / scale for x in (inside, a, b))
    flip = lo + hi < 0
    d = ops.where(flip, b - inside, inside - a) / scale
    window = Window(
        z=ops.where(flip, -z, z),
        lower=ops.where(flip, -hi, lo),
        upper=ops.where(flip, -lo, hi),
        d=d,
        w=(b - a) / scale,
    )
    excess = ops.where(y == inside, ops.full_like(y, 0.0), y - inside)  # y may be inf
    return Standard(truncated_parts(ops, shape, window), window, flip, scale, excess)


def truncated_parts(ops: Any, shape: Shape, window: Window) -> Parts:
    """Return the `Parts` of a window: by series where it is narrow, else in closed form."""
    parts = shape.central_parts(ops, window)
    middle, h = window.lower + 0.5 * window.w, 0.5 * window.w
    small = shape.is_narrow(ops, middle, h)
    beyond = ~small & (window.lower > 0)
    if ops.any_true(beyond):
        parts = _select_parts(ops, beyond, shape.tail_parts(ops, window), parts)
    if ops.any_true(small):
        h = ops.where(small, h, ops.full_like(h, 0.01))
        parts = _select_parts(ops, small, narrow_parts(ops, shape, window, middle, h), parts)
    return parts


def _select_parts(ops: Any, condition: Any, first: Parts, second: Parts) -> Parts:
    pairs = zip(first, second, strict=True)
    return Parts(*(None if b is None else ops.where(condition, a, b) for a, b in pairs))


def crps(shape: Shape, ops: Any, *arguments: Any) -> Any:
    """Return the CRPS; at sigma = 0 the distance to the value of the support nearest to mu."""
    mu, sigma, a, b, y = arguments
    s = standard(ops, shape, arguments)
    p = s.parts
    spread = p.mean - 2 * p.below - p.gini
    within = p.to_z * (2 * p.cdf - 1) + spread
    at_0 = ops.abs(y - ops.minimum(ops.maximum(mu, a), b))
    return ops.where(sigma == 0, at_0, ops.abs(s.excess) + sigma * within)


def crps_partials(shape: Shape, ops: Any, *arguments: Any) -> tuple[Any, ...]:
    """Return the derivatives of the CRPS by mu, sigma, lower, upper and y."""
    s = standard(ops, shape, arguments)
    p, dz = s.parts, s.parts.to_z
    below = dz * p.cdf - p.below  # E(z - Z)+
    above = p.mean - p.below - dz * (1 - p.cdf)
    by_l = 2 * times(ops, p.at_lower, above - p.gini)
    by_u = 2 * times(ops, p.at_upper, p.gini - below)
    by_z = 2 * p.cdf - 1
    k = p.mean - 2 * p.below - p.gini
    by_mu, by_s = _by_location_and_scale(ops, shape, p, (by_z, by_l, by_u), k)
    by_y = ops.where(s.excess == 0, _mirror(ops, s, by_z), ops.sign(s.excess))
    by_a, by_b = _swap(ops, s, by_l, by_u)
    return _mirror(ops, s, by_mu), by_s, by_a, by_b, by_y


def _by_location_and_scale(
    ops: Any, shape: Shape, p: Parts, slopes: tuple[Any, Any, Any], k: Any
) -> tuple[Any, Any]:
    """Return the derivatives by mu and sigma.

    `slopes` are the derivatives by z and the bounds; k is that by the scale about z = r, without
    the bounds.
    """
    _, by_l, by_u = slopes
    about_r = k - times(ops, by_l, p.to_lower) - times(ops, by_u, p.to_upper)
    far, where = shape.far_slope(ops, p.r, about_r)
    by_mu = ops.where(where, far, -sum(slopes))
    return by_mu, about_r + p.r * by_mu


def cdf(shape: Shape, ops: Any, *arguments: Any) -> Any:
    """Return G(y); where sigma is 0 it is 0, 1/2 or 1."""
    mu, sigma, a, b, y = arguments
    s = standard(ops, shape, arguments)
    g = ops.where(s.flip, 1 - s.parts.cdf, s.parts.cdf)
    step = 0.5 + 0.5 * ops.sign(y - ops.minimum(ops.maximum(mu, a), b))
    return ops.where(sigma == 0, step, ops.minimum(ops.maximum(g, 0.0), 1.0))


def cdf_partials(shape: Shape, ops: Any, *arguments: Any) -> tuple[Any, ...]:
    """Return the derivatives of G(y) by mu, sigma, lower, upper and y; 0 outside the bounds."""
    s = standard(ops, shape, arguments)
    p = s.parts
    density = ops.exp(p.level + shape.log_ratio(ops, p.r, p.to_z))
    by_l, by_u = -times(ops, p.at_lower, 1 - p.cdf), -times(ops, p.at_upper, p.cdf)
    k = -times(ops, density, p.to_z)  # of degree 0: what scales alike does not change it
    by_mu, by_s = _by_location_and_scale(ops, shape, p, (density, by_l, by_u), k)
    # of a mirrored window it is 1 - G
    by_a, by_b = ops.where(s.flip, by_u, by_l), ops.where(s.flip, by_l, by_u)
    inside, zero = (s.excess == 0) & (arguments[1] > 0), ops.full_like(density, 0.0)
    partials = by_mu, _mirror(ops, s, by_s), by_a, by_b, density
    return tuple(ops.where(inside, x / s.scale, zero) for x in partials)


def log_score(shape: Shape, ops: Any, *arguments: Any) -> Any:
    """Return -log g(y), inf outside the bounds."""
    s = standard(ops, shape, arguments)
    level = s.parts.level + shape.log_ratio(ops, s.parts.r, s.parts.to_z)
    score = ops.log(s.scale) - level
    return ops.where(s.excess == 0, score, ops.abs(s.excess) * float("inf"))


def log_score_partials(shape: Shape, ops: Any, *arguments: Any) -> tuple[Any, ...]:
    """Return the derivatives by mu, sigma, lower, upper and y; 0 where y is out of bounds."""
    s = standard(ops, shape, arguments)
    p = s.parts
    by_z = shape.slope(ops, s.window.z)
    by_l, by_u = -p.at_lower, p.at_upper
    k = 1 - p.to_z * by_z
    by_mu, by_s = _by_location_and_scale(ops, shape, p, (by_z, by_l, by_u), k)
    by_a, by_b = _swap(ops, s, by_l, by_u)
    partials = _mirror(ops, s, by_mu), by_s, by_a, by_b, _mirror(ops, s, by_z)
    none = ops.where(s.excess == s.excess, ops.full_like(by_z, 0.0), s.excess)  # NaN stays
    return tuple(ops.where(s.excess == 0, x / s.scale, none) for x in partials)


def mean(shape: Shape, ops: Any, *arguments: Any) -> Any:
    """Return E Y, from mu, sigma, lower and upper."""
    mu, sigma, a, b = arguments
    middle = ops.minimum(ops.maximum(mu, a), b)
    s = standard(ops, shape, (*arguments, middle))
    # about the bound, or mu, that the mass is near
    z = s.parts.mean - s.parts.to_z
    return ops.where(sigma == 0, middle, middle + sigma * _mirror(ops, s, z))


def variance_normal(shape: Shape, ops: Any, *arguments: Any) -> Any:
    """Return Var Y of a normal, from mu, sigma, lower and upper."""
    mu, sigma, a, b = arguments
    s = standard(ops, shape, (*arguments, ops.minimum(ops.maximum(mu, a), b)))
    return sigma**2 * (s.parts.square - s.parts.mean**2)


def mean_partials(shape: Shape, ops: Any, *arguments: Any) -> tuple[Any, ...]:
    """Return the derivatives of the mean by mu, sigma, lower and upper."""
    mu, sigma, a, b = arguments
    s = standard(ops, shape, (*arguments, ops.minimum(ops.maximum(mu, a), b)))
    p = s.parts
    by_l = times(ops, p.at_lower, p.mean - p.to_lower)
    by_u = times(ops, p.at_upper, p.to_upper - p.mean)
    # mean - y depends on distances only
    by_mu, by_s = _by_location_and_scale(ops, shape, p, (-1.0, by_l, by_u), p.mean)
    by_a, by_b = ops.where(s.flip, by_u, by_l), ops.where(s.flip, by_l, by_u)
    at_0 = [ops.cast(x, mu) for x in ((mu >= a) & (mu <= b), mu != mu, mu < a, mu > b)]
    pairs = zip(at_0, (by_mu, _mirror(ops, s, by_s), by_a, by_b), strict=True)
    return tuple(ops.where(sigma == 0, point, x) for point, x in pairs)


def variance_partials(
    shape: Shape, variance: Function, ops: Any, *arguments: Any
) -> tuple[Any, ...]:
    """Return the derivatives of the variance by mu, sigma, lower and upper; 0 where sigma is."""
    mu, sigma, a, b = arguments
    s = standard(ops, shape, (*arguments, ops.minimum(ops.maximum(mu, a), b)))
    p, v = s.parts, variance(ops, *arguments) / s.scale / s.scale
    down, up = p.mean - p.to_lower, p.to_upper - p.mean
    by_l = times(ops, p.at_lower, v) - times(ops, times(ops, p.at_lower, down), down)
    by_u = times(ops, times(ops, p.at_upper, up), up) - times(ops, p.at_upper, v)
    by_mu, by_s = _by_location_and_scale(ops, shape, p, (0.0, by_l, by_u), 2 * v)
    by_a, by_b = _swap(ops, s, by_l, by_u)
    partials = _mirror(ops, s, by_mu), by_s, by_a, by_b
    return tuple(ops.where(sigma == 0, 0.0 * mu, sigma * x) for x in partials)


def _mirror(ops: Any, s: Standard, value: Any) -> Any:
    return ops.where(s.flip, -value, value)


def _swap(ops: Any, s: Standard, by_l: Any, by_u: Any) -> tuple[Any, Any]:
    return ops.where(s.flip, -by_u, by_l), ops.where(s.flip, -by_l, by_u)


def kernels(shape: Shape, variance: Function) -> dict[str, Kernel]:
    """Return the closed forms of a shape's truncated distributions.

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
        "mean": Kernel(partial(mean, shape), partial(mean_partials, shape), double=True),
        "variance": Kernel(variance, partial(variance_partials, shape, variance), double=True),
    }


def quantile(standard_cdf: Function, standard_quantile: Function, ops: Any, *arguments: Any) -> Any:
    """Return the quantile, from mu, sigma, lower, upper and p; between the bounds.

    The interval is mirrored into the lower tail, where probabilities keep their digits. Further out
    than these reach (38 scales of a normal) the bound next to mu is returned.
    """
    mu, sigma, a, b, p = arguments

    def distance(bound: Any) -> Any:
        finite = ops.isfinite(bound)  # at an infinite bound the gradient would be 0 times infinity
        return ops.where(finite, (ops.where(finite, bound, mu) - mu) / sigma, bound)

    lo, hi = distance(a), distance(b)
    flip = lo + hi > 0
    lower, upper = ops.where(flip, -hi, lo), ops.where(flip, -lo, hi)

    def level(bound: Any) -> Any:
        finite = ops.isfinite(bound)
        inside = standard_cdf(ops, ops.where(finite, bound, ops.full_like(bound, 0.0)))
        return ops.where(finite, inside, 0.5 + 0.5 * ops.sign(bound))

    low, high = level(lower), level(upper)
    at = low + ops.where(flip, 1 - p, p) * (high - low)
    digits = high > SMALLEST
    z = standard_quantile(ops, ops.where(digits, at, ops.full_like(at, 0.5)))
    z = ops.where(digits, z, upper)
    return ops.minimum(ops.maximum(mu + sigma * ops.where(flip, -z, z), a), b)
