"""Statistical post-processing: methods that are solved, not trained."""

from ens10.models.statistical.base import StatisticalMethod
from ens10.models.statistical.climatology import Climatology
from ens10.models.statistical.emos import EMOS
from ens10.models.statistical.raw import Raw

__all__ = ["EMOS", "Climatology", "Raw", "StatisticalMethod"]
