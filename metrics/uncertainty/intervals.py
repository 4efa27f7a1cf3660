"""Confidence intervals over dates, of any statistic of summed states.

A statistic is a pure function of totals, such as sum / weight or a skill score of two such
ratios. Forecasts are compared on the same dates and their totals are resampled together, so that
variations common to both cancel.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import ndtri, stdtrit

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.metrics._dispatch import as_array
from ens10.metrics._sums import ratio
from ens10.metrics.states import check_same_points, finish_mean
from ens10.metrics.uncertainty.resampling import BlockMethod, default_block_length, resample_counts

__all__ = [
    "REPLICATES",
    "Floats",
    "Interval",
    "Method",
    "Sums",
    "blocks_in_words",
    "check_paired_dates",
    "daily_differences",
    "difference_of",
    "interval",
    "mean_of",
    "mean_sums",
    "paired_differences",
    "paired_sums",
    "skill_of",
]

Floats = npt.NDArray[np.float64]
Sums = Mapping[str, Floats]


def paired_sums(states: xr.Dataset, reference: xr.Dataset, name: str) -> dict[str, Floats]:
    """Return the sums and weights of one mean of two forecasts, date by date.

    Args:
        states: states of the forecast, over `time`.
        reference: states of the reference.
        name: name of the mean, such as "crps".

    Returns:
        `sum`, `weight`, `reference_sum`, `reference_weight`, each of shape (n,).

    Raises:
        MissingDataError: dates that only one of them has.
        ArgumentError: the two were scored on different points.
    """
    ref = _on_same_points(states, reference, name)
    return mean_sums(states, name) | {f"reference_{k}": v for k, v in mean_sums(ref, name).items()}


def daily_differences(states: xr.Dataset, reference: xr.Dataset, name: str) -> xr.DataArray:
    """Return the mean score of each date less that of the reference, for `diebold_mariano`.

    Args:
        states: states of the forecast, over `time` and other dimensions (points of a map, bands).
        reference: states of the reference.
        name: name of the mean, such as "crps".

    Returns:
        Differences, negative where the forecast is better; NaN for dates without points. In
        `diebold_mariano` all dates count equally, whatever their weights.

    Raises:
        MissingDataError: dates that only one of them has.
        ArgumentError: the two were scored on different points.
    """
    ref = _on_same_points(states, reference, name)
    other = finish_mean(ref, name).assign_coords(states[f"{name}_sum"].coords)
    difference: xr.DataArray = finish_mean(states, name) - other
    return difference.assign_attrs(states[f"{name}_sum"].attrs).rename(f"{name}_difference")


def paired_differences(score: xr.DataArray, reference: xr.DataArray) -> xr.DataArray:
    """Return scores less those of a reference on the same dates and points; lazy where they are.

    Args:
        score: scores of the forecast, over `time` and other dimensions.
        reference: scores of the reference; its dates may be in another order.

    Returns:
        Negative where the forecast is better.

    Raises:
        MissingDataError: dates that only one of them has.
        ArgumentError: other dimensions or coordinates.
    """
    check_paired_dates(score, reference)
    if set(score.dims) != set(reference.dims):
        raise ArgumentError(
            "reference", f"it is over {reference.dims}, the score over {score.dims}"
        )
    other = reference.sel(time=score["time"])
    try:
        _, other = xr.align(score, other, join="exact")
    except ValueError as error:
        raise ArgumentError("reference", f"other coordinates than the score ({error})") from error
    units = {k: v for k, v in score.attrs.items() if k == "units"}
    difference: xr.DataArray = score - other
    return difference.drop_attrs().assign_attrs(units)


def _on_same_points(states: xr.Dataset, reference: xr.Dataset, name: str) -> xr.Dataset:
    check_paired_dates(states, reference)
    ref = reference.sel(time=states["time"])
    check_same_points(states, ref, name)
    return ref


def check_paired_dates(
    forecast: xr.Dataset | xr.DataArray, reference: xr.Dataset | xr.DataArray
) -> None:
    """Refuse a comparison of forecasts with different dates.

    Raises:
        MissingDataError: dates that only one of them has; it names them.
    """
    dates, reference_dates = forecast["time"].to_numpy(), reference["time"].to_numpy()
    unpaired = [
        f"{str(t)[:19]} (only in the forecast)" for t in np.setdiff1d(dates, reference_dates)
    ]
    unpaired += [
        f"{str(t)[:19]} (only in the reference)" for t in np.setdiff1d(reference_dates, dates)
    ]
    if unpaired:
        raise MissingDataError("paired dates", unpaired, "Score both forecasts on the same dates")


def mean_sums(states: xr.Dataset, name: str) -> dict[str, Floats]:
    """Return `sum` and `weight` of one mean, date by date, each of shape (n,)."""
    return {part: states[f"{name}_{part}"].to_numpy() for part in ("sum", "weight")}


def mean_of_sums(s: Sums) -> Floats:
    """Return sum / weight; NaN where the weight is 0."""
    return ratio(s["sum"], s["weight"])


mean_of = mean_of_sums


def difference_of(s: Sums) -> Floats:
    """Return the mean of the forecast less that of the reference; below 0 if better."""
    return mean_of_sums(s) - ratio(s["reference_sum"], s["reference_weight"])


def skill_of(s: Sums) -> Floats:
    """Return the skill score 1 - mean / reference mean; 1 is perfect, 0 equals the reference."""
    return 1.0 - ratio(mean_of_sums(s), ratio(s["reference_sum"], s["reference_weight"]))


Method = Literal["bootstrap", "moving", "stationary", "student"]
Statistic = Callable[[Sums], Floats]
REPLICATES = 2000


@dataclass(frozen=True)
class Interval:
    """A value with its confidence bounds; the bounds are NaN for fewer than two dates.

    Attributes:
        value: value of the statistic.
        lower: lower bound.
        upper: upper bound.
        block_length: dates in a block of the bootstrap; None without blocks.
    """

    value: float
    lower: float
    upper: float
    block_length: float | None = None


def interval(
    sums: Sums | npt.ArrayLike,
    statistic: Statistic = mean_of_sums,
    *,
    method: Method = "bootstrap",
    confidence: float = 0.95,
    seed: int = 0,
    replicates: int = REPLICATES,
    block_length: float | Literal["auto"] | None = None,
) -> Interval:
    """Compute a statistic of totals over dates, with confidence bounds.

    "bootstrap", "moving" and "stationary" draw blocks of consecutive dates with replacement, which
    keeps the dependence of neighbouring dates, and take percentiles; `resample_counts` describes
    their differences. They need tens of dates. Blocks cut some of the dependence, and their
    variance is uncertain: where the length is automatic, the percentiles' distances from the value
    are widened for both. The variance V(b) of blocks of b dates, closed form of the circular
    bootstrap, becomes (2 V(b) - V(b / 2)) / (1 - b / n), and never less than V(b) / (1 - b / n)
    (the flat-top kernel of Politis and Romano 1995, doi:10.1111/j.1467-9892.1995.tb00223.x), and
    the normal quantile becomes that of Student's t with n / b - 1 degrees of freedom. For a given
    length they are plain percentiles, which are too narrow for strongly dependent dates.

    "student" is Student's t on the n jackknife pseudo-values (Miller 1974,
    doi:10.1093/biomet/61.1.1), which for a mean of equally weighted dates, and for the difference
    of two of them, is the (paired) t interval exactly; it takes dates as independent, for few.

    Args:
        sums: additive states by name, each of shape (n,), one entry per date, in time order; or an
            array of one value per date, of which dates with NaN do not count (`sum`, `weight`).
        statistic: function from totals of shape (...,) to values of that shape, such as sum /
            weight, the default; it is not called with single dates, so that it takes no mean.
        method: "bootstrap" (circular blocks), "moving", "stationary" or "student".
        confidence: nominal coverage of the interval.
        seed: seed of the resampling; the same seed draws the same dates for every statistic.
        replicates: number of resampled data sets.
        block_length: dates in a block, of "stationary" on average; None or "auto" for
            `default_block_length` of the influence of each date on the statistic: of a mean its
            own series, of a paired difference that of the differences.

    Returns:
        The value and its bounds; bounds are NaN for one date, or where the value is NaN.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import interval
        >>> daily = np.array([1.0, 1.2, 0.9, 1.4, 1.1, 0.8])
        >>> mean = interval(daily, method="student")
        >>> round(mean.value, 3), round(mean.lower, 3), round(mean.upper, 3)
        (1.067, 0.84, 1.293)
        >>> squares = {"sum": daily**2, "weight": np.ones(6)}
        >>> rms = interval(squares, lambda s: np.sqrt(s["sum"] / s["weight"]), method="student")
        >>> round(rms.value, 3)
        1.085

    Raises:
        UnknownNameError: an unknown method.
        ArgumentError: no sums, or of different numbers of dates; a confidence outside (0, 1); a
            block length below 1, or with which fixed blocks hold all dates; a statistic that does
            not return one value for each total.
    """
    if method not in get_args(Method):
        raise UnknownNameError("method", method, get_args(Method))
    if not 0.0 < confidence < 1.0:
        raise ArgumentError("confidence", f"expected a number between 0 and 1, got {confidence}")
    if not isinstance(sums, Mapping):
        daily = as_array(sums, dtype=np.float64)
        sums = {"sum": np.where(np.isnan(daily), 0.0, daily), "weight": ~np.isnan(daily)}
    sums = {name: as_array(values, dtype=np.float64) for name, values in sums.items()}
    n = _dates(sums)
    totals = {name: np.repeat(values.sum(), 2) for name, values in sums.items()}
    if n and (shape := np.shape(statistic(totals))) != (2,):
        reason = f"returned shape {shape} for totals of shape (2,)"
        remedy = "It takes sums over dates: use sum / weight in place of a mean over dates"
        raise ArgumentError("statistic", reason, remedy)
    value = float(statistic({k: v.sum() for k, v in sums.items()})) if n else np.nan
    if n < 2 or np.isnan(value):
        return Interval(value, np.nan, np.nan)
    if method == "student":
        half = _student_half_width(sums, statistic, confidence)
        return Interval(value, value - half, value + half)
    influence = None if _is_number(block_length, n, method) else _jackknife(sums, statistic)
    length = block_length if influence is None else default_block_length(influence, method=method)
    length = float(length)  # type: ignore[arg-type]
    times = resample_counts(n, replicates, length, np.random.default_rng(seed), method=method)
    with np.errstate(invalid="ignore"):  # of a date without a finite value
        draws = statistic({k: times @ v for k, v in sums.items()})
    tail = 50.0 * (1.0 - confidence)
    lower, upper = (
        np.nanpercentile(draws, [tail, 100.0 - tail]) if _any_finite(draws) else (np.nan,) * 2
    )
    if influence is not None:
        widening = _widening(influence, length, confidence)
        lower, upper = (value + widening * (bound - value) for bound in (lower, upper))
    return Interval(value, float(lower), float(upper), length)


def blocks_in_words(intervals: Iterable[Interval | None]) -> str:
    """Describe the block lengths of intervals for a caption: "blocks of 4 to 9 dates, ..."."""
    lengths = sorted({i.block_length for i in intervals if i and i.block_length is not None})
    if not lengths:
        return "no blocks"
    span = " to ".join(f"{length:.3g}" for length in dict.fromkeys((lengths[0], lengths[-1])))
    return f"blocks of {span} date{'' if span == '1' else 's'}, by the dependence of the dates"


def _dates(sums: Sums) -> int:
    sizes = {name: np.shape(values) for name, values in sums.items()}
    if not sizes or len(set(sizes.values())) > 1 or len(next(iter(sizes.values()))) != 1:
        raise ArgumentError("sums", f"expected one entry a date in each, got shapes {sizes}")
    return int(next(iter(sizes.values()))[0])


def _is_number(length: float | str | None, n: int, method: BlockMethod) -> bool:
    """Return True if the block length is a valid number, False for None or "auto"."""
    if length is None or length == "auto":
        return False
    if isinstance(length, str):
        raise UnknownNameError("block_length", length, ["auto"])
    if length >= n and method != "stationary":
        raise ArgumentError(
            "block_length", f"{length} dates leave one block in {n} dates", "Pass a smaller number"
        )
    return True


def _widening(influence: Floats, length: float, confidence: float) -> float:
    """Return the factor, at least 1, that widens percentiles of blocks to the nominal coverage."""
    n, blocks = influence.size, influence.size / length
    if not np.isfinite(influence).all():
        return 1.0
    centred = influence - influence.mean()
    circular = np.fft.irfft(np.abs(np.fft.rfft(centred)) ** 2, n)

    def variance(b: int) -> float:
        lags = np.arange(1, b)
        return float(circular[0] + 2.0 * np.sum((1.0 - lags / b) * circular[1:b]))

    full_variance, half_variance = (variance(max(1, round(length / part))) for part in (1, 2))
    inflation = max(1.0, 2.0 - half_variance / full_variance) if full_variance > 0 else 1.0
    level = 0.5 + confidence / 2
    quantiles = stdtrit(max(2.0, blocks - 1.0), level) / ndtri(level)
    return float(np.sqrt(inflation / (1.0 - 1.0 / blocks)) * quantiles)


def _jackknife(sums: Sums, statistic: Statistic) -> Floats:
    """Return the statistic with each date left out in turn (jackknife)."""
    with np.errstate(invalid="ignore"):  # of a date without a finite value
        return statistic({k: v.sum() - v for k, v in sums.items()})


def _student_half_width(sums: Sums, statistic: Statistic, confidence: float) -> float:
    jackknife = _jackknife(sums, statistic)
    n = jackknife.size
    # The pseudo-values n value - (n - 1) jackknife spread as jackknife does, n - 1 times as far.
    deviation = (n - 1) * float(np.std(jackknife, ddof=1))
    return float(stdtrit(n - 1, 0.5 + confidence / 2)) * deviation / float(np.sqrt(n))


def _any_finite(values: Floats) -> bool:
    return bool(np.isfinite(values).any())
