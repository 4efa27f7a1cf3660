"""The logistic distribution."""

import math
from typing import Any

from ens10.metrics.families import _logistic_shape as shape
from ens10.metrics.families._family import (
    LOCATION_SCALE,
    Family,
    cdf_formula,
    crps_formula,
    log_score_formula,
    mean_formula,
    variance_formula,
)
from ens10.metrics.families._shapes import times
from ens10.metrics.families.normal import standardised


def _value(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    z = ops.abs(standardised(ops, mu, sigma, y))
    # z - 2 log F(z) - 1, with log F(z) = -log(1 + e^-z), is even in z
    return ops.abs(y - mu) + sigma * (2 * ops.softplus(-z) - 1)


def _partials(ops: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    z = standardised(ops, mu, sigma, y)
    by_y = ops.tanh(0.5 * z)
    size = ops.abs(z)
    # the last product is 0 where the distance over sigma is infinite
    by_sigma = 2 * ops.softplus(-size) - 1 + 2 * times(ops, ops.expit(-size), size)
    return -by_y, by_sigma, by_y


def _cdf(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    return ops.expit(standardised(ops, mu, sigma, y))


def _log_score(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    return ops.log(sigma) - shape.log_density(ops, (y - mu) / sigma)


def _log_score_partials(ops: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    z = (y - mu) / sigma
    by_y = shape.slope(ops, z) / sigma
    return -by_y, (1 - z * shape.slope(ops, z)) / sigma, by_y


def _mean(_ops: Any, mu: Any, sigma: Any) -> Any:
    return mu + 0 * sigma  # which may be NaN


def _variance(_ops: Any, mu: Any, sigma: Any) -> Any:
    return sigma * sigma * (math.pi**2 / 3) + 0 * mu


CRPS = crps_formula(LOCATION_SCALE, _value, _partials)
FAMILY = Family(
    "logistic",
    LOCATION_SCALE,
    crps=CRPS,
    log_score=log_score_formula(
        {**LOCATION_SCALE, "sigma": "positive"}, _log_score, _log_score_partials
    ),
    cdf=cdf_formula(LOCATION_SCALE, _cdf),
    mean=mean_formula(LOCATION_SCALE, _mean),
    variance=variance_formula(LOCATION_SCALE, _variance),
)
