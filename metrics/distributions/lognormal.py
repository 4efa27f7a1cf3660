"""The log-normal distribution: the logarithm is normal with mean mu and deviation sigma."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ens10.metrics._reduce import Over
from ens10.metrics.distributions.base import ClosedForm
from ens10.metrics.distributions.formula import Kernel, Parameter
from ens10.metrics.distributions.gamma_functions import UNIT_POINTS, UNIT_WEIGHTS

_BY_ROOT_2, _LOG_ROOT_2PI = math.sqrt(0.5), 0.5 * math.log(2 * math.pi)
_FAR = 1e3
_SMALL = 0.5  # a sigma below which the terms of the CRPS cancel
_MOST, _MOST_SIGMA = 37.0, 1e160


def _standardise(ops: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, Any]:
    """Return (log y - mu) / sigma (a large negative z for y <= 0) and log y - mu."""
    positive = y > 0
    d = ops.log(ops.where(positive, y, ops.full_like(y, 1.0))) - mu
    point = sigma == 0
    z = ops.where(point, _FAR * ops.sign(d), d / ops.where(point, ops.full_like(d, 1.0), sigma))
    z = ops.where(
        z > _FAR, ops.full_like(z, _FAR), ops.where(z < -_FAR, -ops.full_like(z, _FAR), z)
    )
    return ops.where(positive | (y != y), z, -ops.full_like(z, _FAR)), d


def _mills(ops: Any, x: Any) -> Any:
    """Return Mills' ratio (1 - Phi(x)) / phi(x), for x at which it does not overflow."""
    return ops.erfcx(ops.maximum(x, -_MOST) * _BY_ROOT_2) * math.sqrt(0.5 * math.pi)


def _partial_mean(ops: Any, mu: Any, sigma: Any, y: Any, z: Any) -> Any:
    """Return E[Y; Y <= y] = M Phi(z - sigma) as y phi(z) R(sigma - z) (M may overflow)."""
    inside = sigma > z
    positive = ops.where(inside & (y > 0), y, ops.full_like(y, 0.0))
    gap = ops.where(inside, sigma - z, ops.full_like(z, 1.0))
    below = ops.where(positive == 0, positive, positive * _density(ops, z) * _mills(ops, gap))
    beyond = ops.exp(mu + 0.5 * sigma * sigma) * ops.ndtr(z - sigma)
    return ops.where(inside, below, beyond)


def _crps_narrow(ops: Any, mu: Any, sigma: Any, y: Any, z: Any, d: Any) -> Any:
    """Return the CRPS for a small sigma, in terms that are all of the order of sigma.

    With m = exp(mu): |y - m| erf(|z| / sqrt(2)) + m [2 (Phi(z) - Phi(z - sigma)) - erf(sigma / 2)
    - (M / m - 1) (2 Phi(z - sigma) - 1 + erf(sigma / 2))]; the difference of Phi is a quadrature.
    """
    m = ops.exp(mu)
    near = ops.where(ops.abs(d) < 1, d, ops.full_like(d, 0.0))
    distance = ops.where((ops.abs(d) < 1) & (y > 0), m * ops.expm1(near), y - m)
    between: Any = 0.0
    for point, weight in zip(UNIT_POINTS, UNIT_WEIGHTS, strict=True):
        between = between + float(weight) * _density(ops, z - float(point) * sigma)
    half = ops.erf(0.5 * sigma)
    growth = ops.expm1(0.5 * sigma * sigma)
    beyond = growth * (ops.erf((z - sigma) * _BY_ROOT_2) + half)
    spread = 2 * sigma * between - half - beyond
    return distance * ops.erf(z * _BY_ROOT_2) + ops.where(spread == 0, spread, m * spread)


def _crps_wide(ops: Any, mu: Any, sigma: Any, y: Any, z: Any) -> Any:
    """Return the CRPS for other sigma; Phi(-sigma / sqrt(2)) times the mean is an erfcx."""
    outer = ops.exp(mu + 0.25 * sigma * sigma + ops.log(ops.erfcx(0.5 * sigma)))
    above = ops.where(y == 0, y, y * ops.erf(z * _BY_ROOT_2))
    beyond = 2 * _partial_mean(ops, mu, sigma, y, z)
    return ops.where(beyond == math.inf, above, above - beyond) + outer


def _crps(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    s = _clip_sigma(ops, sigma)
    z, d = _standardise(ops, mu, s, y)
    small = s < _SMALL
    few = ops.where(small, s, ops.full_like(s, 0.0))
    many = ops.where(small, ops.full_like(s, 1.0), s)
    score = ops.where(small, _crps_narrow(ops, mu, few, y, z, d), _crps_wide(ops, mu, many, y, z))
    # an infinite observation, or a median that overflows
    vast = (ops.abs(y) == math.inf) | (ops.exp(mu) == math.inf)
    score = ops.where(vast, ops.full_like(score, math.inf), score)
    missing = (mu != mu) | (sigma != sigma) | (y != y)
    return ops.where(missing, ops.full_like(score, math.nan), score)


def _crps_partials(ops: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    s = _clip_sigma(ops, sigma)
    z, _ = _standardise(ops, mu, s, y)
    positive = ops.where((y > 0) & (ops.abs(z) < _MOST), y, ops.full_like(y, 0.0))
    level = ops.exp(mu + 0.25 * s * s)
    tail = ops.erfcx(0.5 * s)
    below = _partial_mean(ops, mu, s, y, z)
    # exp(mu) is a scale, so that the score is y dC/dy + dC/dmu
    by_mu = ops.exp(mu + 0.25 * s * s + ops.log(tail)) - 2 * below
    slope = 2 * (positive * _density(ops, z) - s * below)
    by_sigma = slope + level * (s * tail - 1 / math.sqrt(math.pi))
    vast = (ops.abs(y) == math.inf) & (mu == mu) & (sigma == sigma)
    nothing = ops.full_like(z, 0.0)
    by_y = ops.erf(z * _BY_ROOT_2)
    return (*(ops.where(vast, nothing, part) for part in (by_mu, by_sigma)), by_y)


def _clip_sigma(ops: Any, sigma: Any) -> Any:
    """Clip sigma where its square would overflow."""
    return ops.where(sigma > _MOST_SIGMA, ops.full_like(sigma, _MOST_SIGMA), sigma)


def _density(ops: Any, z: Any) -> Any:
    return ops.exp(-0.5 * z * z - _LOG_ROOT_2PI)


def _cdf(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    level = ops.ndtr(_standardise(ops, mu, sigma, y)[0]) + 0 * mu
    return ops.where(y != y, y, level)


def _log_score(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    positive = y > 0
    log = ops.log(ops.where(positive, y, ops.full_like(y, 1.0)))
    z = (log - mu) / sigma
    score = 0.5 * z * z + _LOG_ROOT_2PI + ops.log(sigma) + log
    outside = ~positive | (y == math.inf)
    score = ops.where(outside, ops.full_like(y, math.inf), score)
    missing = (mu != mu) | (sigma != sigma) | (y != y)
    return ops.where(missing, ops.full_like(y, math.nan), score)


def _log_score_partials(ops: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    inside = (y > 0) & (y < math.inf)
    safe = ops.where(inside, y, ops.full_like(y, 1.0))
    z = (ops.log(safe) - mu) / sigma
    nothing = ops.full_like(z, 0.0)
    parts = (-z / sigma, (1 - z * z) / sigma, (1 + z / sigma) / safe)
    return tuple(ops.where(inside, part, nothing) for part in parts)


def _mean(ops: Any, mu: Any, sigma: Any) -> Any:
    return ops.exp(mu + 0.5 * sigma * sigma)


def _variance(ops: Any, mu: Any, sigma: Any) -> Any:
    return ops.expm1(sigma * sigma) * ops.exp(2 * mu + sigma * sigma)


def _quantile(ops: Any, mu: Any, sigma: Any, p: Any) -> Any:
    z = ops.ndtri(p)
    return ops.exp(mu + ops.where(sigma > 0, sigma * z, 0 * mu))  # 0 times an infinite z


@dataclass(eq=False)
class Lognormal(ClosedForm, kind="lognormal"):
    """Log-normal distribution at each grid point.

    Args:
        mu: mean of the logarithm; no unit.
        sigma: standard deviation of the logarithm, 0 or more; no unit.
        positive: True to skip the check that the parameters are valid.
    """

    mu: Any
    sigma: Any
    positive: bool = False

    parameters: ClassVar = {
        "mu": Parameter(unit="1", long_name="mean of the logarithm of the forecast"),
        "sigma": Parameter(
            "nonnegative", "1", long_name="standard deviation of the logarithm of the forecast"
        ),
    }
    oracles = "scoringrules, scipy, mpmath at the ends of its parameters"
    kernels: ClassVar = {
        "crps": Kernel(_crps, _crps_partials, double=True),
        "log_score": Kernel(_log_score, _log_score_partials, positive=("sigma",)),
        "cdf": Kernel(_cdf),
        "mean": Kernel(_mean),
        "variance": Kernel(_variance),
    }
    inverse = _quantile
    support = (0.0, math.inf)


def crps_lognormal(
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of log-normal distributions, elementwise.

    With z = (log y - mu) / sigma: y (2 Phi(z) - 1) - 2 exp(mu + sigma^2 / 2)
    [Phi(z - sigma) + Phi(sigma / sqrt(2)) - 1] (Baran & Lerch 2015, doi:10.1002/qj.2521);
    Phi(z) is 0 for y <= 0. The bracket cancels at large sigma, all of it at small sigma: it is
    computed by scaled complementary error functions for sigma above 1/2, and below by differences
    of the order of sigma. Gradients of tensors are analytic, and finite where the score is, at
    sigma = 0 too; where it overflows, it is inf.

    Args:
        mu: mean of the logarithm; no unit.
        sigma: standard deviation of the logarithm, 0 or more; no unit.
        y: observations.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma.

    Returns:
        The scores, in the unit of `y`, as an array of the input's type.

    Raises:
        ArgumentError: a negative sigma, arrays that do not match.
    """
    return Lognormal.formula("crps")(mu, sigma, y, check=check, dim=dim, weights=weights, nan=nan)
