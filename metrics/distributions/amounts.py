"""Families for amounts of 0 or more, by location and scale before censoring.

Networks and statistical methods forecast precipitation and wind speed with them.
"""

from typing import Any

from ens10.errors import UnknownNameError
from ens10.metrics.distributions.base import ClosedForm
from ens10.metrics.distributions.registry import FAMILIES, from_moments

AmountFamily = str  # the kind of a family with `amounts`


def check_amount_family(name: str) -> None:
    """Refuse a family without the attribute `amounts`.

    Raises:
        UnknownNameError: an unknown family.
    """
    kinds = [kind for kind, cls in FAMILIES.items() if cls.amounts]
    if name not in kinds:
        raise UnknownNameError("family", name, kinds)


def amount(
    family: str,
    location: Any,
    scale: Any,
    third_parameter: Any,
    unit: Any = 1.0,
    lower: float = 0.0,
) -> ClosedForm:
    """Return the distribution of an amount, from tensors; see `from_moments` of its class.

    Args:
        family: the kind of a family with `amounts`.
        location: mean before censoring or truncation, (...), target units.
        scale: standard deviation before it, above 0, target units.
        third_parameter: any real number, (...), from which the shift or the shape is computed.
        unit: unit of the shift, target units.
        lower: the lower bound, of families with bounds.
    """
    return from_moments(family, location, scale, third_parameter, unit, lower=lower)
