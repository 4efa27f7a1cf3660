"""The normal distribution, alone and between bounds."""

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from ens10.metrics import _kernels_numpy as on_numpy
from ens10.metrics._call import Score, apply
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.distributions import censored, truncated
from ens10.metrics.distributions import standard_normal as shape
from ens10.metrics.distributions.base import Bounded, ClosedForm
from ens10.metrics.distributions.formula import NUMPY, Kernel, Parameter

MEAN = Parameter(long_name="mean of the forecast", is_quantity=True)
DEVIATION = Parameter("nonnegative", long_name="standard deviation of the forecast")


def crps_normal(
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of normal distributions, elementwise.

    With z = (y - mu) / sigma it is sigma [z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)] (Gneiting
    et al. 2005, doi:10.1175/MWR2904.1, eq. 5), and |y - mu| at sigma = 0. NaN propagates.
    Gradients of tensors are analytic, finite for every sigma >= 0, and those of points with a NaN
    are finite too, so that `nan="omit"` trains on the others. They have no second derivatives.

    Args:
        mu: means; any shape.
        sigma: standard deviations, 0 or more, in the unit of `mu`.
        y: observations. Arrays broadcast by position, DataArrays by dimension name, with equal
            coordinates. Plain numbers are accepted for each of the three.
        dim: dimensions of a weighted mean (axis numbers, or names for DataArrays; "all"); None
            for the scores of the points.
        weights: weights of the mean, which broadcast to the scores.
        nan: "propagate", or "omit" to leave NaN scores out of the mean.
        check: True to refuse a negative sigma. A training loss whose head guarantees sigma >= 0
            passes False: the check synchronises with the GPU.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Examples:
        >>> from ens10.metrics import crps_normal
        >>> round(float(crps_normal(0.0, 1.0, 0.0)), 4)
        0.2337

    Raises:
        ArgumentError: a negative sigma (on lazy arrays when they are computed), arrays of
            several libraries, shapes, coordinates or units that do not match.
        UnknownNameError: an unknown policy for NaN.
    """
    arrays = {"mu": mu, "sigma": sigma, "y": y}
    score = apply(_SCORE, arrays, options={"check": check}, attrs={"estimator": "normal"})
    return mean_over(score, dim, weights, nan)


def standardise(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    """Return (y - mu) / sigma; where sigma is 0, its limit, or 0 if the distance is 0 too."""
    far = 1e3 * ops.sign(y - mu)
    divisor = ops.where(sigma == 0, ops.full_like(sigma, 1.0), sigma)
    return ops.where(sigma == 0, far, (y - mu) / divisor)


def _cdf(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    return ops.ndtr(standardise(ops, mu, sigma, y))


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


def _quantile(ops: Any, mu: Any, sigma: Any, p: Any) -> Any:
    return _shift_and_scale(ops, mu, sigma, ops.ndtri(p))


def _shift_and_scale(ops: Any, mu: Any, sigma: Any, z: Any) -> Any:
    return mu + ops.where(sigma > 0, sigma * z, 0.0)  # z may be infinite where sigma is 0


def _on_tensors(*tensors: Any, check: bool) -> Any:
    from ens10.metrics._kernels_torch import crps_normal

    return crps_normal(*tensors, check=check)


_SCORE = Score("crps", "continuous ranked probability score", on_numpy.crps_normal, _on_tensors)


def _crps_of_family(
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    check: bool = True,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the CRPS, with the signature of a `Formula`."""
    score = crps_normal(mu, sigma, y, check=check)
    if isinstance(score, xr.DataArray):
        score.attrs["family"] = "normal"
    return mean_over(score, dim, weights, nan)


@dataclass(eq=False)
class Normal(ClosedForm, kind="normal"):
    """Normal distribution at each grid point, independent between points.

    Args:
        mu: mean, (..., H, W), target units.
        sigma: standard deviation, 0 or more, same shape and units. At 0 the distribution is the
            point mass at `mu`.
        positive: True if the caller guarantees that no sigma is negative, so that `crps` does not
            check (a check synchronises with the GPU).

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics.distributions import Normal
        >>> forecast = Normal(np.array([[280.0, 281.0]]), np.array([[1.0, 2.0]]))
        >>> forecast.crps(np.array([[280.0, 283.0]])).round(4)
        array([[0.2337, 1.2049]])
        >>> forecast.quantile(0.9).round(2)
        array([[281.28, 283.56]])

    Raises:
        ArgumentError: the shapes differ.
    """

    mu: Any
    sigma: Any
    positive: bool = False

    parameters: ClassVar = {"mu": MEAN, "sigma": DEVIATION}
    kernels: ClassVar = {
        "log_score": Kernel(_log_score, _log_score_partials, positive=("sigma",)),
        "cdf": Kernel(_cdf),
        "mean": Kernel(_mean),
        "variance": Kernel(_variance),
    }
    inverse = _quantile
    censored_as = "censored_normal"

    def crps(self, y: Any) -> Any:
        """Return the CRPS in closed form, by `crps_normal`.

        Raises:
            ArgumentError: a negative sigma, unless `positive`.
        """
        mu, sigma = self.mu, self.sigma
        if hasattr(mu, "requires_grad") and mu.dtype == sigma.dtype == getattr(y, "dtype", None):
            # training: tensors of one dtype go to the kernel without detours
            from ens10.metrics._kernels_torch import crps_normal as kernel

            return kernel(mu, sigma, y, check=not self.positive)
        return crps_normal(mu, sigma, y, check=not self.positive)

    def log_score(self, y: Any) -> Any:
        """Return minus the logarithm of the density; infinite for numpy arrays where sigma is 0."""
        if self.ops is not NUMPY:
            return self._evaluate("log_score", y)
        on_numpy.check_sigma(np.asarray(self.sigma))
        mu, sigma = (np.asarray(a, np.float64) for a in (self.mu, self.sigma))
        with np.errstate(divide="ignore", invalid="ignore"):
            score = _log_score(NUMPY, mu, sigma, y)
        return np.where(sigma == 0, np.where(y == mu, -inf, inf), score)

    def twcrps(self, y: Any, lower: float, upper: float) -> Any:
        """Return the threshold-weighted CRPS in closed form, by `twcrps_normal`."""
        from ens10.metrics.distributions.threshold_weighted_normal import twcrps_normal

        check = not self.positive
        return twcrps_normal(self.mu, self.sigma, y, lower=lower, upper=upper, check=check)

    @property
    def mean(self) -> Any:
        """Return `mu`, NaN where sigma is NaN."""
        return self.ops.where(self.ops.isnan(self.sigma), float("nan"), self.mu)

    @property
    def variance(self) -> Any:
        """Return the square of sigma, in float64 for numpy arrays."""
        if self.ops is NUMPY:
            return np.square(self.sigma, dtype=np.float64)
        return self.sigma.square()

    @property
    def std(self) -> Any:
        """Return `sigma`."""
        return self.sigma

    def cdf(self, y: Any) -> Any:
        """Return Phi((y - mu) / sigma); a step at `mu` where sigma is 0."""
        ops = self.ops
        level = _cdf(ops, self.mu, self.sigma, self._as_field(y))
        return ops.where((self.sigma == 0) & (y == self.mu), 1.0, level)

    def above(self, threshold: Any) -> Any:
        """Return Phi((mu - threshold) / sigma), which is accurate far above mu."""
        ops, at = self.ops, self._as_field(threshold)
        level = _cdf(ops, at, self.sigma, self.mu)
        return ops.where((self.sigma == 0) & (self.mu == at), 0.0, level)

    def _quantile_at(self, p: Any) -> Any:
        # in the dtype of mu: a vector of quantiles is large
        z = self.ops.cast(self.ops.ndtri(p), self.mu)
        return _shift_and_scale(self.ops, self.mu, self.sigma, z)

    def sample(self, n: int, generator: Any = None) -> Any:
        """Return samples that are independent between grid points, (..., n, H, W)."""
        ops = self.ops
        if ops is NUMPY:
            return super().sample(n, generator)
        *dates, rows, columns = self.mu.shape
        noise = ops.normal((*dates, n, rows, columns), self.mu, generator)
        return self.mu.unsqueeze(-3) + self.sigma.unsqueeze(-3) * noise


Normal.formulas = {**Normal.formulas, "crps": _crps_of_family}


class TruncatedNormal(Bounded, kind="truncated_normal"):
    """Truncated normal, see `Bounded`: a normal variable given that it lies between two bounds."""

    kernels: ClassVar = truncated.kernels(shape, partial(truncated.variance_normal, shape))
    truncates = True
    inverse = partial(truncated.quantile, shape.cdf, shape.quantile)


def crps_truncated_normal(
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    lower: Any = -inf,
    upper: Any = inf,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of normal distributions truncated to an interval, elementwise.

    The forecast is that of a normal variable given that it lies in [lower, upper]: with
    z = (y - mu) / sigma, l and u likewise, and P = Phi(u) - Phi(l), for y between the bounds,
    sigma / P^2 [z P (2 Phi(z) - Phi(l) - Phi(u)) + 2 phi(z) P - (Phi(sqrt(2) u) -
    Phi(sqrt(2) l)) / sqrt(pi)] (Jordan, Krueger & Lerch 2019, doi:10.18637/jss.v090.i12,
    appendix A; for lower = 0 Thorarinsdottir & Gneiting 2010,
    doi:10.1111/j.1467-985X.2009.00616.x). For y outside them it is the score at the nearest
    bound plus the distance to it; at sigma = 0, the distance of y to the value between the bounds
    that is nearest to mu. It is computed in float64, by forms that are right for bounds far in a
    tail or close together, and has the dtype of the arrays. Gradients of tensors are analytic and
    finite for every sigma >= 0, also by finite bounds that are tensors.

    Args:
        mu: location of the normal before truncation; any shape.
        sigma: its scale, 0 or more, in the unit of `mu`.
        y: observations. Arrays broadcast by position, DataArrays by dimension name, with equal
            coordinates. Plain numbers are accepted for each.
        lower: lower bound; -inf for none.
        upper: upper bound, above `lower`; inf for none.
        dim: dimensions of a weighted mean (numbers of axes, or names for DataArrays; "all");
            None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: True to refuse a negative sigma and lower >= upper. A training loss whose head
            guarantees the domain passes False: the check synchronises with the GPU.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Raises:
        ArgumentError: a negative sigma, or lower >= upper (on lazy arrays when computed); arrays
            of several libraries or that do not fit each other.
        UnknownNameError: an unknown policy for NaN.
    """
    return TruncatedNormal.formula("crps")(
        mu, sigma, lower, upper, y, check=check, dim=dim, weights=weights, nan=nan
    )


class CensoredNormal(Bounded, kind="censored_normal"):
    """Censored normal, see `Bounded`: a normal variable moved to the nearest of two bounds."""

    kernels: ClassVar = censored.kernels(shape, partial(censored.variance_normal, shape))
    inverse = partial(censored.quantile, shape.quantile)
    censored_as = "censored_normal"


def crps_censored_normal(
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    lower: Any = -inf,
    upper: Any = inf,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of normal distributions censored at an interval's ends, elementwise.

    The forecast is that of a normal variable moved to the nearest bound, which has a point mass:
    with z = (y - mu) / sigma and l, u likewise, for y between the bounds,
    sigma [V(z) + V(-z) - V(l) - V(-u) + z (2 Phi(z) - 1) - l Phi(l)^2 + u (1 - Phi(u))^2],
    V(x) = 2 phi(x) Phi(x) - Phi(sqrt(2) x) / sqrt(pi) (Jordan, Krueger & Lerch 2019,
    doi:10.18637/jss.v090.i12, appendix A; Thorarinsdottir & Gneiting 2010,
    doi:10.1111/j.1467-985X.2009.00616.x). Outside the bounds the distance to the nearest one is
    added; at sigma = 0 it is the distance of y to the value between the bounds that is nearest to
    mu. It is computed in float64 and has the dtype of the arrays. Gradients of tensors are
    analytic and finite for every sigma >= 0, also by finite bounds that are tensors. At y on a
    bound the derivative by y is that from inside.

    Args:
        mu: location of the normal before censoring; any shape.
        sigma: its scale, 0 or more, in the unit of `mu`.
        y: observations. Arrays broadcast by position, DataArrays by dimension name, with equal
            coordinates. Plain numbers are accepted for each.
        lower: lower bound; -inf for none.
        upper: upper bound, above `lower`; inf for none.
        dim: dimensions of a weighted mean (numbers of axes, names for DataArrays, or "all"); None
            for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma and bounds that are not in order.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Raises:
        ArgumentError: a negative sigma, or lower >= upper (on lazy arrays when computed); arrays
            of several libraries or that do not fit each other.
        UnknownNameError: an unknown policy for NaN.
    """
    return CensoredNormal.formula("crps")(
        mu, sigma, lower, upper, y, check=check, dim=dim, weights=weights, nan=nan
    )
