"""Second moments of bounded logistic distributions, which need a dilogarithm (of scipy)."""

import math
from typing import Any

from scipy import special

from ens10.metrics.families import _censored, _truncated
from ens10.metrics.families import _logistic_shape as shape
from ens10.metrics.families._quadrature import narrow
from ens10.metrics.families._shapes import Window, times

_SMALL = 0.05


def variance_censored(ops: Any, *arguments: Any) -> Any:
    """Var Y, from mu, sigma, lower and upper."""
    mu, sigma, _, _ = arguments
    s = _censored.standard(ops, (*arguments, mu))
    on_a, on_b = ops.expit(s.lower), ops.expit(-s.upper)
    first = times(ops, on_a, s.lower) + times(ops, on_b, s.upper)
    first = first + shape.partial_mean(ops, s.lower) - shape.partial_mean(ops, s.upper)
    ends = times(ops, on_a, s.lower**2) + times(ops, on_b, s.upper**2)
    second = ends + _partial_square(ops, s.upper) - _partial_square(ops, s.lower)
    return sigma**2 * ops.maximum(second - first**2, 0.0)


def variance_truncated(ops: Any, *arguments: Any) -> Any:
    """Var Y, from mu, sigma, lower and upper."""
    mu, sigma, a, b = arguments
    s = _truncated.standard(ops, shape, (*arguments, ops.minimum(ops.maximum(mu, a), b)))
    window = s.window
    above, around = _tail(ops, window), _central(ops, window)
    square = ops.where(window.lower > 0, above, around)
    middle, h = window.lower + 0.5 * window.w, 0.5 * window.w
    small = shape.is_narrow(ops, middle, h)
    if ops.some(small):
        h = ops.where(small, h, ops.full_like(h, 0.01))
        square = ops.where(small, narrow(ops, shape, window, middle, h).square, square)
    return sigma**2 * (square - s.parts.mean**2)


def _central(ops: Any, window: Window) -> Any:
    """E Z^2."""
    lo, hi = window.lower, window.upper
    total = _partial_square(ops, hi) - _partial_square(ops, lo)
    return total / (ops.expit(hi) - ops.expit(lo))


def _tail(ops: Any, window: Window) -> Any:
    """E (Z - lower)^2 from the integral of t P(X > lower + t | X > lower)."""
    c, v, w = ops.exp(-window.lower), ops.exp(-window.w), window.w
    e = v * (1 + c) / (1 + c * v)
    p = -ops.expm1(-w) / (1 + c * v)
    at_upper = times(ops, v, w) * shape.log_over(ops, c * v)
    of_t = (1 + c) * (_dilog_over(ops, c) - v * _dilog_over(ops, c * v) - at_upper)
    return (2 * of_t - times(ops, times(ops, e, w), w)) / p


def _partial_square(ops: Any, x: Any) -> Any:
    """E[X^2; X <= x]."""
    size = ops.abs(x)
    v = ops.exp(-size)
    down = ops.expit(-size)
    below = times(ops, times(ops, down, size), size) + 2 * times(ops, ops.log1p(v), size)
    below = below + 2 * v * _dilog_over(ops, v)
    return ops.where(x < 0, below, math.pi**2 / 3 - below)


def _dilog_over(ops: Any, x: Any) -> Any:
    """-Li2(-x) / x for x in [0, 1], and 1 at 0."""
    safe = ops.maximum(x, _SMALL)
    total = ops.full_like(x, 0.0)
    for n in range(13, 0, -1):
        total = (-1) ** (n + 1) / n**2 + x * total
    return ops.where(x > _SMALL, -special.spence(1 + safe) / safe, total)
