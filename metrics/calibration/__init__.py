"""Whether a forecast means what it says: histograms, spread and error, coverage, decompositions."""

from ens10.metrics.calibration.ensemble_moments import (
    ensemble_error,
    ensemble_variance,
    mae_median,
    spread_error_ensemble,
)
from ens10.metrics.calibration.flatness import histogram_flatness
from ens10.metrics.calibration.hersbach import hersbach_decomposition, hersbach_sums
from ens10.metrics.calibration.histograms import (
    observation_ranks,
    pit_counts,
    pit_histogram,
    rank_histogram,
)
from ens10.metrics.calibration.intervals import (
    interval_coverage,
    interval_ensemble,
    interval_normal,
    interval_quantiles,
    interval_score,
    interval_width,
    nominal_coverage,
)
from ens10.metrics.calibration.moments import (
    bias,
    mae,
    rmse,
    spread_error_ratio,
    spread_inflation,
)
from ens10.metrics.calibration.pit import pit_ensemble, pit_normal, pit_quantiles, pit_values
from ens10.metrics.calibration.quantile_decomposition import (
    quantile_score_decomposition,
    quantile_score_sums,
)
from ens10.metrics.calibration.quantile_score import crps_quantiles, quantile_score
from ens10.metrics.calibration.spread_bins import (
    spread_bin_sums,
    spread_edges,
    spread_error_by_bins,
)

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
    "observation_ranks",
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
    "spread_inflation",
]
