"""Mixtures of normal distributions."""

import math
from itertools import combinations
from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.families._ops import NUMPY

_ROOT_2_BY_PI = math.sqrt(2 / math.pi)
_OFF = 1e-5  # how far a sum of weights may be from 1


def crps_normal_mixture(
    mu: Any,
    sigma: Any,
    component_weights: Any,
    y: Any,
    *,
    component_dim: Dim,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """CRPS of mixtures of normal distributions.

    sum_i w_i A(y - mu_i, sigma_i) - 1/2 sum_ij w_i w_j A(mu_i - mu_j, hypot(sigma_i, sigma_j)),
    where A(d, s) = d (2 Phi(d / s) - 1) + 2 s phi(d / s) is E|d + s Z| (Grimit et al. 2006,
    doi:10.1256/qj.05.235). The mean |y - mu_i| of points where all sigma are 0. Gradients of
    tensors are finite for every sigma >= 0.

    Args:
        mu: means of the components; any shape with a component axis.
        sigma: their standard deviations, 0 or more, alike.
        component_weights: their shares, 0 or more with sum 1; alike, or of the component axis
            alone (for DataArrays: that dimension).
        y: observations, without the component axis.
        component_dim: the component axis of mu and sigma: a number for arrays, a name for
            DataArrays. Memory and time grow with the square of the components.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse a negative sigma and weights that are no shares.

    Returns:
        The scores, in the unit of `mu`, as the kind of array that was given.

    Raises:
        ArgumentError: a negative sigma, weights that are no shares (on lazy arrays when
            computed), arrays that do not fit each other.
    """
    shares_dim = 0 if getattr(component_weights, "ndim", 1) == 1 and isinstance(
        component_dim, int
    ) else component_dim  # fmt: skip
    score = apply(
        _SCORE,
        {"mu": mu, "sigma": sigma, "component_weights": component_weights, "y": y},
        {"mu": [component_dim], "sigma": [component_dim], "component_weights": [shares_dim]},
        options={"check": check},
        attrs={"family": "normal mixture"},
        unlike=["component_weights"],
    )
    return mean_over(score, dim, weights, nan)


def _on_numpy(mu: Any, sigma: Any, shares: Any, y: Any, *, check: bool) -> Any:
    if check:
        check_components(sigma, shares)
    with np.errstate(all="ignore"):
        return _mixed(NUMPY, np.sqrt, mu - y, sigma, shares)


def _on_tensors(mu: Any, sigma: Any, shares: Any, y: Any, *, check: bool) -> Any:
    from ens10.metrics.families._torch import TORCH, safe_root

    if check:
        check_components(sigma.detach(), shares.detach())
    return _mixed(TORCH, safe_root, mu - y, sigma, shares)


_SCORE = Score("crps", "continuous ranked probability score", _on_numpy, _on_tensors)


def _mixed(ops: Any, root: Any, mu: Any, sigma: Any, shares: Any) -> Any:
    """The score of centred means; components first."""
    n = mu.shape[0]
    total = 0.0
    for i in range(n):
        own = shares[i] * _ROOT_2_BY_PI * sigma[i] * math.sqrt(2)  # A(0, sqrt(2) sigma)
        total = total + shares[i] * (_distance(ops, mu[i], sigma[i]) - 0.5 * own)
    for i, j in combinations(range(n), 2):
        both = root(sigma[i] ** 2 + sigma[j] ** 2)
        total = total - shares[i] * shares[j] * _distance(ops, mu[i] - mu[j], both)
    return total


def _distance(ops: Any, d: Any, s: Any) -> Any:
    """E|d + s Z|, and |d| at s = 0."""
    rest = s == 0
    z = d / ops.where(rest, ops.full_like(s, 1.0), s)
    density = ops.exp(-0.5 * z * z) * _ROOT_2_BY_PI
    return ops.where(rest, ops.abs(d), d * ops.erf(z * math.sqrt(0.5)) + s * density)


def check_components(sigma: Any, shares: Any) -> None:
    """Refuse what defines no mixture.

    Raises:
        ArgumentError: a negative sigma, or weights that are negative or do not add up to 1.
    """
    if bool((sigma < 0).any()):
        raise ArgumentError("sigma", f"the lowest is {float(sigma.min()):.6g}", "Give 0 or more")
    if bool((shares < 0).any()):
        raise ArgumentError(
            "component_weights", f"the lowest is {float(shares.min()):.6g}", "Give shares"
        )
    total = shares.sum(0)
    off = abs(total - 1) > _OFF
    if bool(off.any()):
        raise ArgumentError(
            "component_weights",
            f"they add up to {float(total[off].ravel()[0]):.6g}",
            "Divide them by their sum",
        )
