"""Mixtures of normal distributions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._labels import check_alike
from ens10.metrics._ops import ops_of
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.distributions.base import CORE, QUANTILE_STATISTICS, Distribution
from ens10.metrics.distributions.formula import Parameter, check_domain
from ens10.metrics.distributions.inversion import invert_cdf

_ROOT_2_BY_PI = math.sqrt(2 / math.pi)
_FAR = 40.0  # a z beyond which 1 - Phi(z) is 0 in float64
_TOLERANCE = 1e-5  # how far a sum of weights may be from 1
_LOG_ROOT_TAU = 0.5 * math.log(math.tau)


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
    score = apply(
        _SCORE,
        {"mu": mu, "sigma": sigma, "component_weights": component_weights, "y": y},
        _component_axes(component_weights, component_dim),
        options={"check": check},
        attrs={"family": "normal mixture"},
        unlike=["component_weights"],
    )
    return mean_over(score, dim, weights, nan)


def log_score_normal_mixture(
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
    """Return the logarithmic score of mixtures of normals, minus the logarithm of the density.

    The density is sum_i w_i phi((y - mu_i) / sigma_i) / sigma_i. The largest term is taken out of
    the logarithm, so that the score is finite where all densities underflow. Tensors are
    differentiable.

    Args:
        mu: means of the components; any shape with a component axis.
        sigma: their standard deviations, above 0, same shape.
        component_weights: weights of the components, as for `crps_normal_mixture`.
        y: observations, without the component axis.
        component_dim: the component axis of mu and sigma: a number for arrays, a name for
            DataArrays.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: True to refuse invalid parameters.

    Returns:
        The scores in nats, as an array of the input's type.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import log_score_normal_mixture
        >>> mu, sigma, shares = np.array([-1.0, 1.0]), np.ones(2), np.full(2, 0.5)
        >>> round(float(log_score_normal_mixture(mu, sigma, shares, 0.0, component_dim=0)), 4)
        1.4189

    Raises:
        ArgumentError: a sigma of 0 or less, weights that are negative or do not add up to 1 (on
            lazy arrays when computed), arrays that do not match.
    """
    arrays = {"mu": mu, "sigma": sigma, "component_weights": component_weights, "y": y}
    score = _apply_method("log_score", "logarithmic score", arrays, component_dim, check)
    return mean_over(score, dim, weights, nan)


def pit_normal_mixture(
    mu: Any,
    sigma: Any,
    component_weights: Any,
    y: Any,
    *,
    component_dim: Dim,
    check: bool = True,
) -> Any:
    """Return the PIT of mixtures of normals, sum_i w_i Phi((y - mu_i) / sigma_i).

    Args:
        mu: means of the components; any shape with a component axis.
        sigma: their standard deviations, above 0, same shape.
        component_weights: weights of the components, as for `crps_normal_mixture`.
        y: observations, without the component axis.
        component_dim: the component axis of mu and sigma: a number for arrays, a name for
            DataArrays.
        check: True to refuse invalid parameters.

    Returns:
        Values in [0, 1], as an array of the input's type; tensors are differentiable.

    Raises:
        ArgumentError: a sigma of 0 or less, weights that are negative or do not add up to 1 (on
            lazy arrays when computed), arrays that do not match.
    """
    arrays = {"mu": mu, "sigma": sigma, "component_weights": component_weights, "y": y}
    return _apply_method("pit", "probability integral transform", arrays, component_dim, check)


def quantile_normal_mixture(
    mu: Any,
    sigma: Any,
    component_weights: Any,
    level: Any,
    *,
    component_dim: Dim,
    check: bool = True,
) -> Any:
    """Return quantiles of mixtures of normals, by Newton's method within brackets.

    Args:
        mu: means of the components; any shape with a component axis.
        sigma: their standard deviations, above 0, same shape.
        component_weights: weights of the components, as for `crps_normal_mixture`.
        level: a probability in [0, 1], or an array of one for each point.
        component_dim: the component axis of mu and sigma: a number for arrays, a name for
            DataArrays.
        check: True to refuse invalid parameters.

    Returns:
        Quantiles in the unit of `mu`, as an array of the input's type; of tensors without
        gradient.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import quantile_normal_mixture
        >>> mu, sigma, shares = np.array([-2.0, 2.0]), np.ones(2), np.full(2, 0.5)
        >>> round(float(quantile_normal_mixture(mu, sigma, shares, 0.5, component_dim=0)), 3)
        0.0

    Raises:
        ArgumentError: a level outside [0, 1], a sigma of 0 or less, weights that are negative or
            do not add up to 1 (on lazy arrays when computed), arrays that do not match.
    """
    arrays = {"mu": mu, "sigma": sigma, "component_weights": component_weights, "level": level}
    return _apply_method("quantile", "quantile", arrays, component_dim, check)


def _apply_method(
    name: str, long_name: str, arrays: dict[str, Any], component_dim: Dim, check: bool
) -> Any:
    """Apply "log_score", "pit" or "quantile" of `NormalMixture` to arrays of any library."""
    unlike = ["component_weights", "level"]
    check_alike(arrays, [key for key in arrays if key not in unlike])
    kernel = partial(_method_on_points, name)
    is_quantile = name == "quantile"
    score = Score(name, long_name, kernel, None if is_quantile else kernel, units=is_quantile)
    core = _component_axes(arrays["component_weights"], component_dim)
    attrs = {"family": "normal mixture"}
    return apply(score, arrays, core, options={"check": check}, attrs=attrs, unlike=unlike)


def _method_on_points(name: str, mu: Any, sigma: Any, shares: Any, at: Any, *, check: bool) -> Any:
    ops = ops_of(mu)
    if check:
        check_components(ops.detach(sigma), ops.detach(shares))
        check_domain("sigma", "positive", ops.detach(sigma))
        if name == "quantile" and bool(((at < 0) | (at > 1)).any()):
            raise ArgumentError("level", "some are not probabilities from 0 to 1")
    mu, sigma, shares, at = _broadcast_components(ops.broadcast_to, mu, sigma, shares, at)
    # a field of one row, with the points as its columns
    row = (mu.reshape(len(mu), 1, -1), sigma.reshape(len(mu), 1, -1))
    forecast = NormalMixture(*row, shares.reshape(len(mu), 1, -1), positive=True)
    points = ops.double_like(at, at).reshape(1, -1)
    methods = {"log_score": forecast.log_score, "pit": forecast.cdf}
    with np.errstate(all="ignore"):  # logarithms of weights of 0, quantiles of level 0
        result = methods.get(name, forecast._quantile_at)(points)
    return ops.cast(result, mu).reshape(at.shape)


def _component_axes(component_weights: Any, component_dim: Dim) -> dict[str, list[Dim]]:
    """Return the component axis of each array; weights may have that axis alone."""
    alone = getattr(component_weights, "ndim", 1) == 1 and isinstance(component_dim, int)
    axes: dict[str, list[Dim]] = {"mu": [component_dim], "sigma": [component_dim]}
    return axes | {"component_weights": [0 if alone else component_dim]}


def _on_numpy(mu: Any, sigma: Any, shares: Any, y: Any, *, check: bool) -> Any:
    from ens10.metrics.distributions._mixture_loops import scores_and_gradients

    if check:
        check_components(sigma, shares)
    mu, sigma, shares, y = _broadcast_components(np.broadcast_to, mu, sigma, shares, y)
    return scores_and_gradients(mu, sigma, shares, y)[0].astype(mu.dtype, copy=False)


def _on_tensors(mu: Any, sigma: Any, shares: Any, y: Any, *, check: bool) -> Any:
    import torch

    from ens10.metrics._ops_torch import TORCH
    from ens10.metrics.distributions._torch import CompiledMixture

    if check:
        check_components(sigma.detach(), shares.detach())
    mu, sigma, shares, y = _broadcast_components(torch.broadcast_to, mu, sigma, shares, y)
    if mu.device.type == "cpu" and not torch.compiler.is_compiling():
        return CompiledMixture.apply(mu, sigma, shares, y)  # type: ignore[no-untyped-call]
    if mu.device.type == "mps":  # which has no float64
        return crps_of_components(TORCH, mu, sigma, shares, y)
    return crps_of_components(TORCH, *(t.double() for t in (mu, sigma, shares, y))).to(mu.dtype)


def _broadcast_components(broadcast: Any, mu: Any, sigma: Any, shares: Any, y: Any) -> Any:
    """Broadcast the components to (K, ...) and the observations to (...)."""
    shape = np.broadcast_shapes(mu.shape, sigma.shape, shares.shape, (1, *y.shape))
    return (*(broadcast(part, shape) for part in (mu, sigma, shares)), broadcast(y, shape[1:]))


_SCORE = Score("crps", "continuous ranked probability score", _on_numpy, _on_tensors)


def crps_of_components(ops: Any, mu: Any, sigma: Any, shares: Any, y: Any) -> Any:
    """Return the score in operations that autograd and compilers can trace, components first.

    A difference of the two means of distances cancels where a far component has a small share;
    here each pair adds w_i w_j (A_i + A_j - A_ij) / 2 >= 0, with A = |d| + s a(|d| / s), so that
    the distances themselves are subtracted exactly: they leave twice the smaller one, or nothing.
    """
    d = mu - y
    n = d.shape[0]
    excess = [sigma[i] * _overlap(ops, d[i], sigma[i]) for i in range(n)]
    self_distance = 0.5 * math.sqrt(2) * _ROOT_2_BY_PI  # A(0, sqrt(2) sigma) / 2 over sigma
    total = sum(
        shares[i] * shares[i] * (ops.abs(d[i]) + excess[i] - self_distance * sigma[i])
        for i in range(n)
    )
    for i, j in combinations(range(n), 2):
        pair_sigma = _hypotenuse(ops, sigma[i], sigma[j])
        pair_excess = pair_sigma * _overlap(ops, mu[i] - mu[j], pair_sigma)
        same_sign = (d[i] > 0) == (d[j] > 0)
        nearer = ops.where(ops.abs(d[i]) < ops.abs(d[j]), ops.abs(d[i]), ops.abs(d[j]))
        shared = ops.where(same_sign, 2 * nearer, ops.full_like(nearer, 0.0))
        total = total + shares[i] * shares[j] * (shared + excess[i] + excess[j] - pair_excess)
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
    off = abs(total - 1) > _TOLERANCE
    if bool(off.any()):
        raise ArgumentError(
            "component_weights",
            f"they add up to {float(total[off].ravel()[0]):.6g}",
            "Divide them by their sum",
        )


@dataclass(eq=False)
class NormalMixture(Distribution, kind="normal_mixture"):
    """Mixture of K normal distributions at each grid point, independent between points.

    Args:
        mu: means of the components, (..., K, H, W), target units.
        sigma: their standard deviations, above 0, same shape and units.
        component_weights: their weights, 0 or more with sum 1, same shape.
        positive: True if the caller guarantees valid parameters, so that `crps` does not check.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics.distributions import NormalMixture
        >>> mu = np.array([-2.0, 2.0]).reshape(2, 1, 1)
        >>> forecast = NormalMixture(mu, np.ones((2, 1, 1)), np.full((2, 1, 1), 0.5))
        >>> forecast.quantile(np.array([0.25, 0.5, 0.75])).ravel().round(3)
        array([-2.,  0.,  2.])
        >>> forecast.crps(np.zeros((1, 1))).round(3)
        array([[0.734]])

    Raises:
        ArgumentError: the shapes differ, or lack the axis of the components.
    """

    mu: Any
    sigma: Any
    component_weights: Any
    positive: bool = False

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "mu": Parameter(core_dim="component", long_name="means of the components of the forecast"),
        "sigma": Parameter(
            "nonnegative",
            core_dim="component",
            long_name="standard deviations of the components of the forecast",
        ),
        "component_weights": Parameter(
            "nonnegative",
            "1",
            core_dim="component",
            long_name="weights of the components of the forecast",
        ),
    }
    offers = QUANTILE_STATISTICS | {"log_score", "variance", "error", "error2"}

    def __post_init__(self) -> None:
        shape = tuple(self.mu.shape)
        if len(shape) < -CORE:
            raise ArgumentError("mu", f"has shape {shape}, expected (N, K, H, W)")
        for name in ("sigma", "component_weights"):
            if tuple(getattr(self, name).shape) != shape:
                other = tuple(getattr(self, name).shape)
                raise ArgumentError(name, f"has shape {other}, mu {shape}")

    def core_coordinates(self) -> dict[str, Any]:
        """Return the numbers of the components, from 1."""
        return {"component": range(1, self.mu.shape[CORE] + 1)}

    def crps(self, y: Any) -> Any:
        """Return the CRPS in closed form, by `crps_normal_mixture`."""
        return crps_normal_mixture(
            self.mu, self.sigma, self.component_weights, y,
            component_dim=CORE, check=not self.positive,
        )  # fmt: skip

    def log_score(self, y: Any) -> Any:
        """Return minus the logarithm of the density."""
        ops, least = self.ops, None
        terms = []
        for mu, sigma, share in self._components():
            z = (self._as_field(y) - mu) / sigma
            terms.append(0.5 * z * z + _LOG_ROOT_TAU + ops.log(sigma) - ops.log(share))
            least = terms[-1] if least is None else ops.minimum(least, terms[-1])
        return least - ops.log(sum(ops.exp(least - term) for term in terms))

    @property
    def mean(self) -> Any:
        """Return the expectation."""
        return (self.component_weights * self.mu).sum(CORE)

    @property
    def variance(self) -> Any:
        """Return the variance."""
        deviation = self.mu - self.mean[..., None, :, :]
        return (self.component_weights * (self.sigma**2 + deviation**2)).sum(CORE)

    @property
    def std(self) -> Any:
        """Return the standard deviation."""
        return self.ops.sqrt(self.variance)

    def cdf(self, y: Any) -> Any:
        """Return the probability of a value of at most `y`."""
        ops, at = self.ops, self._as_field(y)
        terms = (share * ops.ndtr((at - mu) / sigma) for mu, sigma, share in self._components())
        return ops.minimum(sum(terms), 1.0)

    def quantile(self, q: Any) -> Any:
        """Return the quantiles of one probability, or of a vector (Q,) of them."""
        p = self.probabilities(q)
        with np.errstate(all="ignore"):  # infinite quantiles of the probabilities 0 and 1
            return self._quantile_at(p.reshape(*p.shape, *[1] * self.like.ndim))

    def _components(self) -> list[tuple[Any, Any, Any]]:
        """Return (mu, sigma, weight) of each component, fields in float64.

        Weights in single precision add up to 1 only to rounding, so they are divided by their sum.
        """
        ops = self.ops
        mu, sigma, shares = (
            ops.moveaxis(ops.double_like(value, self.like), CORE, 0)
            for value in self.values_by_name.values()
        )
        return list(zip(mu, sigma, shares / shares.sum(0), strict=True))

    def _quantile_at(self, p: Any) -> Any:
        """Return quantiles by iteration.

        The quantile of a mixture lies between the lowest and the highest of its components'.
        """
        ops, parts = self.ops, self._components()
        z = ops.ndtri(p)
        each = [mu + sigma * z for mu, sigma, _ in parts]
        low, high = each[0], each[0]
        for one in each[1:]:
            low, high = ops.minimum(low, one), ops.maximum(high, one)
        start = sum(share * one for (_, _, share), one in zip(parts, each, strict=True))

        def cdf_and_density(at: Any) -> tuple[Any, Any]:
            level, slope = 0.0 * at, 0.0 * at
            for mu, sigma, share in parts:
                distance = (at - mu) / sigma
                level = level + share * ops.ndtr(distance)
                slope = slope + share / sigma * ops.exp(-0.5 * distance * distance - _LOG_ROOT_TAU)
            return level, slope

        return ops.cast(invert_cdf(ops, cdf_and_density, p, (low, high), start), self.like)
