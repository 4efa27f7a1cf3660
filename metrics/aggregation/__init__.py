"""Means kept as sums, so that blocks of dates, processes and files merge exactly."""

from ens10.metrics.aggregation.state import (
    PARTS,
    NanPolicy,
    finish_mean,
    mean_state,
    merge_states,
    total_over,
)

__all__ = ["PARTS", "NanPolicy", "finish_mean", "mean_state", "merge_states", "total_over"]
