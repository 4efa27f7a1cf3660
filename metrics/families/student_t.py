"""Student's t distribution with a location, a scale and degrees of freedom."""

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
from ens10.metrics.families.normal import standardised

PARAMETERS: Mapping[str, Domain] = {"df": "positive", "mu": "real", "sigma": "nonnegative"}
_POSITIVE: Mapping[str, Domain] = {**PARAMETERS, "sigma": "positive"}
_STEP = 1e-3  # of log(df - 1), in the derivative by df


def _log_density(ops: Any, df: Any, z: Any) -> Any:
    norm = ops.gammaln(0.5 * (df + 1)) - ops.gammaln(0.5 * df) - 0.5 * ops.log(df * math.pi)
    return norm - 0.5 * (df + 1) * ops.log1p(z * z / df)


def _rest(ops: Any, df: Any, z: Any) -> Any:
    """The CRPS at z less z (2 F(z) - 1), of the standard distribution; df above 1."""
    near = 2 * np.exp(_log_density(ops, df, z)) * (df + z * z)
    log_difference = special.betaln(0.5, df - 0.5) - 2 * special.betaln(0.5, 0.5 * df)
    return (near - 2 * np.sqrt(df) * np.exp(log_difference)) / (df - 1)


def _standard(ops: Any, df: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    z = standardised(ops, mu, sigma, y)
    # where sigma is 0 the score is the distance, and its derivative by sigma is that far outside
    df = np.where(df > 1, df, np.nan)
    return df, z, 2 * special.stdtr(df, z) - 1


def _value(ops: Any, df: Any, mu: Any, sigma: Any, y: Any) -> Any:
    held, z, by_y = _standard(ops, df, mu, sigma, y)
    score = np.where(
        sigma == 0,
        np.abs(y - mu) + 0 * held,
        (y - mu) * by_y + sigma * _rest(ops, held, np.where(sigma == 0, 0.0, z)),
    )
    return np.where((df <= 1) & (sigma > 0), math.inf, np.where(df <= 1, np.abs(y - mu), score))


def _partials(ops: Any, df: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    held, z, by_y = _standard(ops, df, mu, sigma, y)
    at_rest = sigma == 0
    by_y = np.where(at_rest, np.sign(y - mu), by_y)
    by_sigma = _rest(ops, held, z)

    def at(shift: float) -> Any:
        moved = 1 + (held - 1) * math.exp(shift * _STEP)
        return z * 2 * special.stdtr(moved, z) + _rest(ops, moved, z)

    difference = 8 * (at(1) - at(-1)) - (at(2) - at(-2))
    by_df = sigma * difference / (12 * _STEP * (held - 1))
    undefined = df <= 1  # where the score is infinite, it has no slope
    found = (np.where(at_rest, 0.0, by_df), -by_y, by_sigma, by_y)
    return tuple(np.where(undefined, 0.0, part) for part in found)


def _cdf(ops: Any, df: Any, mu: Any, sigma: Any, y: Any) -> Any:
    z = standardised(ops, mu, sigma, y)
    return np.where(sigma == 0, 0.5 + 0.5 * np.sign(y - mu), special.stdtr(df, z)) + 0 * df


def _log_score(ops: Any, df: Any, mu: Any, sigma: Any, y: Any) -> Any:
    return ops.log(sigma) - _log_density(ops, df, (y - mu) / sigma)


def _log_score_partials(ops: Any, df: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    z = (y - mu) / sigma
    share = z * z / (df + z * z)
    by_y = (df + 1) * z / (df + z * z) / sigma
    by_sigma = (1 - (df + 1) * share) / sigma
    gammas = ops.digamma(0.5 * df) - ops.digamma(0.5 * (df + 1)) + 1 / df
    by_df = 0.5 * (gammas + ops.log1p(z * z / df) - (df + 1) * share / df)
    return by_df, -by_y, by_sigma, by_y


def _mean(_ops: Any, df: Any, mu: Any, sigma: Any) -> Any:
    return np.where(df > 1, mu, np.nan) + 0 * sigma


def _variance(_ops: Any, df: Any, mu: Any, sigma: Any) -> Any:
    with np.errstate(divide="ignore"):
        ratio = np.where(df > 2, df / (df - 2), math.inf)
    return np.where(df > 1, sigma * sigma * ratio, np.nan) + 0 * mu


_SHAPES = ("df",)
FAMILY = Family(
    "student_t",
    PARAMETERS,
    crps=crps_formula(PARAMETERS, _value, _partials, unitless=_SHAPES, on_host=True, double=True),
    log_score=log_score_formula(
        _POSITIVE, _log_score, _log_score_partials, unitless=_SHAPES, double=True
    ),
    cdf=cdf_formula(PARAMETERS, _cdf, unitless=_SHAPES, on_host=True),
    mean=mean_formula(PARAMETERS, _mean, unitless=_SHAPES),
    variance=variance_formula(PARAMETERS, _variance, unitless=_SHAPES),
)
