"""Means kept as sums, so that blocks of dates, processes and files merge exactly."""

from ens10.metrics.aggregation.groups import (
    BANDS,
    SEASONS,
    DateGroup,
    date_groups,
    group_masks,
    land_sea,
    latitude_bands,
    region_boxes,
)
from ens10.metrics.aggregation.merge import merge_states
from ens10.metrics.aggregation.skill import skill_score
from ens10.metrics.aggregation.state import (
    PARTS,
    NanPolicy,
    finish_mean,
    group_state,
    mean_state,
    total_over,
)

__all__ = [
    "BANDS",
    "PARTS",
    "SEASONS",
    "DateGroup",
    "NanPolicy",
    "date_groups",
    "finish_mean",
    "group_masks",
    "group_state",
    "land_sea",
    "latitude_bands",
    "mean_state",
    "merge_states",
    "region_boxes",
    "skill_score",
    "total_over",
]
