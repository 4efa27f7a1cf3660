"""Standard distributions (location 0, scale 1, symmetric) of which bounded ones are made.

Each gives its functions in forms that neither cancel nor overflow where a bound is far from 0,
so that everything else can be written once for the normal and the logistic.
"""

from typing import Any, NamedTuple, Protocol

TERMS = 12  # of the Taylor series of a density in a narrow window


class Window(NamedTuple):
    """An interval [lower, upper] of a standard variable with lower + upper >= 0, and a z in it.

    Args:
        z: a point.
        lower: may be -inf.
        upper: may be inf.
        d: z - lower, computed without cancellation.
        w: upper - lower, likewise.
    """

    z: Any
    lower: Any
    upper: Any
    d: Any
    w: Any


class Parts(NamedTuple):
    """What is to know of a standard variable Z within a window, its distribution function G.

    Args:
        r: the point that the moments are about, near the mass of Z.
        to_z: z - r, computed without cancellation.
        to_lower: lower - r, likewise.
        to_upper: upper - r, likewise.
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
    """A standard distribution: F, f, and what follows from them."""

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

    def central(self, ops: Any, window: Window, /) -> Parts:
        """The parts of a window that 0 lies in, and that is not narrow."""

    def tail(self, ops: Any, window: Window, /) -> Parts:
        """The parts of a window above 0 that is not narrow."""

    def far_slope(self, ops: Any, r: Any, k: Any, /) -> tuple[Any, Any]:
        """The derivative by mu of a score in a tail, and where its exact form cancels.

        There the distribution is an exponential one but for 1 / r^2, and k is the derivative by
        the scale that the score would have if the bounds were at 0.
        """

    def is_narrow(self, ops: Any, middle: Any, h: Any, /) -> Any:
        """Whether `TERMS` coefficients are enough for a window of half width h."""

    def taylor(self, ops: Any, middle: Any, h: Any, /) -> list[Any]:
        """Coefficients of f(middle + h t) / f(middle) in powers of t."""


def times(ops: Any, factor: Any, x: Any) -> Any:
    """The product, and 0 where the factor has vanished and x is infinite."""
    return ops.where(factor == 0, factor, factor * x)
