"""Location-dependent heat diffusion, the test that the spatial mixture of experts was made for."""

from ens10.experiments.heat.data import HeatData
from ens10.experiments.heat.diffusion import HeatWorld
from ens10.experiments.heat.module import HeatModule, TrueMapGate

__all__ = ["HeatData", "HeatModule", "HeatWorld", "TrueMapGate"]
