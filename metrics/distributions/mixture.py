"""Mixtures of normal distributions."""

import math
from itertools import combinations
from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.distributions.formula import NUMPY

_ROOT_2_BY_PI = math.sqrt(2 / math.pi)
_FAR = 40.0  # a z beyond which 1 - Phi(z) is 0 in float64
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
    """Return the CRPS of mixtures of normal distributions.

    sum_i w_i A(y - mu_i, sigma_i) - 1/2 sum_ij w_i w_j A(mu_i - mu_j, hypot(sigma_i, sigma_j)),
    where A(d, s) = d (2 Phi(d / s) - 1) + 2 s phi(d / s) is E|d + s Z| (Grimit et al. 2006,
    doi:10.1256/qj.05.235). It is computed in float64 as 1/2 sum_ij w_i w_j (A_i + A_j - A_ij),
    which is the same for weights of sum 1, and of which no term is negative: the two sums cancel
    where a far component has a small share. Gradients by the weights differ by a constant from
    those of the first form. Where all sigma are 0 it is the weighted mean of |y - mu_i| less half
    the mean absolute difference of the components. Gradients of tensors are finite for every
    sigma >= 0.

    Args:
        mu: means of the components; any shape with a component axis.
        sigma: their standard deviations, 0 or more, same shape.
        component_weights: weights of the components, 0 or more with sum 1; same shape, or with the
            component axis only (for DataArrays: that dimension).
        y: observations, without the component axis.
        component_dim: the component axis of mu and sigma: a number for arrays, a name for
            DataArrays. Memory and time grow with the square of the components.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: True to refuse a negative sigma, negative weights or weights whose sum is not 1.

    Returns:
        The scores, in the unit of `mu`, as an array of the input's type.

    Raises:
        ArgumentError: a negative sigma, negative weights or weights whose sum is not 1 (on lazy
            arrays when computed), arrays that do not match.
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
    wide = (np.asarray(v, np.float64) for v in (mu, sigma, shares, y))
    with np.errstate(all="ignore"):
        return _crps_of_components(NUMPY, *wide).astype(mu.dtype, copy=False)


def _on_tensors(mu: Any, sigma: Any, shares: Any, y: Any, *, check: bool) -> Any:
    from ens10.metrics.distributions._torch import TORCH

    if check:
        check_components(sigma.detach(), shares.detach())
    if mu.device.type == "mps":  # which has no float64
        return _crps_of_components(TORCH, mu, sigma, shares, y)
    return _crps_of_components(TORCH, *(t.double() for t in (mu, sigma, shares, y))).to(mu.dtype)


_SCORE = Score("crps", "continuous ranked probability score", _on_numpy, _on_tensors)


def _crps_of_components(ops: Any, mu: Any, sigma: Any, shares: Any, y: Any) -> Any:
    """Return the score, with the component axis first.

    A difference of the two means of distances cancels where a far component has a small share;
    here each pair adds w_i w_j (A_i + A_j - A_ij) / 2 >= 0, with A = |d| + s a(|d| / s), so that
    the distances themselves are subtracted exactly: they leave twice the smaller one, or nothing.
    """
    d = mu - y
    n = d.shape[0]
    excess = [sigma[i] * _overlap(ops, d[i], sigma[i]) for i in range(n)]
    at_rest = 0.5 * math.sqrt(2) * _ROOT_2_BY_PI  # A(0, sqrt(2) sigma) / 2 over sigma
    total = sum(
        shares[i] * shares[i] * (ops.abs(d[i]) + excess[i] - at_rest * sigma[i]) for i in range(n)
    )
    for i, j in combinations(range(n), 2):
        both = _hypotenuse(ops, sigma[i], sigma[j])
        apart = both * _overlap(ops, mu[i] - mu[j], both)
        alike = (d[i] > 0) == (d[j] > 0)
        nearer = ops.where(ops.abs(d[i]) < ops.abs(d[j]), ops.abs(d[i]), ops.abs(d[j]))
        shared = ops.where(alike, 2 * nearer, ops.full_like(nearer, 0.0))
        total = total + shares[i] * shares[j] * (shared + excess[i] + excess[j] - apart)
    return total


def _hypotenuse(ops: Any, a: Any, b: Any) -> Any:
    """Return sqrt(a^2 + b^2) without overflow; its gradient at 0 is 0."""
    larger = ops.where(a > b, a, b)
    smaller = ops.where(a > b, b, a)
    none = larger == 0
    ratio = smaller / ops.where(none, ops.full_like(larger, 1.0), larger)
    return larger * ops.sqrt(1 + ratio * ratio)


def _overlap(ops: Any, d: Any, s: Any) -> Any:
    """Return (E|d + s Z| - |d|) / s = 2 phi(z) - 2 z (1 - Phi(z)) at z = |d| / s."""
    size = ops.abs(d)
    far = (size > _FAR * s) | (s == 0)
    z = ops.where(far, ops.full_like(s, 0.0), size) / ops.where(far, ops.full_like(s, 1.0), s)
    scaled = _ROOT_2_BY_PI - z * ops.erfcx(z * math.sqrt(0.5))
    near = ops.where(far, ops.full_like(z, 0.0), ops.exp(-0.5 * z * z) * scaled)
    return ops.where((d != d) | (s != s), d + s, near)


def check_components(sigma: Any, shares: Any) -> None:
    """Refuse invalid standard deviations or weights of a mixture.

    Raises:
        ArgumentError: a negative sigma, or weights that are negative or do not add up to 1.
    """
    if bool((sigma < 0).any()):
        raise ArgumentError("sigma", f"the lowest is {float(sigma.min()):.6g}", "Pass 0 or more")
    if bool((shares < 0).any()):
        raise ArgumentError(
            "component_weights", f"the lowest is {float(shares.min()):.6g}", "Pass 0 or more"
        )
    total = shares.sum(0)
    off = abs(total - 1) > _OFF
    if bool(off.any()):
        raise ArgumentError(
            "component_weights",
            f"they add up to {float(total[off].ravel()[0]):.6g}",
            "Divide them by their sum",
        )
