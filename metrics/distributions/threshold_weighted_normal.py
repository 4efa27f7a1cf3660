"""The threshold-weighted CRPS of normal distributions, with gradients of all parameters."""

import math
from typing import Any

from ens10.metrics._reduce import Over
from ens10.metrics._thresholds import checked_thresholds
from ens10.metrics.distributions import standard_normal
from ens10.metrics.distributions.censored import crps
from ens10.metrics.distributions.formula import Formula

FAR = 1e3  # a z at which the normal distribution is 0 or 1 in every dtype, its square finite
SQRT_2, INV_SQRT_PI, INV_SQRT_2PI = math.sqrt(2), 1 / math.sqrt(math.pi), 1 / math.sqrt(math.tau)


def twcrps_normal(
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    lower: Any = -math.inf,
    upper: Any = math.inf,
    check: bool = True,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the threshold-weighted CRPS of normal distributions.

    The integral of (F(z) - 1{y <= z})^2 over z from `lower` to `upper`, which is the CRPS of the
    normal censored at both thresholds against the observation clipped to them (see
    `twcrps_ensemble`). With a, b, w the standardised thresholds and clipped observation and
    G(z) = z Phi(z)^2 + 2 phi(z) Phi(z) - Phi(sqrt(2) z) / sqrt(pi), which has the derivative
    Phi^2, it is sigma [G(w) - G(a) + G(-w) - G(-b)]. NaN propagates. Gradients, also of the
    thresholds, are analytic and finite for every sigma >= 0.

    Args:
        mu: means; any shape.
        sigma: standard deviations, 0 or more, in the unit of `mu`.
        y: observations. Arrays broadcast by position, DataArrays by name.
        lower: lower thresholds in the unit of `mu`, numbers or arrays; -inf for none.
        upper: upper thresholds; inf for none.
        check: True to refuse sigma < 0 and lower > upper. A training loss passes False, because
            the check synchronises with the GPU.
        dim: dimensions of a weighted mean: axis numbers or names; "all"; None for all points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Examples:
        >>> from ens10.metrics import twcrps_normal
        >>> round(float(twcrps_normal(0.0, 1.0, 0.0, lower=0.0)), 4)  # half of the CRPS
        0.1168

    Raises:
        ArgumentError: a negative sigma or thresholds in the wrong order (on lazy arrays when
            computed), or arrays that do not match.
    """
    upper = checked_thresholds(lower, upper, check)
    return FORMULA(*(mu, sigma, lower, upper, y), check=check, dim=dim, weights=weights, nan=nan)


def _standardise(ops: Any, d: Any, s: Any) -> Any:
    """Return d / s clipped to +-`FAR`; its limit where s is 0."""
    z = ops.where(s == 0, FAR * ops.sign(d), d / ops.where(s == 0, ops.full_like(s, 1.0), s))
    return ops.where(z > FAR, ops.full_like(z, FAR), ops.where(z < -FAR, ops.full_like(z, -FAR), z))


def _density(ops: Any, z: Any) -> Any:
    return INV_SQRT_2PI * ops.exp(-0.5 * z * z)


def _clip(ops: Any, lower: Any, upper: Any, y: Any) -> Any:
    return ops.minimum(ops.maximum(y, lower), upper)


def _value(ops: Any, mu: Any, s: Any, lower: Any, upper: Any, y: Any) -> Any:
    # by integrals that do not cancel where both thresholds lie far from mu, or close together
    return crps(standard_normal, ops, mu, s, lower, upper, _clip(ops, lower, upper, y))


def _partials(ops: Any, mu: Any, s: Any, lower: Any, upper: Any, y: Any) -> tuple[Any, ...]:
    clipped = _clip(ops, lower, upper, y)
    a, b, w = (_standardise(ops, d - mu, s) for d in (lower, upper, clipped))
    at_a, at_b, at_w = (ops.ndtr(z) for z in (a, b, w))
    above_a, above_b, above_w = (ops.ndtr(-z) for z in (a, b, w))
    # (1 - Phi(b))^2 - Phi(w)^2 + Phi(a)^2 + ..., whose terms vanish one by one far outside
    by_mu = (at_a * at_a - at_w * at_w) + (above_w * above_w - above_b * above_b)
    edges = at_a * _density(ops, a) + above_b * _density(ops, b)
    between = ops.ndtr(SQRT_2 * b) - ops.ndtr(SQRT_2 * a)
    by_s = 2 * (_density(ops, w) - edges) - INV_SQRT_PI * between
    inside = (y > lower) & (y < upper)
    by_y = ops.where(inside, at_w - above_w, ops.full_like(y, 0.0))
    by_lower = -(ops.where(y <= lower, above_a, at_a) ** 2)
    by_upper = ops.where(y <= upper, above_b, at_b) ** 2
    return by_mu, by_s, by_lower, by_upper, by_y


FORMULA = Formula(
    "twcrps",
    "threshold-weighted CRPS",
    {"mu": "real", "sigma": "nonnegative", "lower": "real", "upper": "real"},
    _value,
    _partials,
)
