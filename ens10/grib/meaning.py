"""What the header of a GRIB message means, as ecCodes reads it."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ens10.catalog import variable_of_param
from ens10.errors import DamagedFileError, FileError
from ens10.grib.grid import LatLonGrid, Scan, from_header
from ens10.grib.isolated import EccodesError, keys_of
from ens10.grib.message import Meaning

Keys = Mapping[str, Any]

_EPOCH = datetime(1970, 1, 1)
_ROUNDING = 2e-3  # degrees; edition 1 rounds corners and increments to a thousandth


class Header(NamedTuple):
    """The meaning of a message, its start in seconds since 1970, and its member (-1 for none)."""

    meaning: Meaning
    time: int
    number: int


def ask_eccodes(path: Path, offset: int, raw: bytes) -> Header:
    """The header of a message.

    Args:
        path: of the file, for errors.
        offset: of the message in the file.
        raw: the message.

    Raises:
        FileError: a grid that is not supported.
        DamagedFileError: no date, or a grid that contradicts itself.
        EccodesError: ecCodes cannot read the header.
    """
    keys = keys_of(path, raw)
    number = _get(keys, "perturbationNumber")
    time = _time(keys, path, offset)
    meaning = _meaning(keys, path, offset)
    return Header(meaning, time, -1 if number is None else int(number))


def seconds(year: int, month: int, day: int, hour: int, minute: int, second: int = 0) -> int:
    """Seconds since 1970.

    Raises:
        ValueError: no such date.
    """
    since = datetime(year, month, day, hour, minute, second) - _EPOCH
    return since.days * 86400 + since.seconds


def _meaning(keys: Keys, path: Path, offset: int) -> Meaning:
    grid, scan = _grid(keys, path, offset)
    param_id = int(_get(keys, "paramId"))
    known = variable_of_param(param_id)
    short_name = str(_get(keys, "shortName"))
    hindcast = _get(keys, "hdate") is not None
    return Meaning(
        edition=int(_get(keys, "edition")),
        param_id=param_id,
        short_name=short_name,
        name=known.name if known else str(_get(keys, "cfVarName") or short_name),
        units=known.units if known else str(_get(keys, "units") or "unknown"),
        level_type=str(_get(keys, "typeOfLevel")),
        level=int(_get(keys, "level") or 0),
        step=int(_get(keys, "endStep")),
        data_type=str(_get(keys, "dataType")),
        # MARS calls the model version `date` and the date hindcast `hdate`.
        model_date=int(_get(keys, "mars.date") or 0) or None if hindcast else None,
        packing=str(_get(keys, "packingType")),
        bits=int(_get(keys, "bitsPerValue")),
        grid=grid,
        scan=scan,
    )


def _get(keys: Keys, key: str) -> Any:
    """The value of a key, or None where this message has none."""
    value = keys.get(key)
    if isinstance(value, EccodesError):
        raise value
    return value


def _time(keys: Keys, path: Path, offset: int) -> int:
    day, hour_minute = int(_get(keys, "dataDate")), int(_get(keys, "dataTime"))
    year, month_day = divmod(day, 10000)
    try:
        return seconds(year, *divmod(month_day, 100), *divmod(hour_minute, 100))
    except ValueError as error:
        raise DamagedFileError(
            path, offset, f"dataDate {day}, dataTime {hour_minute:04d} is no date ({error})"
        ) from error


def _grid(keys: Keys, path: Path, offset: int) -> tuple[LatLonGrid, Scan]:
    kind = _get(keys, "gridType")
    if kind != "regular_ll":
        raise FileError(
            path,
            f"the message at byte {offset} lies on a {kind!r} grid",
            "Interpolate the file to a regular latitude-longitude grid first",
        )

    if _get(keys, "alternativeRowScanning"):
        raise FileError(
            path,
            f"the message at byte {offset} scans every second row backwards",
            "Write the file again with all rows in one direction",
        )

    def corner(which: str, axis: str) -> float:
        return float(_get(keys, f"{axis}Of{which}GridPointInDegrees"))

    rows, columns = int(_get(keys, "Nj")), int(_get(keys, "Ni"))
    points = int(_get(keys, "numberOfDataPoints"))
    if not 0 < rows * columns == points:
        reason = f"Nj is {rows}, Ni {columns}, and the number of points {points}"
        raise DamagedFileError(path, offset, f"its grid contradicts itself: {reason}")
    latitudes = (corner("First", "latitude"), corner("Last", "latitude"))
    grid, scan = from_header(
        (rows, columns),
        latitudes,
        (corner("First", "longitude"), corner("Last", "longitude")),
        by_column=bool(_get(keys, "jPointsAreConsecutive")),
        westward=bool(_get(keys, "iScansNegatively")),
    )
    wrong = _contradiction(keys, grid, latitudes)
    if wrong:
        raise DamagedFileError(path, offset, f"its grid contradicts itself: {wrong}")
    return grid, scan


def _contradiction(keys: Keys, grid: LatLonGrid, latitudes: tuple[float, float]) -> str | None:
    """Where the flags and increments of a grid do not fit its corners, as after a flipped bit."""
    northward = int(_get(keys, "jScansPositively"))
    if grid.rows > 1 and (latitudes[0] < latitudes[1]) != bool(northward):
        first, last = latitudes
        return f"jScansPositively is {northward}, its rows run from {first:g} to {last:g} N"
    if not _get(keys, "ijDirectionIncrementGiven"):
        return None
    between_rows = (grid.north - grid.south) / max(grid.rows - 1, 1)
    for axis, size, degrees in (
        ("iDirection", grid.columns, grid.spacing),
        ("jDirection", grid.rows, between_rows),
    ):
        given = float(_get(keys, f"{axis}IncrementInDegrees"))
        if size > 1 and abs(given - degrees) > _ROUNDING:
            return f"{axis}Increment is {given:g}, its corners are {degrees:g} degrees apart a step"
    return None
