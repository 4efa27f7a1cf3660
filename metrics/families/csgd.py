"""The censored, shifted gamma distribution: max(0, G - shift) of a gamma variable G.

Scheuerer and Hamill (2015, doi:10.1175/MWR-D-15-0061.1) use it for precipitation.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import special

from ens10.metrics.families._family import (
    Family,
    cdf_formula,
    crps_formula,
    log_score_formula,
    mean_formula,
    variance_formula,
)
from ens10.metrics.families._formula import Domain
from ens10.metrics.families._incomplete import gammainc_by_shape

PARAMETERS: Mapping[str, Domain] = {
    "shape": "positive",
    "scale": "positive",
    "shift": "nonnegative",
}


def _twice(k: Any) -> Any:
    """K / pi B(1/2, k + 1/2), and its derivative by k."""
    value = k / math.pi * np.exp(special.betaln(0.5, k + 0.5))
    return value, value * (1 / k + special.psi(k + 0.5) - special.psi(k + 1))


def _value(_ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> Any:
    x, c = (np.maximum(y, 0.0) + shift) / scale, shift / scale
    at_y, at_0, next_0 = (special.gammainc(*p) for p in ((k, x), (k, c), (k + 1, c)))
    twice, _ = _twice(k)
    score = (
        x * (2 * at_y - 1)
        - c * at_0**2
        + k * (1 + 2 * at_0 * next_0 - at_0**2 - 2 * special.gammainc(k + 1, x))
        - twice * special.gammaincc(2 * k, 2 * c)
    )
    return scale * score + np.maximum(-y, 0.0)


def _partials(ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> tuple[Any, ...]:
    above = np.maximum(y, 0.0)
    x, c = (above + shift) / scale, shift / scale
    at_y, at_0, next_0 = (special.gammainc(*p) for p in ((k, x), (k, c), (k + 1, c)))
    d_y, d_0, d_next = (gammainc_by_shape(*p) for p in ((k, x), (k, c), (k + 1, c)))
    twice, by_k = _twice(k)
    by_shape = scale * (
        2 * x * d_y
        - 2 * c * at_0 * d_0
        + (1 + 2 * at_0 * next_0 - at_0**2 - 2 * special.gammainc(k + 1, x))
        + 2 * k * (d_0 * next_0 + at_0 * d_next - at_0 * d_0 - gammainc_by_shape(k + 1, x))
        - by_k * special.gammaincc(2 * k, 2 * c)
        + 2 * twice * gammainc_by_shape(2 * k, 2 * c)
    )
    by_above = 2 * at_y - 1
    by_shift = by_above - at_0**2
    # the score is homogeneous of degree 1 in scale, shift and y
    at_support = _value(ops, k, scale, shift, above)
    by_scale = (at_support - shift * by_shift - above * by_above) / scale
    return by_shape, by_scale, by_shift, np.where(y < 0, -1.0 + 0 * y, by_above)


def _cdf(_ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> Any:
    found = special.gammainc(k, (np.maximum(y, 0.0) + shift) / scale)
    return np.where(y < 0, 0.0 * found, found)


def _cdf_below(_ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> Any:
    found = special.gammainc(k, (np.maximum(y, 0.0) + shift) / scale)
    return np.where(y <= 0, 0.0 * found, found)


def _log_score(_ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> Any:
    x = (np.maximum(y, 0.0) + shift) / scale
    density = x - (k - 1) * np.log(x) + special.gammaln(k) + np.log(scale)
    mass = -np.log(special.gammainc(k, shift / scale))
    return np.where(y > 0, density, np.where(y == 0, mass, math.inf)) + 0 * (k + scale + shift + y)


def _log_score_partials(_ops: Any, k: Any, scale: Any, shift: Any, y: Any) -> tuple[Any, ...]:
    x, c = (np.maximum(y, 0.0) + shift) / scale, shift / scale
    by_x = (1 - (k - 1) / x) / scale
    above = (special.psi(k) - np.log(x), (k - 1 - x) / scale + 1 / scale, by_x, by_x)
    mass = special.gammainc(k, c)
    density = np.exp((k - 1) * np.log(c) - c - special.gammaln(k))
    at_0 = (
        -gammainc_by_shape(k, c) / mass,
        density / mass * c / scale,
        -density / mass / scale,
        np.zeros_like(x),
    )
    nothing = np.zeros_like(x)
    pairs = zip(above, at_0, strict=True)
    found = (np.where(y > 0, a, np.where((y == 0) & (c > 0), b, nothing)) for a, b in pairs)
    return tuple(found)


def _mean(_ops: Any, k: Any, scale: Any, shift: Any) -> Any:
    c = shift / scale
    above, following = special.gammaincc(k, c), special.gammaincc(k + 1, c)
    return scale * k * following - shift * above


def _variance(ops: Any, k: Any, scale: Any, shift: Any) -> Any:
    c = shift / scale
    q = [special.gammaincc(k + i, c) for i in range(3)]
    square = scale**2 * k * (k + 1) * q[2] - 2 * shift * scale * k * q[1] + shift**2 * q[0]
    return square - _mean(ops, k, scale, shift) ** 2


_SHAPES = ("shape",)
FAMILY = Family(
    "csgd",
    PARAMETERS,
    crps=crps_formula(PARAMETERS, _value, _partials, unitless=_SHAPES, on_host=True, double=True),
    log_score=log_score_formula(
        PARAMETERS, _log_score, _log_score_partials, unitless=_SHAPES, on_host=True, double=True
    ),
    cdf=cdf_formula(PARAMETERS, _cdf, unitless=_SHAPES, on_host=True, double=True),
    cdf_below=cdf_formula(PARAMETERS, _cdf_below, unitless=_SHAPES, on_host=True, double=True),
    mean=mean_formula(PARAMETERS, _mean, unitless=_SHAPES, double=True),
    variance=variance_formula(PARAMETERS, _variance, unitless=_SHAPES, double=True),
)
