"""The gamma distribution of a shape and a scale, whose mean is their product."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import special

from ens10.metrics.families._family import (
    Family,
    cdf_formula,
    crps_formula,
    log_score_formula,
    mean_formula,
    variance_formula,
)
from ens10.metrics.families._formula import Domain
from ens10.metrics.families._gamma_functions import (
    half_step,
    half_step_slope,
    mean_half_step_slope,
)
from ens10.metrics.families._incomplete import (
    gammainc_by_shape,
    log_less_digamma,
    lower_and_upper,
    step,
)
from ens10.metrics.families._ops import NUMPY

PARAMETERS: Mapping[str, Domain] = {"shape": "positive", "scale": "positive"}
_SMALL = 0.25  # a shape below which the CRPS at 0 cancels
MOST = 1e300  # of y in units of the scale; beyond it, the score is the distance


def half_beta(shape: Any) -> Any:
    """1 / B(1/2, shape), half the mean difference of two values over the scale.

    It is Gamma(shape + 1/2) / (sqrt(pi) Gamma(shape)), whose logarithms cancel at large shapes.
    """
    return np.sqrt(shape / math.pi) * np.exp(half_step(NUMPY, shape))


def half_beta_slope(shape: Any) -> Any:
    """The derivative of the logarithm of `half_beta`."""
    return 0.5 / shape + half_step_slope(NUMPY, shape)


def at_origin(shape: Any) -> Any:
    """Shape - half_beta(shape), the CRPS at 0 over the scale: of order shape^2 for small ones."""
    small = shape < _SMALL
    low = np.where(small, shape, _SMALL)
    near = -low * np.expm1(-low * mean_half_step_slope(0.5, low))
    return np.where(small, near, shape - half_beta(shape))


def reduced(y: Any, scale: Any) -> Any:
    """Y / scale, 0 below 0, and no larger than what functions of it can take."""
    return np.minimum(np.maximum(y, 0.0) / scale, MOST)


def _value(_ops: Any, shape: Any, scale: Any, y: Any) -> Any:
    """With P and P' the distribution functions at x of this shape and of the next one.

    Above a shape of 1 it is (x - shape) (2 P - 1) + 2 shape (P - P') - half_beta, whose terms are
    of the size of the deviation; below 1, where the median is near 0, x (2 P - 1) - 2 shape P' and
    the score at 0.
    """
    x = reduced(y, scale)
    below, above = lower_and_upper(shape, x)
    many = (x - shape) * (below - above) + 2 * shape * step(shape, x) - half_beta(shape)
    few = x * (below - above) - 2 * shape * special.gammainc(np.minimum(shape, 1.0) + 1, x)
    score = scale * np.where(shape < 1, few + at_origin(shape), many)
    score = np.where(y > MOST * scale, np.abs(y - shape * scale), score + np.maximum(-y, 0.0))
    return np.where(vast(shape, scale, y), math.inf, score)


def vast(shape: Any, scale: Any, y: Any) -> Any:
    """Whether the score is infinite because an argument is, or because the mean overflows."""
    known = ~(np.isnan(shape) | np.isnan(scale) | np.isnan(y))
    return known & (np.isinf(y) | np.isinf(shape * scale))


def _partials(_ops: Any, shape: Any, scale: Any, y: Any) -> tuple[Any, ...]:
    x = reduced(y, scale)
    below, above = lower_and_upper(shape, x)
    change, half = step(shape, x), half_beta(shape)
    following = below - above - 2 * change
    by_scale = -shape * following - half
    with np.errstate(divide="ignore"):
        log = np.where(x > 0, log_less_digamma(shape, np.where(x > 0, x, 1.0)), 0.0)
    by_shape = scale * (
        2 * (x - shape) * gammainc_by_shape(shape, x)
        + 2 * shape * change * log
        - following
        - half * half_beta_slope(shape)
    )
    flat = vast(shape, scale, y)  # an infinite score has no slope by the parameters
    found = (np.where(flat, 0.0, part) for part in (by_shape, by_scale))
    return *found, below - above


def _cdf(_ops: Any, shape: Any, scale: Any, y: Any) -> Any:
    return lower_and_upper(shape, reduced(y, scale))[0]


def _log_score(ops: Any, shape: Any, scale: Any, y: Any) -> Any:
    there = y > 0
    x = ops.where(there, y, ops.full_like(y, 1.0)) / scale
    score = x - (shape - 1) * ops.log(x) + ops.gammaln(shape) + ops.log(scale)
    score = ops.where(there & (y < math.inf), score, ops.full_like(y, math.inf))
    missing = (shape != shape) | (scale != scale) | (y != y)
    return ops.where(missing, ops.full_like(y, math.nan), score)


def _log_score_partials(ops: Any, shape: Any, scale: Any, y: Any) -> tuple[Any, ...]:
    there = (y > 0) & (y < math.inf)
    x = ops.where(there, y, ops.full_like(y, 1.0)) / scale
    parts = (
        ops.digamma(shape) - ops.log(x),
        (shape - x) / scale,
        (1 - (shape - 1) / x) / scale,
    )
    nothing = ops.full_like(x, 0.0)
    return tuple(ops.where(there, part, nothing) for part in parts)


def _mean(_ops: Any, shape: Any, scale: Any) -> Any:
    return shape * scale


def _variance(_ops: Any, shape: Any, scale: Any) -> Any:
    return shape * scale * scale


_SHAPES = ("shape",)
FAMILY = Family(
    "gamma",
    PARAMETERS,
    crps=crps_formula(PARAMETERS, _value, _partials, unitless=_SHAPES, on_host=True, double=True),
    log_score=log_score_formula(PARAMETERS, _log_score, _log_score_partials, unitless=_SHAPES),
    cdf=cdf_formula(PARAMETERS, _cdf, unitless=_SHAPES, on_host=True, double=True),
    mean=mean_formula(PARAMETERS, _mean, unitless=_SHAPES),
    variance=variance_formula(PARAMETERS, _variance, unitless=_SHAPES),
)
