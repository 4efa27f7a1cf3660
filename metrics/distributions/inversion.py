"""Quantiles of distributions whose distribution function has no inverse in closed form."""

from collections.abc import Callable
from typing import Any

from ens10.metrics.distributions.base import clip

_STEPS = 200  # most steps towards a quantile; some 8 are usual, and bisection needs 60


def invert_cdf(
    ops: Any, cdf_and_density: Callable[[Any], tuple[Any, Any]], p: Any, ends: Any, start: Any
) -> Any:
    """Return quantiles by Newton's method within brackets that bisection narrows.

    Args:
        ops: functions of the arrays' library.
        cdf_and_density: function of values, float64.
        p: probabilities, of the shape of the quantiles.
        ends: values below and above the quantiles; equal ones are the quantile.
        start: first values.

    Returns:
        Quantiles to 1e-13 of the brackets.
    """
    low, high = ends
    degenerate = ~(low < high)
    size = ops.where(degenerate, 1.0, high - low)
    at = ops.where(degenerate, low, clip(ops, start, low, high))
    for _ in range(_STEPS):
        level, slope = cdf_and_density(at)
        below = level < p
        low, high = ops.where(below, at, low), ops.where(below, high, at)
        newton = at - (level - p) / ops.where(slope > 0, slope, 1.0)
        inside = (newton >= low) & (newton <= high) & (slope > 0)
        following = ops.where(inside, newton, 0.5 * (low + high))
        step = ops.where(degenerate, 0.0, ops.abs(following - at))
        at = ops.where(degenerate, at, following)
        if not bool((step > 1e-13 * size + 1e-15 * ops.abs(at)).any()):
            break
    return at
