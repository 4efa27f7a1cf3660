"""Scores of probabilistic forecasts: from a forecast and the truth to numbers."""

if __name__ == "metrics":  # the bare name: two copies of every class would follow
    raise ImportError("import this package as ens10.metrics, not as metrics")

from ens10.grid import area_weights
from ens10.metrics.aggregation import finish_mean, mean_state, merge_states, total_over
from ens10.metrics.calibration import (
    pit_histogram,
    pit_normal,
    rank_histogram,
    rmse,
    spread_error_ratio,
)
from ens10.metrics.crps import Estimator, crps_ensemble, crps_normal
from ens10.metrics.uncertainty import Interval, interval
from ens10.metrics.verification.states import available_scores, score_states
from ens10.metrics.verification.summary import summarise
from ens10.metrics.verification.verify import verify

__all__ = [
    "Estimator",
    "Interval",
    "area_weights",
    "available_scores",
    "crps_ensemble",
    "crps_normal",
    "finish_mean",
    "interval",
    "mean_state",
    "merge_states",
    "pit_histogram",
    "pit_normal",
    "rank_histogram",
    "rmse",
    "score_states",
    "spread_error_ratio",
    "summarise",
    "total_over",
    "verify",
]
