"""Physical units: conversion to the catalogue's units, and checks for impossible values."""

import math
import re
import warnings
from pathlib import Path

import numpy as np
import xarray as xr

from ens10.catalog import VARIABLES, Variable
from ens10.errors import DataNote, FileError

# Numbers that mark missing values in meteorological files.
_MISSING_VALUES = (9999.0, -9999.0, 99999.0, -99999.0, -999.0, 1e20, -1e20, 9.969209968386869e36)


# Common mistakes of units, in words: units of `_CONVERSIONS`, and one that no file states
_MISTAKES = {
    "degC": "Celsius", "degF": "Fahrenheit", "hPa": "hPa", "mm": "millimetres", "%": "per cent",
    "g kg-1": "g kg-1", "hPa s-1": "hPa s-1", "kt": "knots", "h-1 km": "km h-1",
}  # fmt: skip
_EIGHTHS = {"eighths": (1 / 8, 0.0)}  # of cloud cover


def check_range(name: str, minimum: float, maximum: float, where: str) -> None:
    """Refuse values outside the physical range of a variable.

    Args:
        name: the variable, by this package's name; variables outside the catalogue pass.
        minimum: smallest value, NaN where all values are missing (which passes).
        maximum: largest value, likewise.
        where: file, and byte or date, step and member, for the message.

    Raises:
        FileError: values outside `ens10.catalog.Variable.valid_range`.
    """
    variable = VARIABLES.get(name)
    if variable is None:
        return
    low, high = variable.valid_range
    if not (minimum < low or maximum > high):  # so that NaN passes
        return
    reason = (
        f"{name} runs from {minimum:g} to {maximum:g}; {variable.long_name} in {variable.units} "
        f"lies between {low:g} and {high:g}"
    )
    raise FileError(where, *_explain_range(variable, minimum, maximum, reason))


def _explain_range(
    variable: Variable, minimum: float, maximum: float, reason: str
) -> tuple[str, str]:
    """Explain impossible values: return the reason and the remedy."""
    mark = next((value for value in (minimum, maximum) if _is_mark(value)), None)
    if mark is not None:
        return f"{reason}; {mark:g} looks like a missing value", "Mark it as missing in the file"
    if math.isinf(minimum) or math.isinf(maximum):
        return f"{reason}; it holds infinite values", "Correct the file"
    low, high = variable.valid_range
    guesses = _CONVERSIONS.get(variable.units, {}) | (_EIGHTHS if variable.units == "1" else {})
    for unit, (factor, offset) in guesses.items():
        ends = (value * factor + offset for value in (minimum, maximum))
        if unit in (*_MISTAKES, *_EIGHTHS) and all(low <= end <= high for end in ends):
            remedy = (
                f"Convert the values (of a table: the column) to {variable.units}; in netCDF and "
                "Zarr it is enough to set the attribute units to what they are"
            )
            return f"{reason}; it looks like {_MISTAKES.get(unit, unit)}", remedy
    return f"{reason}; it is damaged or another variable", "Correct the file or its names"


def _is_mark(value: float) -> bool:
    return any(math.isclose(value, mark, rel_tol=1e-6) for mark in _MISSING_VALUES)


STANDARD_GRAVITY = 9.80665  # m s-2; 3rd General Conference on Weights and Measures, 1901

_SPELLINGS_OF = {
    "K": "kelvin kelvins degk deg_k k",
    "degC": "celsius degc deg_c c °c degree_celsius degrees_celsius degree_c degrees_c",
    "degF": "fahrenheit degf °f",
    "Pa": "pascal pascals pa",
    "hPa": "hpa hectopascal hectopascals mb mbar millibar millibars",
    "kPa": "kpa",
    "m": "metre metres meter meters",
    "mm": "millimetre millimetres millimeter millimeters",
    "s": "sec second seconds",
    "kt": "knot knots kts",
    "h": "hour hours hr",
    "%": "percent per_cent",
    "gpm": "geopotential_meter geopotential_metre",
    "": "dimensionless fraction",
}
_SPELLINGS = {word: unit for unit, words in _SPELLINGS_OF.items() for word in words.split()}
_MISSING_UNITS = (None, "", "unknown")
_DIMENSIONLESS = {"(0-1)", "0-1", "0..1", "[0-1]", "1", "-", "~"}
_UNIT_FACTOR = re.compile(r"(/?)\s*([^\W\d]+|[°%][a-zA-Z]*)(-?\d{1,3}|)")
_JOULE = {"kg": 1, "m": 2, "s": -2}

# Catalogue's units: other units as `unit_of` reads them, with factor and offset.
_CONVERSIONS: dict[str, dict[str, tuple[float, float]]] = {
    "K": {"degC": (1.0, 273.15), "degF": (5 / 9, 273.15 - 32 * 5 / 9)},
    "Pa": {"hPa": (100.0, 0.0), "kPa": (1000.0, 0.0)},
    "m": {"mm": (1e-3, 0.0), "cm": (1e-2, 0.0), "kg m-2": (1e-3, 0.0)},  # of water
    "kg m-2": {"mm": (1.0, 0.0)},
    "1": {"%": (1e-2, 0.0)},
    "kg kg-1": {"g kg-1": (1e-3, 0.0)},
    "m2 s-2": {"m": (STANDARD_GRAVITY, 0.0), "gpm": (STANDARD_GRAVITY, 0.0)},
    "Pa s-1": {"hPa s-1": (100.0, 0.0)},
    "m s-1": {"kt": (1852 / 3600, 0.0), "h-1 km": (1 / 3.6, 0.0)},
}


def unit_of(text: str) -> str:
    """Normalise the spelling of a unit: 'm2 s-2' for 'm**2 s**-2' and 'J/kg'.

    Args:
        text: units in any spelling.

    Returns:
        Base units in alphabetical order with their exponents; "" for dimensionless numbers; the
        text itself if it is not a product of units.

    Examples:
        >>> from ens10.source.units import unit_of
        >>> unit_of("J/kg"), unit_of("m**2 s**-2")
        ('m2 s-2', 'm2 s-2')
    """
    if text.replace(" ", "") in _DIMENSIONLESS:
        return ""
    plain = re.sub(r"^\s*1\s*/", "/", re.sub(r"\s*(\*\*|\^)\s*|[{}]", "", text))
    if _UNIT_FACTOR.sub("", plain).strip(" .*"):
        return text  # such as numbers, which must not be lost
    exponents: dict[str, int] = {}
    for over, word, exponent in _UNIT_FACTOR.findall(plain):
        power = int(exponent or 1) * (-1 if over else 1)
        unit = _SPELLINGS.get(word.lower(), word)
        for base, times in _JOULE.items() if unit == "J" else ((unit, 1),):
            exponents[base] = exponents.get(base, 0) + times * power
    factors = sorted((base, n) for base, n in exponents.items() if n and base)
    return " ".join(base if n == 1 else f"{base}{n}" for base, n in factors)


def conversion(variable: Variable, text: str) -> tuple[float, float] | None:
    """Return the factor and offset that convert a unit to the catalogue's.

    Args:
        variable: of the catalogue.
        text: the unit, in any spelling.

    Returns:
        Factor and offset, (1, 0) for the catalogue's own unit; None if it cannot be converted.

    Examples:
        >>> from ens10.catalog import VARIABLES
        >>> from ens10.source.units import conversion
        >>> conversion(VARIABLES["tp"], "kg m**-2"), conversion(VARIABLES["tp"], "K")
        ((0.001, 0.0), None)
    """
    unit = unit_of(text)
    if unit == unit_of(variable.units):
        return 1.0, 0.0
    return _CONVERSIONS.get(variable.units, {}).get(unit)


_RATES = {"s-1": 1.0, "h-1": 3600.0, "d-1": 86400.0, "day-1": 86400.0}


def amount_of_rate(text: str) -> tuple[str, float] | None:
    """Return the unit of an amount and the seconds in the time unit of its rate.

    Args:
        text: a unit, in any spelling.

    Returns:
        Such as ("kg m-2", 1.0) for "kg m**-2 s**-1" and ("mm", 3600.0) for "mm/h"; None if the unit
        is no rate.
    """
    factors = unit_of(text).split()
    time = next((factor for factor in factors if factor in _RATES), None)
    if time is None or len(factors) == 1:
        return None
    return " ".join(factor for factor in factors if factor != time), _RATES[time]


def in_catalogue_units(
    field: xr.DataArray, source: Path | str, option: str = "--names"
) -> xr.DataArray:
    """Convert a field to the units of the catalogue, lazily if it is lazy.

    Args:
        field: a variable by this package's name. A variable outside the catalogue or without
            units is returned unchanged.
        source: path of the field, for errors.
        option: command-line option that maps the names of this source, for errors.

    Returns:
        The field. A converted one is float32, computed in float64, and its attribute
        `converted_from` is the original units.

    Raises:
        FileError: units that cannot be converted.
    """
    variable = VARIABLES.get(str(field.name))
    text = field.attrs.get("units")
    if variable is None or text in _MISSING_UNITS or text == variable.units:
        return field
    factor_offset = conversion(variable, str(text))
    is_height = variable.name == "z" and unit_of(str(text)) == "m"
    unclear_height = is_height and not _is_geopotential_height(field)
    if factor_offset is None or unclear_height:
        raise units_error(variable, str(text), source, option, unclear_height)
    if unit_of(str(text)) == unit_of(variable.units):
        return field.assign_attrs(units=variable.units)
    factor, offset = factor_offset
    converted = (field.astype(np.float64) * factor + offset).astype(np.float32)
    attributes = {k: v for k, v in field.attrs.items() if k not in ("standard_name", "long_name")}
    return converted.assign_attrs(attributes | variable.attributes | {"converted_from": str(text)})


def units_error(
    variable: Variable, text: str, source: Path | str, option: str = "--names", height: bool = False
) -> FileError:
    """Return the error of a unit that cannot be converted.

    Args:
        variable: of the catalogue.
        text: the unit in the file.
        source: path of the field.
        option: command-line option that maps the names of this source.
        height: True for a height in metres that may be geopotential height.
    """
    reason = f"{variable.name} has the units {text!r}, and {variable.long_name} is in"
    remedy = f"Convert it, mend the attribute units, or map another with {option} FILE"
    if height:
        remedy = "Set standard_name geopotential_height if it is that, or convert it"
    return FileError(source, f"{reason} {variable.units!r}", remedy)


def note_assumed_units(dataset: xr.Dataset, source: Path | str) -> None:
    """Warn of variables whose units the file does not state: the catalogue's are assumed."""
    names = [
        f"{name} {VARIABLES[str(name)].units}"
        for name, field in dataset.data_vars.items()
        if name in VARIABLES and field.attrs.get("units") in _MISSING_UNITS
    ]
    if names:
        text = f"{source}: no units are stated; those of ENS-10 are assumed: {', '.join(names)}"
        warnings.warn(text, DataNote, stacklevel=3)


def _is_geopotential_height(field: xr.DataArray) -> bool:
    """Return True for geopotential height, not geometric height (5 m apart at 500 hPa)."""
    words = f"{field.attrs.get('standard_name', '')} {field.attrs.get('long_name', '')}"
    return "geopotential" in words.lower()
