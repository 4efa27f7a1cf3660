"""Confidence intervals over dates, of any statistic of summed states.

A statistic is a pure function of totals, such as sum / weight or a skill score of two such
ratios. Forecasts are compared on the same dates, so that what both find hard cancels: the totals
of both are resampled together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import stdtrit

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError

Method = Literal["bootstrap", "student"]
Floats = npt.NDArray[np.float64]
Sums = Mapping[str, Floats]
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
    block_length: int | None = None,
) -> Interval:
    """A statistic of the totals over dates, with confidence bounds.

    "bootstrap" draws circular blocks of consecutive dates with replacement (Politis and Romano
    1992) and takes percentiles; blocks keep the dependence of neighbouring dates. It needs tens
    of dates. "student" is Student's t on the n jackknife pseudo-values (Miller 1974,
    doi:10.1093/biomet/61.1.1), which for a mean of equally weighted dates, and for the difference
    of two of them, is the (paired) t interval exactly; it takes dates as independent, for few.

    Args:
        sums: additive states by name, each of shape (n,), one entry a date, in time's order.
        statistic: from totals of shape (...,) to values of that shape.
        method: "bootstrap" or "student".
        confidence: probability that the interval is meant to cover the truth.
        seed: of the resampling; the same seed draws the same dates for every statistic.
        replicates: resampled data sets.
        block_length: dates in a block; None for `default_block_length`.

    Raises:
        UnknownNameError: another method.
        ArgumentError: a confidence outside (0, 1), or a block length below 1.
    """
    if method not in get_args(Method):
        raise UnknownNameError("method", method, get_args(Method))
    if not 0.0 < confidence < 1.0:
        raise ArgumentError("confidence", f"expected a number between 0 and 1, got {confidence}")
    n = next(iter(sums.values())).size
    value = float(statistic({k: v.sum() for k, v in sums.items()})) if n else np.nan
    if n < 2:
        return Interval(value, np.nan, np.nan)
    if method == "student":
        half = _student_half_width(sums, statistic, confidence)
        return Interval(value, value - half, value + half)
    times = resample_counts(n, replicates, block_length, np.random.default_rng(seed))
    drawn = statistic({k: times @ v for k, v in sums.items()})
    tail = 50.0 * (1.0 - confidence)
    lower, upper = np.nanpercentile(drawn, [tail, 100.0 - tail]) if _some(drawn) else (np.nan,) * 2
    return Interval(value, float(lower), float(upper))


def default_block_length(n: int) -> int:
    """Dates in a block for n dates: the cube root of n, the best growth (Kuensch 1989)."""
    return max(1, round(float(np.cbrt(n))))


def resample_counts(
    n: int, replicates: int, block_length: int | None, rng: np.random.Generator
) -> Floats:
    """How often each of n dates is drawn, by a circular block bootstrap.

    Returns:
        Shape (replicates, n); each row adds up to n.

    Raises:
        ArgumentError: a block length below 1 or no replicates.
    """
    length = default_block_length(n) if block_length is None else block_length
    if length < 1 or replicates < 1:
        raise ArgumentError(
            "block_length" if length < 1 else "replicates", "expected a whole number of 1 or more"
        )
    starts = rng.integers(n, size=(replicates, -(-n // length)))
    dates = (starts[..., None] + np.arange(length)).reshape(replicates, -1)[:, :n] % n
    flat = dates + n * np.arange(replicates)[:, None]
    return np.bincount(flat.ravel(), minlength=n * replicates).reshape(replicates, n).astype(float)


def _student_half_width(sums: Sums, statistic: Statistic, confidence: float) -> float:
    n = next(iter(sums.values())).size
    left_out = statistic({k: v.sum() - v for k, v in sums.items()})
    # The pseudo-values n value - (n - 1) left_out spread as left_out does, n - 1 times as far.
    deviation = (n - 1) * float(np.std(left_out, ddof=1))
    return float(stdtrit(n - 1, 0.5 + confidence / 2)) * deviation / float(np.sqrt(n))


def _some(values: Floats) -> bool:
    return bool(np.isfinite(values).any())


def paired_sums(states: xr.Dataset, reference: xr.Dataset, name: str) -> dict[str, Floats]:
    """The states of one mean of two forecasts, date by date.

    Args:
        states: of the forecast, over `time`.
        reference: of the other.
        name: of the mean, such as "crps".

    Returns:
        `sum`, `weight`, `reference_sum`, `reference_weight`, each of shape (n,).

    Raises:
        MissingDataError: dates that only one of them has.
        ArgumentError: the two were scored on different points.
    """
    check_paired_dates(states, reference)
    ref = reference.sel(time=states["time"])
    for part in ("count", "weight"):
        if not np.allclose(states[f"{name}_{part}"], ref[f"{name}_{part}"], rtol=1e-9):
            raise ArgumentError(
                "reference",
                f"its {name} has other points than the forecast's (their {part}s differ)",
                "Mask the truth where either is missing, and weight both alike",
            )
    return mean_sums(states, name) | {f"reference_{k}": v for k, v in mean_sums(ref, name).items()}


def check_paired_dates(forecast: xr.Dataset, reference: xr.Dataset) -> None:
    """Refuse a comparison of forecasts of different dates.

    Raises:
        MissingDataError: dates that only one of them has; it names them.
    """
    mine, other = forecast["time"].to_numpy(), reference["time"].to_numpy()
    unpaired = [f"{str(t)[:19]} (only in the forecast)" for t in np.setdiff1d(mine, other)]
    unpaired += [f"{str(t)[:19]} (only in the reference)" for t in np.setdiff1d(other, mine)]
    if unpaired:
        raise MissingDataError("paired dates", unpaired, "Score both forecasts on the same dates")


def mean_sums(states: xr.Dataset, name: str) -> dict[str, Floats]:
    """The states of one mean, date by date: `sum` and `weight`, each of shape (n,)."""
    return {part: states[f"{name}_{part}"].to_numpy() for part in ("sum", "weight")}


def mean_of(s: Sums) -> Floats:
    """Sum over weight; NaN where no weight is."""
    return _ratio(s["sum"], s["weight"])


def difference_of(s: Sums) -> Floats:
    """Mean of the forecast less that of the reference; below 0 the forecast is better."""
    return mean_of(s) - _ratio(s["reference_sum"], s["reference_weight"])


def skill_of(s: Sums) -> Floats:
    """Skill score 1 - mean / reference's mean; 1 is perfect, 0 no better than the reference."""
    return 1.0 - _ratio(mean_of(s), _ratio(s["reference_sum"], s["reference_weight"]))


def _ratio(above: Floats, below: Floats) -> Floats:
    above, below = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    empty = np.full(np.broadcast_shapes(above.shape, below.shape), np.nan)
    np.divide(above, below, out=empty, where=below != 0)
    return empty
