"""The gamma distribution of a shape and a scale, whose mean is their product."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from ens10.metrics._ops import NUMPY
from ens10.metrics._reduce import Over
from ens10.metrics.distributions.base import POSITIVE_SCALE, SHAPE, ClosedForm
from ens10.metrics.distributions.formula import Kernel
from ens10.metrics.distributions.gamma_functions import (
    gammainc_by_shape,
    half_step,
    half_step_slope,
    log_less_digamma,
    lower,
    mean_half_step_slope,
    step,
    upper,
)

_SMALL = 0.25  # shape below which the closed form of the CRPS at 0 cancels
MOST = 1e300  # of y in units of the scale; beyond it, the score is the distance


def half_beta(shape: Any, ops: Any = NUMPY) -> Any:
    """Return 1 / B(1/2, shape), half the mean absolute difference of two draws over the scale.

    It is Gamma(shape + 1/2) / (sqrt(pi) Gamma(shape)), whose logarithms cancel at large shapes.
    """
    return ops.sqrt(shape / math.pi) * ops.exp(half_step(ops, shape))


def half_beta_slope(shape: Any, ops: Any = NUMPY) -> Any:
    """Return the derivative of the logarithm of `half_beta`."""
    return 0.5 / shape + half_step_slope(ops, shape)


def at_origin(shape: Any) -> Any:
    """Return shape - half_beta(shape), the CRPS at 0 over the scale, of order shape^2."""
    small = shape < _SMALL
    low = np.where(small, shape, _SMALL)
    near = -low * np.expm1(-low * mean_half_step_slope(0.5, low))
    return np.where(small, near, shape - half_beta(shape))


def ratio_to_scale(y: Any, scale: Any, ops: Any = NUMPY) -> Any:
    """Return y / scale, clipped below at 0 and above at `MOST`."""
    return ops.minimum(ops.maximum(y, 0.0) / scale, MOST)


def _crps(_ops: Any, shape: Any, scale: Any, y: Any) -> Any:
    """Return the CRPS; P and P' are the distribution functions at x of `shape` and `shape` + 1.

    Above a shape of 1 it is (x - shape) (2 P - 1) + 2 shape (P - P') - half_beta, whose terms are
    of the size of the deviation; below 1, where the median is near 0, x (2 P - 1) - 2 shape P' and
    the score at 0.
    """
    x = ratio_to_scale(y, scale)
    below, above = lower(shape, x), upper(shape, x)
    many = (x - shape) * (below - above) + 2 * shape * step(shape, x) - half_beta(shape)
    few = x * (below - above) - 2 * shape * special.gammainc(np.minimum(shape, 1.0) + 1, x)
    score = scale * np.where(shape < 1, few + at_origin(shape), many)
    score = np.where(y > MOST * scale, np.abs(y - shape * scale), score + np.maximum(-y, 0.0))
    return np.where(is_score_infinite(shape, scale, y), math.inf, score)


def is_score_infinite(shape: Any, scale: Any, y: Any, ops: Any = NUMPY) -> Any:
    """Return True where the score is infinite: an infinite argument, or a mean that overflows."""
    known = ~(ops.isnan(shape) | ops.isnan(scale) | ops.isnan(y))
    return known & ((ops.abs(y) == math.inf) | (ops.abs(shape * scale) == math.inf))


def _crps_partials(_ops: Any, shape: Any, scale: Any, y: Any) -> tuple[Any, ...]:
    x = ratio_to_scale(y, scale)
    below, above = lower(shape, x), upper(shape, x)
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
    flat = is_score_infinite(shape, scale, y)  # an infinite score has no slope by the parameters
    partials = (np.where(flat, 0.0, part) for part in (by_shape, by_scale))
    return *partials, below - above


def _cdf(_ops: Any, shape: Any, scale: Any, y: Any) -> Any:
    return lower(shape, ratio_to_scale(y, scale))


def density_over_scale(shape: Any, scale: Any, x: Any) -> Any:
    """Return the density at x scales over the scale; 0 at and below 0, where it may be infinite."""
    positive = (x > 0) & (x < MOST)
    at = np.where(positive, x, 1.0)
    return np.where(positive, shape * step(shape, at) / at / scale, 0.0)


def _cdf_partials(_ops: Any, shape: Any, scale: Any, y: Any) -> tuple[Any, ...]:
    x = ratio_to_scale(y, scale)
    by_y = density_over_scale(shape, scale, x)
    return gammainc_by_shape(shape, x), -x * by_y, by_y


def _log_score(ops: Any, shape: Any, scale: Any, y: Any) -> Any:
    positive = y > 0
    x = ops.where(positive, y, ops.full_like(y, 1.0)) / scale
    score = x - (shape - 1) * ops.log(x) + ops.gammaln(shape) + ops.log(scale)
    score = ops.where(positive & (y < math.inf), score, ops.full_like(y, math.inf))
    missing = (shape != shape) | (scale != scale) | (y != y)
    return ops.where(missing, ops.full_like(y, math.nan), score)


def _log_score_partials(ops: Any, shape: Any, scale: Any, y: Any) -> tuple[Any, ...]:
    inside = (y > 0) & (y < math.inf)
    x = ops.where(inside, y, ops.full_like(y, 1.0)) / scale
    parts = (
        ops.digamma(shape) - ops.log(x),
        (shape - x) / scale,
        (1 - (shape - 1) / x) / scale,
    )
    nothing = ops.full_like(x, 0.0)
    return tuple(ops.where(inside, part, nothing) for part in parts)


def _mean(_ops: Any, shape: Any, scale: Any) -> Any:
    return shape * scale


def _variance(_ops: Any, shape: Any, scale: Any) -> Any:
    return shape * scale * scale


def _quantile(_ops: Any, shape: Any, scale: Any, p: Any) -> Any:
    return scale * special.gammaincinv(shape, p)


@dataclass(eq=False)
class Gamma(ClosedForm, kind="gamma"):
    """Gamma distribution at each grid point.

    Args:
        shape: above 0; no unit.
        scale: above 0, target units.
        positive: True to skip the check that the parameters are valid.
    """

    shape: Any
    scale: Any
    positive: bool = False

    parameters: ClassVar = {"shape": SHAPE, "scale": POSITIVE_SCALE}
    oracles = "scoringrules, scipy, mpmath at the ends of its parameters"
    kernels: ClassVar = {
        "crps": Kernel(_crps, _crps_partials, on_host=True, double=True),
        "log_score": Kernel(_log_score, _log_score_partials),
        "cdf": Kernel(_cdf, _cdf_partials, on_host=True, double=True),
        "mean": Kernel(_mean),
        "variance": Kernel(_variance),
    }
    inverse = _quantile
    support = (0.0, math.inf)
    inverse_on_host = True

    def twcrps(self, y: Any, lower: Any, upper: Any) -> Any:
        """Return the threshold-weighted CRPS, by that of the shifted gamma with a shift of 0."""
        from ens10.metrics.distributions.csgd import CSGD

        unshifted = CSGD(self.shape, self.scale, 0.0 * self.like, self.positive)
        return unshifted.twcrps(y, lower, upper)


def crps_gamma(
    shape: Any,
    scale: Any,
    y: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of gamma distributions, elementwise.

    y (2 F_k(y) - 1) - k s (2 F_k+1(y) - 1) - s / B(1/2, k) with shape k and scale s (Scheuerer &
    Moeller 2015, doi:10.1214/15-AOAS843; Jordan, Krueger & Lerch 2019, doi:10.18637/jss.v090.i12,
    appendix A), in forms that do not cancel at large or small shapes, with Temme's expansion of
    the incomplete gamma function above a shape of 10,000. Tensors are computed on the host;
    gradients are analytic.

    Args:
        shape: above 0; no unit.
        scale: above 0, in the unit of `y`. The mean is their product.
        y: observations.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse parameters outside their domain.

    Returns:
        The scores, in the unit of `y`, as an array of the input's type.

    Raises:
        ArgumentError: parameters outside their domain, arrays that do not match.
    """
    return Gamma.formula("crps")(shape, scale, y, check=check, dim=dim, weights=weights, nan=nan)
