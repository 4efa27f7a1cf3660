"""Forecasts whose quantile functions are Bernstein polynomials."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._ops import ops_of
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.distributions.base import CORE, clip
from ens10.metrics.distributions.formula import Parameter
from ens10.metrics.distributions.quantiles import StoredAsQuantiles

# Between halvings by 6 the polynomial is nearly a line, so that Newton's steps double the digits.
# The error of the CRPS is the square of the root's.
_HALVINGS, _NEWTON = 6, 8


@dataclass(eq=False)
class Bernstein(StoredAsQuantiles):
    """Quantile function q(u) = sum_k a_k B_k(u) of degree d (Bremnes 2020).

    doi:10.1175/MWR-D-19-0227.1. B_k are the d + 1 Bernstein polynomials. The support is
    [a_0, a_d]; outside it the logarithmic score is infinite, so that it is not useful here.

    Args:
        coefficients: a_0 to a_d, non-decreasing, (..., d + 1, H, W), target units.

    Raises:
        ArgumentError: wrong dimensions, or a degree of 0.
    """

    coefficients: Any

    parameters: ClassVar = {"coefficients": Parameter(core_dim="coefficient")}

    def __post_init__(self) -> None:
        shape = tuple(self.coefficients.shape)
        if len(shape) < 3 or shape[CORE] < 2:
            raise ArgumentError("coefficients", f"has shape {shape}, expected (N, d + 1, H, W)")

    @property
    def _degree(self) -> int:
        return int(self.coefficients.shape[CORE]) - 1

    def crps(self, y: Any) -> Any:
        """Return the CRPS, a closed form given the root u of q(u) = y.

        2 int (1{v > u} - v) (q(v) - y) dv is sum_k (a_k - y) w_k(u). Its derivative by u is 0, so
        that the gradient with respect to the coefficients is w, without a gradient of the root.
        """
        return self.twcrps(y, -math.inf, math.inf)

    def twcrps(self, y: Any, lower: float, upper: float) -> Any:
        """Return the threshold-weighted CRPS, a closed form given three roots of q."""
        ops = self.ops
        clipped = clip(ops, y, lower, upper)
        zero = ops.full_like(ops.detach(clipped), 0.0)
        at = self._root(ops.detach(clipped))
        low = self._root(zero + lower) if math.isfinite(lower) else zero
        high = self._root(zero + upper) if math.isfinite(upper) else zero + 1
        weights = self._basis_integrals(at, high) - self._basis_moments(low, high)
        gaps = self.coefficients - clipped[..., None, :, :]
        score = (gaps * weights).sum(axis=CORE) * 2
        if math.isfinite(lower):
            score = score + (clipped - lower) * low**2
        if math.isfinite(upper):
            score = score + (upper - clipped) * (1 - high) ** 2
        return score

    @property
    def mean(self) -> Any:
        """Return the mean, which is that of the coefficients."""
        return self.coefficients.mean(axis=CORE)

    @property
    def std(self) -> Any:
        """Return the standard deviation, from integrals of products of Bernstein polynomials."""
        ops, d = self.ops, self._degree
        gram = [
            [math.comb(d, j) * math.comb(d, k) / (math.comb(2 * d, j + k) * (2 * d + 1))
             for k in range(d + 1)]
            for j in range(d + 1)
        ]  # fmt: skip
        a = ops.double_like(self.coefficients - self.mean[..., None, :, :], self.coefficients)
        products = ops.einsum("jk,...khw->...jhw", ops.cast(np.array(gram), a), a)
        square = (a * products).sum(axis=CORE)
        return ops.cast(ops.sqrt(ops.maximum(square, 0.0)), self.coefficients)

    def cdf(self, y: Any) -> Any:
        """Return the root u of q(u) = y; 0 below the support, 1 above."""
        return self._root(self._as_field(y))

    def quantile(self, q: Any) -> Any:
        """Return the quantiles: the polynomial at `q`."""
        p = self.ops.cast(self.probabilities(q), self.coefficients)
        if p.ndim == 0:
            return self._quantile_at(p + 0 * self.like)
        return self.ops.stack([self._quantile_at(level + 0 * self.like) for level in p], 0)

    def _quantile_at(self, p: Any) -> Any:
        """Return the polynomial at probabilities (..., *field)."""
        u = self.ops.cast(p, self.coefficients)
        extra = u.ndim - self.coefficients.ndim + 1
        if not extra:
            return polynomial(self.coefficients, u)
        return self.ops.stack([self._quantile_at(one) for one in u], 0)

    def _root(self, y: Any) -> Any:
        """Solve q(u) = y by bisection, then Newton's method within the bracket."""
        ops, d = self.ops, self._degree
        # less y, so that large common parts go before rounding
        a = ops.detach(self.coefficients - y[..., None, :, :])
        slopes = d * (a[..., 1:, :, :] - a[..., :-1, :, :])
        u, low, high = (ops.full_like(a[..., 0, :, :], v) for v in (0.5, 0.0, 1.0))
        for n in range(_HALVINGS + _NEWTON):
            value = polynomial(a, u)
            low, high = ops.where(value < 0, u, low), ops.where(value > 0, u, high)
            middle = 0.5 * (low + high)
            if n < _HALVINGS:
                u = ops.where(value == 0, u, middle)
                continue
            slope = polynomial(slopes, u)
            step = u - value / ops.where(slope > 0, slope, 1.0)
            inside = (step >= low) & (step <= high) & (slope > 0)
            u = ops.where(inside | (value == 0), step, middle)
        u = ops.where(a[..., 0, :, :] > 0, 0.0, ops.where(a[..., -1, :, :] <= 0, 1.0, u))
        return ops.where(ops.isnan(a).any(axis=CORE), float("nan"), u)

    def _basis_integrals(self, at: Any, high: Any) -> Any:
        """Return the integrals of B_k from `at` to `high`, (..., d + 1, H, W)."""
        ops, d = self.ops, self._degree
        beyond = ops.cumsum(basis(d + 1, at), CORE) - ops.cumsum(basis(d + 1, high), CORE)
        return beyond[..., : d + 1, :, :] / (d + 1)

    def _basis_moments(self, low: Any, high: Any) -> Any:
        """Return the integrals of u B_k from `low` to `high`, (..., d + 1, H, W)."""
        ops, d = self.ops, self._degree
        beyond = ops.cumsum(basis(d + 2, low), CORE) - ops.cumsum(basis(d + 2, high), CORE)
        k = ops.cast(np.arange(1, d + 2)[:, None, None], low)
        return beyond[..., 1 : d + 2, :, :] * k / ((d + 1) * (d + 2))


def polynomial(a: Any, u: Any) -> Any:
    """Return sum_k a_k B_k(u) of a (..., d + 1, H, W) at u (..., H, W), by a Horner scheme."""
    d, complement, power = a.shape[CORE] - 1, 1 - u, 1.0 + 0 * u
    total = a[..., 0, :, :]
    for k in range(1, d + 1):
        power = power * u
        total = total * complement + (math.comb(d, k) * power) * a[..., k, :, :]
    return total


def basis(d: int, u: Any) -> Any:
    """Return the Bernstein polynomials of degree d at u (..., H, W): (..., d + 1, H, W)."""
    powers, complements = [1.0 + 0 * u], [1.0 + 0 * u]
    for _ in range(d):
        powers.append(powers[-1] * u)
        complements.append(complements[-1] * (1 - u))
    pairs = zip(powers, reversed(complements), strict=True)
    return ops_of(u).stack([math.comb(d, k) * x * y for k, (x, y) in enumerate(pairs)], CORE)


def crps_bernstein(
    coefficients: Any,
    y: Any,
    *,
    coefficient_dim: Dim,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of Bernstein quantile functions (Bremnes 2020).

    doi:10.1175/MWR-D-19-0227.1.

    The forecast's quantile function is q(u) = sum_k a_k B_k(u), with the d + 1 Bernstein
    polynomials of degree d and non-decreasing coefficients. The score 2 int (1{y <= q} - u)
    (q - y) du is exact: with q(u*) = y, solved by bisection and Newton's method, it is
    y (2 u* - 1) + 2 int_u*^1 q du - 2 int_0^1 u q du. Gradients of tensors are analytic. If all
    coefficients are equal, the score is the absolute error of that point forecast.

    Args:
        coefficients: a_0 to a_d along their axis, in the unit of y.
        y: observations, without that axis.
        coefficient_dim: the axis of the coefficients: a number for arrays, a name for DataArrays.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: True to refuse coefficients that decrease.

    Returns:
        The scores, in the unit of `y`, as an array of the input's type.

    Raises:
        ArgumentError: coefficients that decrease (on lazy arrays when computed), arrays that do not
            fit each other.
    """
    score = apply(
        _SCORE,
        {"coefficients": coefficients, "y": y},
        {"coefficients": [coefficient_dim]},
        options={"check": check},
    )
    return mean_over(score, dim, weights, nan)


def _score(a: Any, y: Any, *, check: bool) -> Any:
    """Compute the score of coefficients (d + 1, ...) in float64; return it in their dtype."""
    ops = ops_of(a)
    if check:
        check_coefficients(ops.detach(a))
    shape = np.broadcast_shapes(a.shape[1:], y.shape)
    wide, observed = (ops.double_like(v, a) for v in (a, y))
    wide = (wide + 0 * observed).reshape(a.shape[0], 1, -1)
    observed = (observed + 0 * wide[0].reshape(shape)).reshape(1, -1)
    return ops.cast(Bernstein(wide).crps(observed), a).reshape(shape)


_SCORE = Score("crps", "continuous ranked probability score", _score, _score)


def check_coefficients(a: Any) -> None:
    """Refuse coefficients whose quantile function may decrease.

    Raises:
        ArgumentError: a coefficient lies below the one before it.
    """
    falls = a[1:] < a[:-1]
    if falls.any():
        raise ArgumentError(
            "coefficients",
            f"{int(falls.any(axis=0).sum())} quantile functions have coefficients that fall",
            "Use increments of 0 or more, such as a cumulative sum of softplus",
        )
