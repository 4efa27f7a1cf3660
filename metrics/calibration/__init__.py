"""Whether a forecast means what it says: histograms, spread and error, coverage, decompositions."""

from ens10.metrics.calibration.histograms import (
    observation_ranks,
    pit_histogram,
    pit_normal,
    rank_histogram,
)
from ens10.metrics.calibration.moments import rmse, spread_error_ratio, spread_inflation

__all__ = [
    "observation_ranks",
    "pit_histogram",
    "pit_normal",
    "rank_histogram",
    "rmse",
    "spread_error_ratio",
    "spread_inflation",
]
