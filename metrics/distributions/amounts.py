"""Families for amounts of 0 or more, by location and scale before censoring.

Networks and statistical methods forecast precipitation and wind speed with them.
"""

import math
from typing import Any, Literal, get_args

from ens10.errors import UnknownNameError
from ens10.metrics.distributions.base import ClosedForm
from ens10.metrics.distributions.censored_gev import CensoredGEV
from ens10.metrics.distributions.csgd import CSGD
from ens10.metrics.distributions.registry import location_scale

AmountFamily = Literal[
    "csgd",
    "censored_gev",
    "censored_normal",
    "censored_logistic",
    "truncated_normal",
    "truncated_logistic",
]
WITH_SHAPE = ("csgd", "censored_gev")  # that have a third parameter
_SMOOTHING = 0.1  # of the mean of a gamma variable over its deviation, near 0
_MOST_SHAPE = 0.6  # of an extreme value distribution
_LARGEST_LOG = 15.0


def check_amount_family(name: str) -> None:
    """Refuse a family that is not one of `AmountFamily`.

    Raises:
        UnknownNameError: an unknown family.
    """
    if name not in get_args(AmountFamily):
        raise UnknownNameError("family", name, get_args(AmountFamily))


def amount(
    family: str,
    location: Any,
    scale: Any,
    third_parameter: Any,
    unit: Any = 1.0,
    lower: float = 0.0,
) -> ClosedForm:
    """Return the distribution of an amount, from tensors.

    Location and scale are mean and standard deviation of the variable before it is censored or
    truncated (of the extreme value distribution, the deviation that shape 0 would have).

    - csgd: max(0, G - shift) with shift = unit exp(third_parameter) and a gamma variable G of mean
      shift + location and deviation `scale`. As this mean has to be positive, it is
      scale (x + sqrt(x^2 + 0.04)) / 2 with x = (shift + location) / scale.
    - censored_gev: shape 0.6 tanh(third_parameter), and mu so that the mean is `location`.
    - the others: `third_parameter` is not used.

    Args:
        family: one of `AmountFamily`.
        location: (...), target units.
        scale: above 0, target units.
        third_parameter: any real number, (...), from which the shift or the shape is computed.
        unit: unit of the shift, target units.
        lower: the bound of the families other than csgd.
    """
    if family == "csgd":
        shift = unit * third_parameter.clamp(-_LARGEST_LOG, _LARGEST_LOG).exp()
        x = (shift + location) / scale
        root = (x * x + 4 * _SMOOTHING**2).sqrt()
        # for x below 0 the sum cancels
        ratio = _where(x > 0, 0.5 * (x + root), 2 * _SMOOTHING**2 / (root - x.clamp(max=0)))
        ratio = ratio.clamp(min=1e-4)
        return CSGD(ratio * ratio, scale / ratio, shift, positive=True)
    if family == "censored_gev":
        shape = _MOST_SHAPE * third_parameter.tanh()
        sigma = scale * (math.sqrt(6) / math.pi)
        return CensoredGEV(location - sigma * _mean_of_gev(shape), sigma, shape, lower, True)
    factor = math.sqrt(3) / math.pi if family.endswith("logistic") else 1.0
    return location_scale(family, location, factor * scale, lower)


def _mean_of_gev(shape: Any) -> Any:
    """Return (Gamma(1 - shape) - 1) / shape, by its series near 0."""
    near = shape.abs() < 1e-3
    safe = _where(near, shape * 0 + 1e-3, shape)
    direct = (1 - safe).lgamma().expm1() / safe
    euler, second, third = 0.5772156649015329, 0.9890559953279726, 0.9074790760808863
    return _where(near, euler + shape * (second + shape * third), direct)


def _where(condition: Any, one: Any, other: Any) -> Any:
    import torch

    return torch.where(condition, one, other)
