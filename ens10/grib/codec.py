"""Decode and encode the values of GRIB messages through ecCodes."""

from typing import BinaryIO

import eccodes
import numpy as np
import numpy.typing as npt

from ens10.catalog import Variable
from ens10.errors import DamagedFileError
from ens10.grib.grid import LatLonGrid
from ens10.grib.message import Message

_BITS = 16
_SECTION_1_FLAGS = 15  # octet of a message that tells which sections follow
_GAP = 1e30  # the mark of gaps on encoding: ecCodes aborts on larger ones if all is a gap
_MARK = float(np.finfo(np.float64).max)  # no field reaches it, so it marks a gap beyond doubt


def decode(message: Message, file: BinaryIO) -> npt.NDArray[np.float32]:
    """The values of one message, missing ones NaN.

    Args:
        message: an entry of the index.
        file: its file, open for reading.

    Returns:
        Shape (rows, columns), float32, rows north to south, columns eastward: ecCodes' double
        precision values rounded once.

    Raises:
        DamagedFileError: ecCodes cannot unpack the values.
    """
    file.seek(message.offset)
    field, _ = unpack_as_double(message, file.read(message.length))
    return np.ascontiguousarray(field, dtype=np.float32)


def unpack_as_double(
    message: Message, raw: bytes
) -> tuple[npt.NDArray[np.float64], tuple[float, int, int, int] | None]:
    """The values of one message, missing ones NaN, and how they are packed.

    Args:
        message: an entry of the index.
        raw: its bytes.

    Returns:
        Values, shape (rows, columns), rows north to south, columns eastward; and reference value,
        binary and decimal scale factor and bits per value, or None for packings without these.

    Raises:
        DamagedFileError: ecCodes cannot unpack the values, or no float32 holds them.
    """
    check_bitmap(message, raw)
    try:
        values, packing = _unpack(raw)
    except (eccodes.CodesInternalError, ValueError, MemoryError) as error:
        raise DamagedFileError(message.path, message.offset, f"cannot unpack ({error})") from error
    points = message.grid.rows * message.grid.columns
    if values.size != points:
        reason = f"{values.size} values for {points} grid points"
        raise DamagedFileError(message.path, message.offset, reason)
    largest = max(np.fmax.reduce(values), -np.fmin.reduce(values))  # these two leave out NaN
    if largest > np.finfo(np.float32).max:
        raise DamagedFileError(message.path, message.offset, "values that no float32 holds")
    return message.scan.orient(values, message.grid), packing


def check_bitmap(message: Message, raw: bytes) -> None:
    """Refuses an edition 1 bitmap of another size than the grid: ecCodes would read past its end.

    Raises:
        DamagedFileError: it is of another size.
    """
    if len(raw) < _SECTION_1_FLAGS + 1 or raw[7] != 1 or not raw[_SECTION_1_FLAGS] & 64:
        return
    start = 8 + int.from_bytes(raw[8:11], "big")
    if raw[_SECTION_1_FLAGS] & 128:
        start += int.from_bytes(raw[start : start + 3], "big")
    head = raw[start : start + 6]
    held = 8 * (int.from_bytes(head[:3], "big") - 6) - head[3] if len(head) == 6 else -1
    points = message.grid.rows * message.grid.columns
    if head[4:] == bytes(2) and held != points:  # else one that the centre has defined for all
        reason = f"a bitmap of {held} points for {points} grid points"
        raise DamagedFileError(message.path, message.offset, reason)


def _unpack(raw: bytes) -> tuple[npt.NDArray[np.float64], tuple[float, int, int, int] | None]:
    handle = eccodes.codes_new_from_message(raw)
    try:
        eccodes.codes_set(handle, "missingValue", _MARK)
        values: npt.NDArray[np.float64] = eccodes.codes_get_values(handle)
        packing = _packing(handle)
    finally:
        eccodes.codes_release(handle)
    values[values == _MARK] = np.nan
    return values, packing


def _packing(handle: int) -> tuple[float, int, int, int] | None:
    try:
        return (
            float(eccodes.codes_get_double(handle, "referenceValue")),
            int(eccodes.codes_get_long(handle, "binaryScaleFactor")),
            int(eccodes.codes_get_long(handle, "decimalScaleFactor")),
            int(eccodes.codes_get_long(handle, "bitsPerValue")),
        )
    except eccodes.KeyValueNotFoundError:
        return None


class Encoder:
    """Writes fields as GRIB edition 1 messages the way the ENS-10 files hold them.

    Centre ecmf, regular latitude-longitude grid, north to south, 16-bit simple packing, gaps as a
    bitmap (readers of GRIB see 9999 there, their default).

    Args:
        grid: the grid of every field.
        data_type: `pf` for perturbed forecasts (with `stream="enfh"`, hindcasts) or `an`.
        members: size of the ensemble, or 0 for fields that are no ensemble members.
    """

    def __init__(self, grid: LatLonGrid, data_type: str = "pf", members: int = 10) -> None:
        self._handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib1")
        self._current: dict[str, str | int | float] = {}
        self._set({"centre": "ecmf", "setLocalDefinition": 1, "localDefinitionNumber": 1})
        self._set({"class": "od" if members else "ea", "type": data_type})
        self._set({"stream": "enfh" if members else "oper", "expver": "0001"})
        self._set(_grid_keys(grid))
        self._set({"numberOfForecastsInEnsemble": members, "stepUnits": "h"})

    def message(
        self,
        values: npt.NDArray[np.floating],
        variable: Variable,
        *,
        date: int,
        step: int = 0,
        number: int = 0,
        level: int = 0,
    ) -> bytes:
        """One message.

        Args:
            values: shape (rows, columns), north to south, NaN where missing.
            variable: what they are.
            date: start date as YYYYMMDD (00 UTC).
            step: hours.
            number: ensemble member.
            level: hPa for variables on pressure levels.
        """
        gaps = np.isnan(values)
        self._set({"indicatorOfTypeOfLevel": 100 if variable.kind == "pl" else 1})
        self._set({"level": level, "paramId": variable.param_id, "dataDate": date, "dataTime": 0})
        self._set({"step": step, "perturbationNumber": number})
        self._set({"bitmapPresent": int(gaps.any()), "missingValue": _GAP})
        self._set({"bitsPerValue": _BITS})
        # In double precision before the mark goes in: as float32 it would be another number.
        flat = np.where(gaps, _GAP, values.astype(np.float64)).ravel()
        eccodes.codes_set_values(self._handle, flat)
        known = values[~gaps]
        if not known.size or known.min() == known.max():
            # ecCodes packs a constant field with 0 bits, and the next one with 24 unless told.
            del self._current["bitsPerValue"]
        return bytes(eccodes.codes_get_message(self._handle))

    def _set(self, keys: dict[str, str | int | float]) -> None:
        """Sets only what changed: each call into ecCodes costs as much as packing a small field."""
        for key, value in keys.items():
            if self._current.get(key) != value:
                eccodes.codes_set(self._handle, key, value)
                self._current[key] = value

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            eccodes.codes_release(handle)


def _grid_keys(grid: LatLonGrid) -> dict[str, str | int | float]:
    latitude, longitude = grid.latitude(), grid.longitude()
    return {
        "Ni": grid.columns,
        "Nj": grid.rows,
        "latitudeOfFirstGridPointInDegrees": float(latitude[0]),
        "latitudeOfLastGridPointInDegrees": float(latitude[-1]),
        "longitudeOfFirstGridPointInDegrees": float(longitude[0]),
        "longitudeOfLastGridPointInDegrees": float(longitude[-1]),
        "iDirectionIncrementInDegrees": grid.spacing,
        "jDirectionIncrementInDegrees": abs(float(latitude[-1] - latitude[0]))
        / max(grid.rows - 1, 1),
    }
