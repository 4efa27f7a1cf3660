"""Uncertainty of scores: confidence intervals over dates, and tests of differences."""

from ens10.metrics.uncertainty.block_length import (
    automatic_block_length,
    default_block_length,
)
from ens10.metrics.uncertainty.discovery import Dependence, benjamini_hochberg
from ens10.metrics.uncertainty.hac import (
    Alternative,
    Kernel,
    automatic_lags,
    diebold_mariano,
)
from ens10.metrics.uncertainty.intervals import (
    REPLICATES,
    Interval,
    Method,
    blocks_in_words,
    interval,
)
from ens10.metrics.uncertainty.pairs import (
    Floats,
    Sums,
    check_paired_dates,
    daily_differences,
    difference_of,
    mean_of,
    mean_sums,
    paired_differences,
    paired_sums,
    skill_of,
)
from ens10.metrics.uncertainty.resampling import (
    BlockMethod,
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
    "interval",
    "mean_of",
    "mean_sums",
    "paired_differences",
    "paired_sums",
    "resample_counts",
    "skill_of",
]
