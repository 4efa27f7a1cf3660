"""Scores of many values at once: energy score, variogram score, spectral CRPS."""

from ens10.metrics.multivariate.energy import energy_score

__all__ = ["energy_score"]
