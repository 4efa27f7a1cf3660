"""Forecast distributions: one class each, with its scores, moments, quantiles and samples.

A distribution contains numpy arrays or torch tensors. Heads return distributions, stores of
predictions contain them (`attrs["forecast_kind"]` names the class), and `verify` scores them.

To add a family, write one module here: docs/add_into.md is the recipe. `ens10.metrics.families`,
`FamilyHead`, stores and `verify` find it by its kind. `skew_normal.py` is the shortest one;
`truncated` and `censored` make bounded families. A distribution without closed forms is a subclass
of `Distribution`, such as that of `ensemble.py`.
"""

from ens10.metrics.distributions.base import ClosedForm, Distribution
from ens10.metrics.distributions.bernstein import Bernstein
from ens10.metrics.distributions.ensemble import Ensemble
from ens10.metrics.distributions.formula import Kernel, Parameter
from ens10.metrics.distributions.mixture import NormalMixture
from ens10.metrics.distributions.normal import Normal
from ens10.metrics.distributions.quantiles import Quantiles
from ens10.metrics.distributions.registry import (
    FAMILIES,
    distribution_class,
    kind_of,
    location_scale,
)
from ens10.metrics.distributions.spline import SplineFlow

__all__ = [
    "FAMILIES",
    "Bernstein",
    "ClosedForm",
    "Distribution",
    "Ensemble",
    "Kernel",
    "Normal",
    "NormalMixture",
    "Parameter",
    "Quantiles",
    "SplineFlow",
    "distribution_class",
    "kind_of",
    "location_scale",
]
