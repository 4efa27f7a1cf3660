"""The truth of training dates: near a date in the season, and its quantiles by calendar month."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError, listing
from ens10.experiments.forecasts.training_points import check_points, warn_beyond_training
from ens10.loader.batches import open_samples
from ens10.loader.datamodule import TrainingData
from ens10.loader.samples import Samples
from ens10.metrics.verification.climatology import quantiles_of_dates
from ens10.models.statistical.coupling import dates_near

_SEASON_DAYS = 30.0
_FAR_DAYS = 31.0  # from the nearest training date in the calendar
_DAY = 86400
_YEAR = 365.2425
_MONTHS = 12
Maps = npt.NDArray[np.float32]


class PastTruth:
    """The truth of the training dates of a model.

    Args:
        name: of the model, for errors.
        store: Zarr store with the truth; "" if there is none.
        training: of the model.
        kept: quantiles that a bundle keeps, (12, H, W) by level.
    """

    def __init__(
        self,
        name: str,
        store: Path | str,
        training: TrainingData,
        kept: Mapping[float, Maps] | None = None,
    ) -> None:
        self._name, self._store, self._training = name, store, training
        self._kept = kept or {}
        self._cache: dict[tuple[float, ...], Maps] = {}

    def near(self, date: int, count: int | None = None, seed: int = 0) -> Maps:
        """Return the truth of dates near a date in the season, never of that date, (count, H, W).

        Args:
            date: valid date in seconds.
            count: number of dates; None for all within 30 days of the calendar.
            seed: of their choice.

        Raises:
            ArgumentError: there is no store, or it has too few of the training dates.
        """
        samples, places, dates = self._samples
        season = np.flatnonzero((days_apart(dates, date) <= _SEASON_DAYS) & (dates != date))
        if len(places) <= (count or 0) or not (count or season.size):
            reason = f"{self._store} has the truth of {len(places)} training dates"
            raise ArgumentError("history", reason, "Name the store that the run was trained on")
        if count is not None:
            season = dates_near(dates, date, count, _SEASON_DAYS, seed)
        return np.stack([samples.truth(int(n)) for n in places[season]])

    def quantiles(self, month: int, levels: Sequence[float]) -> Maps:
        """Return quantiles of the truth within 30 days of the middle of a month, (L, H, W).

        Those of a store, if it is named, otherwise those of the bundle.

        Raises:
            ArgumentError: there is neither, or no training date in the season.
        """
        if not self._store:
            return self._kept_quantiles(month, levels)
        key = (month, *levels)
        if key not in self._cache:
            truth = self.near(_middle_of_month(month))
            self._cache[key] = quantiles_of_dates(truth, levels).astype(np.float32)
        return self._cache[key]

    def all_quantiles(self, levels: Sequence[float]) -> Maps:
        """Return the quantiles of each month, (12, L, H, W); NaN without training dates."""
        samples, _, dates = self._samples
        shape = (len(levels), len(samples.latitude), len(samples.longitude))
        months = np.full((_MONTHS, *shape), np.nan, np.float32)
        for n in range(_MONTHS):
            if (days_apart(dates, _middle_of_month(n + 1)) <= _SEASON_DAYS).any():
                months[n] = self.quantiles(n + 1, levels)
        return months

    def _kept_quantiles(self, month: int, levels: Sequence[float]) -> Maps:
        missing = [f"{level:g}" for level in levels if level not in self._kept]
        if missing:
            kept = listing([f"{level:g}" for level in self._kept]) or "none"
            reason = (
                f"{self._name} lacks quantiles {listing(missing)} of past truth (it has {kept})"
            )
            remedy = "Name the run's store with --history, or bundle the run with --truth-quantiles"
            raise ArgumentError("probability", reason, remedy)
        fields = np.stack([self._kept[level][month - 1] for level in levels])
        if np.isnan(fields).all():
            reason = f"{self._name} was trained on no date of the season of month {month}"
            raise ArgumentError("probability", reason, "Give a threshold in the target's units")
        return fields

    @cached_property
    def _samples(self) -> tuple[Samples, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Samples of the store, the positions of the training dates in them, and these dates."""
        if not self._store:
            remedy = "Name the store with `history` (--history)"
            raise ArgumentError("history", f"{self._name} comes without past truth", remedy)
        samples = open_samples(self._store, f"{self._training.target}@{self._training.step}")
        samples.require_truth()
        check_points(samples, self._training, self._name)
        places = np.flatnonzero(np.isin(seconds_of(samples), self._training.dates))
        places = np.setdiff1d(places, samples.without_truth())
        return samples, places, seconds_of(samples)[places]


def seconds_of(samples: Samples) -> npt.NDArray[np.int64]:
    """Return valid dates in seconds since 1970."""
    return samples.valid_time.astype("datetime64[s]").astype(np.int64)


def days_apart(dates: npt.NDArray[np.generic], others: object) -> npt.NDArray[np.float64]:
    """Return the days of the calendar between dates in seconds, whatever their years are."""
    years = (dates - others) / (_YEAR * _DAY)  # type: ignore[operator]
    days: npt.NDArray[np.float64] = np.abs(years - np.round(years)) * _YEAR
    return days


def _middle_of_month(month: int) -> int:
    """Return the 15th of a month in seconds, of 1601: no training date, so that none is left out.

    The year is at the same place of the calendar's cycle of 400 years as 2001.
    """
    return int(np.datetime64(f"1601-{month:02d}-15", "s").astype(np.int64))


def warn_of_seasons(samples: Samples, training: TrainingData, name: str) -> None:
    """Warn of forecasts more than 31 days of the calendar from every date of the training.

    Args:
        samples: the forecasts.
        training: of the model.
        name: of the model.
    """
    training_dates = np.asarray(training.dates, np.float64)
    if not training_dates.size:
        return
    days_away = days_apart(seconds_of(samples)[:, None], training_dates[None, :]).min(axis=1)
    far = np.flatnonzero(days_away > _FAR_DAYS)
    if far.size:
        first = str(samples.valid_time[far[0]])[:10]
        warn_beyond_training(
            f"{far.size} of {len(days_away)} dates, the first {first}, "
            f"are more than {_FAR_DAYS:g} days of the calendar from every date that "
            f"{name} was trained on"
        )
