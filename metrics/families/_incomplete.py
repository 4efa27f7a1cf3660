"""The derivative of the regularised incomplete gamma function by its shape."""

from typing import Any

import numpy as np
from scipy import special

_MOST_TERMS = 200_000


def gammainc_by_shape(a: Any, x: Any) -> Any:
    """dP(a, x)/da for a > 0 and any x, with an absolute error near 1e-15.

    From P(a, x) = g sum_n x^n / ((a + 1) ... (a + n)), g = x^a e^-x / Gamma(a + 1), term by
    term; all terms are positive. Where P is 0 or 1 to rounding the derivative is 0.

    Args:
        a: shapes, float64 arrays.
        x: of the same shape.
    """
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    result = np.where(np.isnan(a) | np.isnan(x), np.nan, 0.0)
    inside = (x > 0) & (x < a + 9 * np.sqrt(a) + 45)
    if inside.any():
        result[inside] = _series(a[inside], x[inside])
    return result


def _series(a: Any, x: Any) -> Any:
    slope = np.log(x) - special.psi(a + 1)
    term = np.exp(a * np.log(x) - x - special.gammaln(a + 1))
    total = term * slope
    harmonic = np.zeros_like(a)
    for n in range(1, _MOST_TERMS):
        term = term * (x / (a + n))
        harmonic += 1 / (a + n)
        more = term * (slope - harmonic)
        total += more
        if np.all((np.abs(more) <= 1e-18) & (x < a + n)):
            break
    return total
