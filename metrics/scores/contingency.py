"""Scores of contingency tables: POD, FAR, frequency bias, CSI, ETS, HSS, SEDI, and others.

A table has the relative frequencies (or numbers, or sums of weights) of hits a, false alarms b,
misses c and correct negatives d. Every score is a pure function of a table, so that tables are
added first and scored last. A score is NaN where its denominator is 0.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from ens10.metrics.scores.pairs import Pair
from ens10.metrics.statistic import Floats, Metric, PointStatistic, checked_sums

_TABLE = ("hits", "false_alarms", "misses", "correct_negatives")


def _pod(a: Any, b: Any, c: Any, d: Any) -> Any:  # noqa: ARG001
    return a / (a + c)


def _far(a: Any, b: Any, c: Any, d: Any) -> Any:  # noqa: ARG001
    return b / (a + b)


def _frequency_bias(a: Any, b: Any, c: Any, d: Any) -> Any:  # noqa: ARG001
    return (a + b) / (a + c)


def _csi(a: Any, b: Any, c: Any, d: Any) -> Any:  # noqa: ARG001
    return a / (a + b + c)


def _ets(a: Any, b: Any, c: Any, d: Any) -> Any:
    by_chance = (a + b) * (a + c) / (a + b + c + d)
    return (a - by_chance) / (a + b + c - by_chance)


def _hss(a: Any, b: Any, c: Any, d: Any) -> Any:
    return 2 * (a * d - b * c) / ((a + c) * (c + d) + (a + b) * (b + d))


def _sedi(a: Any, b: Any, c: Any, d: Any) -> Any:
    # H = a / (a + c), 1 - H = c / (a + c): the logarithms of the denominators cancel in part
    log_h, log_miss = np.log(a / (a + c)), np.log(c / (a + c))
    log_f, log_reject = np.log(b / (b + d)), np.log(d / (b + d))
    difference = log_f - log_h - log_reject + log_miss
    return difference / (log_f + log_h + log_reject + log_miss)


def _accuracy(a: Any, b: Any, c: Any, d: Any) -> Any:
    return (a + d) / (a + b + c + d)


def _peirce(a: Any, b: Any, c: Any, d: Any) -> Any:
    return (a * d - b * c) / ((a + c) * (b + d))


def _mcc(a: Any, b: Any, c: Any, d: Any) -> Any:
    # roots of the factors: the product of four numbers of points could overflow
    roots = np.sqrt(a + b) * np.sqrt(a + c) * np.sqrt(b + d) * np.sqrt(c + d)
    return (a * d - b * c) / roots


def _f1(a: Any, b: Any, c: Any, d: Any) -> Any:  # noqa: ARG001
    return 2 * a / (2 * a + b + c)


_SCORES: dict[str, tuple[Callable[[Any, Any, Any, Any], Any], str]] = {
    "pod": (_pod, "probability of detection"),
    "far": (_far, "false alarm ratio"),
    "frequency_bias": (_frequency_bias, "frequency of forecast over observed events"),
    "csi": (_csi, "critical success index"),
    "ets": (_ets, "equitable threat score"),
    "hss": (_hss, "Heidke skill score"),
    "sedi": (_sedi, "symmetric extremal dependence index"),
    "accuracy": (_accuracy, "share of correct forecasts"),
    "peirce": (_peirce, "Peirce skill score"),
    "mcc": (_mcc, "Matthews correlation coefficient"),
    "f1": (_f1, "F1 score"),
}


def contingency_scores(tables: xr.Dataset) -> xr.Dataset:
    """Return scores of contingency tables; add tables over dates and points first.

    With hits a, false alarms b, misses c, correct negatives d, n their sum, H = a / (a + c) and
    F = b / (b + d):

    - `pod` = H, probability of detection; `far` = b / (a + b), false alarm ratio;
      `frequency_bias` = (a + b) / (a + c).
    - `csi` = a / (a + b + c), critical success index (threat score).
    - `ets` = (a - r) / (a + b + c - r) with the hits by chance r = (a + b) (a + c) / n,
      equitable threat score (Gilbert skill score).
    - `hss` = 2 (a d - b c) / [(a + c) (c + d) + (a + b) (b + d)], Heidke skill score.
    - `sedi` = [ln F - ln H - ln(1 - F) + ln(1 - H)] / [ln F + ln H + ln(1 - F) + ln(1 - H)],
      symmetric extremal dependence index, which does not tend to a trivial limit for rare events
      (Ferro and Stephenson 2011, doi:10.1175/WAF-D-10-05030.1).
    - `accuracy` = (a + d) / n; for rare events it is high without any skill.
    - `peirce` = H - F = (a d - b c) / [(a + c) (b + d)], Peirce skill score, also called true
      skill statistic or Hanssen and Kuipers discriminant (Peirce 1884,
      doi:10.1126/science.ns-4.93.453.b).
    - `mcc` = (a d - b c) / sqrt[(a + b) (a + c) (b + d) (c + d)], Matthews correlation
      coefficient or phi (Matthews 1975, doi:10.1016/0005-2795(75)90109-9).
    - `f1` = 2 a / (2 a + b + c), F1 (or Dice) score: the harmonic mean of `pod` and 1 - `far`.

    Args:
        tables: `hits`, `false_alarms`, `misses` and `correct_negatives`, such as those of
            `contingency_tables`.

    Returns:
        The scores over the dimensions of the tables; NaN where a denominator is 0.

    Examples:
        >>> import xarray
        >>> from ens10.metrics import contingency_scores
        >>> numbers = {"hits": 28, "false_alarms": 72, "misses": 23, "correct_negatives": 2680}
        >>> finley = xarray.Dataset(numbers)  # tornado forecasts of 1884
        >>> scores = contingency_scores(finley)
        >>> round(float(scores["csi"]), 3), round(float(scores["hss"]), 3)
        (0.228, 0.355)

    Raises:
        ArgumentError: a part of the tables is missing.
    """
    parts = [checked_sums(tables, _TABLE, "contingency_tables")[name] for name in _TABLE]
    scores = {}
    for name, (score, long_name) in _SCORES.items():
        with np.errstate(divide="ignore", invalid="ignore"):
            value = score(*parts)
        finite = value.where(np.isfinite(value))
        scores[name] = finite.drop_attrs().assign_attrs(long_name=long_name, units="1")
    return xr.Dataset(scores)


def _outcome(pair: Pair, threshold: float, *, forecast: bool, observed: bool) -> Floats:
    """Return 1 where the event was (not) forecast and (not) observed, else 0; NaN if missing."""
    probability = pair.above(threshold)
    missing = np.isnan(probability) | np.isnan(pair.y)
    outcome = ((probability >= 0.5) == forecast) & ((pair.y > threshold) == observed)
    return np.where(missing, np.nan, outcome)


def _finish(
    score: Callable[[Any, Any, Any, Any], Any],
    means: Sequence[Floats],
    members: int | None,  # noqa: ARG001
) -> Floats:
    hits, false_alarms, misses = means
    negatives = np.maximum(1.0 - hits - false_alarms - misses, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.asarray(score(hits, false_alarms, misses, negatives))
    return np.where(np.isfinite(value), value, np.nan)


STATISTICS = tuple(
    PointStatistic(
        name,
        partial(_outcome, forecast=forecast, observed=observed),
        "1",
        requires=("brier",),
    )
    for name, forecast, observed in (
        ("hits", True, True),
        ("false_alarms", True, False),
        ("misses", False, True),
    )
)
METRICS = tuple(
    Metric(
        name,
        long_name + " of values above {}",
        ("hits", "false_alarms", "misses"),
        "1",
        partial(_finish, score),
        number="threshold",
    )
    for name, (score, long_name) in _SCORES.items()
)
