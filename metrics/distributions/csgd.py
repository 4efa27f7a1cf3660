"""The censored, shifted gamma distribution: max(0, G - shift) of a gamma variable G.

Scheuerer and Hamill (2015, doi:10.1175/MWR-D-15-0061.1) use it for precipitation.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from ens10.metrics._ops import NUMPY, ops_of
from ens10.metrics._reduce import Over
from ens10.metrics.distributions.base import POSITIVE_SCALE, SHAPE, ClosedForm, clip
from ens10.metrics.distributions.formula import Kernel, Parameter
from ens10.metrics.distributions.gamma import (
    MOST,
    at_origin,
    density_over_scale,
    half_beta,
    half_beta_slope,
    is_score_infinite,
    ratio_to_scale,
)
from ens10.metrics.distributions.gamma_functions import (
    UNIT_POINTS,
    UNIT_WEIGHTS,
    functions_for,
    gammainc_by_shape,
    lower,
    step,
    upper,
    upper_near_0,
)

_SMOOTHING = 0.1  # of the mean of G over its deviation, near 0
_LARGEST_LOG = 15.0  # of the shift over its unit
_FEW = 0.01  # a shape below which the integral of (1 - F)^2 is of smaller order than its terms


def _points(scale: Any, shift: Any, y: Any, ops: Any = NUMPY) -> tuple[Any, Any, Any]:
    """Return y and 0 as values of G over the scale, and their exact difference."""
    d = ratio_to_scale(y, scale, ops)
    c = ops.minimum(shift / scale, 1e300)
    return c + d, c, d


def _tail(k: Any, t: Any, above: Any, change: Any, half: Any, double: Any) -> Any:
    """Return the integral of (1 - F)^2 above t, F being the gamma distribution of shape k, scale 1.

    Args:
        k: shape.
        t: lower limit.
        above: Q(k, t) = 1 - F(t).
        change: P(k, t) - P(k + 1, t).
        half: `half_beta` of k.
        double: Q(2 k, 2 t).
    """
    return (k - t) * above**2 + 2 * k * above * change - half * double


def _lower_square(k: Any, t: Any, ops: Any) -> Any:
    """Return the integral of F^2 from 0 to t."""
    of = functions_for(ops)
    below, double = of.lower(k, t), of.lower(2 * k, 2 * t)
    return (t - k) * below**2 + 2 * k * below * of.step(k, t) - half_beta(k, ops) * double


def _upper_square(k: Any, c: Any) -> Any:
    """Return the integral of (1 - F)^2 above c, without cancellation where 1 - F is small.

    At small shapes they are of order k, and the integral of order k^2: there it is that of
    Gamma(k, x)^2, by parts.
    """
    above = upper(k, c)
    double = upper(2 * k, 2 * c)
    plain = np.asarray(_tail(k, c, above, step(k, c), half_beta(k), double))
    small = (k < _FEW) & (c > 0)
    if small.any():
        plain[small] = _upper_square_small_shape(k[small], c[small])
    all_above = c == 0
    plain[all_above] = at_origin(k[all_above])
    return plain


def _upper_square_small_shape(k: Any, c: Any) -> Any:
    """Return the integral of (1 - F)^2 above c > 0 at a small shape."""
    log_c = np.log(c)
    first, _ = upper_near_0(k, c, log_c)
    second, _ = upper_near_0(2 * k, 2 * c, log_c + math.log(2))
    next_one = k * first + np.exp(k * log_c - c)
    square = 2 * next_one * first - (k + c) * first**2 - 2 * np.exp(-2 * k * math.log(2)) * second
    share = k / special.gamma(1 + k)
    return share**2 * square


def _upper_between(k: Any, c: Any, x: Any, d: Any) -> Any:
    """Return the integral of 1 - F from c to x; by quadrature where they are close."""

    def upto(k: Any, t: Any) -> Any:
        above = upper(k, t)
        large_k = (t - k) * above - k * step(k, t)  # less the integral above t
        small_k = t * above + k * special.gammainc(np.minimum(k, 1.0) + 1, t)
        return np.where(k < 1, small_k, large_k)

    def near(k: Any, c: Any, d: Any) -> Any:
        parts = zip(UNIT_POINTS, UNIT_WEIGHTS, strict=True)
        return d * sum(weight * upper(k, c + point * d) for point, weight in parts)

    close = d <= np.minimum(0.5, 0.5 * c)
    far, close_nonzero = ~close, close & (d > 0)
    result = np.zeros(d.shape)
    result[far] = upto(k[far], x[far]) - upto(k[far], c[far])
    result[close_nonzero] = near(k[close_nonzero], c[close_nonzero], d[close_nonzero])
    return result


def _crps(ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> Any:
    """Return the CRPS: integrals of F^2 between 0 and y and of (1 - F)^2 above y.

    Where the censored part is most of the probability, or the shape is below 1, the first is that
    of 1 - 2 (1 - F) + (1 - F)^2; else a difference of (x - k) F^2 + 2 k F (F - F') less half the
    mean difference times F of twice the shape.
    """
    if ops is not NUMPY:
        return _crps_in_one_form(ops, k, scale, shift, y)
    k, scale, shift, y = np.broadcast_arrays(k, scale, shift, y)
    x, c, d = _points(scale, shift, y)
    mostly = (k < 1) | (c > k)
    tail = _upper_square(k, np.where(mostly, c, x))
    between = np.zeros(d.shape)  # the costly functions only where they are needed
    wide, narrow = mostly & (d != 0), ~mostly & (d != 0)
    between[wide] = d[wide] - 2 * _upper_between(*(a[wide] for a in (k, c, x, d)))
    of_x, of_c = (_lower_square(k[narrow], t[narrow], ops) for t in (x, c))
    between[narrow] = of_x - of_c
    score = scale * (between + tail) + np.maximum(-y, 0.0)
    score = np.where(y > MOST * scale, np.abs(y - k * scale), score)
    return np.where(is_score_infinite(k, scale, y) & ~np.isnan(shift), math.inf, score)


def _crps_in_one_form(ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> Any:
    """Return the CRPS without branches, which loses digits where its terms cancel."""
    of = functions_for(ops)
    x, c, _ = _points(scale, shift, y, ops)
    between = _lower_square(k, x, ops) - _lower_square(k, c, ops)
    above, double = of.upper(k, x), of.upper(2 * k, 2 * x)
    tail = ops.maximum(_tail(k, x, above, of.step(k, x), half_beta(k, ops), double), 0.0)
    score = scale * (between + tail) + ops.maximum(-y, 0.0)
    score = ops.where(y > MOST * scale, ops.abs(y - k * scale), score)
    return ops.where(is_score_infinite(k, scale, y, ops) & ~ops.isnan(shift), math.inf, score)


def _crps_partials(ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> tuple[Any, ...]:
    of = functions_for(ops)
    x, c, _ = _points(scale, shift, y, ops)
    f, g, f_0, g_0 = of.lower(k, x), of.upper(k, x), of.lower(k, c), of.upper(k, c)
    step_y, step_0, half = of.step(k, x), of.step(k, c), half_beta(k, ops)
    d_y, d_0 = of.gammainc_by_shape(k, x), of.gammainc_by_shape(k, c)
    double = of.upper(2 * k, 2 * c)
    # g - f + f_0^2, by what is small
    level = ops.where(f_0 > 0.5, 2 * (g - g_0) + g_0**2, g - f + f_0**2)
    gaps = ops.where(f_0 > 0.5, step_y - step_0 + g_0 * step_0, step_y - f_0 * step_0)
    turn_y, turn_0 = (_step_by_shape(ops, k, *p) for p in ((x, step_y), (c, step_0)))
    by_shape = scale * (
        level
        + 2 * (x - k) * d_y
        - 2 * (c - k) * f_0 * d_0
        + 2 * (turn_y - f_0 * turn_0 - k * d_0 * step_0)
        - half * half_beta_slope(k, ops) * double
        + 2 * half * of.gammainc_by_shape(2 * k, 2 * c)
    )
    by_scale = k * level + 2 * k * gaps - half * double
    by_shift = (f - f_0) * (f + f_0) - g**2
    by_y = ops.where(y < 0, -1.0, f - g)
    flat = is_score_infinite(k, scale, y, ops)  # an infinite score has no slope by the parameters
    return *(ops.where(flat, 0.0, part) for part in (by_shape, by_scale, by_shift)), by_y


def _step_by_shape(ops: Any, k: Any, x: Any, change: Any) -> Any:
    """Return the derivative of k times `step` by k."""
    positive = x > 0
    log = functions_for(ops).log_less_digamma(k, ops.where(positive, x, 1.0))
    return ops.where(positive, change * (1 + k * log), 0.0)


def _cdf(_ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> Any:
    level = lower(k, _points(scale, shift, y)[0])
    return np.where(y < 0, 0.0 * level, level)


def _cdf_below(_ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> Any:
    level = lower(k, _points(scale, shift, y)[0])
    return np.where(y <= 0, 0.0 * level, level)


def _cdf_partials(_ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> tuple[Any, ...]:
    x = _points(scale, shift, y)[0]
    by_y = density_over_scale(k, scale, x)
    partials = gammainc_by_shape(k, x), -x * by_y, by_y, by_y
    return tuple(np.where(y < 0, 0.0, part) for part in partials)


def _log_score(_ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> Any:
    x = (np.maximum(y, 0.0) + shift) / scale
    density = x - (k - 1) * np.log(x) + special.gammaln(k) + np.log(scale)
    mass = -np.log(special.gammainc(k, shift / scale))
    density = np.where(y == math.inf, y, density)
    return (
        np.where(np.isnan(y), y, 0.0)
        + np.where(y > 0, density, np.where(y == 0, mass, math.inf))
        + 0 * (k + scale + shift)
    )


def _log_score_partials(_ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> tuple[Any, ...]:
    x, c = (np.maximum(y, 0.0) + shift) / scale, shift / scale
    by_x = (1 - (k - 1) / x) / scale
    above = (special.psi(k) - np.log(x), (k - 1 - x) / scale + 1 / scale, by_x, by_x)
    mass = special.gammainc(k, c)
    density = np.exp((k - 1) * np.log(c) - c - special.gammaln(k))
    at_0 = (
        -gammainc_by_shape(k, c) / mass,
        density / mass * c / scale,
        -density / mass / scale,
        np.zeros_like(x),
    )
    nothing = np.zeros_like(x)
    pairs = zip(above, at_0, strict=True)
    inside = (y > 0) & (y < math.inf)
    partials = (np.where(inside, a, np.where((y == 0) & (c > 0), b, nothing)) for a, b in pairs)
    return tuple(partials)


def _mean(_ops: Any, k: Any, scale: Any, shift: Any) -> Any:
    c = shift / scale
    above, following = special.gammaincc(k, c), special.gammaincc(k + 1, c)
    return scale * k * following - shift * above


def _variance(ops: Any, k: Any, scale: Any, shift: Any) -> Any:
    c = shift / scale
    q = [special.gammaincc(k + i, c) for i in range(3)]
    square = scale**2 * k * (k + 1) * q[2] - 2 * shift * scale * k * q[1] + shift**2 * q[0]
    return square - _mean(ops, k, scale, shift) ** 2


def _mean_partials(_ops: Any, k: Any, scale: Any, shift: Any) -> tuple[Any, ...]:
    c = shift / scale
    above, following = special.gammaincc(k, c), special.gammaincc(k + 1, c)
    turn = shift * gammainc_by_shape(k, c) - scale * k * gammainc_by_shape(k + 1, c)
    return scale * following + turn, k * following, -above


def _variance_partials(ops: Any, k: Any, scale: Any, shift: Any) -> tuple[Any, ...]:
    """Return the derivatives; with the mean square S they are those of S less 2 E Y times its."""
    c, mean = shift / scale, _mean(ops, k, scale, shift)
    _, q_1, q_2 = (special.gammaincc(k + i, c) for i in range(3))
    p_0, p_1, p_2 = (gammainc_by_shape(k + i, c) for i in range(3))
    by_k = scale**2 * ((2 * k + 1) * q_2 - k * (k + 1) * p_2)
    by_k = by_k - 2 * shift * scale * (q_1 - k * p_1) - shift**2 * p_0
    square = _variance(ops, k, scale, shift) + mean**2
    by_scale = 2 * (square + shift * mean) / scale  # of degree 2 in scale and shift
    of_mean = _mean_partials(ops, k, scale, shift)
    pairs = zip((by_k, by_scale, -2 * mean), of_mean, strict=True)
    return tuple(part - 2 * mean * by for part, by in pairs)


def _quantile(_ops: Any, k: Any, scale: Any, shift: Any, p: Any) -> Any:
    return np.maximum(scale * special.gammaincinv(k, p) - shift, 0.0)


@dataclass(eq=False)
class CSGD(ClosedForm, kind="csgd"):
    """Censored, shifted gamma distribution max(0, G - shift) at each grid point.

    Args:
        shape: of the gamma variable G, above 0; no unit.
        scale: of G, above 0, target units.
        shift: 0 or more, target units.
        positive: True to skip the check that the parameters are valid.
    """

    shape: Any
    scale: Any
    shift: Any
    positive: bool = False

    parameters: ClassVar = {
        "shape": SHAPE,
        "scale": POSITIVE_SCALE,
        "shift": Parameter("nonnegative", long_name="shift of the forecast"),
    }
    oracles = "scoringrules, simulation, mpmath"
    kernels: ClassVar = {
        "crps": Kernel(_crps, _crps_partials, on_host=True, double=True, takes_tensors=True),
        "log_score": Kernel(_log_score, _log_score_partials, on_host=True, double=True),
        "cdf": Kernel(_cdf, _cdf_partials, on_host=True, double=True),
        "cdf_below": Kernel(_cdf_below, _cdf_partials, on_host=True, double=True),
        "mean": Kernel(_mean, _mean_partials, on_host=True, double=True),
        "variance": Kernel(_variance, _variance_partials, on_host=True, double=True),
    }
    inverse = _quantile
    inverse_on_host = True
    support = (0.0, math.inf)
    head_channels = 3
    amounts = True

    @classmethod
    def from_moments(cls, mean: Any, std: Any, third: Any, unit: Any, **options: Any) -> Any:  # noqa: ARG003
        """Build a forecast with shift = unit exp(third), see `ClosedForm`; from tensors.

        The gamma variable G has the deviation `std` and the mean shift + mean. As that has to be
        positive, it is std (x + sqrt(x^2 + 0.04)) / 2 with x = (shift + mean) / std.
        """
        ops = ops_of(mean)
        shift = unit * ops.exp(clip(ops, third, -_LARGEST_LOG, _LARGEST_LOG))
        x = (shift + mean) / std
        root = ops.sqrt(x * x + 4 * _SMOOTHING**2)
        # for x below 0 the sum cancels
        tail = 2 * _SMOOTHING**2 / (root - ops.minimum(x, 0))
        ratio = ops.maximum(ops.where(x > 0, 0.5 * (x + root), tail), 1e-4)
        return cls(ratio * ratio, std / ratio, shift, positive=True)

    def twcrps(self, y: Any, lower: Any, upper: Any) -> Any:
        """Return the threshold-weighted CRPS: above a bound it is the CRPS of a larger shift."""
        ops = self.ops
        y, start, end = (self._as_field(x) for x in (y, lower, upper))
        zero = ops.full_like(y, 0.0)

        def above(bound: Any) -> Any:
            at = ops.where(bound < math.inf, ops.maximum(bound, zero), zero)
            beyond = CSGD(self.shape, self.scale, self.shift + at, self.positive)
            return ops.where(bound < math.inf, beyond.crps(ops.maximum(y, at) - at), zero)

        below_0 = ops.maximum(ops.minimum(end, zero) - ops.maximum(start, y), zero)
        return above(start) + below_0 - above(end)


def crps_csgd(
    shape: Any,
    scale: Any,
    shift: Any,
    y: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of censored, shifted gamma distributions max(0, G - shift), elementwise.

    The closed form of Scheuerer & Hamill (2015, doi:10.1175/MWR-D-15-0061.1, eq. 10), used for
    precipitation, as the integrals of F^2 up to y and of (1 - F)^2 above it: each keeps its digits
    where the score is near 0. Tensors on a device have errors up to 2e-8 of the scale there.

    Args:
        shape: of the gamma variable G, above 0; no unit.
        scale: of G, above 0, in the unit of `y`.
        shift: 0 or more, in the unit of `y`.
        y: observations; the distance to 0 is added for those below it.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse parameters outside their domain.

    Returns:
        The scores, in the unit of `y`, as an array of the input's type.

    Raises:
        ArgumentError: parameters outside their domain, arrays that do not match.
    """
    return CSGD.formula("crps")(
        shape, scale, shift, y, check=check, dim=dim, weights=weights, nan=nan
    )
