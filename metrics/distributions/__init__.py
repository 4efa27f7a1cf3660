"""Forecast distributions: each is one class, which gives its scores, moments, quantiles and draws.

A distribution holds arrays of numpy or torch. It is what a head returns, what a store of
predictions holds under `attrs["forecast_kind"]`, and what `verify` scores.

To add a family, write one module here:

1. Functions of (ops, *parameters, y) on arrays of one shape and dtype, written on the elementwise
   functions of `formula.NUMPY` (what is missing there is added to it and to `_torch.TORCH`). That
   of the derivatives gives them by each parameter and by y, finite at every valid parameter.
2. A dataclass `class Mine(ClosedForm, kind="mine")` of the parameters and `positive`, with
   `parameters` (a `Parameter` each) and `kernels` (`Kernel` of each closed form: "crps",
   "log_score", "cdf", "mean", "variance", and with point masses "cdf_below"). Options of
   `Kernel`: `double` for what cancels in float32, `on_host` for what torch lacks.
3. `inverse`, the function of (ops, *parameters, p) that gives the quantiles.

Nothing else has to know it: `ens10.metrics.families`, stores and `verify` find it by its kind.
`logistic.py` is the shortest one; bounded ones are made by `truncated` and `censored`.
A distribution that is no family is a subclass of `Distribution`, as `ensemble.py` is.
"""

from ens10.metrics.distributions.base import ClosedForm, Distribution
from ens10.metrics.distributions.bernstein import Bernstein
from ens10.metrics.distributions.ensemble import Ensemble
from ens10.metrics.distributions.formula import Kernel, Parameter
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
    "Parameter",
    "Quantiles",
    "SplineFlow",
    "distribution_class",
    "kind_of",
    "location_scale",
]
