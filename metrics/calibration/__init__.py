"""Calibration: rank and PIT histograms, spread and error, coverage, decompositions."""

from ens10.metrics.calibration.hersbach import hersbach_decomposition, hersbach_sums
from ens10.metrics.calibration.histograms import (
    histogram_flatness,
    pit_counts,
    pit_histogram,
    rank_histogram,
)
from ens10.metrics.calibration.histograms import observation_ranks as observation_ranks
from ens10.metrics.calibration.intervals import (
    interval_coverage,
    interval_ensemble,
    interval_normal,
    interval_quantiles,
    interval_score,
    interval_width,
    nominal_coverage,
)
from ens10.metrics.calibration.pit import pit_ensemble, pit_normal, pit_quantiles, pit_values
from ens10.metrics.calibration.quantiles import (
    crps_quantiles,
    quantile_score,
    quantile_score_decomposition,
    quantile_score_sums,
)
from ens10.metrics.calibration.spread_error import (
    bias,
    ensemble_error,
    ensemble_variance,
    mae,
    mae_median,
    rmse,
    spread_bin_sums,
    spread_edges,
    spread_error_by_bins,
    spread_error_ensemble,
    spread_error_ratio,
)
from ens10.metrics.calibration.spread_error import spread_inflation as spread_inflation

__all__ = [
    "bias",
    "crps_quantiles",
    "ensemble_error",
    "ensemble_variance",
    "hersbach_decomposition",
    "hersbach_sums",
    "histogram_flatness",
    "interval_coverage",
    "interval_ensemble",
    "interval_normal",
    "interval_quantiles",
    "interval_score",
    "interval_width",
    "mae",
    "mae_median",
    "nominal_coverage",
    "pit_counts",
    "pit_ensemble",
    "pit_histogram",
    "pit_normal",
    "pit_quantiles",
    "pit_values",
    "quantile_score",
    "quantile_score_decomposition",
    "quantile_score_sums",
    "rank_histogram",
    "rmse",
    "spread_bin_sums",
    "spread_edges",
    "spread_error_by_bins",
    "spread_error_ensemble",
    "spread_error_ratio",
]
