"""Kinds of forecasts: the variables and dimensions that a store of each holds."""

from dataclasses import dataclass

import xarray as xr

from ens10.errors import UnknownNameError
from ens10.metrics.families.registry import FAMILIES


@dataclass(frozen=True)
class Kind:
    """What a forecast store of one kind holds.

    Attributes:
        name: `attrs["forecast_kind"]`.
        variables: their names.
        core: their dimensions beside time, step, level, latitude and longitude.
        united: the variables that have the truth's unit.
    """

    name: str
    variables: tuple[str, ...]
    core: tuple[str, ...] = ()
    united: tuple[str, ...] = ()


KINDS = {
    "normal": Kind("normal", ("mu", "sigma"), united=("mu", "sigma")),
    "ensemble": Kind("ensemble", ("members",), ("number",), ("members",)),
    "quantiles": Kind("quantiles", ("values",), ("quantile",), ("values",)),
}


def kind_of(forecast: xr.Dataset) -> Kind:
    """The kind of a forecast: one of `KINDS`, or a family of `families.registry`.

    Of a family, the variables are its parameters; those that have a default may be absent.

    Raises:
        UnknownNameError: no known `forecast_kind` in its attributes.
    """
    name = str(forecast.attrs.get("forecast_kind"))
    if name in KINDS:
        return KINDS[name]
    if name not in FAMILIES:
        raise UnknownNameError("forecast_kind", name, dict.fromkeys((*KINDS, *FAMILIES)))
    family = FAMILIES[name]
    wanted = [p for p in family.parameters if p in forecast or p not in family.defaults]
    return Kind(name, tuple(wanted))
