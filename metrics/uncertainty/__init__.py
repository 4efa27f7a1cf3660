"""How sure a score is: confidence intervals over dates, and tests of differences."""

from ens10.metrics.uncertainty.intervals import (
    REPLICATES,
    Floats,
    Interval,
    Method,
    Sums,
    check_paired_dates,
    default_block_length,
    difference_of,
    interval,
    mean_of,
    mean_sums,
    paired_sums,
    resample_counts,
    skill_of,
)

__all__ = [
    "REPLICATES",
    "Floats",
    "Interval",
    "Method",
    "Sums",
    "check_paired_dates",
    "default_block_length",
    "difference_of",
    "interval",
    "mean_of",
    "mean_sums",
    "paired_sums",
    "resample_counts",
    "skill_of",
]
