"""The few functions that formulas are written in, for numpy and for torch."""

from typing import Any, Protocol

import numpy as np
from scipy import special


class Ops(Protocol):
    """Elementwise functions by the names of numpy; arrays of one dtype in, the same out."""

    def exp(self, x: Any) -> Any: ...
    def expm1(self, x: Any) -> Any: ...
    def log(self, x: Any) -> Any: ...
    def log1p(self, x: Any) -> Any: ...
    def sqrt(self, x: Any) -> Any: ...
    def abs(self, x: Any) -> Any: ...
    def sign(self, x: Any) -> Any: ...
    def maximum(self, x: Any, y: Any) -> Any: ...
    def minimum(self, x: Any, y: Any) -> Any: ...
    def where(self, condition: Any, x: Any, y: Any) -> Any: ...
    def full_like(self, x: Any, value: float) -> Any: ...
    def isfinite(self, x: Any) -> Any: ...

    def some(self, condition: Any) -> bool:
        """Whether it holds anywhere; True where looking would wait for a device."""

    def tanh(self, x: Any) -> Any: ...

    def ndtr(self, x: Any) -> Any:
        """Standard normal distribution function."""

    def log_ndtr(self, x: Any) -> Any:
        """Its logarithm, accurate far below 0."""

    def erf(self, x: Any) -> Any: ...

    def erfcx(self, x: Any) -> Any:
        """exp(x^2) erfc(x), which does not vanish far above 0."""

    def expit(self, x: Any) -> Any:
        """The logistic distribution function 1 / (1 + exp(-x))."""

    def softplus(self, x: Any) -> Any:
        """log(1 + exp(x)), without overflow."""

    def gammaln(self, x: Any) -> Any: ...
    def digamma(self, x: Any) -> Any: ...

    def gammainc(self, a: Any, x: Any) -> Any:
        """Regularised lower incomplete gamma function P(a, x)."""


class _NumpyOps:
    exp, expm1, log, log1p, sqrt = np.exp, np.expm1, np.log, np.log1p, np.sqrt
    abs, sign, maximum, minimum, where = np.abs, np.sign, np.maximum, np.minimum, np.where
    full_like, isfinite, tanh = np.full_like, np.isfinite, np.tanh
    ndtr, log_ndtr, erf, expit = special.ndtr, special.log_ndtr, special.erf, special.expit
    erfcx = special.erfcx
    gammaln, digamma, gammainc = special.gammaln, special.psi, special.gammainc

    @staticmethod
    def some(condition: Any) -> bool:
        return bool(np.any(condition))

    @staticmethod
    def softplus(x: Any) -> Any:
        return np.logaddexp(np.zeros((), dtype=x.dtype), x)


# The class itself: an instance would bind those of its functions that are written in Python.
NUMPY: Any = _NumpyOps
