"""The normal distribution, alone and between bounds."""

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar

import numpy as np

from ens10.metrics._ops import NUMPY, standardise
from ens10.metrics._reduce import Over
from ens10.metrics._thresholds import checked_thresholds
from ens10.metrics.distributions import censored, truncated
from ens10.metrics.distributions import standard_normal as standard
from ens10.metrics.distributions.base import Bounded, ClosedForm, clip
from ens10.metrics.distributions.formula import Formula, Kernel, Parameter, check_domain

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
    return Normal.formula("crps")(mu, sigma, y, check=check, dim=dim, weights=weights, nan=nan)


def _crps(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    d = y - mu
    # with the slopes as constants autograd gives their values, which are finite everywhere
    by_d, by_sigma = map(ops.detach, standard.crps_slopes(ops, ops.detach(d), ops.detach(sigma)))
    return ops.addcmul(d * by_d, sigma, by_sigma)


def _crps_partials(ops: Any, mu: Any, sigma: Any, y: Any) -> tuple[Any, ...]:
    by_d, by_sigma = standard.crps_slopes(ops, y - mu, sigma)
    return -by_d, by_sigma, by_d


def _cdf(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    return ops.ndtr(standardise(ops, mu, sigma, y))


def _log_score(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    return ops.log(sigma) - standard.log_density(ops, (y - mu) / sigma)


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


def _twcrps(ops: Any, *arguments: Any) -> Any:
    """Return the threshold-weighted CRPS, that of the normal censored at both thresholds.

    It is computed by integrals that do not cancel where both lie far from mu, or close together.
    """
    *parameters, y = arguments
    return censored.crps(standard, ops, *parameters, clip(ops, y, *parameters[2:]))


def _twcrps_partials(ops: Any, *arguments: Any) -> tuple[Any, ...]:
    *parameters, y = arguments
    lower, upper = parameters[2:]
    inside = clip(ops, y, lower, upper)
    by_mu, by_sigma, by_a, by_b, by_y = censored.crps_partials(standard, ops, *parameters, inside)
    below, above, none = y <= lower, y >= upper, ops.full_like(by_y, 0.0)
    # y counts as the threshold that it lies beyond
    by_a, by_b = by_a + ops.where(below, by_y, none), by_b + ops.where(above, by_y, none)
    return by_mu, by_sigma, by_a, by_b, ops.where(below | above, none, by_y)


TWCRPS_NORMAL = Formula(
    "twcrps",
    "threshold-weighted CRPS",
    {"mu": "real", "sigma": "nonnegative", "lower": "real", "upper": "real"},
    Kernel(_twcrps, _twcrps_partials),
)


def twcrps_normal(
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    lower: Any = -inf,
    upper: Any = inf,
    check: bool = True,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the threshold-weighted CRPS of normal distributions.

    The integral of (F(z) - 1{y <= z})^2 over z from `lower` to `upper`, which is the CRPS of the
    normal censored at both thresholds against the observation clipped to them (see
    `twcrps_ensemble`). With a, b, w the standardised thresholds and clipped observation and
    G(z) = z Phi(z)^2 + 2 phi(z) Phi(z) - Phi(sqrt(2) z) / sqrt(pi), which has the derivative
    Phi^2, it is sigma [G(w) - G(a) + G(-w) - G(-b)]. NaN propagates. Gradients, also of the
    thresholds, are analytic and finite for every sigma >= 0.

    Args:
        mu: means; any shape.
        sigma: standard deviations, 0 or more, in the unit of `mu`.
        y: observations. Arrays broadcast by position, DataArrays by name.
        lower: lower thresholds in the unit of `mu`, numbers or arrays; -inf for none.
        upper: upper thresholds; inf for none.
        check: True to refuse sigma < 0 and lower > upper. A training loss passes False, because
            the check synchronises with the GPU.
        dim: dimensions of a weighted mean: axis numbers or names; "all"; None for all points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Examples:
        >>> from ens10.metrics import twcrps_normal
        >>> round(float(twcrps_normal(0.0, 1.0, 0.0, lower=0.0)), 4)  # half of the CRPS
        0.1168

    Raises:
        ArgumentError: a negative sigma or thresholds in the wrong order (on lazy arrays when
            computed), or arrays that do not match.
    """
    upper = checked_thresholds(lower, upper, check)
    arguments = (mu, sigma, lower, upper, y)
    return TWCRPS_NORMAL(*arguments, check=check, dim=dim, weights=weights, nan=nan)


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
    oracles = "properscoring, closed form, gradcheck"
    kernels: ClassVar = {
        "crps": Kernel(
            _crps,
            _crps_partials,
            loop="ens10.metrics.distributions._normal_loops",
            traceable=True,
            estimator="normal",
        ),
        "log_score": Kernel(_log_score, _log_score_partials, positive=("sigma",)),
        "cdf": Kernel(_cdf),
        "mean": Kernel(_mean),
        "variance": Kernel(_variance),
    }
    inverse = _quantile
    censored_as = "censored_normal"
    head_channels = 2

    def log_score(self, y: Any) -> Any:
        """Return minus the logarithm of the density; infinite for numpy arrays where sigma is 0."""
        if self.ops is not NUMPY:
            return self._evaluate("log_score", y)
        check_domain("sigma", "nonnegative", np.asarray(self.sigma))
        mu, sigma = (np.asarray(a, np.float64) for a in (self.mu, self.sigma))
        with np.errstate(divide="ignore", invalid="ignore"):
            score = _log_score(NUMPY, mu, sigma, y)
        return np.where(sigma == 0, np.where(y == mu, -inf, inf), score)

    def twcrps(self, y: Any, lower: float, upper: float) -> Any:
        """Return the threshold-weighted CRPS in closed form, as `twcrps_normal` does."""
        return TWCRPS_NORMAL(self.mu, self.sigma, lower, upper, y, check=not self.positive)

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


class TruncatedNormal(Bounded, kind="truncated_normal"):
    """Truncated normal, see `Bounded`: a normal variable given that it lies between two bounds."""

    oracles = "mpmath in 120 digits, scoringrules"
    kernels: ClassVar = truncated.kernels(standard, partial(truncated.variance_normal, standard))
    truncates = True
    inverse = partial(truncated.quantile, standard.cdf, standard.quantile)


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

    oracles = "mpmath in 120 digits, scoringrules"
    kernels: ClassVar = censored.kernels(standard, partial(censored.variance_normal, standard))
    inverse = partial(censored.quantile, standard.quantile)
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
