"""CRPS of skewed, heavy-tailed and positive distributions in closed form.

The same in kind as `ens10.metrics.parametric`, with which the arguments `dim`, `weights`, `nan` and
`check` are shared.
"""

from typing import Any

from ens10.metrics._reduce import Over
from ens10.metrics.families import registry


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
    """CRPS of Student's t distributions with a location and a scale, elementwise.

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
        The scores, in the unit of `mu`, as the kind of array that was given.

    Raises:
        ArgumentError: parameters outside their domain, arrays that do not fit each other.
    """
    given = {"df": df, "mu": mu, "sigma": sigma}
    return registry.crps("student_t", given, y, dim=dim, weights=weights, nan=nan, check=check)


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
    """CRPS of log-normal distributions, elementwise.

    With z = (log y - mu) / sigma: y (2 Phi(z) - 1) - 2 exp(mu + sigma^2 / 2)
    [Phi(z - sigma) + Phi(sigma / sqrt(2)) - 1] (Baran & Lerch 2015, doi:10.1002/qj.2521);
    Phi(z) is 0 for y <= 0. The bracket cancels at large sigma, all of it at small sigma: it is
    computed by scaled complementary error functions above 1/2, and by differences that are of the
    size of sigma below. Gradients of tensors are analytic, and finite where the score is, at
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
        The scores, in the unit of `y`, as the kind of array that was given.

    Raises:
        ArgumentError: a negative sigma, arrays that do not fit each other.
    """
    given = {"mu": mu, "sigma": sigma}
    return registry.crps("lognormal", given, y, dim=dim, weights=weights, nan=nan, check=check)


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
    """CRPS of gamma distributions, elementwise.

    y (2 F_k(y) - 1) - k s (2 F_k+1(y) - 1) - s / B(1/2, k) with shape k and scale s (Moeller &
    Scheuerer 2015; Jordan, Krueger & Lerch 2019, doi:10.18637/jss.v090.i12, appendix A), in forms
    that do not cancel at large or small shapes, with Temme's expansion of the incomplete gamma
    function above a shape of 10,000. Tensors are computed on the host; gradients are analytic.

    Args:
        shape: above 0; no unit.
        scale: above 0, in the unit of `y`. The mean is their product.
        y: observations.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse parameters outside their domain.

    Returns:
        The scores, in the unit of `y`, as the kind of array that was given.

    Raises:
        ArgumentError: parameters outside their domain, arrays that do not fit each other.
    """
    given = {"shape": shape, "scale": scale}
    return registry.crps("gamma", given, y, dim=dim, weights=weights, nan=nan, check=check)


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
    """CRPS of censored, shifted gamma distributions max(0, G - shift), elementwise.

    The closed form of Scheuerer & Hamill (2015, doi:10.1175/MWR-D-15-0061.1, eq. 10), used for
    precipitation, as the integrals of F^2 up to y and of (1 - F)^2 above it: each keeps its digits
    where the score is near 0. Tensors are computed on the host; gradients are analytic.

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
        The scores, in the unit of `y`, as the kind of array that was given.

    Raises:
        ArgumentError: parameters outside their domain, arrays that do not fit each other.
    """
    given = {"shape": shape, "scale": scale, "shift": shift}
    return registry.crps("csgd", given, y, dim=dim, weights=weights, nan=nan, check=check)


def crps_gev(
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
    """CRPS of generalised extreme value distributions, elementwise.

    The closed form of Friederichs & Thorarinsdottir (2012, doi:10.1002/env.2176), arranged so
    that nothing cancels near shape 0 (relative error below 1e-12), and continued through shape 1,
    where its gamma functions have a pole and the score has none: the integral of
    (F - 1{x >= y})^2 is finite for shapes below 2, without a mean too. It is inf for shapes of 2
    and more, with gradient 0. Tensors are computed on the host; gradients are analytic.

    Args:
        mu: locations, any shape.
        sigma: scales, 0 or more, in the unit of `mu`.
        shape: above 0 the tail is heavy, below 0 there is an upper bound; no unit.
        y: observations.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma.

    Returns:
        The scores, in the unit of `mu`, as the kind of array that was given.

    Raises:
        ArgumentError: a negative sigma, arrays that do not fit each other.
    """
    given = {"mu": mu, "sigma": sigma, "shape": shape}
    return registry.crps("gev", given, y, dim=dim, weights=weights, nan=nan, check=check)
