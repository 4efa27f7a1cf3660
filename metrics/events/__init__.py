"""Scores of yes-or-no events and categories: Brier, RPS, ROC, value, reliability, fractions."""

from ens10.metrics.events.corp import corp_decomposition, corp_diagram
from ens10.metrics.events.diagrams import (
    brier_decomposition,
    contingency_tables,
    relative_economic_value,
    reliability_diagram,
    roc_curve,
)
from ens10.metrics.events.fractions import fractions_skill_score, fractions_sums
from ens10.metrics.events.probabilities import (
    brier_ensemble,
    brier_score,
    exceedance_event,
    exceedance_probability,
    exceedance_probability_normal,
    logarithmic_score,
    rps,
    rps_ensemble,
)
from ens10.metrics.events.sums import event_sums

__all__ = [
    "brier_decomposition",
    "brier_ensemble",
    "brier_score",
    "contingency_tables",
    "corp_decomposition",
    "corp_diagram",
    "event_sums",
    "exceedance_event",
    "exceedance_probability",
    "exceedance_probability_normal",
    "fractions_skill_score",
    "fractions_sums",
    "logarithmic_score",
    "relative_economic_value",
    "reliability_diagram",
    "roc_curve",
    "rps",
    "rps_ensemble",
]
