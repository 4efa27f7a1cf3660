"""Post-processing models: from a batch to a predictive distribution.

The names below are loaded on first use, so that the statistical methods need no Lightning.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ens10.extras import telling_extras

if __name__ == "models":  # the bare name: two copies of every class would follow
    raise ImportError("import this package as ens10.models, not as models")

if TYPE_CHECKING:
    from ens10.metrics.distributions import (
        Bernstein,
        Distribution,
        Ensemble,
        Normal,
        Quantiles,
        SplineFlow,
    )
    from ens10.metrics.distributions import Distribution as Predictive
    from ens10.metrics.distributions import location_scale as FamilyForecast  # noqa: N812
    from ens10.models.deep_ensemble import DeepEnsemble
    from ens10.models.dressing import DressingHead
    from ens10.models.heads import (
        BernsteinHead,
        FamilyHead,
        MembersHead,
        MembersNormalHead,
        MethodHead,
        ResidualNormalHead,
        SplineHead,
        TargetHeads,
    )
    from ens10.models.losses import (
        CRPSLoss,
        EnergyLoss,
        LogScoreLoss,
        MembersCRPSLoss,
        SpectralCRPSLoss,
        SumLoss,
        ThresholdCRPSLoss,
        VariogramLoss,
    )
    from ens10.models.postprocessor import PostProcessor, StatisticalPostProcessor
    from ens10.models.random_fields import RandomFieldHead
    from ens10.models.training_stages import TrainingStages

RESULT_VERSION = 1  # raise it when results change
__all__ = [
    "Bernstein",
    "BernsteinHead",
    "CRPSLoss",
    "DeepEnsemble",
    "Distribution",
    "DressingHead",
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
    "RandomFieldHead",
    "ResidualNormalHead",
    "SpectralCRPSLoss",
    "SplineFlow",
    "SplineHead",
    "StatisticalPostProcessor",
    "SumLoss",
    "TargetHeads",
    "ThresholdCRPSLoss",
    "TrainingStages",
    "VariogramLoss",
]

_HOMES = {
    "Bernstein": "ens10.metrics.distributions",
    "BernsteinHead": "ens10.models.heads",
    "CRPSLoss": "ens10.models.losses",
    "DeepEnsemble": "ens10.models.deep_ensemble",
    "Distribution": "ens10.metrics.distributions",
    "DressingHead": "ens10.models.dressing",
    "EnergyLoss": "ens10.models.losses",
    "Ensemble": "ens10.metrics.distributions",
    "FamilyForecast": "ens10.metrics.distributions",
    "FamilyHead": "ens10.models.heads",
    "LogScoreLoss": "ens10.models.losses",
    "MembersCRPSLoss": "ens10.models.losses",
    "MembersHead": "ens10.models.heads",
    "MembersNormalHead": "ens10.models.heads",
    "MethodHead": "ens10.models.heads",
    "Normal": "ens10.metrics.distributions",
    "PostProcessor": "ens10.models.postprocessor",
    "Predictive": "ens10.metrics.distributions",
    "Quantiles": "ens10.metrics.distributions",
    "RandomFieldHead": "ens10.models.random_fields",
    "ResidualNormalHead": "ens10.models.heads",
    "SpectralCRPSLoss": "ens10.models.losses",
    "SplineFlow": "ens10.metrics.distributions",
    "SplineHead": "ens10.models.heads",
    "StatisticalPostProcessor": "ens10.models.postprocessor",
    "SumLoss": "ens10.models.losses",
    "TargetHeads": "ens10.models.heads",
    "ThresholdCRPSLoss": "ens10.models.losses",
    "TrainingStages": "ens10.models.training_stages",
    "VariogramLoss": "ens10.models.losses",
}
# names of earlier versions, and the present ones
_FORMER_NAMES = {"FamilyForecast": "location_scale", "Predictive": "Distribution"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ens10.models' has no attribute {name!r}")
    with telling_extras(f"ens10.models.{name}"):
        return getattr(import_module(_HOMES[name]), _FORMER_NAMES.get(name, name))
