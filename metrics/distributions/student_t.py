"""Student's t distribution with a location, a scale and degrees of freedom.

With n degrees of freedom, u = 1 / n and C = f(0), everything is written in u, so that an infinite
n is the normal distribution; differences of gamma functions are those of `gamma_functions`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from ens10.metrics._ops import NUMPY, standardise
from ens10.metrics._reduce import Over
from ens10.metrics.distributions.base import (
    LOCATION,
    SCALE,
    ClosedForm,
    Distribution,
    on_host,
)
from ens10.metrics.distributions.formula import Kernel, Parameter
from ens10.metrics.distributions.gamma_functions import (
    half_step,
    half_step_slope,
    mean_half_step_slope,
)
from ens10.metrics.distributions.standard_logistic import log_remainder

_LEAST = 0.5  # degrees of freedom, at and below which the CRPS is infinite
_STEP = 1e-3  # of log(df - 1/2), in the derivative by df: the fourth power of it is 1e-12
# Above so many degrees a step of log(df) changes the score by less than 1e-3 / df, which rounding
# hides. In 1 / df it is nearly a parabola, so that a large step of it has a small error, too.
_MANY, _SHARE = 200.0, 0.25
_NORMAL = 1e8  # above it the derivative by 1 / df is that at 0: the difference is of order 1 / df
_MOST_Z, _FAR = 1e300, 1e8  # of z, and of z / sqrt(df), whose square is then all there is
_INV_SQRT_2PI, _LOG_ROOT_2PI = 1 / math.sqrt(2 * math.pi), 0.5 * math.log(2 * math.pi)
_ROOT_HALF = math.sqrt(0.5)


def _size(ops: Any, df: Any, z: Any) -> tuple[Any, Any, Any]:
    """Return where (z / sqrt(df))^2 may overflow, and its logarithm and square elsewhere."""
    w = ops.where(1 / df == 0, ops.full_like(z, 0.0), ops.abs(z) / ops.sqrt(df))
    far = w > _FAR
    log_w = ops.log(ops.where(far, w, ops.full_like(w, 1.0)))
    near = ops.where(far, ops.full_like(w, 1.0), w)
    return far, log_w, near * near


def _twice_energy(ops: Any, df: Any, z: Any) -> Any:
    """Return df log(1 + z^2 / df), which is z^2 at infinite df, without cancellation."""
    far, log_w, q = _size(ops, df, z)
    finite = ops.where(far, df, ops.full_like(df, 1.0))
    safe = ops.where(far, ops.full_like(z, 0.0), z)
    tiny = q < 1e-300
    ratio = ops.log1p(q) / ops.where(tiny, ops.full_like(q, 1.0), q)
    ratio = ops.where(tiny, ops.full_like(q, 1.0), ratio)
    return ops.where(far, 2 * finite * log_w, safe * safe * ratio)


def _at_centre(df: Any) -> tuple[Any, Any]:
    """Return the density and the CRPS at 0 of the standard distribution; df above 1/2.

    With r(x) = log(Gamma(x + 1/2) / Gamma(x)) the score is 2 C (1 - exp d) / (1 - u),
    d = r(df / 2) - r(df - 1/2); near df = 1, where both vanish, d / (1 - u) is a mean slope of r.
    """
    u = 1 / df
    density = np.exp(half_step(NUMPY, 0.5 * df)) * _INV_SQRT_2PI
    cauchy = np.abs(df - 1) < 0.2
    ratio = np.where(np.isinf(df), 2.0, 2 * (df - 0.5) * u)
    d_far = half_step(NUMPY, 0.5 * df) - half_step(NUMPY, df - 0.5) - 0.5 * np.log(ratio)
    near = np.where(cauchy, df, 1.0)
    slope = -0.5 * near * mean_half_step_slope(0.5 * near, 0.5 * (near - 1))
    d = slope * (1 - 1 / near)
    share = np.where(d == 0, 1.0, np.expm1(d) / np.where(d == 0, 1.0, d))
    quotient = np.where(cauchy, -share * slope, -np.expm1(d_far) / np.where(cauchy, 1.0, 1 - u))
    return density, 2 * density * quotient


def _remainder(df: Any, z: Any) -> Any:
    """Return the CRPS at z less z (2 F(z) - 1) of the standard distribution; df above 1/2.

    It is the score at 0 less 2 n C (1 - (1 + z^2 / n)^(-(n - 1) / 2)) / (n - 1), a form without
    poles: at n = 1 it is C log(1 + z^2), at n = inf it is 2 (f(0) - f(z)).
    """
    density, at_0 = _at_centre(df)
    energy = _twice_energy(NUMPY, df, z)
    g = 0.5 * (1 - 1 / df) * energy
    small = np.abs(g) < 0.1
    ratio = np.where(g == 0, 1.0, -np.expm1(-g) / np.where(g == 0, 1.0, g))
    by_ratio = density * np.where(small, energy, 0.0) * ratio
    divisor = np.where(small, 1.0, 1 - 1 / df)
    return at_0 - np.where(small, by_ratio, -2 * density * np.expm1(-g) / divisor)


def _standard_cdf(df: Any, z: Any) -> Any:
    """Return F(z) of the standard distribution."""
    return np.where(np.isinf(df), special.ndtr(z), special.stdtr(np.minimum(df, 1e300), z))


def _standard(mu: Any, sigma: Any, y: Any) -> Any:
    z = np.where(y == mu, 0.0 * sigma, standardise(NUMPY, mu, sigma, y))
    return np.clip(z, -_MOST_Z, _MOST_Z)


def _crps(_ops: Any, df: Any, mu: Any, sigma: Any, y: Any) -> Any:
    z, valid_df = _standard(mu, sigma, y), np.where(df > _LEAST, df, 1.0)
    by_y = 2 * _standard_cdf(valid_df, z) - 1
    distance = np.where(y == mu, 0.0, y - mu)
    spread = sigma * _remainder(valid_df, np.where(sigma == 0, 0.0, z))
    score = np.where(sigma == 0, np.abs(distance), distance * by_y + spread)
    score = np.where((df <= _LEAST) & (sigma > 0), math.inf, score)
    return np.where(np.isnan(df) | np.isnan(sigma) | np.isnan(distance), np.nan, score)


def _crps_partials(_ops: Any, df: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    undefined = df <= _LEAST  # where the score is infinite, it has no slope
    z, valid_df = _standard(mu, sigma, y), np.where(undefined, 1.0, df)
    by_y = np.where(sigma == 0, np.sign(y - mu), 2 * _standard_cdf(valid_df, z) - 1)
    by_df = np.where(sigma == 0, 0.0, sigma * _by_df(valid_df, z))
    partials = (by_df, -by_y, _remainder(valid_df, z), by_y)
    return tuple(np.where(undefined, 0.0, part) for part in partials)


def _by_df(df: Any, z: Any) -> Any:
    """Return the derivative of the standard CRPS by df.

    The distance |z| is left out of the score, so that it does not hide the change.
    """
    size = np.abs(z)
    square = np.minimum(size, 1e3) ** 2
    density = _INV_SQRT_2PI * np.exp(-0.5 * square)
    at_0 = 2 * _INV_SQRT_2PI * (0.75 * (1 - _ROOT_HALF) - _ROOT_HALF / 8)
    limit = at_0 - 0.5 * (3 * _INV_SQRT_2PI - (square + 3) * density)

    def score(df: Any) -> Any:
        return _remainder(df, z) - 2 * size * _standard_cdf(df, -size)

    return _difference_by_df(score, df, limit)


def _difference_by_df(function: Callable[[Any], Any], df: Any, limit: Any) -> Any:
    """Return the derivative of a function of df by differences of fourth order.

    Steps are of log(df - 1/2), and of 1 / df where that changes the function more. Their error is
    near 1e-11: rounding over the step is 1e-13, the next term of the series 1e-12.

    Args:
        function: of df, above 1/2.
        df: degrees of freedom.
        limit: derivative by 1 / df at 0, which takes the place of differences above 1e8.
    """
    many = df > _MANY
    few, u = np.where(many, 1.0, df), 1 / np.where(many, df, _MANY)

    def at(steps: int) -> Any:
        shifted_df = np.where(
            many,
            1 / np.maximum(u * (1 + _SHARE * steps), 1e-300),
            _LEAST + (few - _LEAST) * math.exp(steps * _STEP),
        )
        return function(shifted_df)

    difference = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / 12
    slope = np.where(many, -difference * u / _SHARE, difference / (_STEP * (few - _LEAST)))
    return np.where(df > _NORMAL, -u * u * limit, slope)


def _cdf(_ops: Any, df: Any, mu: Any, sigma: Any, y: Any) -> Any:
    z = standardise(NUMPY, mu, sigma, y)
    return np.where(sigma == 0, 0.5 + 0.5 * np.sign(y - mu), _standard_cdf(df, z)) + 0 / df


def _cdf_partials(_ops: Any, df: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    z, point = standardise(NUMPY, mu, sigma, y), sigma == 0
    by_z = np.exp(-_log_score(NUMPY, df, 0.0 * mu, 1.0 + 0.0 * mu, z))
    by_y = np.where(point, 0.0, by_z / np.where(point, 1.0, sigma))
    # F = Phi - phi (z^3 + z) / (4 df) + ... at large df
    limit = -0.25 * by_z * (z**3 + z)
    # with fewer than 1/2 degrees, too: the steps are those of df + 1/2
    by_df = _difference_by_df(lambda n: _standard_cdf(n - _LEAST, z), df + _LEAST, limit)
    return np.where(point, 0.0, by_df), -by_y, -z * by_y, by_y


def _log_score(ops: Any, df: Any, mu: Any, sigma: Any, y: Any) -> Any:
    z = (y - mu) / sigma
    energy = _twice_energy(ops, df, z)
    return ops.log(sigma) + _LOG_ROOT_2PI - half_step(ops, 0.5 * df) + 0.5 * (1 + 1 / df) * energy


def _log_score_partials(ops: Any, df: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    z, u = (y - mu) / sigma, 1 / df
    far, log_w, q = _size(ops, df, z)
    inside = ops.where(far, ops.full_like(z, 1.0), z)
    outside = ops.where(far, z, ops.full_like(z, 1.0))
    # (n + 1) z / (n + z^2), and z times it
    by_z = ops.where(far, (df + 1) / outside, (1 + u) * inside / (1 + q))
    growth = ops.where(far, df + 1, (1 + u) * inside * inside / (1 + q))
    # log(1 + q) - q / (1 + q), which is q^2 / 2 for small q
    convex = ops.where(far, 2 * log_w - 1, q * q * log_remainder(ops, q))
    share = ops.where(far, ops.full_like(q, 1.0), q / (1 + q))
    by_df = 0.5 * (convex - share * u - half_step_slope(ops, 0.5 * df))
    return by_df, -by_z / sigma, (1 - growth) / sigma, by_z / sigma


def _mean(ops: Any, df: Any, mu: Any, sigma: Any) -> Any:
    return ops.where(df > 1, mu, math.nan) + 0 * sigma


def _variance(ops: Any, df: Any, mu: Any, sigma: Any) -> Any:
    ratio = ops.where(df > 2, 1 / (1 - 2 / ops.maximum(df, 2.0)), math.inf)
    return ops.where(df > 1, sigma * sigma * ratio, math.nan) + 0 * mu


def _quantile(ops: Any, df: Any, mu: Any, sigma: Any, p: Any) -> Any:
    normal = 1 / df == 0
    z = ops.stdtrit(ops.where(normal, ops.full_like(df, 1.0), df), p)
    return mu + sigma * ops.where(normal, ops.ndtri(p), z)


class WithDf(ClosedForm):
    """A family with degrees of freedom `df`, a location and a scale."""

    head_channels = 2

    @classmethod
    def from_moments(cls, mean: Any, std: Any, third: Any, unit: Any, **options: Any) -> Any:
        """Build a forecast, see `ClosedForm`; `df` is a number above 2, or infinite."""
        df = options.get("df", math.inf)
        share = 1.0 if math.isinf(df) else math.sqrt((df - 2) / df)
        return super().from_moments(mean, share * std, third, unit, **options)


@dataclass(eq=False)
class StudentT(WithDf, kind="student_t"):
    """Student's t distribution at each grid point.

    Args:
        df: degrees of freedom, above 0; inf is the normal distribution; no unit.
        mu: location, (..., H, W), target units.
        sigma: scale, 0 or more, with the shape and units of `mu`.
        positive: True to skip the check that the parameters are valid.
    """

    df: Any
    mu: Any
    sigma: Any
    positive: bool = False

    parameters: ClassVar = {
        "df": Parameter("positive", "1", long_name="degrees of freedom of the forecast"),
        "mu": LOCATION,
        "sigma": SCALE,
    }
    oracles = "scoringrules, scipy, mpmath at the ends of its parameters"
    kernels: ClassVar = {
        "crps": Kernel(_crps, _crps_partials, on_host=True, double=True),
        "log_score": Kernel(_log_score, _log_score_partials, double=True, positive=("sigma",)),
        "cdf": Kernel(_cdf, _cdf_partials, on_host=True, double=True),
        "mean": Kernel(_mean),
        "variance": Kernel(_variance),
    }
    inverse = _quantile
    symmetric = True
    censored_as = "censored_student_t"

    def twcrps(self, y: Any, lower: Any, upper: Any) -> Any:
        """Return the threshold-weighted CRPS: a closed form above 1 degree, else by quantiles."""
        closed = bool(np.all(on_host(self.df) > 1))
        return (ClosedForm if closed else Distribution).twcrps(self, y, lower, upper)


def crps_student_t(
    df: Any,
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of Student's t distributions with a location and a scale, elementwise.

    With z = (y - mu) / sigma, n = df: sigma [z (2 F(z) - 1) + 2 f(z) (n + z^2) / (n - 1)
    - 2 sqrt(n) / (n - 1) B(1/2, n - 1/2) / B(1/2, n/2)^2] (Jordan, Krueger & Lerch 2019,
    doi:10.18637/jss.v090.i12, appendix A), rearranged so that nothing cancels near n = 1 or at
    large n: the integral of (F - 1{x >= y})^2 is finite for n > 1/2, without a mean too, and
    n = inf is the normal distribution. It is inf for n <= 1/2, with gradient 0. Tensors are
    computed on the host; their gradients are analytic, but for that by df, which is a difference
    of fourth order with an error near 1e-11.

    Args:
        df: degrees of freedom, above 0; inf for the normal distribution; no unit.
        mu: locations, any shape.
        sigma: scales, 0 or more, in the unit of `mu`.
        y: observations.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse parameters outside their domain.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Raises:
        ArgumentError: parameters outside their domain, arrays that do not match.
    """
    return StudentT.formula("crps")(
        df, mu, sigma, y, check=check, dim=dim, weights=weights, nan=nan
    )
