"""Cross-validation folds of training dates: whole years, or blocks of one year with gaps."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError

_FOLDS = 5
_ONE_YEAR = 366 * 86400  # seconds from first to last date up to which blocks are left out
_GAP = 5 * 86400  # seconds around a block left out: the weather of nearby dates is much the same
_FEWEST_TRAINING_DATES = 8  # beside a block left out


@dataclass(frozen=True)
class Fold:
    """A cross-validation fold: masks of training dates and of left-out dates, (N,) each."""

    training: npt.NDArray[np.bool_]
    left_out: npt.NDArray[np.bool_]


def several_years(dates: npt.NDArray[np.int64]) -> bool:
    """Return True if the dates span more than 366 days."""
    return int(np.ptp(dates)) > _ONE_YEAR


def left_out_folds(dates: npt.NDArray[np.int64]) -> list[Fold]:
    """Return cross-validation folds: training dates and left-out dates of each.

    Dates of several years: each year is left out, or each of five groups of years. Dates within
    366 days: five blocks of consecutive dates, of which each is left out, and the dates up to five
    days before and after it are left out of the training set too.

    Args:
        dates: (N,), seconds since 1970, in any order; a date may occur several times.

    Raises:
        ArgumentError: within 366 days, fewer than eight dates remain beside a block.
    """
    if several_years(dates):
        years = dates.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64)
        rank = np.unique(years, return_inverse=True)[1].reshape(-1) % _FOLDS
        return [Fold(rank != fold, rank == fold) for fold in range(int(rank.max()) + 1)]
    distinct = np.unique(dates)
    if distinct.size < _FOLDS + _FEWEST_TRAINING_DATES:
        raise _too_few_dates(distinct.size)
    folds = []
    for block in np.array_split(distinct, _FOLDS):
        left_out = (dates >= block[0]) & (dates <= block[-1])
        training = (dates < block[0] - _GAP) | (dates > block[-1] + _GAP)
        if np.unique(dates[training]).size < _FEWEST_TRAINING_DATES:
            raise _too_few_dates(distinct.size)
        folds.append(Fold(training, left_out))
    return folds


def _too_few_dates(dates: int) -> ArgumentError:
    return ArgumentError(
        "strength",
        f"{dates} training dates within one year are too few to choose it by dates left out",
        "Set strength to a number of dates, such as 100, or use more training dates",
    )
