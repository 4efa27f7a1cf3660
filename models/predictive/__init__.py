"""Predictive distributions at each grid point, behind one small interface.

Arrays are torch tensors in the target's units; N dates, M members, Q quantiles, H rows, W columns.
"""

from ens10.models.predictive.base import Predictive
from ens10.models.predictive.bernstein import Bernstein
from ens10.models.predictive.ensemble import Ensemble
from ens10.models.predictive.family import FamilyForecast
from ens10.models.predictive.normal import Normal
from ens10.models.predictive.quantiles import Quantiles
from ens10.models.predictive.spline import SplineFlow

__all__ = [
    "Bernstein",
    "Ensemble",
    "FamilyForecast",
    "Normal",
    "Predictive",
    "Quantiles",
    "SplineFlow",
]
