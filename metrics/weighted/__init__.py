"""Weighted CRPS: threshold-weighted and outcome-weighted."""

from ens10.metrics.weighted.normal import twcrps_normal
from ens10.metrics.weighted.outcome import owcrps_ensemble
from ens10.metrics.weighted.threshold import twcrps_ensemble

__all__ = ["owcrps_ensemble", "twcrps_ensemble", "twcrps_normal"]
