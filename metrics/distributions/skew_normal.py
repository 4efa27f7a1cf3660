"""The skew-normal distribution (Azzalini 1985) of a location, a scale and a shape.

Its density is 2 phi(z) Phi(shape z) / sigma. Taillardat (2021, doi:10.3390/atmos12080966) uses it
to postprocess temperature. With s = sqrt(1 + shape^2) and delta = shape / s the standard variable
is delta |U| + V / s, where U and V are normal and independent.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from ens10.metrics._ops import NUMPY, ops_of, standardise
from ens10.metrics._reduce import Over
from ens10.metrics.distributions.base import LOCATION, SCALE, ClosedForm
from ens10.metrics.distributions.formula import Kernel, Parameter
from ens10.metrics.distributions.inversion import invert_cdf

_ROOT_HALF, _MEAN = math.sqrt(0.5), math.sqrt(2 / math.pi)  # _MEAN is E|U|
_INV_SQRT_PI, _LOG_ROOT_HALF_PI = 1 / math.sqrt(math.pi), 0.5 * math.log(math.pi / 2)
_MOST_SKEWNESS = 0.99  # that heads forecast; that of |U| is 0.9953
_LEAST_SKEWNESS = 1e-3  # at an output of 0: at 0 itself there is no slope by the shape
_CUBE = (2 / (4 - math.pi)) ** (1 / 3)  # of delta E|U| over the deviation, from the skewness


def _spread(shape: Any) -> Any:
    """Return half the mean difference of two draws of the standard distribution.

    E|Z - Z'| / 2 with the difference written as sqrt(2) (delta m + W / s): m is the smaller one of
    two absolute normal values with a random sign, whose density is 4 phi(m) Phi(-|m|).
    """
    s = np.hypot(1.0, shape)
    of_pair = 2 * np.arctan(1 / s) + math.sqrt(2) * shape / s * np.arctan(shape * _ROOT_HALF)
    return 2 * _INV_SQRT_PI * (1 - of_pair / math.pi)


def _remainder(z: Any, shape: Any) -> Any:
    """Return the CRPS at z less z (2 F(z) - 1) of the standard distribution."""
    s = np.hypot(1.0, shape)
    at_z = 4 * np.exp(_log_half_density(NUMPY, z, shape))
    return at_z - _MEAN * shape / s * special.erf(s * z * _ROOT_HALF) - _spread(shape)


def _log_half_density(ops: Any, z: Any, shape: Any) -> Any:
    """Return log(phi(z) Phi(shape z)), without underflow in the light tail."""
    return ops.log_ndtr(shape * z) - 0.5 * z * z - _LOG_ROOT_HALF_PI - math.log(2)


def _standard_cdf(z: Any, shape: Any) -> Any:
    """Return F(z) by Owen's T function (1956, doi:10.1214/aoms/1177728074); error 1e-16."""
    return np.clip(special.ndtr(z) - 2 * special.owens_t(z, shape), 0.0, 1.0)


def _crps(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> Any:
    z = standardise(NUMPY, mu, sigma, y)
    return (y - mu) * (2 * _standard_cdf(z, shape) - 1) + sigma * _remainder(z, shape)


def _crps_partials(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> tuple[Any, ...]:
    z, s = standardise(NUMPY, mu, sigma, y), np.hypot(1.0, shape)
    by_y = 2 * _standard_cdf(z, shape) - 1
    # all terms of the densities cancel on paper
    by_shape = np.arctan(shape * _ROOT_HALF) * (2 / math.pi) - special.erf(s * z * _ROOT_HALF)
    return -by_y, _remainder(z, shape), sigma * _MEAN * by_shape / s**3, by_y


def _cdf(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> Any:
    level = _standard_cdf(standardise(NUMPY, mu, sigma, y), shape)
    return np.where(sigma == 0, 0.5 + 0.5 * np.sign(y - mu) + 0 * shape, level)


def _cdf_partials(_ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> tuple[Any, ...]:
    z, point, square = standardise(NUMPY, mu, sigma, y), sigma == 0, 1 + shape**2
    density = 2 * np.exp(_log_half_density(NUMPY, z, shape))
    by_y = np.where(point, 0.0, density / np.where(point, 1.0, sigma))
    by_shape = np.exp(-0.5 * square * z * z) / (-math.pi * square)
    return -by_y, -z * by_y, np.where(point, 0.0, by_shape), by_y


def _log_score(ops: Any, mu: Any, sigma: Any, shape: Any, y: Any) -> Any:
    return ops.log(0.5 * sigma) - _log_half_density(ops, (y - mu) / sigma, shape)


def _delta_mean(ops: Any, shape: Any) -> Any:
    """Return the mean of the standard distribution."""
    return _MEAN * shape / ops.sqrt(1 + shape * shape)


def _mean(ops: Any, mu: Any, sigma: Any, shape: Any) -> Any:
    return mu + sigma * _delta_mean(ops, shape)


def _variance(ops: Any, mu: Any, sigma: Any, shape: Any) -> Any:
    return sigma * sigma * (1 - _delta_mean(ops, shape) ** 2) + 0 * mu


def _quantile(_ops: Any, mu: Any, sigma: Any, shape: Any, p: Any) -> Any:
    """Return quantiles between those of the normal and of |U|, or of -|U| for a negative shape."""
    normal, shape, p = np.broadcast_arrays(special.ndtri(p), shape, p)
    ahead, behind = special.ndtri(0.5 + 0.5 * p), special.ndtri(0.5 * p)
    low = np.where(shape > 0, normal, behind)
    high = np.where(p == 0, low, np.where(shape > 0, ahead, normal))
    low = np.where(p == 1, high, low)

    def cdf_and_density(z: Any) -> tuple[Any, Any]:
        return _standard_cdf(z, shape), 2 * np.exp(_log_half_density(NUMPY, z, shape))

    z = invert_cdf(NUMPY, cdf_and_density, p, (low, high), normal)
    return mu + np.where(sigma == 0, 0.0, sigma * z)


@dataclass(eq=False)
class SkewNormal(ClosedForm, kind="skew_normal"):
    """Skew-normal distribution at each grid point.

    Args:
        mu: location, (..., H, W), target units; the mean only if the shape is 0.
        sigma: scale, 0 or more, with the shape and units of `mu`.
        shape: skewness has its sign; 0 is the normal distribution; no unit.
        positive: True to skip the check that the parameters are valid.
    """

    mu: Any
    sigma: Any
    shape: Any
    positive: bool = False

    parameters: ClassVar = {
        "mu": LOCATION,
        "sigma": SCALE,
        "shape": Parameter(unit="1", long_name="shape of the forecast"),
    }
    oracles = "quadrature, scipy"
    kernels: ClassVar = {
        "crps": Kernel(_crps, _crps_partials, on_host=True, double=True),
        "log_score": Kernel(_log_score, double=True, positive=("sigma",)),
        "cdf": Kernel(_cdf, _cdf_partials, on_host=True, double=True),
        "mean": Kernel(_mean),
        "variance": Kernel(_variance),
    }
    inverse = _quantile
    inverse_on_host = True
    head_channels = 3

    @classmethod
    def from_moments(cls, mean: Any, std: Any, third: Any, unit: Any, **options: Any) -> Any:  # noqa: ARG003
        """Build a forecast with mean, deviation and skewness 0.99 tanh(third); from tensors.

        Location, scale and shape are a poor choice to train: near shape 0 a shift of the location
        does the same as one of the shape (Arellano-Valle & Azzalini 2008,
        doi:10.1016/j.jmva.2008.01.020).
        """
        ops = ops_of(mean)
        skewness = _MOST_SKEWNESS * ops.tanh(third)
        side = ops.where(skewness < 0, -1.0, 1.0)
        root = _CUBE * (side * skewness + _LEAST_SKEWNESS) ** (1 / 3)
        shift = side * root / ops.sqrt(1 + root * root)  # of the mean, over the scale
        sigma = std * ops.sqrt(1 + root * root)
        delta = shift / _MEAN
        return cls(mean - sigma * shift, sigma, delta / ops.sqrt(1 - delta * delta), positive=True)


def crps_skew_normal(
    mu: Any,
    sigma: Any,
    shape: Any,
    y: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of skew-normal distributions, elementwise.

    E|Y - y| - E|Y - Y'| / 2 with z = (y - mu) / sigma, s = sqrt(1 + shape^2), delta = shape / s:
    sigma [z (2 F(z) - 1) + 4 phi(z) Phi(shape z) + sqrt(2 / pi) delta (1 - 2 Phi(s z)) - G], where
    G = 2 / sqrt(pi) [1 - (2 arctan(1 / s) + sqrt(2) delta arctan(shape / sqrt(2))) / pi] follows
    from the sum of normal and absolute normal variables (Azzalini 1985, Scand. J. Statist. 12,
    171-178). Tensors are computed on the host; gradients are analytic, and finite at sigma = 0.

    Args:
        mu: locations, any shape.
        sigma: scales, 0 or more, in the unit of `mu`.
        shape: skewness has its sign; 0 is the normal distribution; no unit.
        y: observations.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Raises:
        ArgumentError: a negative sigma, arrays that do not match.
    """
    formula = SkewNormal.formula("crps")
    return formula(mu, sigma, shape, y, check=check, dim=dim, weights=weights, nan=nan)
