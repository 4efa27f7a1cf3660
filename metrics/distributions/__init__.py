"""Forecast distributions: one class each, with its scores, moments, quantiles and samples.

A distribution contains numpy arrays or torch tensors. Heads return distributions, stores of
predictions contain them (`attrs["forecast_kind"]` names the class), and `verify` scores them.

To add a family, write one module here:

1. Functions of (ops, *parameters, y) on arrays of one shape and dtype, written on the elementwise
   functions of `metrics/_ops.py` (what is missing there is added to it and `_ops_torch.py`). That
   of the derivatives gives them by each parameter and by y, finite at every valid parameter.
2. A dataclass `class Mine(ClosedForm, kind="mine")` of the parameters and `positive`, with
   `parameters` (a `Parameter` each) and `kernels` (`Kernel` of each closed form: "crps",
   "log_score", "cdf", "mean", "variance", and with point masses "cdf_below"). Options of
   `Kernel`: `double` for what cancels in float32, `on_host` for what torch lacks.
3. `inverse`, the function of (ops, *parameters, p) that gives the quantiles.

No other module has to change: `ens10.metrics.families`, stores and `verify` find it by its kind.
`logistic.py` is the shortest one; `truncated` and `censored` make bounded families.
A distribution without closed forms is a subclass of `Distribution`, such as that of `ensemble.py`.
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
