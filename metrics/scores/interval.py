"""Interval score of central intervals, as `ens10 score` computes it of any distribution."""

from typing import Any

import numpy as np

from ens10.metrics._dispatch import Array
from ens10.metrics.states import Metric, PointStatistic


def _interval_score(case: Any, share: float) -> Array:
    """Interval (Winkler) score of the central interval of a probability.

    (u - l) + 2/a (l - y) where y < l and + 2/a (y - u) where y > u, with a = 1 - share (Gneiting
    and Raftery 2007, doi:10.1198/016214506000001437, eq. 43).
    """
    low, high = case.quantile((1 - share) / 2), case.quantile((1 + share) / 2)
    outside = np.maximum(low - case.y, 0) + np.maximum(case.y - high, 0)
    score: Array = high - low + outside.dtype.type(2 / (1 - share)) * outside
    return score


STATISTICS = (PointStatistic("interval_score", _interval_score, requires=("quantile_score",)),)
METRICS = (
    Metric(
        "interval_score",
        "mean interval score of the central interval of probability {}",
        ("interval_score",),
        skill="interval_skill",
        number="share",
    ),
)
