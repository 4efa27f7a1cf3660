"""Multivariate scores: energy score, variogram score, spectral CRPS."""

from ens10.metrics.multivariate.energy import energy_score
from ens10.metrics.multivariate.mmd import mmd_score
from ens10.metrics.multivariate.spectral import spectral_crps
from ens10.metrics.multivariate.variogram import variogram_score

__all__ = ["energy_score", "mmd_score", "spectral_crps", "variogram_score"]
