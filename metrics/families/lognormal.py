"""The log-normal distribution: the logarithm is normal with mean mu and deviation sigma."""

import math
from collections.abc import Mapping
from typing import Any

from ens10.metrics.families._family import (
    Family,
    cdf_formula,
    crps_formula,
    log_score_formula,
    mean_formula,
    variance_formula,
)
from ens10.metrics.families._formula import Domain

_PARAMETERS: Mapping[str, Domain] = {"mu": "real", "sigma": "nonnegative"}
_POSITIVE: Mapping[str, Domain] = {"mu": "real", "sigma": "positive"}
_BY_ROOT_2, _LOG_ROOT_2PI = math.sqrt(0.5), 0.5 * math.log(2 * math.pi)
_FAR = 1e3


def _standardised(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    """(log y - mu) / sigma; far below for y <= 0, and its limit where sigma is 0."""
    there = y > 0
    d = ops.log(ops.where(there, y, ops.full_like(y, 1.0))) - mu
    none = sigma == 0
    z = ops.where(none, _FAR * ops.sign(d), d / ops.where(none, ops.full_like(d, 1.0), sigma))
    z = ops.where(
        z > _FAR, ops.full_like(z, _FAR), ops.where(z < -_FAR, -ops.full_like(z, _FAR), z)
    )
    return ops.where(there | (y != y), z, -ops.full_like(z, _FAR)) + 0 * (mu + y)


def _excess(ops: Any, sigma: Any, z: Any) -> Any:
    return ops.ndtr(z - sigma) + ops.ndtr(sigma * _BY_ROOT_2) - 1


def _value(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    z = _standardised(ops, mu, sigma, y)
    mean = ops.exp(mu + 0.5 * sigma * sigma)
    return y * (2 * ops.ndtr(z) - 1) - 2 * mean * _excess(ops, sigma, z)


def _partials(ops: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    z = _standardised(ops, mu, sigma, y)
    mean = ops.exp(mu + 0.5 * sigma * sigma)
    # exp(mu) is a scale, so that the score is y dC/dy + dC/dmu
    by_mu = -2 * mean * _excess(ops, sigma, z)
    at_y = ops.where(y > 0, y, ops.full_like(y, 0.0)) * _density(ops, z)
    by_sigma = 2 * at_y + sigma * by_mu - math.sqrt(2) * mean * _density(ops, sigma * _BY_ROOT_2)
    return by_mu, by_sigma, 2 * ops.ndtr(z) - 1


def _density(ops: Any, z: Any) -> Any:
    return ops.exp(-0.5 * z * z - _LOG_ROOT_2PI)


def _cdf(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    return ops.ndtr(_standardised(ops, mu, sigma, y))


def _log_score(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    there = y > 0
    log = ops.log(ops.where(there, y, ops.full_like(y, 1.0)))
    z = (log - mu) / sigma
    score = 0.5 * z * z + _LOG_ROOT_2PI + ops.log(sigma) + log
    return ops.where(there, score, ops.full_like(y, math.inf)) + 0 * (mu + y)


def _log_score_partials(ops: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    there = y > 0
    kept = ops.where(there, y, ops.full_like(y, 1.0))
    z = (ops.log(kept) - mu) / sigma
    nothing = ops.full_like(z, 0.0)
    parts = (-z / sigma, (1 - z * z) / sigma, (1 + z / sigma) / kept)
    return tuple(ops.where(there, part, nothing) for part in parts)


def _mean(ops: Any, mu: Any, sigma: Any) -> Any:
    return ops.exp(mu + 0.5 * sigma * sigma)


def _variance(ops: Any, mu: Any, sigma: Any) -> Any:
    return ops.expm1(sigma * sigma) * ops.exp(2 * mu + sigma * sigma)


_SHAPES = ("mu", "sigma")  # of the logarithm, without unit
FAMILY = Family(
    "lognormal",
    _PARAMETERS,
    crps=crps_formula(_PARAMETERS, _value, _partials, unitless=_SHAPES, double=True),
    log_score=log_score_formula(_POSITIVE, _log_score, _log_score_partials, unitless=_SHAPES),
    cdf=cdf_formula(_PARAMETERS, _cdf, unitless=_SHAPES),
    mean=mean_formula(_PARAMETERS, _mean, unitless=_SHAPES),
    variance=variance_formula(_PARAMETERS, _variance, unitless=_SHAPES),
)
