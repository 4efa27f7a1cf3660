"""Forecasts that are quantile functions written in Bernstein polynomials."""

from typing import Any

import numpy as np
from scipy import special

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._reduce import Over, mean_over

_BISECTIONS = 60
_binomials: Any = special.comb  # which has no type hints


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
    """CRPS of Bernstein quantile functions (Bremnes 2020, doi:10.1175/MWR-D-19-0227.1).

    The forecast's quantile function is q(u) = sum_k a_k B_k(u), with the d + 1 Bernstein
    polynomials of degree d and coefficients that do not fall. The score 2 int (1{y <= q} - u)
    (q - y) du is exact: with q(u*) = y, which is found by bisection, it is y (2 u* - 1) +
    2 int_u*^1 q du - 2 int_0^1 u q du. Gradients of tensors are analytic; coefficients that are
    all equal are the point forecast, whose score is the distance.

    Args:
        coefficients: a_0 to a_d along their axis, in the unit of y.
        y: observations, without that axis.
        coefficient_dim: the axis of the coefficients: a number for arrays, a name for DataArrays.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse coefficients that fall.

    Returns:
        The scores, in the unit of `y`, as the kind of array that was given.

    Raises:
        ArgumentError: coefficients that fall (on lazy arrays when computed), arrays that do not
            fit each other.
    """
    score = apply(
        _SCORE,
        {"coefficients": coefficients, "y": y},
        {"coefficients": [coefficient_dim]},
        options={"check": check},
    )
    return mean_over(score, dim, weights, nan)


def _on_numpy(a: Any, y: Any, *, check: bool) -> Any:
    return value_and_slopes(a, y, check)[0]


def _on_tensors(a: Any, y: Any, *, check: bool) -> Any:
    from ens10.metrics.families._torch import bernstein

    return bernstein(a, y, check)


_SCORE = Score("crps", "continuous ranked probability score", _on_numpy, _on_tensors)


def value_and_slopes(a: Any, y: Any, check: bool) -> tuple[Any, Any, Any]:
    """The score, and its derivatives by the coefficients and by y.

    Args:
        a: coefficients first, (d + 1, ...), numpy arrays.
        y: what broadcasts to (...).
        check: whether coefficients are looked at.
    """
    if check:
        check_coefficients(a)
    dtype = a.dtype
    centred = a.astype(np.float64) - np.asarray(y, np.float64)
    at = _root(centred)
    d = a.shape[0] - 1
    k = np.arange(d + 1).reshape(-1, *[1] * at.ndim)
    above = np.cumsum(_basis(d + 1, at), axis=0)[: d + 1] / (d + 1)  # int_u*^1 B_k
    slopes = 2 * above - 2 * (k + 1) / ((d + 1) * (d + 2))
    value = (centred * slopes).sum(axis=0)
    return value.astype(dtype), slopes.astype(dtype), -slopes.sum(axis=0).astype(dtype)


def _root(centred: Any) -> Any:
    """Where the polynomial changes sign: 0 or 1 where y lies outside the coefficients."""
    low, high = np.zeros(centred.shape[1:]), np.ones(centred.shape[1:])
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        above = (centred * _basis(centred.shape[0] - 1, middle)).sum(axis=0) > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    found = 0.5 * (low + high)
    found = np.where(centred[0] > 0, 0.0, np.where(centred[-1] < 0, 1.0, found))
    equal = (centred[0] == 0) & (centred[-1] == 0)
    return np.where(np.isnan(centred).any(axis=0), np.nan, np.where(equal, 0.5, found))


def _basis(d: int, u: Any) -> Any:
    """The Bernstein polynomials of degree d at u, (d + 1, ...)."""
    k = np.arange(d + 1).reshape(-1, *[1] * u.ndim)
    return _binomials(d, k) * u**k * (1 - u) ** (d - k)


def check_coefficients(a: Any) -> None:
    """Refuse coefficients whose quantile function may fall.

    Raises:
        ArgumentError: a coefficient lies below the one before it.
    """
    falls = a[1:] < a[:-1]
    if falls.any():
        raise ArgumentError(
            "coefficients",
            f"{int(falls.any(axis=0).sum())} quantile functions have coefficients that fall",
            "Give increments of 0 or more, such as a cumulative sum of softplus",
        )
