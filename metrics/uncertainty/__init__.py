"""Uncertainty of scores: confidence intervals over dates, and tests of differences."""

from ens10.metrics.uncertainty.discovery import Dependence, benjamini_hochberg, holm
from ens10.metrics.uncertainty.hac import (
    Alternative,
    Kernel,
    automatic_lags,
    diebold_mariano,
)
from ens10.metrics.uncertainty.intervals import (
    REPLICATES,
    Floats,
    Interval,
    Method,
    Sums,
    blocks_in_words,
    check_paired_dates,
    daily_differences,
    difference_of,
    interval,
    mean_of,
    mean_sums,
    paired_differences,
    paired_sums,
    skill_of,
)
from ens10.metrics.uncertainty.resampling import (
    BlockMethod,
    automatic_block_length,
    default_block_length,
    resample_counts,
)

__all__ = [
    "REPLICATES",
    "Alternative",
    "BlockMethod",
    "Dependence",
    "Floats",
    "Interval",
    "Kernel",
    "Method",
    "Sums",
    "automatic_block_length",
    "automatic_lags",
    "benjamini_hochberg",
    "blocks_in_words",
    "check_paired_dates",
    "daily_differences",
    "default_block_length",
    "diebold_mariano",
    "difference_of",
    "holm",
    "interval",
    "mean_of",
    "mean_sums",
    "paired_differences",
    "paired_sums",
    "resample_counts",
    "skill_of",
]
