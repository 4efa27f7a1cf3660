"""Standard scores: CRPS, errors of the mean, spread, log score, Brier score, quantile score."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ens10.metrics._dispatch import Array
from ens10.metrics.calibration import spread_inflation
from ens10.metrics.scores.pairs import Pair
from ens10.metrics.statistic import Floats, Metric, PointStatistic


def _field(name: str) -> Callable[..., Array]:
    """Return a function that calls the method `name` of a pair."""

    def values(pair: Pair, number: float | None = None) -> Array:  # noqa: ARG001
        return pair.field(name)

    return values


def _squared_error(pair: Pair, number: float | None = None) -> Floats:  # noqa: ARG001
    """Return the squared error of the mean, in float64."""
    error = pair.field("error")
    squared: Floats = np.multiply(error, error, dtype=np.float64)
    return squared


def brier_score_above(pair: Pair, threshold: Any) -> Floats:
    """Return the Brier score of the probability of values above a threshold, one or (H, W)."""
    happened = np.where(np.isnan(pair.y), np.nan, pair.y > threshold)
    score: Floats = np.square(pair.above(threshold).astype(np.float64) - happened)
    return score


def twcrps_above(pair: Pair, threshold: Any) -> Array:
    """Return the CRPS of values above a threshold, one or (H, W), from which differences count."""
    score: Array = pair.forecast.twcrps(pair.y, threshold, np.inf)
    return score


def _quantile_score(pair: Pair, level: float) -> Array:
    """Return the pinball loss (1{y < q} - level) (q - y) of the quantile q of a level."""
    gap = pair.quantile(level) - pair.y
    loss: Array = gap * ((gap > 0).astype(gap.dtype) - gap.dtype.type(level))
    return loss


def _root(means: Sequence[Floats], members: int | None) -> Floats:  # noqa: ARG001
    root: Floats = np.sqrt(means[0])
    return root


def _ratio_of_roots(means: Sequence[Floats], members: int | None) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = np.sqrt(spread_inflation(members) * means[1] / means[0])
    return ratio


STATISTICS = (
    PointStatistic("crps", _field("crps"), on_map=True),
    PointStatistic("crps_fair", _field("crps_fair"), on_map=True),
    PointStatistic("error", _field("error")),
    PointStatistic("error2", _squared_error, "truth2"),
    PointStatistic("variance", _field("variance"), "truth2"),
    PointStatistic("log_score", _field("log_score"), "1"),
    PointStatistic("brier", brier_score_above, "1"),
    PointStatistic("twcrps", twcrps_above, requires=("crps",)),
    PointStatistic("quantile_score", _quantile_score),
)
METRICS = (
    Metric(
        "crps", "mean continuous ranked probability score", ("crps",), skill="crpss", usual=True
    ),
    Metric(
        "crps_fair",
        "mean fair continuous ranked probability score",
        ("crps_fair",),
        skill="crpss_fair",
        least_members=2,
        usual=True,
    ),
    Metric("rmse", "root mean squared error of the mean", ("error2",), finish=_root, usual=True),
    Metric("bias", "mean of the forecast less the truth", ("error",)),
    Metric(
        "spread_error",
        "ratio of spread to root mean squared error",
        ("error2", "variance"),
        "1",
        _ratio_of_roots,
        least_members=2,
        usual=True,
    ),
    Metric("log_score", "mean logarithmic score", ("log_score",), "1"),
    Metric(
        "brier",
        "Brier score of values above {}",
        ("brier",),
        "1",
        skill="brier_skill",
        number="threshold",
    ),
    Metric(
        "twcrps",
        "mean threshold-weighted continuous ranked probability score above {}",
        ("twcrps",),
        skill="twcrps_skill",
        number="threshold",
    ),
    Metric(
        "quantile_score",
        "mean quantile score at level {}",
        ("quantile_score",),
        skill="quantile_skill",
        number="level",
    ),
)
