"""Weights of probability levels, which emphasise a part of a distribution in the CRPS.

The CRPS is 2 int_0^1 QS_p(q(p), y) dp. With a weight v(p) of the levels it judges the centre, both
tails or one of them (Gneiting and Ranjan 2011, doi:10.1198/jbes.2010.08110, table 4). All weights
are polynomials, so that the integrals are exact.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from numpy.polynomial import Polynomial

from ens10.errors import UnknownNameError

EMPHASES = {
    "centre": Polynomial([0, 1, -1]),  # p (1 - p)
    "tails": Polynomial([1, -4, 4]),  # (2 p - 1)^2
    "left": Polynomial([1, -2, 1]),  # (1 - p)^2
    "right": Polynomial([0, 0, 1]),  # p^2
}
_P = Polynomial([0, 1])


def check_emphasis(emphasis: str) -> None:
    """Refuse an unknown weight of levels.

    Raises:
        UnknownNameError: it is not one of `EMPHASES`.
    """
    if emphasis not in EMPHASES:
        raise UnknownNameError("emphasis", emphasis, EMPHASES)


def slopes_of_steps(xp: Any, x: Any, emphasis: str, levels: Sequence[float]) -> list[Any]:
    """Return the derivatives of the weighted CRPS by the values of a step quantile function.

    Args:
        xp: numpy or torch.
        x: values less the observation, (K, ...).
        emphasis: one of `EMPHASES`.
        levels: K + 1 levels at which the steps begin and end.
    """
    v = EMPHASES[emphasis]
    pairs = zip(x, itertools.pairwise(levels), strict=True)
    return [_step(xp, value, v, *ends) for value, ends in pairs]


def slopes_of_quantiles(
    xp: Any, x: Any, emphasis: str, levels: Sequence[float], rule: str
) -> list[Any]:
    """Return the derivatives of the weighted CRPS by each quantile, as `crps_weights` without.

    Args:
        xp: numpy or torch.
        x: quantiles less the observation, (K, ...).
        emphasis: one of `EMPHASES`.
        levels: K levels of the quantiles.
        rule: "linear" or "mean".
    """
    v, K = EMPHASES[emphasis], len(levels)
    if rule == "mean":
        pairs = zip(x, levels, strict=True)
        return [(2 / K) * float(v(p)) * (above_observation(xp, q) - p) for q, p in pairs]
    slopes: list[Any] = [0.0] * K
    slopes[0] = _step(xp, x[0], v, 0.0, levels[0])
    slopes[-1] = slopes[-1] + _step(xp, x[-1], v, levels[-1], 1.0)
    for j, (first, last) in enumerate(itertools.pairwise(levels)):
        for k, share in ((j, last - _P), (j + 1, _P - first)):  # of the two quantiles
            weight = v * share / (last - first)
            above = _integral_above(xp, x[j], x[j + 1], first, last, weight.integ())
            slopes[k] = slopes[k] + 2 * (above - _between((weight * _P).integ(), first, last))
    return slopes


def _step(xp: Any, x: Any, v: Polynomial, first: float, last: float) -> Any:
    """Return 2 int (1{x > 0} - p) v(p) dp from `first` to `last`."""
    of_levels = _between((v * _P).integ(), first, last)
    return 2 * (above_observation(xp, x) * _between(v.integ(), first, last) - of_levels)


def _integral_above(
    xp: Any, a: Any, b: Any, first: float, last: float, primitive: Polynomial
) -> Any:
    """Integrate a weight over the levels between two quantiles at which x(p) is above 0.

    Args:
        xp: numpy or torch.
        a: x at the level `first`.
        b: x at the level `last`; x is linear between both.
        first: lower level.
        last: upper level.
        primitive: integral of the weight.
    """
    differ = a != b
    share = xp.clip(-a / xp.where(differ, b - a, xp.ones_like(a)), 0, 1)
    at_zero = _evaluate(primitive, first + share * (last - first))
    rising, falling = float(primitive(last)) - at_zero, at_zero - float(primitive(first))
    constant = above_observation(xp, a) * _between(primitive, first, last)
    return xp.where(differ, xp.where(b > a, rising, falling), constant)


def _between(primitive: Polynomial, first: float, last: float) -> float:
    return float(primitive(last) - primitive(first))


def _evaluate(polynomial: Polynomial, x: Any) -> Any:
    """Return a polynomial of an array or tensor, by Horner's rule."""
    *others, highest = (float(c) for c in polynomial.coef)
    value = highest + 0.0 * x
    for coefficient in reversed(others):
        value = value * x + coefficient
    return value


def above_observation(xp: Any, x: Any) -> Any:
    """Return 1 for values above the observation, 0 below, NaN where missing."""
    return xp.where(x > 0, xp.ones_like(x), 0 * x)
