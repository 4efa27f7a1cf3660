"""Kinds of forecasts: the variables and dimensions that a store of each holds."""

from dataclasses import dataclass

import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError, listing
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


def kind_of(forecast: xr.Dataset | xr.DataArray, argument: str = "forecast") -> Kind:
    """The kind of a forecast: one of `KINDS`, or a family of `families.registry`.

    Of a family, the variables are its parameters; those that have a default may be absent.

    Args:
        forecast: with the attribute `forecast_kind`.
        argument: name of the caller's argument, for the message.

    Raises:
        ArgumentError: no Dataset, or one without the attribute `forecast_kind`.
        UnknownNameError: a `forecast_kind` that is not known.
    """
    known = list(dict.fromkeys((*KINDS, *FAMILIES)))
    if not isinstance(forecast, xr.Dataset):
        what = f"a Dataset is wanted, not a {type(forecast).__name__}"
        raise ArgumentError(argument, what, "Variables of each kind: ens10.metrics.score_states")
    attribute = "attrs['forecast_kind']"
    if "forecast_kind" not in forecast.attrs:
        raise ArgumentError(
            argument,
            f"the Dataset has no {attribute}, which says what its variables are",
            f"Set {argument}.{attribute} to one of: {listing(known)}",
        )
    name = str(forecast.attrs["forecast_kind"])
    if name in KINDS:
        return KINDS[name]
    if name not in FAMILIES:
        raise UnknownNameError(f"{argument}.{attribute}", name, known)
    family = FAMILIES[name]
    wanted = [p for p in family.parameters if p in forecast or p not in family.defaults]
    return Kind(name, tuple(wanted))
