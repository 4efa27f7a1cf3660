"""The block length of a bootstrap, from the dependence that the dates have."""

from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.uncertainty.resampling import BlockMethod

_FEWEST = 8  # dates; with fewer nothing can be said of their dependence


def automatic_block_length(series: npt.ArrayLike, *, method: BlockMethod = "stationary") -> float:
    """The block length with the least mean squared error of the variance of the mean.

    b = (2 G^2 / D)^(1/3) n^(1/3), with G = sum |k| R(k) and, of g = sum R(k), D = 2 g^2 for the
    stationary and 4/3 g^2 for the circular and moving bootstraps; the autocovariances R(k) are
    weighted by a flat-top window as wide as twice the last lag at which they matter.
    Politis and White 2004 (doi:10.1081/ETC-120028836), with the correction of Patton, Politis and
    White 2009 (doi:10.1080/07474930802459016).

    Args:
        series: shape (n,), such as the daily differences of two forecasts, in time's order.
        method: "stationary" (a mean length), or "bootstrap" or "moving", rounded to whole dates.

    Returns:
        At least 1, and at most 3 sqrt(n) and n / 3, rounded up; 1 for a constant series.

    Raises:
        UnknownNameError: another method.
        ArgumentError: fewer than 8 dates, missing ones, or not one axis.
    """
    if method not in get_args(BlockMethod):
        raise UnknownNameError("method", method, get_args(BlockMethod))
    x = np.asarray(series, dtype=np.float64)
    if x.ndim != 1 or x.size < _FEWEST or not np.isfinite(x).all():
        raise ArgumentError(
            "series",
            f"expected {_FEWEST} or more dates along one axis, none missing, got shape {x.shape}",
            "Give block_length a number",
        )
    n = x.size
    if x.min() == x.max():
        return 1.0
    quiet = max(5, int(np.sqrt(np.log10(n))))
    covariance = _autocovariances(x, min(n - 1, int(np.ceil(np.sqrt(n))) + quiet))
    width = _bandwidth(covariance, n, quiet)
    lags = np.arange(1, width + 1)
    weights = np.minimum(1.0, 2.0 * (1.0 - lags / width))
    G = 2.0 * float(np.sum(weights * lags * covariance[1 : width + 1]))
    g = float(covariance[0] + 2.0 * np.sum(weights * covariance[1 : width + 1]))
    D = (2.0 if method == "stationary" else 4.0 / 3.0) * g**2
    most = float(np.ceil(min(3.0 * np.sqrt(n), n / 3.0)))
    length = min(most, (2.0 * G**2 / D * n) ** (1.0 / 3.0)) if D > 0 else most
    return max(1.0, length) if method == "stationary" else float(max(1, round(length)))


def _autocovariances(x: npt.NDArray[np.float64], lags: int) -> npt.NDArray[Any]:
    n, centred = x.size, x - x.mean()
    return np.array([centred[: n - k] @ centred[k:] / n for k in range(lags + 1)])


def _bandwidth(covariance: npt.NDArray[Any], n: int, quiet: int) -> int:
    """Twice the last lag before `quiet` lags in a row whose correlations could be noise."""
    bound = 2.0 * np.sqrt(np.log10(n) / n)
    noise = np.abs(covariance[1:] / covariance[0]) < bound
    most = int(noise.size)
    for m in range(most - quiet + 1):
        if noise[m : m + quiet].all():
            return min(2 * max(m, 1), most)
    loud = np.flatnonzero(~noise)
    return min(2 * (int(loud[-1]) + 1), most) if loud.size else 2
