"""The standard logistic distribution within bounds.

Above a lower bound l the survival function is (1 + c) / (c + exp(t)) at the distance t from the
bound, with c = exp(-l): an exponential one far out, so that everything is written in c and t.
"""

import math
from typing import Any

from ens10.metrics.distributions.shapes import TERMS, Parts, Window, times

UNIT_SCALE = math.sqrt(3) / math.pi  # of the distribution with standard deviation 1
_SMALL = 0.05  # below it log1p(x) / x^2 and the like are summed


def cdf(ops: Any, x: Any) -> Any:
    """F(x) = 1 / (1 + exp(-x))."""
    return ops.expit(x)


def quantile(ops: Any, p: Any) -> Any:
    """The x where F(x) = p."""
    return ops.logit(p)


def log_cdf(ops: Any, x: Any) -> Any:
    """Log F(x)."""
    return -ops.softplus(-x)


def log_density(ops: Any, x: Any) -> Any:
    """Log f(x), which is even."""
    return -ops.abs(x) - 2 * ops.softplus(-ops.abs(x))


def log_ratio(ops: Any, r: Any, d: Any) -> Any:
    """Log f(r + d) / f(r), r >= 0."""
    change = ops.where(r + d > 0, d, -2 * r - d)  # of the absolute value
    return 2 * (ops.softplus(-r) - ops.softplus(-ops.abs(r + d))) - change


def slope(ops: Any, x: Any) -> Any:
    """-f'(x) / f(x) = tanh(x / 2)."""
    return ops.tanh(0.5 * x)


def hazard(ops: Any, x: Any) -> Any:
    """f(x) / (1 - F(x)) = F(x)."""
    return ops.expit(x)


def partial_mean(ops: Any, x: Any) -> Any:
    """-E[X; X <= x] = log(1 + exp(x)) - x F(x)."""
    size = ops.abs(x)
    return ops.softplus(-size) + times(ops, ops.expit(-size), size)


def square_part(ops: Any, x: Any) -> Any:
    """log(1 + exp(x)) - F(x) - x F(x)^2."""
    up, down = ops.expit(x), ops.expit(-ops.abs(x))
    above = times(ops, down, ops.maximum(x, 0.0)) * (1 + up)
    return ops.softplus(-ops.abs(x)) - up + above - times(ops, up**2, ops.minimum(x, 0.0))


def square_integral(ops: Any, x: Any) -> Any:
    """Return the integral of F^2 up to x, less x if x > 0; a series for small exp(x)."""
    v = ops.exp(-ops.abs(x))
    return ops.where(x < 0, v * v * log_remainder(ops, v), ops.log1p(v) + v / (1 + v) - 1)


def central_parts(ops: Any, window: Window) -> Parts:
    """Return the `Parts` of a window that contains 0 and is not narrow."""
    z, lo, hi = window.z, window.lower, window.upper
    up_l, up_u, down_l, down_u = (ops.expit(x) for x in (lo, hi, -lo, -hi))
    p = up_u - up_l
    h_l, h_u, h_z = (partial_mean(ops, x) for x in (lo, hi, z))
    # integrals over the window of F and of 1 - F, each with a factor that vanishes when it grows
    of_f = times(ops, down_l * down_u, ops.softplus(hi) - ops.softplus(lo))
    of_complement = times(ops, up_l * up_u, ops.softplus(-lo) - ops.softplus(-hi))
    return Parts(
        r=ops.full_like(z, 0.0),
        to_z=z,
        to_lower=lo,
        to_upper=hi,
        level=-ops.log(4 * p),
        cdf=(ops.expit(z) - up_l) / p,
        below=(h_l - h_z) / p,
        mean=(h_l - h_u) / p,
        square=None,
        gini=(p - of_f - of_complement) / p**2,
        at_lower=up_l * down_l / p,
        at_upper=up_u * down_u / p,
    )


def tail_parts(ops: Any, window: Window) -> Parts:
    """Return the `Parts` of a window above 0 that is not narrow.

    q and e are P(X > z | X > lower) and P(X > upper | X > lower).
    """
    lo, hi, d, w = window.lower, window.upper, window.d, window.w
    c = ops.exp(-lo)
    v_d, v_w = ops.exp(-d), ops.exp(-w)
    q, e = (v * (1 + c) / (1 + c * v) for v in (v_d, v_w))
    p = -ops.expm1(-w) / (1 + c * v_w)
    survival, to_z = ((1 + c) * (log_over(ops, c) - v * log_over(ops, c * v)) for v in (v_w, v_d))
    squared = (1 + c) ** 2 * (log_remainder(ops, c) - v_w**2 * log_remainder(ops, c * v_w))
    at_l = 1 / ((1 + c) * p)
    return Parts(
        r=lo,
        to_z=d,
        to_lower=ops.full_like(lo, 0.0),
        to_upper=w,
        level=ops.log(at_l),
        cdf=(1 - q) / p,
        below=(to_z - times(ops, q, d)) / p,
        mean=(survival - times(ops, e, w)) / p,
        square=None,
        gini=(survival * (1 + e) - times(ops, e, w) - squared) / p**2,
        at_lower=at_l,
        at_upper=ops.expit(hi) * e / p,
    )


def far_slope(ops: Any, r: Any, _k: Any) -> tuple[Any, Any]:
    """Return the derivative by mu of a tail score; the exponential rate is 1 - O(exp(-r))."""
    return ops.full_like(r, 0.0), r > 50


def is_narrow(_ops: Any, _middle: Any, h: Any) -> Any:
    """Return True if the Taylor series suffices for a window of half width h."""
    return h < 0.3


def taylor(ops: Any, middle: Any, h: Any) -> list[Any]:
    """Return the coefficients of f(middle + h t) / f(middle) in powers of t.

    With T = tanh(x / 2), f' = -T f and T' = (1 - T^2) / 2.
    """
    t = [ops.tanh(0.5 * middle)]
    coefficients = [ops.full_like(h, 1.0)]
    for n in range(TERMS - 1):
        coefficients.append(-h * sum(t[i] * coefficients[n - i] for i in range(n + 1)) / (n + 1))
        square = sum(t[i] * t[n - i] for i in range(n + 1))
        t.append(0.5 * h * (1.0 * (n == 0) - square) / (n + 1))
    return coefficients


def log_over(ops: Any, x: Any) -> Any:
    """Return log(1 + x) / x, and 1 at 0."""
    safe = ops.maximum(x, 1e-300)
    return ops.where(x > 1e-300, ops.log1p(safe) / safe, ops.full_like(x, 1.0))


def log_remainder(ops: Any, x: Any) -> Any:
    """Return (log(1 + x) - x / (1 + x)) / x^2, and 1/2 at 0."""
    safe = ops.maximum(x, _SMALL)
    total = ops.full_like(x, 0.0)
    for n in range(14, 1, -1):
        total = (-1) ** n * (n - 1) / n + x * total
    return ops.where(x > _SMALL, (ops.log1p(safe) - safe / (1 + safe)) / safe**2, total)
