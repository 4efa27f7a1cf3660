"""Calibration of quantiles by past forecasts and their truth, date by date (conformal prediction).

Each quantile of each point gets an offset, which depends only on forecasts whose truth was known
when the forecast started. Methods, for a level tau and scores s = truth - quantile:

- "split": the empirical tau-quantile of past scores, with the correction for a finite sample
  (Romano et al. 2019, arXiv:1905.03222, with one score for each side). If dates are exchangeable,
  the truth is at most the quantile with at least the probability tau (tau > 0.5), and at most tau
  (tau < 0.5).
- "adaptive": the same at a level that grows by `rate` (tau - 1[covered]) after each date (Gibbs and
  Candes 2021, arXiv:2106.00170).
- "pid": the offset itself grows by `rate` b (tau - 1[covered]), b the largest past score ("P"),
  plus a saturated function of the sum of the errors ("I"; Angelopoulos et al. 2023,
  arXiv:2307.16895, without its forecast of scores, "D"). Whatever the sequence, with "P" alone and
  scores of at most b the share of covered dates of T differs from tau by at most
  (1 + rate) / (rate T).
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError

Calibration = Literal["split", "adaptive", "pid"]
Values = npt.NDArray[np.float64]
_RATES = {"split": 0.0, "adaptive": 0.02, "pid": 0.1}
_SATURATION = 5.0  # the integral is unlimited where |sum of errors| reaches this times T / log T


class QuantileOffsets:
    """The offsets of quantiles, updated with each past forecast and its truth.

    Args:
        levels: of the quantiles, (L,), between 0 and 1.
        method: "split", "adaptive" or "pid".
        window: number of past dates that count; None for all.
        rate: of "adaptive" and "pid"; None for 0.02 and 0.1.
        integral: weight of the sum of errors of "pid"; 0 for none.
        bounds: least and largest possible value, such as 0 and inf for precipitation. An offset
            does not grow further where the quantile is at its bound.

    Attributes:
        dates: number of past dates.

    Raises:
        ArgumentError: a level outside (0, 1), a window below 1, or a negative rate.
        UnknownNameError: another method.
    """

    def __init__(
        self,
        levels: Sequence[float],
        method: Calibration = "pid",
        *,
        window: int | None = None,
        rate: float | None = None,
        integral: float = 0.5,
        bounds: tuple[float, float] = (-np.inf, np.inf),
    ) -> None:
        self._levels = np.asarray(levels, np.float64)
        if not ((self._levels > 0) & (self._levels < 1)).all():
            raise ArgumentError("levels", "are not between 0 and 1", "Use 0.1 and 0.9, say")
        if method not in get_args(Calibration):
            raise UnknownNameError("calibration", method, get_args(Calibration))
        if window is not None and window < 1:
            raise ArgumentError("window", f"is {window}", "Give the number of dates that count")
        self._method, self._window, self._integral = method, window, integral
        self._rate = _RATES[method] if rate is None else rate
        if self._rate < 0 or integral < 0:
            raise ArgumentError("rate", "is negative", "Use 0.1, say")
        self.dates, self._bounds = 0, bounds
        self._known: Values | None = None  # offsets by rank, until the next update
        self._scores = list[Values]()
        self._largest: Any = 0.0  # absolute score of the dates that count
        self._errors: Any = 0.0  # sums of tau - 1[covered]
        self._proportional: Any = 0.0

    @property
    def values(self) -> Values | float:
        """The offset of the next forecast, (L, ...); 0 where it is not determined yet."""
        if not self.dates:
            return 0.0
        if self._method == "pid":
            offset: Values = self._proportional + self._of_sum()
            return offset
        if self._known is None:
            self._known = self._ranked()
        return self._known

    def calibrated(self, quantiles: Values) -> Values:
        """Return the quantiles (L, ...) of a forecast with their offsets, in ascending order."""
        result = self._within(quantiles)
        place = np.argsort(np.argsort(self._levels))
        ascending: Values = np.sort(result, axis=0)[place]
        return ascending

    def _within(self, quantiles: Values) -> Values:
        result: Values = np.clip(np.asarray(quantiles, np.float64) + self.values, *self._bounds)
        return result

    def update(self, quantiles: Values, truth: Values) -> None:
        """Learn from one past forecast.

        Args:
            quantiles: as the model forecasts them, (L, ...).
            truth: (...); nothing is learned where it is NaN.
        """
        score = np.asarray(truth, np.float64)[None] - quantiles
        tau = self._levels.reshape(-1, *[1] * (score.ndim - 1))
        error: Any = 0.0
        if self._method != "split":
            reached = self._within(quantiles)
            error = np.where(np.isnan(score), 0.0, tau - (truth <= reached))
            low, high = self._bounds
            error[((reached <= low) & (error < 0)) | ((reached >= high) & (error > 0))] = 0.0
        if self._method != "pid" or self._window is not None:
            self._scores = [*self._scores, score][-(self._window or self.dates + 1) :]
        if self._method == "pid":
            self._largest = self._largest_with(np.abs(np.nan_to_num(score)))
        self._errors = self._errors + error
        self._proportional = self._proportional + self._rate * self._largest * error
        self.dates, self._known = self.dates + 1, None

    def _largest_with(self, size: Values) -> Values:
        """Return the largest absolute score of the dates that count; `size` is of the last."""
        if self._window is None:
            largest: Values = np.fmax(self._largest, size)
        else:
            largest = np.max(np.abs(np.nan_to_num(np.stack(self._scores))), axis=0)
        return largest

    def _of_sum(self) -> Values:
        """K tan(sum log T / (C T)), limited where the tangent is infinite."""
        steps = self.dates + 1
        angle = self._errors * np.log(steps) / (_SATURATION * steps)
        limited = np.clip(angle * np.pi / 2, -1.5, 1.5)
        of_sum: Values = self._integral * self._largest * np.tan(limited)
        return of_sum

    def _ranked(self) -> Values:
        """Return the past score at the rank of each level; 0 if a rank is beyond all scores."""
        scores = np.sort(np.stack(self._scores), axis=0)  # NaN at the end
        count = (~np.isnan(scores)).sum(axis=0)
        tau = self._levels.reshape(-1, *[1] * (count.ndim - 1))
        wanted = tau + (self._rate * self._errors if self._method == "adaptive" else 0.0)
        exact = np.round((count + 1) * wanted, 9)
        rank = np.where(tau > 0.5, np.ceil(exact), np.floor(exact)).astype(np.int64)
        is_known = count + 1 >= 1 / np.minimum(tau, 1 - tau) - 1e-9
        place = np.clip(rank, 1, np.maximum(count, 1)) - 1
        chosen = np.take_along_axis(scores, place[None], axis=0)[0]
        ranked: Values = np.where(is_known, chosen, 0.0)
        return ranked


def calibrate_quantiles(
    quantiles: xr.DataArray,
    truth: xr.DataArray,
    method: Calibration = "pid",
    *,
    quantile_dim: str = "quantile_level",
    time_dim: str = "time",
    **options: Any,
) -> xr.DataArray:
    """Calibrate the quantiles of a series of forecasts, each by those before it.

    A forecast of date n is corrected with all dates whose `valid_time` is not after its start; the
    times themselves count where there is no `valid_time`, then only earlier dates.

    Args:
        quantiles: over `time_dim` (starts), `quantile_dim` with the levels as coordinate, and any
            other dimensions, target units.
        truth: without `quantile_dim`, at the valid time of each start; NaN where unknown.
        method: "split", "adaptive" or "pid"; see the module.
        quantile_dim: dimension of the levels.
        time_dim: dimension of the starts.
        **options: `window`, `rate`, `integral` and `bounds` of `QuantileOffsets`.

    Returns:
        Quantiles of the same dimensions, which do not cross.

    Raises:
        ArgumentError: a dimension is missing, or an option is out of range.
        UnknownNameError: another method.
    """
    for dim in (quantile_dim, time_dim):
        if dim not in quantiles.coords or dim not in quantiles.dims:
            raise ArgumentError("quantiles", f"have no coordinate {dim}", "Name their dimensions")
    ordered = quantiles.sortby(time_dim)
    rest = [dim for dim in ordered.dims if dim not in (quantile_dim, time_dim)]
    values = ordered.transpose(time_dim, quantile_dim, *rest).to_numpy().astype(np.float64)
    observed = truth.reindex({time_dim: ordered[time_dim]}).transpose(time_dim, *rest).to_numpy()
    starts, known = ordered[time_dim].to_numpy(), _times_of_truth(ordered, time_dim)
    order = np.argsort(known, kind="stable")
    offsets = QuantileOffsets(ordered[quantile_dim].to_numpy().tolist(), method, **options)
    result, learned = np.empty_like(values), 0
    for n, start in enumerate(starts):
        while learned < len(order) and order[learned] != n and known[order[learned]] <= start:
            offsets.update(values[order[learned]], observed[order[learned]])
            learned += 1
        result[n] = offsets.calibrated(values[n])
    found = ordered.transpose(time_dim, quantile_dim, *rest).copy(data=result)
    return found.transpose(*quantiles.dims).sel({time_dim: quantiles[time_dim]})


def _times_of_truth(quantiles: xr.DataArray, time_dim: str) -> npt.NDArray[Any]:
    """Return the time from which the truth of each forecast is known."""
    name = "valid_time" if "valid_time" in quantiles.coords else time_dim
    return quantiles[name].transpose(time_dim).to_numpy()
