"""Values that cannot be what they are said to be: wrong units, or missing values read as data."""

import math
from dataclasses import dataclass

from ens10.catalog import VARIABLES, Variable
from ens10.errors import FileError

# Numbers by which files of this field mark missing values.
_MARKS = (9999.0, -9999.0, 99999.0, -99999.0, -999.0, 1e20, -1e20, 9.969209968386869e36)


@dataclass(frozen=True)
class _Guess:
    """A mistake that is often made: values times `factor` plus `offset` would be in our units."""

    units: str
    words: str
    factor: float
    offset: float = 0.0


_GUESSES = (
    _Guess("K", "Celsius", 1.0, 273.15),
    _Guess("K", "Fahrenheit", 5 / 9, 273.15 - 32 * 5 / 9),
    _Guess("Pa", "hPa", 100.0),
    _Guess("m", "millimetres", 1e-3),
    _Guess("1", "per cent", 1e-2),
    _Guess("1", "eighths", 1 / 8),
    _Guess("kg kg-1", "g kg-1", 1e-3),
    _Guess("Pa s-1", "hPa s-1", 100.0),
    _Guess("m s-1", "knots", 1852 / 3600),
    _Guess("m s-1", "km h-1", 1 / 3.6),
)


def check_range(name: str, minimum: float, maximum: float, where: str) -> None:
    """Refuses values that a variable cannot have in its units.

    Args:
        name: the variable, by this package's name; variables that the catalogue lacks pass.
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
    raise FileError(where, *_explained(variable, minimum, maximum, reason))


def _explained(variable: Variable, minimum: float, maximum: float, reason: str) -> tuple[str, str]:
    """The reason with what the values look like, and the remedy."""
    mark = next((value for value in (minimum, maximum) if _is_mark(value)), None)
    if mark is not None:
        return f"{reason}; {mark:g} looks like a missing value", "Mark it as missing in the file"
    if math.isinf(minimum) or math.isinf(maximum):
        return f"{reason}; it holds infinite values", "Mend the file"
    low, high = variable.valid_range
    for guess in _GUESSES:
        ends = (value * guess.factor + guess.offset for value in (minimum, maximum))
        if guess.units == variable.units and all(low <= end <= high for end in ends):
            remedy = f"Convert it to {variable.units} or mend the file's units"
            return f"{reason}; it looks like {guess.words}", remedy
    return f"{reason}; it is damaged or another variable", "Mend the file or its names"


def _is_mark(value: float) -> bool:
    return any(math.isclose(value, mark, rel_tol=1e-6) for mark in _MARKS)
