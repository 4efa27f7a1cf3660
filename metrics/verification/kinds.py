"""Kinds of forecasts: the variables and dimensions that a store of each holds."""

from dataclasses import dataclass

import xarray as xr

from ens10.errors import UnknownNameError


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
    """The kind of a forecast.

    Raises:
        UnknownNameError: no known `forecast_kind` in its attributes.
    """
    name = forecast.attrs.get("forecast_kind")
    if name not in KINDS:
        raise UnknownNameError("forecast_kind", name, KINDS)
    return KINDS[str(name)]
