"""Student's t distribution truncated to an interval, or censored at its ends.

With n degrees of freedom, F and f the standard distribution and H(x) = -(n + x^2) f(x) / (n - 1)
the antiderivative of x f, the integrals up to x are A(x) = x F - H of F, and
B(x) = x F^2 - 2 H F - 2 K(x) of F^2, where K is a multiple of the t distribution function with
2 n - 1 degrees of freedom (Jordan, Krueger & Lerch 2019, doi:10.18637/jss.v090.i12). All
derivatives but that by n follow from those by the bounds and y, as the CRPS is homogeneous.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar

import numpy as np
from scipy import special

from ens10.metrics._ops import NUMPY
from ens10.metrics.distributions.base import BOUNDED
from ens10.metrics.distributions.formula import Kernel, Parameter
from ens10.metrics.distributions.gamma_functions import half_step
from ens10.metrics.distributions.student_t import WithDf
from ens10.metrics.distributions.truncated import quantile

_FAR, _MANY, _STEP = 1e8, 1e10, 1e-3
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_CLOSE = 0.5  # a width of the interval below which its integrals are quadratures
_PARAMETERS = {
    "df": Parameter("positive", "1", long_name="degrees of freedom of the forecast"),
    **BOUNDED,
}


def _density(n: Any, x: Any) -> Any:
    peak = np.exp(half_step(NUMPY, 0.5 * n)) / math.sqrt(2 * math.pi)
    return peak * np.exp(-0.5 * (n + 1) * np.log1p(x * x / n))


def _integrals(n: Any, x: Any) -> tuple[Any, Any, Any]:
    """Return F(x), the integral A of F and the integral B of F^2 up to x; all are 0 at -inf."""
    x = np.maximum(x, -_FAR)
    level, slope = special.stdtr(n, x), -(n + x * x) / (n - 1) * _density(n, x)
    m, at_0 = 2 * n - 1, np.exp(half_step(NUMPY, 0.5 * n)) / math.sqrt(2 * math.pi)
    ratio = at_0 * at_0 * n * np.sqrt(n / m) / _density(m, 0.0 * x)
    square = ratio * special.stdtr(m, x * np.sqrt(m / n)) / (n - 1)
    lowest = x <= -_FAR
    return (
        np.where(lowest, 0.0, level),
        np.where(lowest, 0.0, x * level - slope),
        np.where(lowest, 0.0, x * level * level - 2 * slope * level - 2 * square),
    )


def _standard(df: Any, mu: Any, sigma: Any, a: Any, b: Any, y: Any) -> tuple[Any, ...]:
    """Return df, the standardised y, lower and upper bounds, and y less its clipped value.

    y is clipped to the bounds first; df of 1 or less is NaN.
    """
    inside, scale = np.clip(y, a, b), np.where(sigma == 0, 1.0, sigma)
    z, lower, upper = (
        np.clip(np.where(sigma == 0, np.sign(v - mu) * _FAR, (v - mu) / scale), -_FAR, _FAR)
        for v in (inside, a, b)
    )
    n = np.where(df > 1, np.minimum(df, _MANY), np.nan)
    return n, z, lower, upper, np.where(y == inside, 0.0, y - inside)


def _parts(n: Any, first: Any, last: Any) -> tuple[Any, Any, Any]:
    """Return P = F(last) - F(first), and the integrals of F(x) - F(first) and of its square.

    The integrals are over x from first to last.
    """
    width = last - first
    (f_0, a_0, b_0), (f_1, a_1, b_1) = _integrals(n, first), _integrals(n, last)
    base = np.where(first <= -_FAR, 0.0, f_0)
    gap = np.where(base == 0, 0.0, width)
    once, twice = a_1 - a_0 - base * gap, b_1 - b_0 - 2 * base * (a_1 - a_0) + base * base * gap
    close = width < _CLOSE
    near: list[Any] = [0.0, 0.0]
    short = np.where(close, width, 0.0)

    def probability(distance: Any) -> Any:
        points = ((node + 1) / 2 * distance for node in _NODES)
        return distance * sum(
            w / 2 * _density(n, first + x) for w, x in zip(_WEIGHTS, points, strict=True)
        )

    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        value = probability((node + 1) / 2 * short)
        near = [near[0] + weight / 2 * value, near[1] + weight / 2 * value * value]
    return (
        np.where(close, probability(short), f_1 - base),
        np.where(close, short * near[0], once),
        np.where(close, short * near[1], twice),
    )


def _censored_crps(n: Any, z: Any, lower: Any, upper: Any) -> tuple[Any, ...]:
    """Return the CRPS of the censored distribution over sigma, and its slopes.

    z lies within the bounds. The slopes are the derivatives by lower, upper and z.
    """
    (f_l, _, b_l), (f_z, _, b_z) = _integrals(n, lower), _integrals(n, z)
    (g_u, _, c_u), (g_z, _, c_z) = _integrals(n, -upper), _integrals(n, -z)
    return b_z - b_l + c_z - c_u, -f_l * f_l, g_u * g_u, f_z - g_z


def _truncated_crps(n: Any, z: Any, lower: Any, upper: Any) -> tuple[Any, ...]:
    """Return the CRPS of the truncated distribution over sigma, and its slopes.

    z lies within the bounds. The slopes are the derivatives by lower, upper and z. Windows whose
    middle is above 0 are mirrored into the lower tail, where F keeps its digits.
    """
    flip = lower + upper > 0
    lo, hi = np.where(flip, -upper, lower), np.where(flip, -lower, upper)
    at = np.where(flip, -z, z)
    total, integral, square = _parts(n, lo, hi)
    below, under, under2 = _parts(n, lo, at)
    # those above: 1 - F(x) is F(-x)
    mirrored = _parts(n, -hi, -at)
    # in the lower tail, where 1 - F has no digits: base and gaps are those of F
    f_end, (f_at, a_at, b_at), (_, a_hi, b_hi) = (
        special.stdtr(n, hi),
        _integrals(n, at),
        _integrals(n, hi),
    )
    gap, change = hi - at, a_hi - a_at
    tail = (
        f_end - f_at,
        f_end * gap - change,
        f_end * f_end * gap - 2 * f_end * change + b_hi - b_at,
    )
    lower_tail = (hi < 0) & (gap >= _CLOSE)
    above, over, over2 = (np.where(lower_tail, t, m) for t, m in zip(tail, mirrored, strict=True))
    # total**2 can underflow
    score = (under2 + over2) / total / total
    spread = integral / total - square / total / total
    by_lo = 2 * _bound_density(n, lo) / total * (over / total - spread)
    by_hi = 2 * _bound_density(n, hi) / total * (spread - under / total)
    by_z = (below - above) / total
    by_l, by_u = np.where(flip, -by_hi, by_lo), np.where(flip, -by_lo, by_hi)
    return score, by_l, by_u, np.where(flip, -by_z, by_z)


def _bound_density(n: Any, x: Any) -> Any:
    return np.where(np.abs(x) >= _FAR, 0.0, _density(n, x))


def _crps(crps_inside: Callable[..., Any], _ops: Any, *arguments: Any) -> Any:
    _, mu, sigma, a, b, y = arguments
    n, z, lower, upper, outside = _standard(*arguments)
    score = np.abs(outside) + sigma * crps_inside(n, z, lower, upper)[0]
    return np.where(sigma == 0, np.abs(y - np.clip(mu, a, b)), score)


def _crps_partials(crps_inside: Callable[..., Any], ops: Any, *arguments: Any) -> tuple[Any, ...]:
    n, z, lower, upper, outside = _standard(*arguments)
    value, by_l, by_u, by_z = crps_inside(n, z, lower, upper)
    slope = value - by_l * lower - by_u * upper - by_z * z  # Euler's theorem
    side = np.sign(outside)
    by_a = by_l + np.where(side < 0, by_z + 1, 0.0)
    by_b = by_u + np.where(side > 0, by_z - 1, 0.0)

    by_df = _by_df(partial(_crps, crps_inside), ops, *arguments)
    return by_df, -(by_l + by_u + by_z), slope, by_a, by_b, np.where(side == 0, by_z, side)


def _by_df(function: Callable[..., Any], ops: Any, df: Any, *others: Any) -> Any:
    """Return the derivative by df, a difference of fourth order with steps of log(df - 1)."""

    def value_at(steps: int) -> Any:
        return function(ops, 1 + (df - 1) * math.exp(steps * _STEP), *others)

    change = (8 * (value_at(1) - value_at(-1)) - (value_at(2) - value_at(-2))) / (12 * _STEP)
    return np.where(df < _MANY, change / (df - 1), 0.0)


def _of_parameters(
    by_df: Any, points: Any, slopes: Any, sigma: Any, inside: Any
) -> tuple[Any, ...]:
    """Return the derivatives of a function of the standard points alone, 0 where not `inside`.

    Args:
        by_df: derivative by df.
        points: standard lower and upper bound and y.
        slopes: derivatives by these.
        sigma: scale.
        inside: True where there are slopes.
    """
    by_l, by_u, by_z = slopes
    terms = (np.where(by == 0, 0.0, by * x) for by, x in zip(slopes, points, strict=True))
    scale = np.where(sigma == 0, 1.0, sigma)
    parts = (-(by_l + by_u + by_z), -sum(terms), by_l, by_u, by_z)
    inside = inside & (sigma > 0)
    return tuple(np.where(inside, part, 0.0) for part in (by_df, *(x / scale for x in parts)))


def _cdf_partials(truncated: bool, ops: Any, *arguments: Any) -> tuple[Any, ...]:
    sigma, a, b, y = arguments[2:]
    n, z, lower, upper, _ = _standard(*arguments)
    density, level = _density(n, z), _cdf(truncated, True, ops, *arguments)
    by_l, by_u = 0.0 * z, 0.0 * z
    if truncated:
        total = _mass(n, lower, upper)
        density = density / total
        by_l = -_bound_density(n, lower) / total * (1 - level)
        by_u = -_bound_density(n, upper) / total * level
    by_df = _by_df(partial(_cdf, truncated, True), ops, *arguments)
    inside = (y > a) & (y < b)
    return _of_parameters(by_df, (lower, upper, z), (by_l, by_u, density), sigma, inside)


def _mass(n: Any, lower: Any, upper: Any) -> Any:
    """Return P(lower <= Z <= upper), in the tail that keeps its digits."""
    flip = lower + upper > 0
    return _parts(n, np.where(flip, -upper, lower), np.where(flip, -lower, upper))[0]


def _cdf(truncated: bool, upto: bool, _ops: Any, *arguments: Any) -> Any:
    mu, sigma, a, b, y = arguments[1:]
    n, z, lower, upper, _ = _standard(*arguments)
    level = special.stdtr(n, z)
    if truncated:
        low, high = (np.where(x <= -_FAR, 0.0, special.stdtr(n, x)) for x in (lower, upper))
        high = np.where(upper >= _FAR, 1.0, high)
        at_0 = 0.5 + 0.5 * np.sign(y - np.clip(mu, a, b)) + 0 * n
        level = np.where(sigma == 0, at_0, (level - low) / (high - low))
    none, full = (y < a, y >= b) if upto else (y <= a, y > b)
    return np.where(none, 0 * level, np.where(full, 1 + 0 * level, level))


def _log_score(truncated: bool, _ops: Any, *arguments: Any) -> Any:
    sigma, a, b, y = arguments[2:]
    n, z, lower, upper, outside = _standard(*arguments)
    score = np.log(sigma) - np.log(_density(n, z))
    if truncated:
        score = score + np.log(_mass(n, lower, upper))
    else:
        score = np.where(y == a, -np.log(special.stdtr(n, lower)), score)
        score = np.where(y == b, -np.log(special.stdtr(n, -upper)), score)
    # beyond the bounds, too, what is missing stays missing
    return np.where(outside == 0, score, np.where(np.isnan(score), score, inf))


def _log_score_partials(truncated: bool, ops: Any, *arguments: Any) -> tuple[Any, ...]:
    sigma, a, b, y = arguments[2:]
    n, z, lower, upper, outside = _standard(*arguments)
    by_z, by_l, by_u = (n + 1) * z / (n + z * z), 0.0 * z, 0.0 * z
    at_a, at_b = (y == a) & (not truncated), (y == b) & (not truncated)
    if truncated:
        total = _mass(n, lower, upper)
        by_l, by_u = (_bound_density(n, x) / total for x in (lower, upper))
        by_l = -by_l
    else:
        by_l = np.where(at_a, -_bound_density(n, lower) / special.stdtr(n, lower), by_l)
        by_u = np.where(at_b, _bound_density(n, upper) / special.stdtr(n, -upper), by_u)
    on_bound = at_a | at_b
    by_df = _by_df(partial(_log_score, truncated), ops, *arguments)
    slopes = (by_l, by_u, np.where(on_bound, 0.0, by_z))
    by_df, by_mu, by_sigma, *others = _of_parameters(
        by_df, (lower, upper, z), slopes, sigma, outside == 0
    )
    return by_df, by_mu, by_sigma + np.where((outside == 0) & ~on_bound, 1 / sigma, 0.0), *others


def _tail_quantile(n: Any, p: Any) -> Any:
    """Return the standard quantile, where scipy's lacks digits by Newton's method in log F as well.

    scipy before 1.17 loses them: 0.4 in log F at 1e-182 with 884 degrees of freedom, and some 1e-12
    of the level in the middle.
    """
    x, off = special.stdtrit(n, p), p < 1e-50
    for _ in range(3):
        level = special.stdtr(n, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            difference = np.log(level / p)
            step = level * difference / _density(n, x)
        off = off | (np.abs(difference) > 1e-13)
        if not off.any():
            break
        x = np.where(off & np.isfinite(step), x - step, x)
    return x


def _quantile(truncated: bool, ops: Any, df: Any, *arguments: Any) -> Any:
    if truncated:
        return quantile(
            lambda _, x: special.stdtr(df, x), lambda _, p: _tail_quantile(df, p), ops, *arguments
        )
    mu, sigma, a, b, p = arguments
    return np.clip(mu + sigma * special.stdtrit(df, p), a, b)


def _kernels(truncated: bool) -> dict[str, Kernel]:
    crps_inside = _truncated_crps if truncated else _censored_crps
    value, partials = partial(_crps, crps_inside), partial(_crps_partials, crps_inside)
    slopes = partial(_cdf_partials, truncated)
    kernels = {
        "crps": Kernel(value, partials, double=True, on_host=True),
        "log_score": Kernel(
            partial(_log_score, truncated),
            partial(_log_score_partials, truncated),
            double=True,
            on_host=True,
            positive=("sigma",),
        ),
        "cdf": Kernel(partial(_cdf, truncated, True), slopes, double=True, on_host=True),
    }
    below = Kernel(partial(_cdf, truncated, False), slopes, double=True, on_host=True)
    return kernels if truncated else {**kernels, "cdf_below": below}


@dataclass(eq=False)
class _BoundedStudentT(WithDf):
    """Student's t distribution between two bounds.

    Args:
        df: degrees of freedom, above 1; scores are NaN for less; no unit.
        mu: location before the bounds, (..., H, W), target units.
        sigma: scale before the bounds, 0 or more, target units.
        lower: lower bound, a number or a field; -inf for none.
        upper: upper bound, above `lower`; inf for none.
        positive: True to skip the check that the parameters are valid.
    """

    df: Any
    mu: Any
    sigma: Any
    lower: Any = -inf
    upper: Any = inf
    positive: bool = False

    parameters: ClassVar = _PARAMETERS
    inverse_on_host = True


class TruncatedStudentT(_BoundedStudentT, kind="truncated_student_t"):
    """Truncated Student's t distribution: a t variable given that it lies between two bounds."""

    oracles = "scoringrules, quadrature"
    kernels: ClassVar = _kernels(truncated=True)
    inverse = partial(_quantile, True)
    truncates = True


class CensoredStudentT(_BoundedStudentT, kind="censored_student_t"):
    """Censored Student's t distribution: a t variable moved to the nearest of two bounds."""

    oracles = "scoringrules, quadrature"
    kernels: ClassVar = _kernels(truncated=False)
    inverse = partial(_quantile, False)
    censored_as = "censored_student_t"
