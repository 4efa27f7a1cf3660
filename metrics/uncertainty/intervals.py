"""Confidence intervals over dates, of any statistic of summed states.

A statistic is a pure function of totals, such as sum / weight or a skill score of two such
ratios. Forecasts are compared on the same dates, so that what both find hard cancels: the totals
of both are resampled together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.special import stdtrit

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.uncertainty.block_length import automatic_block_length
from ens10.metrics.uncertainty.pairs import Floats, Sums
from ens10.metrics.uncertainty.resampling import BlockMethod, resample_counts

Method = Literal["bootstrap", "moving", "stationary", "student"]
Statistic = Callable[[Sums], Floats]
REPLICATES = 2000


@dataclass(frozen=True)
class Interval:
    """A value with its confidence bounds; the bounds are NaN where fewer than two dates are."""

    value: float
    lower: float
    upper: float


def interval(
    sums: Sums,
    statistic: Statistic,
    *,
    method: Method = "bootstrap",
    confidence: float = 0.95,
    seed: int = 0,
    replicates: int = REPLICATES,
    block_length: float | Literal["auto"] | None = None,
) -> Interval:
    """A statistic of the totals over dates, with confidence bounds.

    "bootstrap", "moving" and "stationary" draw blocks of consecutive dates with replacement, which
    keeps the dependence of neighbouring dates, and take percentiles; see `resample_counts` for
    what tells them apart. They need tens of dates, and cover a little less than they say where
    dates depend on each other much. "student" is Student's t on the n jackknife pseudo-values
    (Miller 1974, doi:10.1093/biomet/61.1.1), which for a mean of equally weighted dates, and for
    the difference of two of them, is the (paired) t interval exactly; it takes dates as
    independent, for few.

    Args:
        sums: additive states by name, each of shape (n,), one entry a date, in time's order.
        statistic: from totals of shape (...,) to values of that shape.
        method: "bootstrap" (circular blocks), "moving", "stationary" or "student".
        confidence: probability that the interval is meant to cover the truth.
        seed: of the resampling; the same seed draws the same dates for every statistic.
        replicates: resampled data sets.
        block_length: dates in a block, of "stationary" on average; None for
            `default_block_length`, "auto" for `automatic_block_length` of the influence of each
            date on the statistic.

    Returns:
        The value and its bounds; bounds are NaN for one date, or where the value is NaN.

    Raises:
        UnknownNameError: another method.
        ArgumentError: no sums, or of different numbers of dates; a confidence outside (0, 1); a
            block length below 1, or with which fixed blocks hold all dates.
    """
    if method not in get_args(Method):
        raise UnknownNameError("method", method, get_args(Method))
    if not 0.0 < confidence < 1.0:
        raise ArgumentError("confidence", f"expected a number between 0 and 1, got {confidence}")
    sums = {name: np.asarray(values, dtype=np.float64) for name, values in sums.items()}
    n = _dates(sums)
    value = float(statistic({k: v.sum() for k, v in sums.items()})) if n else np.nan
    if n < 2 or np.isnan(value):
        return Interval(value, np.nan, np.nan)
    if method == "student":
        half = _student_half_width(sums, statistic, confidence)
        return Interval(value, value - half, value + half)
    length = _length(block_length, sums, statistic, method)
    times = resample_counts(n, replicates, length, np.random.default_rng(seed), method=method)
    drawn = statistic({k: times @ v for k, v in sums.items()})
    tail = 50.0 * (1.0 - confidence)
    lower, upper = np.nanpercentile(drawn, [tail, 100.0 - tail]) if _some(drawn) else (np.nan,) * 2
    return Interval(value, float(lower), float(upper))


def _dates(sums: Sums) -> int:
    sizes = {name: np.shape(values) for name, values in sums.items()}
    if not sizes or len(set(sizes.values())) > 1 or len(next(iter(sizes.values()))) != 1:
        raise ArgumentError("sums", f"expected one entry a date in each, got shapes {sizes}")
    return int(next(iter(sizes.values()))[0])


def _length(
    given: float | str | None, sums: Sums, statistic: Statistic, method: BlockMethod
) -> float | None:
    if not isinstance(given, str):
        n = _dates(sums)
        if given is not None and given >= n and method != "stationary":
            raise ArgumentError(
                "block_length", f"of blocks of {given} dates, {n} dates hold one", "Give fewer"
            )
        return given
    if given != "auto":
        raise UnknownNameError("block_length", given, ["auto"])
    return automatic_block_length(_left_out(sums, statistic), method=method)


def _left_out(sums: Sums, statistic: Statistic) -> Floats:
    """The statistic without each date in turn."""
    return statistic({k: v.sum() - v for k, v in sums.items()})


def _student_half_width(sums: Sums, statistic: Statistic, confidence: float) -> float:
    left_out = _left_out(sums, statistic)
    n = left_out.size
    # The pseudo-values n value - (n - 1) left_out spread as left_out does, n - 1 times as far.
    deviation = (n - 1) * float(np.std(left_out, ddof=1))
    return float(stdtrit(n - 1, 0.5 + confidence / 2)) * deviation / float(np.sqrt(n))


def _some(values: Floats) -> bool:
    return bool(np.isfinite(values).any())
