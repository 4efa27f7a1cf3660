"""Scores of probabilistic forecasts: from a forecast and the truth to numbers."""

if __name__ == "metrics":  # the bare name: two copies of every class would follow
    raise ImportError("import this package as ens10.metrics, not as metrics")

from ens10.grid import area_weights
from ens10.metrics.crps import Estimator, crps_ensemble, crps_normal

__all__ = [
    "Estimator",
    "area_weights",
    "crps_ensemble",
    "crps_normal",
]
