"""What the header of a GRIB message means, as ecCodes reads it."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import eccodes
import numpy as np

from ens10.catalog import variable_of_param
from ens10.errors import DamagedFileError, FileError
from ens10.grib.grid import LatLonGrid, Scan, from_header
from ens10.grib.message import Message

_ECMWF = 98
_HEADER_BYTES = 8
# Octets of an edition 1 product section (from its first) that vary within an ensemble's files:
# year to minute, the century, and the member number of ECMWF's local definition 1.
_YEAR_TO_MINUTE = slice(12, 17)
_CENTURY = 24
_LOCAL_DEFINITION = 40
_MEMBER = 49

_meanings: dict[bytes, Message] = {}


def describe(path: Path, view: Any, offset: int, length: int, edition: int) -> Message:
    """The index entry of one framed message.

    Raises:
        FileError: a grid that is not supported.
        DamagedFileError: the header makes no sense.
    """
    try:
        return _described(path, view, offset, length, edition)
    except (ValueError, TypeError, eccodes.CodesInternalError) as error:
        raise DamagedFileError(
            path, offset, f"the message's header makes no sense ({error})"
        ) from error


def _described(path: Path, view: Any, offset: int, length: int, edition: int) -> Message:
    """The index entry of one framed message.

    ecCodes is asked once for each distinct header. The date and the member of an ECMWF edition 1
    header, which change from message to message, are read from their octets.

    Args:
        path: the file.
        view: its bytes (anything that slices to bytes).
        offset: first byte of the message.
        length: bytes in the message.
        edition: GRIB edition.
    """
    head = _edition1_head(view, offset) if edition == 1 else None
    if head is None:
        return replace(_ask_eccodes(path, offset), length=length)
    common, time, number = head
    if common not in _meanings:
        _meanings[common] = _ask_eccodes(path, offset)
    return replace(
        _meanings[common], path=path, offset=offset, length=length, time=time, number=number
    )


def _edition1_head(view: Any, offset: int) -> tuple[bytes, np.datetime64, int] | None:
    """The header without what varies, and what varies; None if ecCodes must read it all."""
    start = offset + _HEADER_BYTES
    product = bytearray(_section(view, start))
    has_member = len(product) > _MEMBER and product[_LOCAL_DEFINITION] == 1
    if not has_member or product[4] != _ECMWF:
        return None
    year, month, day, hour, minute = product[_YEAR_TO_MINUTE]
    year += 100 * (product[_CENTURY] - 1)
    time = np.datetime64(datetime(year, month, day, hour, minute), "s")
    number = product[_MEMBER]
    product[_YEAR_TO_MINUTE] = bytes(5)
    product[_CENTURY] = product[_MEMBER] = 0
    has_grid, has_bitmap = product[7] & 128, product[7] & 64
    grid = _section(view, start + len(product)) if has_grid else b""
    data = start + len(product) + len(grid)
    data += len(_section(view, data)) if has_bitmap else 0
    packing = view[data + 3 : data + 4] + view[data + 10 : data + 11]
    return bytes(product) + grid + packing, time, number


def _section(view: Any, start: int) -> bytes:
    size = int.from_bytes(view[start : start + 3], "big")
    return bytes(view[start : start + size])


def _ask_eccodes(path: Path, offset: int) -> Message:
    with path.open("rb") as file:
        file.seek(offset)
        handle = open_header(path, file, offset)
    try:
        return _message(handle, path, offset)
    finally:
        eccodes.codes_release(handle)


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


def _message(handle: int, path: Path, offset: int) -> Message:
    grid, scan = _grid(handle, path, offset)
    param_id = int(_get(handle, "paramId"))
    known = variable_of_param(param_id)
    short_name = str(_get(handle, "shortName"))
    number = _get(handle, "perturbationNumber")
    return Message(
        path=path,
        offset=offset,
        length=int(_get(handle, "totalLength")),
        edition=int(_get(handle, "edition")),
        param_id=param_id,
        short_name=short_name,
        name=known.name if known else str(_get(handle, "cfVarName") or short_name),
        units=known.units if known else str(_get(handle, "units") or "unknown"),
        level_type=str(_get(handle, "typeOfLevel")),
        level=int(_get(handle, "level") or 0),
        time=_time(int(_get(handle, "dataDate")), int(_get(handle, "dataTime"))),
        step=_step_hours(handle),
        number=None if number is None else int(number),
        data_type=str(_get(handle, "dataType")),
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


def _time(day: int, hour_minute: int) -> np.datetime64:
    year, month_day = divmod(day, 10000)
    moment = datetime(year, *divmod(month_day, 100), *divmod(hour_minute, 100))
    return np.datetime64(moment, "s")


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

    return from_header(
        (int(_get(handle, "Nj")), int(_get(handle, "Ni"))),
        (corner("First", "latitude"), corner("Last", "latitude")),
        (corner("First", "longitude"), corner("Last", "longitude")),
        by_column=bool(_get(handle, "jPointsAreConsecutive")),
        westward=bool(_get(handle, "iScansNegatively")),
    )
