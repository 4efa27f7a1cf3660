"""Post-processing models: from a batch to a predictive distribution.

The names below are loaded on first use, so that the statistical methods need no Lightning.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ens10.extras import telling_extras

if __name__ == "models":  # the bare name: two copies of every class would follow
    raise ImportError("import this package as ens10.models, not as models")

if TYPE_CHECKING:
    from ens10.models.deep_ensemble import DeepEnsemble
    from ens10.models.heads import ResidualNormalHead
    from ens10.models.heads_baseline import MethodHead
    from ens10.models.heads_bernstein import BernsteinHead
    from ens10.models.heads_family import FamilyHead
    from ens10.models.heads_members import MembersHead, MembersNormalHead
    from ens10.models.heads_spline import SplineHead
    from ens10.models.losses import CRPSLoss, LogScoreLoss, SumLoss, ThresholdCRPSLoss
    from ens10.models.losses_members import EnergyLoss, MembersCRPSLoss, SpectralCRPSLoss
    from ens10.models.postprocessor import PostProcessor, StatisticalPostProcessor
    from ens10.models.predictive import (
        Bernstein,
        Ensemble,
        FamilyForecast,
        Normal,
        Predictive,
        Quantiles,
        SplineFlow,
    )

RESULT_VERSION = 1  # raise it when results change
__all__ = [
    "Bernstein",
    "BernsteinHead",
    "CRPSLoss",
    "DeepEnsemble",
    "EnergyLoss",
    "Ensemble",
    "FamilyForecast",
    "FamilyHead",
    "LogScoreLoss",
    "MembersCRPSLoss",
    "MembersHead",
    "MembersNormalHead",
    "MethodHead",
    "Normal",
    "PostProcessor",
    "Predictive",
    "Quantiles",
    "ResidualNormalHead",
    "SpectralCRPSLoss",
    "SplineFlow",
    "SplineHead",
    "StatisticalPostProcessor",
    "SumLoss",
    "ThresholdCRPSLoss",
]

_HOMES = {
    "Bernstein": "ens10.models.predictive",
    "BernsteinHead": "ens10.models.heads_bernstein",
    "CRPSLoss": "ens10.models.losses",
    "DeepEnsemble": "ens10.models.deep_ensemble",
    "EnergyLoss": "ens10.models.losses_members",
    "Ensemble": "ens10.models.predictive",
    "FamilyForecast": "ens10.models.predictive",
    "FamilyHead": "ens10.models.heads_family",
    "LogScoreLoss": "ens10.models.losses",
    "MembersCRPSLoss": "ens10.models.losses_members",
    "MembersHead": "ens10.models.heads_members",
    "MembersNormalHead": "ens10.models.heads_members",
    "MethodHead": "ens10.models.heads_baseline",
    "Normal": "ens10.models.predictive",
    "PostProcessor": "ens10.models.postprocessor",
    "Predictive": "ens10.models.predictive",
    "Quantiles": "ens10.models.predictive",
    "ResidualNormalHead": "ens10.models.heads",
    "SpectralCRPSLoss": "ens10.models.losses_members",
    "SplineFlow": "ens10.models.predictive",
    "SplineHead": "ens10.models.heads_spline",
    "StatisticalPostProcessor": "ens10.models.postprocessor",
    "SumLoss": "ens10.models.losses",
    "ThresholdCRPSLoss": "ens10.models.losses",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ens10.models' has no attribute {name!r}")
    with telling_extras(f"ens10.models.{name}"):
        return getattr(import_module(_HOMES[name]), name)
