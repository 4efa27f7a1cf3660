"""Scores of values above a quantile of the climate of each place and month."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ens10.metrics._dispatch import Array
from ens10.metrics.scores.pairs import Pair
from ens10.metrics.scores.standard import brier_score_above, twcrps_above
from ens10.metrics.statistic import Metric, PointStatistic


def _at_local(score: Callable[[Pair, Any], Array]) -> Callable[..., Array]:
    """Return a score at the threshold of each point, NaN where there is none."""

    def values(pair: Pair, level: float) -> Array:
        threshold = pair.threshold(level)
        return np.where(np.isnan(threshold), np.nan, score(pair, threshold))

    return values


STATISTICS = (
    PointStatistic(
        "brier_local",
        _at_local(brier_score_above),
        "1",
        requires=("brier",),
        needs_also="thresholds",
    ),
    PointStatistic(
        "twcrps_local", _at_local(twcrps_above), requires=("crps",), needs_also="thresholds"
    ),
)
METRICS = (
    Metric(
        "brier_local",
        "Brier score of values above the {} quantile of the place and month",
        ("brier_local",),
        "1",
        skill="brier_local_skill",
        number="level",
    ),
    Metric(
        "twcrps_local",
        "mean threshold-weighted CRPS above the {} quantile of the place and month",
        ("twcrps_local",),
        skill="twcrps_local_skill",
        number="level",
    ),
)
