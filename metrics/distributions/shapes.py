"""Standard distributions (location 0, scale 1, symmetric) from which bounded families are built.

Each provides its functions in forms that neither cancel nor overflow where a bound is far from 0,
so that everything else is written once for the normal and the logistic distribution.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

TERMS = 12  # of the Taylor series of a density in a narrow window
# exact for polynomials of degree 17: the product of two series whose terms fall like 0.3^n / n!
_NODES, _WEIGHTS = (a.tolist() for a in np.polynomial.legendre.leggauss(9))

_CLOSE = 0.5  # a distance over the scale at which the quadrature is exact to rounding


class Window(NamedTuple):
    """An interval [lower, upper] of a standard variable with lower + upper >= 0, and a z in it.

    Args:
        z: a point.
        lower: may be -inf.
        upper: may be inf.
        d: z - lower, computed without cancellation.
        w: upper - lower, computed without cancellation.
    """

    z: Any
    lower: Any
    upper: Any
    d: Any
    w: Any


class Parts(NamedTuple):
    """Distribution function G, densities and moments of a standard variable Z within a window.

    Args:
        r: the point that the moments are about, near the mass of Z.
        to_z: z - r, computed without cancellation like the next two.
        to_lower: lower - r.
        to_upper: upper - r.
        level: log density of Z at r.
        cdf: G(z).
        below: E[(Z - r); Z <= z].
        mean: E[Z - r].
        square: E[(Z - r)^2]; None where it has no closed form.
        gini: integral of G (1 - G), half the mean difference of two draws.
        at_lower: density of Z at the lower bound.
        at_upper: at the upper one.
    """

    r: Any
    to_z: Any
    to_lower: Any
    to_upper: Any
    level: Any
    cdf: Any
    below: Any
    mean: Any
    square: Any
    gini: Any
    at_lower: Any
    at_upper: Any


class Shape(Protocol):
    """A standard distribution: distribution function F, density f and functions of them."""

    def cdf(self, ops: Any, x: Any, /) -> Any:
        """F(x)."""

    def log_cdf(self, ops: Any, x: Any, /) -> Any:
        """Log F(x)."""

    def log_density(self, ops: Any, x: Any, /) -> Any:
        """Log f(x)."""

    def log_ratio(self, ops: Any, r: Any, d: Any, /) -> Any:
        """Log f(r + d) / f(r), r >= 0."""

    def slope(self, ops: Any, x: Any, /) -> Any:
        """-f'(x) / f(x)."""

    def hazard(self, ops: Any, x: Any, /) -> Any:
        """f(x) / (1 - F(x))."""

    def partial_mean(self, ops: Any, x: Any, /) -> Any:
        """-E[X; X <= x], which is even in x and 0 at both ends."""

    def square_part(self, ops: Any, x: Any, /) -> Any:
        """The integral of F^2 up to x, less x F(x)^2."""

    def square_integral(self, ops: Any, x: Any, /) -> Any:
        """The integral of F^2 up to x, less x where that is positive; relatively exact below 0."""

    def central_parts(self, ops: Any, window: Window, /) -> Parts:
        """Return the `Parts` of a window that contains 0 and is not narrow."""

    def tail_parts(self, ops: Any, window: Window, /) -> Parts:
        """Return the `Parts` of a window above 0 that is not narrow."""

    def far_slope(self, ops: Any, r: Any, k: Any, /) -> tuple[Any, Any]:
        """Return the derivative by mu of a score in a tail, and where its exact form cancels.

        There the distribution is exponential up to terms in 1 / r^2; k is the derivative by the
        scale of the score with bounds at 0.
        """

    def is_narrow(self, ops: Any, middle: Any, h: Any, /) -> Any:
        """Return True if `TERMS` coefficients are enough for a window of half width h."""

    def taylor(self, ops: Any, middle: Any, h: Any, /) -> list[Any]:
        """Return the coefficients of f(middle + h t) / f(middle) in powers of t."""


def times(ops: Any, factor: Any, x: Any) -> Any:
    """Return factor * x, and 0 where the factor is 0 and x is infinite."""
    return ops.where(factor == 0, factor, factor * x)


def narrow_parts(ops: Any, shape: Shape, window: Window, middle: Any, h: Any) -> Parts:
    """Return the `Parts`, from the Taylor series of the density about the middle of the window.

    Args:
        ops: numpy or torch.
        shape: the standard distribution.
        window: the window, 2 h wide.
        middle: the middle of the window.
        h: half its width, small enough for `shape.is_narrow`.
    """
    density = shape.taylor(ops, middle, h)
    c = [density[n] / (n + 1) for n in range(TERMS)]
    total = 2 * sum(c[0::2])
    moments = [
        2 * sum(density[n] / (n + power + 1) for n in range(power % 2, TERMS, 2))
        for power in (1, 2)
    ]
    t = window.d / h - 1
    start = _horner(c, -1.0)  # less the antiderivative at -1
    first = [density[n] / (n + 2) for n in range(TERMS)]
    gini: Any = 0.0
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        g = (node * _horner(c, node) + start) / total
        gini = gini + weight * g * (1 - g)
    return Parts(
        r=middle,
        to_z=h * t,
        to_lower=-h,
        to_upper=h,
        level=-ops.log(total * h),
        cdf=(t * _horner(c, t) + start) / total,
        below=h * (t * t * _horner(first, t) - _horner(first, -1.0)) / total,
        mean=h * moments[0] / total,
        square=h * h * moments[1] / total,
        gini=h * gini,
        at_lower=_horner(density, -1.0) / (total * h),
        at_upper=_horner(density, 1.0) / (total * h),
    )


def square_between(
    ops: Any, shape: Shape, ends: tuple[Any, Any], scaled_ends: tuple[Any, Any], scale: Any
) -> Any:
    """Return the integral of F((x - mu) / scale)^2 over x between two ends.

    A difference of `Shape.square_integral` cancels where the ends are close; there a quadrature is
    used. Linear terms stay in the unit of x.

    Args:
        ops: numpy or torch.
        shape: the standard distribution.
        ends: the lower one less mu and the upper one less mu.
        scaled_ends: both divided by the scale; the lower one may be -inf.
        scale: above 0.
    """
    (first, last), (lo, hi) = ends, scaled_ends
    gap = last - first
    zero = ops.full_like(gap, 0.0)
    linear = ops.where(lo >= 0, gap, ops.where(last > 0, last, zero))
    linear = ops.where(last == last, linear, last)
    change = shape.square_integral(ops, hi) - shape.square_integral(ops, lo)
    integral = linear + scale * change
    close = gap < _CLOSE * scale
    if ops.any_true(close):
        start, width = ops.where(close, lo, zero), ops.where(close, gap / scale, zero)
        mean: Any = 0.0
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            mean = mean + 0.5 * weight * shape.cdf(ops, start + 0.5 * (node + 1) * width) ** 2
        integral = ops.where(close, gap * mean, integral)
    return integral


def _horner(coefficients: list[Any], x: Any) -> Any:
    total = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total
