"""The normal distribution; its CRPS is the fast one of `ens10.metrics.crps_normal`."""

from collections.abc import Mapping
from typing import Any

import xarray as xr

from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.crps import crps_normal
from ens10.metrics.families import _normal_shape as shape
from ens10.metrics.families._family import (
    LOCATION_SCALE,
    Family,
    cdf_formula,
    log_score_formula,
    mean_formula,
    variance_formula,
)


def _crps(
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    check: bool = True,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Called like a `Formula`."""
    score = crps_normal(mu, sigma, y, check=check)
    if isinstance(score, xr.DataArray):
        score.attrs.update(attrs or {})
    return mean_over(score, dim, weights, nan)


def standardised(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    """Distance in units of sigma; far outside where sigma is 0, and 0 if the distance is too."""
    far = 1e3 * ops.sign(y - mu)
    divisor = ops.where(sigma == 0, ops.full_like(sigma, 1.0), sigma)
    return ops.where(sigma == 0, far, (y - mu) / divisor)


def _cdf(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    return ops.ndtr(standardised(ops, mu, sigma, y))


def _log_score(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    return ops.log(sigma) - shape.log_density(ops, (y - mu) / sigma)


def _log_score_partials(_ops: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    z = (y - mu) / sigma
    by_y = z / sigma
    return -by_y, (1 - z * z) / sigma, by_y


def _mean(_ops: Any, mu: Any, sigma: Any) -> Any:
    return mu + 0 * sigma  # which may be NaN


def _variance(_ops: Any, mu: Any, sigma: Any) -> Any:
    return sigma * sigma + 0 * mu


FAMILY = Family(
    "normal",
    LOCATION_SCALE,
    crps=_crps,
    log_score=log_score_formula(
        {**LOCATION_SCALE, "sigma": "positive"}, _log_score, _log_score_partials
    ),
    cdf=cdf_formula(LOCATION_SCALE, _cdf),
    mean=mean_formula(LOCATION_SCALE, _mean),
    variance=variance_formula(LOCATION_SCALE, _variance),
)
