"""Names of variables and dimensions in files of other origin, and their mapping to our names.

Common layouts (ERA5 of the old and the new Copernicus CDS, ARCO-ERA5, WeatherBench 2, cfgrib, CDO)
are recognised; for others a short YAML file gives the mapping:

    variables: {t2m_fc: t2m}         # forecast variables: theirs to ours
    truth: {t2m_era5: t2m}           # truth variables in the same file, if there are any
    dimensions: {member: number, init: time, lead: step, lat: latitude, lon: longitude}
    step: {units: months, first: 1}  # `first`: the step that is the start's own month (or hour 0)
    accumulation: {rain: 6 h}        # or since start, since 00 UTC, previous step
    group: pressure_level            # of a Zarr store or netCDF file

A variable of one pressure level is mapped to a channel: {geopotential_500hpa: z500}. One mapping
serves forecasts and truth, unless there is a separate one for the truth. Layouts of producers, each
with names of its own, are in `ens10.source.layouts`.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ens10.catalog import RATES, VARIABLES, Variable, variable_of_param
from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.source.units import amount_of_rate, unit_of
from ens10.untrusted import is_file_name, parse_yaml

_TEXT_KEYS = ("group", "absent_chunks")
_KEYS = ("variables", "truth", "dimensions", "step", "accumulation", *_TEXT_KEYS)
_STEP_KEYS = ("units", "first")
STEP_UNITS = ("h", "months")
_WINDOW = re.compile(r"since start|since 00 UTC|previous step|\d{1,6}(\.\d{1,6})? h")
NAMES_OPTION, TRUTH_OPTION = "--names", "--truth-names"  # which errors name as the remedy


@dataclass(frozen=True)
class Names:
    """Mapping of a file's names to those of this package.

    Attributes:
        variables: forecast variables, theirs to ours; if empty, all variables of the file.
        truth: truth variables in the same file, theirs to ours.
        dimensions: dimensions, theirs to ours.
        step_units: "h" or "months", for steps without units in the file.
        first_step: the step whose valid time is the start itself, in the units of the steps.
        accumulation: windows of precipitation, by its name in the file: "since start", "6 h" (the
            hours that end at the valid time) or "previous step".
        group: of a Zarr store or netCDF file; "" for its root.
        absent_chunks: "fill" if chunks that a Zarr store lacks have its fill value; otherwise they
            are missing, see `ens10.source.absent_chunks`.
    """

    variables: dict[str, str] = field(default_factory=dict)
    truth: dict[str, str] = field(default_factory=dict)
    dimensions: dict[str, str] = field(default_factory=dict)
    step_units: str = "h"
    first_step: float = 0
    accumulation: dict[str, str] = field(default_factory=dict)
    group: str = ""
    absent_chunks: str = ""

    def record(self) -> dict[str, Any]:
        """Return the mapping for the plan of a store; what later versions added only if set."""
        later = ("accumulation", *_TEXT_KEYS)
        return {key: value for key, value in asdict(self).items() if value or key not in later}


def names_of(names: Names | Path | str | None) -> Names | None:
    """Return a mapping that may be given as the path of a YAML file."""
    return read_names(names) if isinstance(names, Path | str) else names


def read_names(path: Path | str) -> Names:
    """Read the mapping in a YAML file.

    Raises:
        FileError: the file is missing, not valid YAML, or not a mapping of names.
        UnknownNameError: an unknown key or unit.
    """
    path = Path(path)
    if not path.is_file():
        raise FileError(path, "no such file", "Pass the path of a YAML file with a name mapping")
    try:
        content = parse_yaml(path.read_text())
    except ValueError as error:
        raise FileError(path, f"not valid YAML ({error})", "Correct the file") from error
    if not isinstance(content, dict):
        raise FileError(path, "not a mapping of names", f"Use the keys {', '.join(_KEYS)}")
    _check_keys(path, content, _KEYS)
    texts = {key: _text(path, key, content.pop(key, None) or "") for key in _TEXT_KEYS}
    if texts["absent_chunks"] not in ("", "fill", "missing"):
        raise UnknownNameError(
            f"absent_chunks in {path}", texts["absent_chunks"], ("fill", "missing")
        )
    tables = _tables_of_names(path, content)
    step = _table(path, content, "step")
    _check_keys(path, step, _STEP_KEYS)
    units = str(step.get("units", "h"))
    if units not in STEP_UNITS:
        raise UnknownNameError(f"step.units in {path}", units, STEP_UNITS)
    first = step.get("first", 0)
    if isinstance(first, bool) or not isinstance(first, int | float) or not np.isfinite(first):
        raise FileError(path, f"step.first is {first!r}, not a number", "Write a number")
    return Names(
        **tables,
        step_units=units,
        first_step=first,
        group=texts["group"],
        absent_chunks=texts["absent_chunks"],
    )


def _tables_of_names(path: Path, content: dict[str, Any]) -> dict[str, dict[str, str]]:
    tables = {
        key: {
            _text(path, f"a name in {key}", k): _text(path, f"{key}: {k}", v)
            for k, v in _table(path, content, key).items()
        }
        for key in _KEYS
        if key not in ("step", *_TEXT_KEYS)
    }
    for ours in (*tables["variables"].values(), *tables["truth"].values()):
        if not is_file_name(ours):
            reason = f"{ours!r} cannot be the name of a variable in a store"
            raise FileError(path, reason, "Choose a name without '/', ':' and '..'")
    for name, window in tables["accumulation"].items():
        if not _WINDOW.fullmatch(window):
            reason = f"the window of {name} is {window!r}"
            raise FileError(path, reason, "Write 'since start', 'previous step' or such as '6 h'")
    return tables


def _text(path: Path, name: str, value: object) -> str:
    """Return a name or window as text, such as the number of a member."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise FileError(path, f"{name} is {value!r}, not a text", "Write one name")
    return str(value)


def _table(path: Path, content: dict[str, Any], key: str) -> dict[str, Any]:
    table = content.get(key) or {}
    if not isinstance(table, dict):
        raise FileError(path, f"{key} is not a mapping", f"Write it as {key}: {{theirs: ours}}")
    return table


def _check_keys(path: Path, content: dict[str, Any], accepted_keys: tuple[str, ...]) -> None:
    for key in content:
        if key not in accepted_keys:
            raise UnknownNameError(f"key in {path}", key, accepted_keys)


_DIMENSIONS = {
    "lat": "latitude",
    "lon": "longitude",
    "prediction_timedelta": "step",  # WeatherBench 2
    "pressure_level": "level",
    "isobaricInhPa": "level",
    "isobaricInPa": "level",
    "plev": "level",
    "pressure": "level",
}
_LATITUDE_LONGITUDE = (("latitude", "longitude"), ("lat", "lon"), ("Latitude", "Longitude"))
_PASCAL_NAMES = ("isobaricInPa", "plev")  # of levels in Pa, if the file gives no units
_GEOPOTENTIAL_HEIGHT = 156  # paramId; converted to geopotential by its units

_STANDARD_NAMES = {
    **{v.name: {v.standard_name} for v in VARIABLES.values() if v.standard_name},
    "z": {"geopotential", "geopotential_height"},
    "msl": {"air_pressure_at_mean_sea_level", "air_pressure_at_sea_level"},
    "tp": {VARIABLES["tp"].standard_name, "precipitation_amount", "precipitation_flux"},
    "cp": {VARIABLES["cp"].standard_name, "convective_precipitation_flux"},
}
_HEIGHTS = {"t2m": 2.0, "u10": 10.0, "v10": 10.0}  # m: not part of the CF standard names
_HEIGHT_COORDINATES = ("height", "heightAboveGround")
_AGGREGATING_METHODS = ("maximum", "minimum", "standard_deviation", "variance", "range")

_WELL_KNOWN = {
    "t2m": ("2m_temperature", "2_metre_temperature", "temperature_2m"),
    "u10": ("10m_u_component_of_wind", "10_metre_u_wind_component"),
    "v10": ("10m_v_component_of_wind", "10_metre_v_wind_component"),
    "msl": ("mean_sea_level_pressure",),
    "tcwv": ("total_column_water_vapour", "total_column_water_vapor"),
    "z": ("geopotential", "gh", "geopotential_height"),
    "u": ("u_component_of_wind",),
    "v": ("v_component_of_wind",),
}


def recognise_dimensions(dataset: xr.Dataset) -> dict[str, str]:
    """Return the well-known names of dimensions and scalar coordinates, theirs to ours.

    Each of our names is used at most once, and not if the dataset has it already.
    """
    present = {str(name) for name in (*dataset.dims, *dataset.coords)}
    table: dict[str, str] = {}
    for alias, dim in _DIMENSIONS.items():
        flat = alias not in dataset.variables or dataset[alias].ndim <= 1
        if alias in present and flat and dim not in present | set(table.values()):
            table[alias] = dim
    # The new CDS puts analyses on `valid_time`. A start `time` beside it makes it a forecast.
    if "valid_time" in dataset.dims and not {"time", "step"} & present:
        table["valid_time"] = "time"
    return table


def missing_grid_reason(dataset: xr.Dataset) -> str | None:
    """Return why a grid is impossible under any mapping of names; None if it may be possible.

    Args:
        dataset: with any names of dimensions.
    """
    pairs = [
        (dataset[y], dataset[x]) for y, x in _LATITUDE_LONGITUDE if {y, x} <= set(dataset.variables)
    ]
    if not any(y.dims == x.dims and y.ndim > 1 for y, x in pairs):
        return None
    return (
        "A grid whose latitudes and longitudes have two dimensions cannot be read yet: "
        "interpolate it to rows and columns of a latitude-longitude grid"
    )


def with_levels_in_hpa(dataset: xr.Dataset, level_name: str) -> xr.Dataset:
    """Convert the coordinate `level` from Pa or kPa to hPa; other datasets are unchanged.

    Args:
        dataset: with our names of dimensions.
        level_name: name of the levels in the file, which implies the units if none are given.
    """
    if "level" not in dataset.coords:
        return dataset
    level = dataset["level"]
    stated = str(level.attrs.get("units", "Pa" if level_name in _PASCAL_NAMES else "hPa"))
    units, name = unit_of(stated), str(level.attrs.get("standard_name", ""))
    if units in ("m", "km", "cm") or name.startswith(
        ("atmosphere_", "height", "altitude", "depth")
    ):
        reason = f"its values are in {stated!r}{f' ({name})' if name else ''}, not pressures"
        remedy = "Leave these variables out, or interpolate them to pressure levels"
        raise ArgumentError("level", reason, remedy)
    if units not in ("Pa", "kPa"):
        return dataset
    values = level.to_numpy().astype(np.float64) / {"Pa": 100.0, "kPa": 0.1}[units]
    are_integers = np.all(values == values.round())
    values = values.astype(np.int64) if are_integers else values
    return dataset.assign_coords(level=(level.dims, values, level.attrs | {"units": "hPa"}))


def recognise_variables(dataset: xr.Dataset) -> dict[str, str]:
    """Return catalogue variables under other names in the dataset, theirs to ours.

    They are recognised, in this order, by paramId, CF standard name (with level or height),
    well-known name and, for precipitation that the file has in no other form, as its rate.
    Variables with our names are unchanged. If two variables fit equally well, neither is
    recognised.

    Args:
        dataset: with our names of dimensions.
    """
    table: dict[str, str] = {}
    rules: tuple[Callable[[xr.DataArray], str | None], ...]
    rules = (_by_param, _by_standard_name, _by_well_known_name, _by_rate)
    used_names = {str(name) for name in dataset.data_vars if name in VARIABLES}
    for rule in rules:
        candidates: dict[str, list[str]] = defaultdict(list)
        for name, values in dataset.data_vars.items():
            if str(name) in used_names or str(name) in table or "latitude" not in values.dims:
                continue
            variable = rule(values)
            if variable and variable not in used_names and _kind_fits(VARIABLES[variable], values):
                candidates[variable].append(str(name))
        unique = {names[0]: variable for variable, names in candidates.items() if len(names) == 1}
        table |= unique
        used_names |= set(unique.values())
    return table


def _kind_fits(variable: Variable, field: xr.DataArray) -> bool:
    """Return True if field and variable both have levels, or both have none."""
    if variable.kind == "sfc":
        return "level" not in field.dims
    return "level" in field.coords or "level" in field.dims


def _by_param(field: xr.DataArray) -> str | None:
    param = field.attrs.get("GRIB_paramId")
    if param is None and field.attrs.get("table") == 128:  # as cdo writes it
        param = field.attrs.get("code")
    if param is None:
        return None
    variable = variable_of_param(int(param))
    if int(param) == _GEOPOTENTIAL_HEIGHT:
        return "z"
    return variable.name if variable else None


def _by_standard_name(field: xr.DataArray) -> str | None:
    """Return the variable by CF standard name, if it is unique for the field's level and height."""
    standard_name = field.attrs.get("standard_name")
    methods = str(field.attrs.get("cell_methods", ""))
    if any(method in methods for method in _AGGREGATING_METHODS):
        return None
    heights = [float(field[c]) for c in _HEIGHT_COORDINATES if _is_scalar(field, c)]
    candidates = [
        name
        for name, names in _STANDARD_NAMES.items()
        if standard_name in names
        and _kind_fits(VARIABLES[name], field)
        and (name not in _HEIGHTS or heights == [_HEIGHTS[name]])
    ]
    return candidates[0] if len(candidates) == 1 else None


def _is_scalar(field: xr.DataArray, coordinate: str) -> bool:
    return coordinate in field.coords and field[coordinate].ndim == 0


def _by_well_known_name(field: xr.DataArray) -> str | None:
    """Return the variable by its name; `long_name` is ignored, since it may be inherited."""
    return name_in_words(str(field.name))


def _by_rate(field: xr.DataArray) -> str | None:
    """Return the variable whose mean rate a field is, by its name or cfgrib's attribute."""
    names = (str(field.name), str(field.attrs.get("GRIB_shortName")))
    amount = next((RATES[name] for name in names if name in RATES), None)
    return amount if amount_of_rate(str(field.attrs.get("units", ""))) else None


def name_in_words(name: str) -> str | None:
    """Return the catalogue's variable of a well-known name such as `2m_temperature`; or None."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    for variable in VARIABLES.values():
        words = variable.long_name.lower().replace(" ", "_")
        if plain in (variable.short_name, words, *_WELL_KNOWN.get(variable.name, ())):
            return variable.name
    return None
