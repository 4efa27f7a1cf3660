"""Forecast stores against truth: aligned, scored in blocks, kept as states, summarised."""

from ens10.metrics.verification.alignment import checked_forecast, matched_truth
from ens10.metrics.verification.states import available_scores, score_states
from ens10.metrics.verification.summary import summarise
from ens10.metrics.verification.verify import verify

__all__ = [
    "available_scores",
    "checked_forecast",
    "matched_truth",
    "score_states",
    "summarise",
    "verify",
]
