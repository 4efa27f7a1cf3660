"""The continuous ranked probability score (CRPS) of distributions in closed form.

Torch tensors (differentiable), numpy arrays, xarray DataArrays and dask arrays (lazy) come in,
the same kind goes out. Lower is better; the unit is that of the forecast. The functions of a
family by its name, such as `log_score("truncated_normal", parameters, y)`, are in
`ens10.metrics.families`.
"""

from math import inf
from typing import Any

from ens10.metrics._reduce import Over
from ens10.metrics.families import registry


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
    """CRPS of normal distributions truncated to an interval, elementwise.

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
        check: refuse a negative sigma and bounds that are not in order. A training loss whose
            head guarantees the domain passes False: looking waits for the device.

    Returns:
        The scores, in the unit of `mu`, as the kind of array that was given.

    Raises:
        ArgumentError: a negative sigma, or lower >= upper (on lazy arrays when computed); arrays
            of several libraries or that do not fit each other.
        UnknownNameError: another NaN policy.
    """
    given = {"mu": mu, "sigma": sigma, "lower": lower, "upper": upper}
    return registry.crps(
        "truncated_normal", given, y, dim=dim, weights=weights, nan=nan, check=check
    )


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
    """CRPS of normal distributions censored at an interval's ends, elementwise.

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
        dim: as for `crps_truncated_normal`.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma and bounds that are not in order.

    Returns:
        The scores, in the unit of `mu`, as the kind of array that was given.

    Raises:
        ArgumentError: as for `crps_truncated_normal`.
        UnknownNameError: another NaN policy.
    """
    given = {"mu": mu, "sigma": sigma, "lower": lower, "upper": upper}
    return registry.crps(
        "censored_normal", given, y, dim=dim, weights=weights, nan=nan, check=check
    )


def crps_logistic(
    mu: Any,
    sigma: Any,
    y: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """CRPS of logistic distributions, elementwise.

    With z = (y - mu) / sigma and F(z) = 1 / (1 + exp(-z)) it is sigma [z - 2 log F(z) - 1]
    (Taillardat et al. 2016, doi:10.1175/MWR-D-15-0260.1, table A1; Jordan, Krueger & Lerch 2019,
    doi:10.18637/jss.v090.i12, appendix A), and |y - mu| at sigma = 0. Gradients of tensors are
    analytic and finite for every sigma >= 0.

    Args:
        mu: locations, which are the means; any shape.
        sigma: scales, 0 or more, in the unit of `mu`; the standard deviation is
            sigma pi / sqrt(3).
        y: observations. Arrays broadcast by position, DataArrays by dimension name, with equal
            coordinates. Plain numbers are accepted for each.
        dim: as for `crps_truncated_normal`.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma.

    Returns:
        The scores, in the unit of `mu`, as the kind of array that was given.

    Raises:
        ArgumentError: a negative sigma (on lazy arrays when computed); arrays of several
            libraries or that do not fit each other.
        UnknownNameError: another NaN policy.
    """
    given = {"mu": mu, "sigma": sigma}
    return registry.crps("logistic", given, y, dim=dim, weights=weights, nan=nan, check=check)


def crps_truncated_logistic(
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
    """CRPS of logistic distributions truncated to an interval, elementwise.

    The forecast is that of a logistic variable given that it lies in [lower, upper] (for lower = 0
    Scheuerer & Moeller 2015, doi:10.1214/15-AOAS843, and Taillardat et al. 2016,
    doi:10.1175/MWR-D-15-0260.1; Jordan, Krueger & Lerch 2019, doi:10.18637/jss.v090.i12,
    appendix A): sigma times E|Z - z| less the integral of G (1 - G), with z = (y - mu) / sigma
    and Z distributed as G(x) = (F(x) - F(l)) / (F(u) - F(l)). Outside the bounds, at sigma = 0,
    and for gradients what `crps_truncated_normal` says holds.

    Args:
        mu: location of the logistic before truncation; any shape.
        sigma: its scale, 0 or more, in the unit of `mu`.
        y: observations. Arrays broadcast by position, DataArrays by dimension name, with equal
            coordinates. Plain numbers are accepted for each.
        lower: lower bound; -inf for none.
        upper: upper bound, above `lower`; inf for none.
        dim: as for `crps_truncated_normal`.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma and bounds that are not in order.

    Returns:
        The scores, in the unit of `mu`, as the kind of array that was given.

    Raises:
        ArgumentError: as for `crps_truncated_normal`.
        UnknownNameError: another NaN policy.
    """
    given = {"mu": mu, "sigma": sigma, "lower": lower, "upper": upper}
    return registry.crps(
        "truncated_logistic", given, y, dim=dim, weights=weights, nan=nan, check=check
    )


def crps_censored_logistic(
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
    """CRPS of logistic distributions censored at an interval's ends, elementwise.

    The form of `crps_censored_normal` with V(x) = log(1 + exp(x)) - F(x) - x F(x)^2 and
    F(x) = 1 / (1 + exp(-x)) (Jordan, Krueger & Lerch 2019, doi:10.18637/jss.v090.i12,
    appendix A). What is said there of bounds, sigma = 0 and gradients holds.

    Args:
        mu: location of the logistic before censoring; any shape.
        sigma: its scale, 0 or more, in the unit of `mu`.
        y: observations. Arrays broadcast by position, DataArrays by dimension name, with equal
            coordinates. Plain numbers are accepted for each.
        lower: lower bound; -inf for none.
        upper: upper bound, above `lower`; inf for none.
        dim: as for `crps_truncated_normal`.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma and bounds that are not in order.

    Returns:
        The scores, in the unit of `mu`, as the kind of array that was given.

    Raises:
        ArgumentError: as for `crps_truncated_normal`.
        UnknownNameError: another NaN policy.
    """
    given = {"mu": mu, "sigma": sigma, "lower": lower, "upper": upper}
    return registry.crps(
        "censored_logistic", given, y, dim=dim, weights=weights, nan=nan, check=check
    )
