"""Block bootstraps: how often each date is drawn, and the length of the blocks."""

from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._dispatch import as_array, refuse_datasets

BlockMethod = Literal["bootstrap", "moving", "stationary"]
Floats = npt.NDArray[np.float64]


def resample_counts(
    n: int,
    replicates: int,
    block_length: float,
    rng: np.random.Generator,
    *,
    method: BlockMethod = "bootstrap",
) -> Floats:
    """Return how often each of n dates is drawn in each replicate of a block bootstrap.

    - "bootstrap": circular blocks, the first date follows the last (Politis and Romano 1992);
      every date is drawn as often as any other.
    - "moving": blocks that lie within the dates (Kuensch 1989, doi:10.1214/aos/1176347265); the
      first and last dates are drawn less often.
    - "stationary": circular blocks of geometric length (Politis and Romano 1994,
      doi:10.1080/01621459.1994.10476870); the drawn series are stationary, and results depend
      less on the block length.

    Args:
        n: number of dates.
        replicates: number of resampled data sets.
        block_length: dates in a block, a whole number; for "stationary" their mean, 1 or more.
        rng: random generator.
        method: "bootstrap", "moving" or "stationary".

    Returns:
        Shape (replicates, n); each row adds up to n.

    Raises:
        UnknownNameError: an unknown method.
        ArgumentError: a block length below 1, not whole, or above n for "moving"; no replicates.
    """
    if method not in get_args(BlockMethod):
        raise UnknownNameError("method", method, get_args(BlockMethod))
    length = float(block_length)
    if not length >= 1 or replicates < 1:
        raise ArgumentError(
            "replicates" if length >= 1 else "block_length", "expected a number of 1 or more"
        )
    if method == "stationary":
        dates = _stationary_blocks(n, replicates, length, rng)
    else:
        if length != int(length) or (method == "moving" and length > n):
            raise ArgumentError(
                "block_length", f"expected a whole number of at most {n} dates, got {block_length}"
            )
        dates = _fixed_blocks(n, replicates, int(length), rng, circular=method == "bootstrap")
    flat = dates + n * np.arange(replicates)[:, None]
    return np.bincount(flat.ravel(), minlength=n * replicates).reshape(replicates, n).astype(float)


def _fixed_blocks(
    n: int, replicates: int, length: int, rng: np.random.Generator, *, circular: bool
) -> npt.NDArray[np.intp]:
    first = n if circular else n - length + 1
    starts = rng.integers(first, size=(replicates, -(-n // length)))
    dates = (starts[..., None] + np.arange(length)).reshape(replicates, -1)[:, :n]
    wrapped: npt.NDArray[np.intp] = dates % n
    return wrapped


def _stationary_blocks(
    n: int, replicates: int, length: float, rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    """Draw dates that follow the previous one, or begin a block with probability 1 / length."""
    begins = rng.random((replicates, n)) < 1.0 / length
    begins[:, 0] = True
    starts = rng.integers(n, size=(replicates, n))
    position = np.arange(n)
    last = np.maximum.accumulate(np.where(begins, position, 0), axis=1)
    dates: npt.NDArray[np.intp] = (np.take_along_axis(starts, last, axis=1) + position - last) % n
    return dates


_FEWEST = 8  # dates; the dependence of fewer cannot be estimated
_ROUNDING = 1e-12  # relative spread of a series that is constant


def automatic_block_length(series: npt.ArrayLike, *, method: BlockMethod = "stationary") -> float:
    """Return the block length that minimises the mean squared error of the variance of the mean.

    b = (2 G^2 / D)^(1/3) n^(1/3), with G = sum |k| R(k) and, of g = sum R(k), D = 2 g^2 for the
    stationary and 4/3 g^2 for the circular and moving bootstraps; the autocovariances R(k) are
    weighted by a flat-top window of twice the first lag from which on five lags are insignificant.
    Politis and White 2004 (doi:10.1081/ETC-120028836), with the correction of Patton, Politis and
    White 2009 (doi:10.1080/07474930802459016). The paper's window ends one lag earlier; that of R's
    `np::b.star`, of Python's `arch` and here is closer to the best length in short series.

    Args:
        series: shape (n,), such as the daily differences of two forecasts, in time order.
        method: "stationary" (a mean length), or "bootstrap" or "moving", rounded to whole dates.

    Returns:
        At least 1, and at most 3 sqrt(n) and n / 3, rounded up; 1 for a constant series.

    Raises:
        UnknownNameError: an unknown method.
        ArgumentError: fewer than 8 dates, missing ones, or not one axis.
    """
    if method not in get_args(BlockMethod):
        raise UnknownNameError("method", method, get_args(BlockMethod))
    refuse_datasets({"series": series})
    x = as_array(series, dtype=np.float64)
    if x.ndim != 1 or x.size < _FEWEST or not np.isfinite(x).all():
        raise ArgumentError(
            "series",
            f"expected {_FEWEST} or more dates along one axis, none missing, got shape {x.shape}",
            "Pass block_length as a number",
        )
    return _flat_top_length(x, method, further_lags=1)


def _flat_top_length(x: Floats, method: BlockMethod, further_lags: int) -> float:
    """Return the length of `automatic_block_length`.

    Args:
        x: shape (n,).
        method: as there.
        further_lags: lags that the window reaches beyond the last significant one: 0 as in the
            paper, or 1.
    """
    n = x.size
    if x.min() == x.max():
        return 1.0
    run = max(5, int(np.sqrt(np.log10(n))))
    covariance = _autocovariances(x, min(n - 1, int(np.ceil(np.sqrt(n))) + run))
    width = _bandwidth(covariance, n, run, further_lags)
    lags = np.arange(1, width + 1)
    weights = np.minimum(1.0, 2.0 * (1.0 - lags / width))
    G = 2.0 * float(np.sum(weights * lags * covariance[1 : width + 1]))
    g = float(covariance[0] + 2.0 * np.sum(weights * covariance[1 : width + 1]))
    D = (2.0 if method == "stationary" else 4.0 / 3.0) * g**2
    length = (2.0 * G**2 / D * n) ** (1.0 / 3.0) if D > 0 else np.inf
    return _within_bounds(length, n, method)


def default_block_length(series: npt.ArrayLike, *, method: BlockMethod = "bootstrap") -> float:
    """Return the default block length of confidence intervals.

    It is the larger of two estimates of the optimal length: that of Politis and White (2004; with
    the paper's window, see `automatic_block_length`), and that of an autoregressive series of order
    1 with the lag-1 correlation r of the dates, corrected for its bias in short series by (1 + 4 r)
    / n (Andrews 1991, doi:10.2307/2938229, eq. 6.4). For tens of dates the first estimate treats
    correlations at lag 2 as noise and is too short.

    Dates count in their order: for dates with gaps, such as those of one season in several years,
    the few neighbours on both sides of a gap weaken the correlation as they do in the mean.

    Args:
        series: shape (n,), the influence of each date on the statistic, in time order: for a
            difference of two forecasts their daily differences.
        method: "stationary" (a mean length), or "bootstrap" or "moving", whole dates.

    Returns:
        At least 1, and at most 3 sqrt(n) and n / 3, rounded up; 1 for a series that is constant to
        rounding; the cube root of n, which needs no estimate, below 8 dates or with missing ones.

    Raises:
        UnknownNameError: an unknown method.
    """
    refuse_datasets({"series": series})
    x = as_array(series, dtype=np.float64)
    n = x.size
    if n < _FEWEST or not np.isfinite(x).all():
        return float(max(1, round(float(np.cbrt(n)))))
    if np.ptp(x) <= _ROUNDING * np.abs(x).max():
        return 1.0
    # the window of the paper, on which the intervals of all kept results rest
    automatic = _flat_top_length(x, method, further_lags=0)
    covariance = _autocovariances(x, 1)
    r = float(covariance[1] / covariance[0])
    r = min(max(0.0, r + (1.0 + 4.0 * r) / n), 0.97)
    ratio = 2.0 * r / (1.0 - r**2)  # G / g of the autoregressive series
    length = ((1.0 if method == "stationary" else 1.5) * ratio**2 * n) ** (1.0 / 3.0)
    return max(automatic, _within_bounds(length, n, method))


def _within_bounds(length: float, n: int, method: BlockMethod) -> float:
    length = min(length, float(np.ceil(min(3.0 * np.sqrt(n), n / 3.0))))
    return max(1.0, length) if method == "stationary" else float(max(1, round(length)))


def _autocovariances(x: npt.NDArray[np.float64], lags: int) -> npt.NDArray[Any]:
    n, centred = x.size, x - x.mean()
    return np.array([centred[: n - k] @ centred[k:] / n for k in range(lags + 1)])


def _bandwidth(covariance: npt.NDArray[Any], n: int, run: int, further_lags: int) -> int:
    """Return twice the last lag before `run` consecutive lags without significant correlation."""
    bound = 2.0 * np.sqrt(np.log10(n) / n)
    noise = np.abs(covariance[1:] / covariance[0]) < bound
    most = int(noise.size)
    for m in range(most - run + 1):
        if noise[m : m + run].all():
            return min(2 * max(m + further_lags, 1), most)
    significant = np.flatnonzero(~noise)
    return min(2 * (int(significant[-1]) + 1), most) if significant.size else 2
