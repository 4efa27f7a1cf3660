"""What the header of a GRIB message means, as ecCodes reads it."""

from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import eccodes

from ens10.catalog import variable_of_param
from ens10.errors import DamagedFileError, FileError
from ens10.grib.grid import LatLonGrid, Scan, from_header
from ens10.grib.message import Meaning

_EPOCH = datetime(1970, 1, 1)
_ROUNDING = 2e-3  # degrees; edition 1 rounds corners and increments to a thousandth


class Header(NamedTuple):
    """The meaning of a message, its start in seconds since 1970, and its member (-1 for none)."""

    meaning: Meaning
    time: int
    number: int


def ask_eccodes(path: Path, offset: int) -> Header:
    """The header of the message that begins at a byte of a file.

    Raises:
        FileError: a grid that is not supported.
        DamagedFileError: ecCodes finds no message there, or no date.
    """
    with path.open("rb") as file:
        file.seek(offset)
        handle = open_header(path, file, offset)
    try:
        number = _get(handle, "perturbationNumber")
        time = _time(handle, path, offset)
        meaning = _meaning(handle, path, offset)
    finally:
        eccodes.codes_release(handle)
    return Header(meaning, time, -1 if number is None else int(number))


def open_header(path: Path, file: BinaryIO, offset: int) -> int:
    """The ecCodes handle of the header of the message at which the file stands.

    Raises:
        DamagedFileError: ecCodes finds no message there.
    """
    try:
        handle = eccodes.codes_grib_new_from_file(file, headers_only=True)
    except eccodes.CodesInternalError as error:
        raise DamagedFileError(path, offset, f"ecCodes cannot read the header ({error})") from error
    if handle is None:
        raise DamagedFileError(path, offset, "ecCodes finds no message here")
    return int(handle)


def seconds(year: int, month: int, day: int, hour: int, minute: int, second: int = 0) -> int:
    """Seconds since 1970.

    Raises:
        ValueError: no such date.
    """
    since = datetime(year, month, day, hour, minute, second) - _EPOCH
    return since.days * 86400 + since.seconds


def _meaning(handle: int, path: Path, offset: int) -> Meaning:
    grid, scan = _grid(handle, path, offset)
    param_id = int(_get(handle, "paramId"))
    known = variable_of_param(param_id)
    short_name = str(_get(handle, "shortName"))
    hindcast = _get(handle, "hdate") is not None
    return Meaning(
        edition=int(_get(handle, "edition")),
        param_id=param_id,
        short_name=short_name,
        name=known.name if known else str(_get(handle, "cfVarName") or short_name),
        units=known.units if known else str(_get(handle, "units") or "unknown"),
        level_type=str(_get(handle, "typeOfLevel")),
        level=int(_get(handle, "level") or 0),
        step=_step_hours(handle),
        data_type=str(_get(handle, "dataType")),
        # MARS calls the model version `date` and the date hindcast `hdate`.
        model_date=int(_get(handle, "mars.date") or 0) or None if hindcast else None,
        packing=str(_get(handle, "packingType")),
        bits=int(_get(handle, "bitsPerValue")),
        grid=grid,
        scan=scan,
    )


def _get(handle: int, key: str) -> Any:
    """The value of a key, or None where this message has none."""
    try:
        return eccodes.codes_get(handle, key)
    except eccodes.KeyValueNotFoundError:
        return None


def _time(handle: int, path: Path, offset: int) -> int:
    day, hour_minute = int(_get(handle, "dataDate")), int(_get(handle, "dataTime"))
    year, month_day = divmod(day, 10000)
    try:
        return seconds(year, *divmod(month_day, 100), *divmod(hour_minute, 100))
    except ValueError as error:
        raise DamagedFileError(
            path, offset, f"dataDate {day}, dataTime {hour_minute:04d} is no date ({error})"
        ) from error


def _step_hours(handle: int) -> int:
    eccodes.codes_set(handle, "stepUnits", "h")
    return int(_get(handle, "endStep"))


def _grid(handle: int, path: Path, offset: int) -> tuple[LatLonGrid, Scan]:
    kind = _get(handle, "gridType")
    if kind != "regular_ll":
        raise FileError(
            path,
            f"the message at byte {offset} lies on a {kind!r} grid",
            "Interpolate the file to a regular latitude-longitude grid first",
        )

    if _get(handle, "alternativeRowScanning"):
        raise FileError(
            path,
            f"the message at byte {offset} scans every second row backwards",
            "Write the file again with all rows in one direction",
        )

    def corner(which: str, axis: str) -> float:
        return float(_get(handle, f"{axis}Of{which}GridPointInDegrees"))

    rows, columns = int(_get(handle, "Nj")), int(_get(handle, "Ni"))
    points = int(_get(handle, "numberOfDataPoints"))
    if not 0 < rows * columns == points:
        reason = f"Nj is {rows}, Ni {columns}, and the number of points {points}"
        raise DamagedFileError(path, offset, f"its grid contradicts itself: {reason}")
    latitudes = (corner("First", "latitude"), corner("Last", "latitude"))
    grid, scan = from_header(
        (rows, columns),
        latitudes,
        (corner("First", "longitude"), corner("Last", "longitude")),
        by_column=bool(_get(handle, "jPointsAreConsecutive")),
        westward=bool(_get(handle, "iScansNegatively")),
    )
    wrong = _contradiction(handle, grid, latitudes)
    if wrong:
        raise DamagedFileError(path, offset, f"its grid contradicts itself: {wrong}")
    return grid, scan


def _contradiction(handle: int, grid: LatLonGrid, latitudes: tuple[float, float]) -> str | None:
    """Where the flags and increments of a grid do not fit its corners, as after a flipped bit."""
    northward = int(_get(handle, "jScansPositively"))
    if grid.rows > 1 and (latitudes[0] < latitudes[1]) != bool(northward):
        first, last = latitudes
        return f"jScansPositively is {northward}, its rows run from {first:g} to {last:g} N"
    if not _get(handle, "ijDirectionIncrementGiven"):
        return None
    between_rows = (grid.north - grid.south) / max(grid.rows - 1, 1)
    for axis, size, degrees in (
        ("iDirection", grid.columns, grid.spacing),
        ("jDirection", grid.rows, between_rows),
    ):
        given = float(_get(handle, f"{axis}IncrementInDegrees"))
        if size > 1 and abs(given - degrees) > _ROUNDING:
            return f"{axis}Increment is {given:g}, its corners are {degrees:g} degrees apart a step"
    return None
