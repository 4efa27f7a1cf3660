"""Channels: one variable on one level, such as `t2m` or `z_500` (also accepted as `z500`)."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from ens10.catalog import VARIABLES, variable
from ens10.errors import Ens10Error, UnknownNameError

_WITH_LEVEL = re.compile(r"(?P<name>.+?)_?(?P<level>\d+(\.\d+)?)")
_CANONICAL = re.compile(r"(?P<name>.+)_(?P<level>\d+(\.\d+)?)")


def channel_names(dataset: xr.Dataset) -> list[str]:
    """Return the channels of a dataset of forecasts or truth.

    Surface variables come first, then those on levels, each in the catalogue's order; variables
    that the catalogue lacks come last. The order does not depend on how the dataset was stored.
    """
    surface, upper = [], []
    rank = {name: n for n, name in enumerate(VARIABLES)}
    names = sorted(dataset.data_vars, key=lambda name: (rank.get(str(name), len(rank)), str(name)))
    for name in names:
        field = dataset[name]
        if "level" not in field.dims:
            surface.append(str(name))
            continue
        levels = field.attrs.get("levels_hpa", field["level"].to_numpy().tolist())
        upper += [f"{name}_{level:g}" for level in np.atleast_1d(levels)]
    return surface + upper


def resolve(channel: str, known: list[str], argument: str = "channel") -> str:
    """Return the canonical name of a channel among `known`, e.g. `z_500` for `z500`.

    Examples:
        >>> from ens10.channels import resolve
        >>> resolve("z500", ["t2m", "z_500"])
        'z_500'

    Raises:
        UnknownNameError: no channel of that name.
    """
    candidates = [channel]
    try:
        candidates.append(variable(channel).name)  # a GRIB short name such as 2t
    except Ens10Error:
        match = _WITH_LEVEL.fullmatch(channel)
        if match:
            candidates.append(f"{match['name']}_{match['level']}")
    for candidate in candidates:
        if candidate in known:
            return candidate
    raise UnknownNameError(argument, channel, known)


def step_number(step: float | str) -> float:
    """Return a lead time as a number for names: an integer if it is whole (48), else a float.

    Args:
        step: a number, or the text behind `@` in a channel such as `t2m@2.5`.

    Raises:
        ValueError: a text that is no number.
    """
    number = float(step)
    return int(number) if number.is_integer() else number


def split(channel: str) -> tuple[str, int | None]:
    """Split a canonical channel name into variable and level (whole hPa; None at the surface).

    Examples:
        >>> from ens10.channels import split
        >>> split("z_500"), split("t2m")
        (('z', 500), ('t2m', None))
    """
    name, _, level = channel.rpartition("_")
    return (name, int(float(level))) if name and level.isdigit() else (channel, None)


def split_exactly(channel: str) -> tuple[str, float | None]:
    """Split a channel name, also one whose level is not a whole number of hPa (`z_0.5`)."""
    match = _CANONICAL.fullmatch(channel)
    return (match["name"], float(match["level"])) if match else (channel, None)


def field_of(dataset: xr.Dataset, channel: str, argument: str = "channel") -> xr.DataArray:
    """Return the field of one channel, without a level dimension.

    Raises:
        UnknownNameError: the dataset lacks the channel; the message lists those it has.
    """
    canonical = resolve(channel, channel_names(dataset), argument)
    is_surface = canonical in dataset.data_vars
    name, level = (canonical, None) if is_surface else split_exactly(canonical)
    field = dataset[name]
    return field.sel(level=level, drop=True) if level is not None else field


def attributes_of(channel: str) -> Mapping[str, Any]:
    """Return CF attributes of a channel, empty for variables that ENS-10 does not have."""
    name, level = (channel, None) if channel in VARIABLES else split(channel)
    if name not in VARIABLES:
        return {}
    attributes: dict[str, Any] = dict(VARIABLES[name].attributes)
    if level is not None:
        attributes["level_hpa"] = level
        attributes["long_name"] += f" at {level:g} hPa"
    return attributes
