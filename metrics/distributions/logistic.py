"""The logistic distribution, alone and between bounds; second moments need a dilogarithm."""

import math
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar

from ens10.metrics._ops import standardise
from ens10.metrics._reduce import Over
from ens10.metrics.distributions import censored, truncated
from ens10.metrics.distributions import standard_logistic as standard
from ens10.metrics.distributions.base import LOCATION, SCALE, Bounded, ClosedForm
from ens10.metrics.distributions.formula import Kernel
from ens10.metrics.distributions.gamma_functions import UNIT_POINTS, UNIT_WEIGHTS
from ens10.metrics.distributions.shapes import Window, narrow_parts, times


def _crps(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    z = ops.abs(standardise(ops, mu, sigma, y))
    # z - 2 log F(z) - 1, with log F(z) = -log(1 + e^-z), is even in z
    return ops.abs(y - mu) + sigma * (2 * ops.softplus(-z) - 1)


def _crps_partials(ops: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    z = standardise(ops, mu, sigma, y)
    by_y = ops.tanh(0.5 * z)
    size = ops.abs(z)
    # the last product is 0 where the distance over sigma is infinite
    by_sigma = 2 * ops.softplus(-size) - 1 + 2 * times(ops, ops.expit(-size), size)
    return -by_y, by_sigma, by_y


def _cdf(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    return ops.expit(standardise(ops, mu, sigma, y))


def _log_score(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    return ops.log(sigma) - standard.log_density(ops, (y - mu) / sigma)


def _log_score_partials(ops: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    z = (y - mu) / sigma
    by_y = standard.slope(ops, z) / sigma
    return -by_y, (1 - z * standard.slope(ops, z)) / sigma, by_y


def _mean(_ops: Any, mu: Any, sigma: Any) -> Any:
    return mu + 0 * sigma  # which may be NaN


def _variance(_ops: Any, mu: Any, sigma: Any) -> Any:
    return sigma * sigma * (math.pi**2 / 3) + 0 * mu


def _quantile(ops: Any, mu: Any, sigma: Any, p: Any) -> Any:
    return mu + sigma * ops.logit(p)


def _variance_censored(ops: Any, *arguments: Any) -> Any:
    """Return Var Y, from mu, sigma, lower and upper."""
    mu, sigma, _, _ = arguments
    s = censored.standard(ops, (*arguments, mu))
    on_a, on_b = ops.expit(s.lower), ops.expit(-s.upper)
    first = times(ops, on_a, s.lower) + times(ops, on_b, s.upper)
    first = first + standard.partial_mean(ops, s.lower) - standard.partial_mean(ops, s.upper)
    ends = times(ops, on_a, s.lower**2) + times(ops, on_b, s.upper**2)
    second = ends + _partial_square(ops, s.upper) - _partial_square(ops, s.lower)
    return sigma**2 * ops.maximum(second - first**2, 0.0)


def _variance_truncated(ops: Any, *arguments: Any) -> Any:
    """Return Var Y, from mu, sigma, lower and upper."""
    mu, sigma, a, b = arguments
    s = truncated.standard(ops, standard, (*arguments, ops.minimum(ops.maximum(mu, a), b)))
    window = s.window
    above, around = _tail_square(ops, window), _central_square(ops, window)
    square = ops.where(window.lower > 0, above, around)
    middle, h = window.lower + 0.5 * window.w, 0.5 * window.w
    small = standard.is_narrow(ops, middle, h)
    if ops.any_true(small):
        h = ops.where(small, h, ops.full_like(h, 0.01))
        square = ops.where(small, narrow_parts(ops, standard, window, middle, h).square, square)
    return sigma**2 * (square - s.parts.mean**2)


def _central_square(ops: Any, window: Window) -> Any:
    """Return the second moment E Z^2 of a window that contains 0."""
    lo, hi = window.lower, window.upper
    total = _partial_square(ops, hi) - _partial_square(ops, lo)
    return total / (ops.expit(hi) - ops.expit(lo))


def _tail_square(ops: Any, window: Window) -> Any:
    """Return E (Z - lower)^2 of a window above 0.

    It is twice the integral of t P(X > lower + t | X > lower).
    """
    c, v, w = ops.exp(-window.lower), ops.exp(-window.w), window.w
    e = v * (1 + c) / (1 + c * v)
    p = -ops.expm1(-w) / (1 + c * v)
    at_upper = times(ops, v, w) * standard.log_over(ops, c * v)
    of_t = (1 + c) * (_dilog_over(ops, c) - v * _dilog_over(ops, c * v) - at_upper)
    return (2 * of_t - times(ops, times(ops, e, w), w)) / p


def _partial_square(ops: Any, x: Any) -> Any:
    """Return the integral of t^2 f(t) up to x, the part of the second moment below x."""
    size = ops.abs(x)
    v = ops.exp(-size)
    down = ops.expit(-size)
    below = times(ops, times(ops, down, size), size) + 2 * times(ops, ops.log1p(v), size)
    below = below + 2 * v * _dilog_over(ops, v)
    return ops.where(x < 0, below, math.pi**2 / 3 - below)


def _dilog_over(ops: Any, x: Any) -> Any:
    """Return the dilogarithm over its argument, -Li2(-x) / x, for x in [0, 1]; 1 at 0."""
    # the mean of log(1 + u) / u from 0 to x, whose nearest singularity is at u = -1: 10 nodes of
    # Gauss and Legendre are exact to 6^-20, and no library has it for tensors
    nodes = zip(UNIT_POINTS.tolist(), UNIT_WEIGHTS.tolist(), strict=True)
    return sum(weight * standard.log_over(ops, point * x) for point, weight in nodes)


@dataclass(eq=False)
class Logistic(ClosedForm, kind="logistic"):
    """Logistic distribution at each grid point.

    Args:
        mu: location, which is the mean, (..., H, W), target units.
        sigma: scale, 0 or more, in the units of `mu`; the standard deviation is sigma pi / sqrt(3).
        positive: True to skip the check that the parameters are valid.
    """

    mu: Any
    sigma: Any
    positive: bool = False

    parameters: ClassVar = {"mu": LOCATION, "sigma": SCALE}
    oracles = "mpmath, scoringrules"
    kernels: ClassVar = {
        "crps": Kernel(_crps, _crps_partials),
        "log_score": Kernel(_log_score, _log_score_partials, positive=("sigma",)),
        "cdf": Kernel(_cdf),
        "mean": Kernel(_mean),
        "variance": Kernel(_variance),
    }
    inverse = _quantile
    symmetric = True
    censored_as = "censored_logistic"
    head_channels = 2
    unit_scale = standard.UNIT_SCALE


def crps_logistic(
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of logistic distributions, elementwise.

    With z = (y - mu) / sigma and F(z) = 1 / (1 + exp(-z)) it is sigma [z - 2 log F(z) - 1]
    (Taillardat et al. 2016, doi:10.1175/MWR-D-15-0260.1, table A1; Jordan, Krueger & Lerch 2019,
    doi:10.18637/jss.v090.i12, appendix A), and |y - mu| at sigma = 0. Gradients of tensors are
    analytic and finite for every sigma >= 0.

    Args:
        mu: locations, which are the means; any shape.
        sigma: scales, 0 or more, in the unit of `mu`; the standard deviation is
            sigma pi / sqrt(3).
        y: observations. Arrays broadcast by position, DataArrays by dimension name, with equal
            coordinates. Plain numbers are accepted for each.
        dim: dimensions of a weighted mean (numbers of axes, names for DataArrays, or "all"); None
            for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Raises:
        ArgumentError: a negative sigma (on lazy arrays when computed); arrays of several
            libraries or that do not fit each other.
        UnknownNameError: an unknown policy for NaN.
    """
    return Logistic.formula("crps")(mu, sigma, y, check=check, dim=dim, weights=weights, nan=nan)


class TruncatedLogistic(Bounded, kind="truncated_logistic"):
    """Truncated logistic, see `Bounded`: a logistic variable given that it is between bounds."""

    oracles = "mpmath, scoringrules"
    kernels: ClassVar = truncated.kernels(standard, _variance_truncated)
    truncates = True
    unit_scale = standard.UNIT_SCALE
    inverse = partial(truncated.quantile, standard.cdf, standard.quantile)


def crps_truncated_logistic(
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    lower: Any = -inf,
    upper: Any = inf,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of logistic distributions truncated to an interval, elementwise.

    The forecast is that of a logistic variable given that it lies in [lower, upper] (for lower = 0
    Scheuerer & Moeller 2015, doi:10.1214/15-AOAS843, and Taillardat et al. 2016,
    doi:10.1175/MWR-D-15-0260.1; Jordan, Krueger & Lerch 2019, doi:10.18637/jss.v090.i12,
    appendix A): sigma times E|Z - z| less the integral of G (1 - G), with z = (y - mu) / sigma
    and Z distributed as G(x) = (F(x) - F(l)) / (F(u) - F(l)). For y outside the bounds it is
    the score at the nearest bound plus the distance to it; at sigma = 0, the distance of y to the
    value between the bounds that is nearest to mu. Gradients of tensors are analytic and finite
    for every sigma >= 0, also by finite bounds that are tensors.

    Args:
        mu: location of the logistic before truncation; any shape.
        sigma: its scale, 0 or more, in the unit of `mu`.
        y: observations. Arrays broadcast by position, DataArrays by dimension name, with equal
            coordinates. Plain numbers are accepted for each.
        lower: lower bound; -inf for none.
        upper: upper bound, above `lower`; inf for none.
        dim: dimensions of a weighted mean (numbers of axes, names for DataArrays, or "all"); None
            for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma and bounds that are not in order.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Raises:
        ArgumentError: a negative sigma, or lower >= upper (on lazy arrays when computed); arrays
            of several libraries or that do not fit each other.
        UnknownNameError: an unknown policy for NaN.
    """
    return TruncatedLogistic.formula("crps")(
        mu, sigma, lower, upper, y, check=check, dim=dim, weights=weights, nan=nan
    )


class CensoredLogistic(Bounded, kind="censored_logistic"):
    """Censored logistic, see `Bounded`: a logistic variable moved to the nearest of two bounds."""

    oracles = "mpmath, scoringrules"
    kernels: ClassVar = censored.kernels(standard, _variance_censored)
    inverse = partial(censored.quantile, standard.quantile)
    unit_scale = standard.UNIT_SCALE
    censored_as = "censored_logistic"


def crps_censored_logistic(
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    lower: Any = -inf,
    upper: Any = inf,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of logistic distributions censored at an interval's ends, elementwise.

    The form of `crps_censored_normal` with V(x) = log(1 + exp(x)) - F(x) - x F(x)^2 and
    F(x) = 1 / (1 + exp(-x)) (Jordan, Krueger & Lerch 2019, doi:10.18637/jss.v090.i12,
    appendix A). Outside the bounds the distance to the nearest one is added; at sigma = 0
    it is the distance of y to the value between the bounds that is nearest to mu. Gradients of
    tensors are analytic and finite for every sigma >= 0, also by finite bounds that are tensors.

    Args:
        mu: location of the logistic before censoring; any shape.
        sigma: its scale, 0 or more, in the unit of `mu`.
        y: observations. Arrays broadcast by position, DataArrays by dimension name, with equal
            coordinates. Plain numbers are accepted for each.
        lower: lower bound; -inf for none.
        upper: upper bound, above `lower`; inf for none.
        dim: dimensions of a weighted mean (numbers of axes, names for DataArrays, or "all"); None
            for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma and bounds that are not in order.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Raises:
        ArgumentError: a negative sigma, or lower >= upper (on lazy arrays when computed); arrays
            of several libraries or that do not fit each other.
        UnknownNameError: an unknown policy for NaN.
    """
    return CensoredLogistic.formula("crps")(
        mu, sigma, lower, upper, y, check=check, dim=dim, weights=weights, nan=nan
    )
