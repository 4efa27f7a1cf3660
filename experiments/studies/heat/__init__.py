"""Location-dependent heat diffusion, the experiment of the spatial mixture of experts' paper."""

from ens10.experiments.studies.heat.module import HeatModule, TrueMapGate
from ens10.experiments.studies.heat.world import HeatData, HeatWorld

RESULT_VERSION = 1  # raise it when results change

__all__ = ["HeatData", "HeatModule", "HeatWorld", "TrueMapGate"]
