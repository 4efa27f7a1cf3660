"""Verification of forecasts against truth: alignment, block-wise scoring, states and summaries."""

from ens10.metrics.distributions.forecast_dataset import checked_forecast
from ens10.metrics.scores.registry import METRICS, register_score
from ens10.metrics.verification.alignment import LeftOutWarning, match_truth
from ens10.metrics.verification.climatology import monthly_climatology, monthly_quantiles
from ens10.metrics.verification.options import EFIOptions, ScoringOptions
from ens10.metrics.verification.scoring import (
    available_scores,
    paired_states,
    score_states,
    verify,
)
from ens10.metrics.verification.summary import summarise
from ens10.metrics.verification.zones import REGIONS

__all__ = [
    "METRICS",
    "REGIONS",
    "EFIOptions",
    "LeftOutWarning",
    "ScoringOptions",
    "available_scores",
    "checked_forecast",
    "match_truth",
    "monthly_climatology",
    "monthly_quantiles",
    "paired_states",
    "register_score",
    "score_states",
    "summarise",
    "verify",
]
