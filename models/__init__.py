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
    from ens10.models.shared_trunk import SharedTrunk
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
    "SharedTrunk",
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

# where names are looked up, in this order; all but the first two need Lightning
_MODULES = (
    *("metrics.distributions", "models.losses", "models.heads", "models.dressing"),
    *("models.random_fields", "models.postprocessor", "models.deep_ensemble"),
    *("models.shared_trunk", "models.training_stages"),
)
# names of earlier versions, and the present ones
_FORMER_NAMES = {"FamilyForecast": "location_scale", "Predictive": "Distribution"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ens10.models' has no attribute {name!r}")
    present = _FORMER_NAMES.get(name, name)
    with telling_extras(f"ens10.models.{name}"):
        modules = (import_module(f"ens10.{module}") for module in _MODULES)
        return next(getattr(module, present) for module in modules if hasattr(module, present))
