"""Variables whose names contain a pressure level, such as `z500` and `temperature_850hpa`."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ens10.catalog import VARIABLES, names_of_kind
from ens10.errors import ArgumentError
from ens10.source.names import name_in_words

_NAMES = re.compile(
    r"(?P<name>[a-z_]+?)(?P<gap>_?)(?P<level>\d+(\.\d+)?)(?P<unit>_?(hpa|mb|pa))?"
    r"|(?P<first>\d+(\.\d+)?)_(?P<behind>[a-z_]+)",  # as in WeatherNext's tables: 500_geopotential
    re.IGNORECASE,
)
# Of a number without a unit: others, such as the 2 in t2 and the 80 in u80, are heights in m
_LEVELS_HPA = {
    50, 70, 100, 125, 150, 175, 200, 225, 250, 300, 350, 400, 450, 500, 550, 600, 650, 700, 750,
    775, 800, 825, 850, 875, 900, 925, 950, 975, 1000,
}  # fmt: skip
_HEIGHTS_M = (100, 200)  # of winds u100 and v200 in files of ECMWF, which are no pressure levels


def level_of_name(name: str, *, channel: bool = False) -> tuple[str, float] | None:
    """Return variable and pressure level (hPa) of a name that contains both; None for others.

    A number without a unit counts if it is a usual level, in hPa or in Pa.

    Args:
        name: of a variable in a file, or of a channel.
        channel: True for a name of this package, where any number behind a variable is its level.

    Examples:
        >>> from ens10.source.layouts.level_names import level_of_name
        >>> level_of_name("temperature_850hPa"), level_of_name("z500"), level_of_name("u100")
        (('t', 850.0), ('z', 500.0), None)
    """
    match = _NAMES.fullmatch(name)
    if match is None or name in VARIABLES:  # such as u10
        return None
    variable = name_in_words(match["name"] or match["behind"])
    hpa = float(match["level"] or match["first"])
    if variable not in names_of_kind("pl"):
        return None
    unit = (match["unit"] or "").lower().strip("_")
    hpa = hpa / 100 if unit == "pa" or (not unit and hpa / 100 in _LEVELS_HPA) else hpa
    is_bare = not (match["gap"] or match["first"])
    is_height = hpa not in _LEVELS_HPA or (is_bare and variable in "uv" and hpa in _HEIGHTS_M)
    return None if is_height and not (unit or channel) else (variable, hpa)


def with_levels_of_names(dataset: xr.Dataset, channels: Collection[str]) -> xr.Dataset:
    """Return a dataset whose variables on single levels are variables over `level`, lazily.

    A level that two names contain, or a variable that the dataset has over `level` too, is not
    recognised. Levels that only other variables have are NaN, see `expand_levels`.

    Args:
        dataset: with our names of dimensions.
        channels: names that a mapping of the user gave, such as `z500`.

    Raises:
        ArgumentError: the levels of a variable are in different units.
    """
    names: dict[str, dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, field in dataset.data_vars.items():
        found = level_of_name(str(name), channel=name in channels)
        if found and "latitude" in field.dims and "level" not in field.dims:
            names[found[0]][found[1]].append(str(name))
    stacked = {
        variable: _stack(variable, {hpa: dataset[name] for hpa, (name,) in levels.items()})
        for variable, levels in names.items()
        if variable not in dataset and all(len(same) == 1 for same in levels.values())
    }
    used = [n for variable in stacked for same in names[variable].values() for n in same]
    rest = dataset.drop_vars(used)
    is_scalar = "level" in rest.coords and "level" not in rest.dims
    if not stacked or (is_scalar and {*rest.data_vars} & {*names_of_kind("pl")}):
        return dataset
    fields = [*stacked.values(), *(f for f in rest.data_vars.values() if "level" in f.dims)]
    levels = union_of(field["level"] for field in fields)
    expanded = {str(field.name): expand_levels(field, levels) for field in fields}
    other_kinds = rest.drop_dims("level", errors="ignore").drop_vars("level", errors="ignore")
    return other_kinds.assign(expanded)


def _stack(variable: str, fields: dict[float, xr.DataArray]) -> xr.DataArray:
    """Return one variable over `level` of its fields by level, hPa."""
    levels = sorted(fields)
    units = {str(field.attrs.get("units", "")) for field in fields.values()}
    if len(units) > 1:
        raise ArgumentError(
            "units",
            f"the levels of {variable} are in {' and '.join(sorted(units))}",
            "Convert them to one unit",
        )
    arrays = [_by_stored_chunks(fields[hpa]) for hpa in levels]
    whole = [int(hpa) if hpa.is_integer() else hpa for hpa in levels]
    coordinate = xr.DataArray(whole, dims="level", name="level", attrs={"units": "hPa"})
    bare = [array.drop_vars("level", errors="ignore") for array in arrays]
    result: xr.DataArray = xr.concat(
        bare, coordinate, coords="minimal", compat="override", combine_attrs="override"
    )
    return result.rename(variable)


def _by_stored_chunks(field: xr.DataArray) -> xr.DataArray:
    """Return a field of a Zarr store as a dask array, since a concatenation would read it."""
    stored = field.encoding.get("chunks") or ()
    if field.chunks is not None or len(stored) != field.ndim:
        return field
    return field.chunk(dict(zip(field.dims, stored, strict=True)))


def union_of(coordinates: Iterable[xr.DataArray]) -> np.ndarray[Any, Any]:
    """Return the sorted values that any of the coordinates has."""
    arrays = [coordinate.to_numpy() for coordinate in coordinates]
    return np.unique(np.concatenate(arrays)) if arrays else np.array([])


def expand_levels(
    field: xr.DataArray, levels: Sequence[Any] | np.ndarray[Any, Any]
) -> xr.DataArray:
    """Return a field at all `levels`, NaN at those it lacks; `levels_hpa` lists its own."""
    if "level" not in field.dims or np.array_equal(field["level"].to_numpy(), levels):
        return field
    present = np.sort(field["level"].to_numpy()).tolist()
    result = field.reindex(level=levels)
    return result if present == list(levels) else result.assign_attrs(levels_hpa=present)
