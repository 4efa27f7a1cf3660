"""Scores of central prediction intervals: coverage, width and interval score."""

import numpy as np

from ens10.metrics._dispatch import Array
from ens10.metrics.scores.pairs import Pair
from ens10.metrics.statistic import Floats, Metric, PointStatistic


def _ends(pair: Pair, share: float) -> tuple[Array, Array]:
    """Return the ends of the central interval with probability `share`."""
    return pair.quantile((1 - share) / 2), pair.quantile((1 + share) / 2)


def _coverage(pair: Pair, share: float) -> Floats:
    """Return 1 where the interval, edges included, contains the observation, else 0."""
    low, high = _ends(pair, share)
    inside = (pair.y >= low) & (pair.y <= high)
    return np.where(np.isnan(low + high + pair.y), np.nan, inside)


def _width(pair: Pair, share: float) -> Array:
    """Return the width of the interval."""
    low, high = _ends(pair, share)
    return np.where(np.isnan(pair.y), np.nan, high - low)


def _interval_score(pair: Pair, share: float) -> Array:
    """Return the interval (Winkler) score.

    (u - l) + 2/a (l - y) where y < l and + 2/a (y - u) where y > u, with a = 1 - share (Gneiting
    and Raftery 2007, doi:10.1198/016214506000001437, eq. 43).
    """
    low, high = _ends(pair, share)
    outside = np.maximum(low - pair.y, 0) + np.maximum(pair.y - high, 0)
    score: Array = high - low + outside.dtype.type(2 / (1 - share)) * outside
    return score


STATISTICS = (
    PointStatistic("coverage", _coverage, "1"),
    PointStatistic("width", _width),
    PointStatistic("interval_score", _interval_score, requires=("width",)),
)
METRICS = (
    Metric(
        "coverage",
        "share of truth within the central interval of probability {}",
        ("coverage",),
        "1",
        number="share",
    ),
    Metric(
        "width", "mean width of the central interval of probability {}", ("width",), number="share"
    ),
    Metric(
        "interval_score",
        "mean interval score of the central interval of probability {}",
        ("interval_score",),
        skill="interval_skill",
        number="share",
    ),
)
