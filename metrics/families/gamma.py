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
from ens10.metrics.families._incomplete import gammainc_by_shape

PARAMETERS: Mapping[str, Domain] = {"shape": "positive", "scale": "positive"}


def _parts(shape: Any, scale: Any, y: Any) -> tuple[Any, ...]:
    """The reduced y (0 below 0), F of the shape and of the next, and x^a e^-x / Gamma(a + 1)."""
    x = np.maximum(y, 0.0) / scale
    cdf = special.gammainc(shape, x)
    with np.errstate(divide="ignore"):
        step = np.exp(shape * np.log(x) - x - special.gammaln(shape + 1))
    return x, cdf, cdf - step, step


def half_beta(shape: Any) -> Any:
    """1 / B(1/2, shape), half the mean difference of two values over the scale."""
    return np.exp(special.gammaln(shape + 0.5) - special.gammaln(shape)) / math.sqrt(math.pi)


def _value(_ops: Any, shape: Any, scale: Any, y: Any) -> Any:
    _, cdf, following, _ = _parts(shape, scale, y)
    return y * (2 * cdf - 1) - scale * (shape * (2 * following - 1) + half_beta(shape))


def _partials(_ops: Any, shape: Any, scale: Any, y: Any) -> tuple[Any, ...]:
    x, cdf, following, step = _parts(shape, scale, y)
    half = half_beta(shape)
    by_scale = -shape * (2 * following - 1) - half
    with np.errstate(divide="ignore"):
        log_x = np.log(np.where(x > 0, x, 1.0))
    by_shape = scale * (
        2 * (x - shape) * gammainc_by_shape(shape, x)
        + 2 * shape * step * (log_x - special.psi(shape + 1))
        - (2 * following - 1)
        - half * (special.psi(shape + 0.5) - special.psi(shape))
    )
    return by_shape, by_scale, 2 * cdf - 1


def _cdf(_ops: Any, shape: Any, scale: Any, y: Any) -> Any:
    return special.gammainc(shape, np.maximum(y, 0.0) / scale)


def _log_score(ops: Any, shape: Any, scale: Any, y: Any) -> Any:
    there = y > 0
    x = ops.where(there, y, ops.full_like(y, 1.0)) / scale
    score = x - (shape - 1) * ops.log(x) + ops.gammaln(shape) + ops.log(scale)
    return ops.where(there, score, ops.full_like(y, math.inf)) + 0 * (shape + scale + y)


def _log_score_partials(ops: Any, shape: Any, scale: Any, y: Any) -> tuple[Any, ...]:
    there = y > 0
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
    cdf=cdf_formula(PARAMETERS, _cdf, unitless=_SHAPES, on_host=True),
    mean=mean_formula(PARAMETERS, _mean, unitless=_SHAPES),
    variance=variance_formula(PARAMETERS, _variance, unitless=_SHAPES),
)
