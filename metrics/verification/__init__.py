"""Forecast stores against truth: aligned, scored in blocks, kept as states, summarised."""

from ens10.metrics.verification.alignment import LeftOutWarning, checked_forecast, matched
from ens10.metrics.verification.own import register_score
from ens10.metrics.verification.states import available_scores, score_states
from ens10.metrics.verification.summary import summarise
from ens10.metrics.verification.table import SCORES
from ens10.metrics.verification.verify import paired_states, verify
from ens10.metrics.verification.zones import REGIONS

__all__ = [
    "REGIONS",
    "SCORES",
    "LeftOutWarning",
    "available_scores",
    "checked_forecast",
    "matched",
    "paired_states",
    "register_score",
    "score_states",
    "summarise",
    "verify",
]
