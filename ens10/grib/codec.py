"""Decode and encode the values of GRIB messages through ecCodes."""

from typing import BinaryIO

import eccodes
import numpy as np
import numpy.typing as npt

from ens10.catalog import Variable
from ens10.errors import DamagedFileError
from ens10.grib.grid import LatLonGrid
from ens10.grib.isolated import EccodesError, Packing, values_of
from ens10.grib.message import Message
from ens10.grib.sections import RawMessage, Spans, sections

MAX_MEMBERS = 254  # one byte in edition 1, 255 of which means "missing"

_BITS = 16
_GAP = 1e30  # the mark of gaps on encoding: ecCodes aborts on larger ones if all is a gap


def decode(message: Message, file: BinaryIO) -> npt.NDArray[np.float32]:
    """Return the values of one message, NaN where missing.

    Args:
        message: an entry of the index.
        file: its file, open for reading.

    Returns:
        Shape (rows, columns), float32, rows north to south, columns eastward: ecCodes' double
        precision values rounded once.

    Raises:
        DamagedFileError: the message is not where the index has it, or cannot be unpacked.
    """
    raw, _ = read_message(message, file)
    field, _ = unpack_as_double(message, raw)
    return np.ascontiguousarray(field, dtype=np.float32)


def read_message(message: Message, file: BinaryIO) -> tuple[bytes, Spans]:
    """Return the bytes of one message, and the spans of its sections.

    Args:
        message: an entry of the index.
        file: its file, open for reading.

    Raises:
        DamagedFileError: the message is not where the index has it, or its sections are invalid.
        FileError: several fields in one message.
    """
    file.seek(message.offset)
    raw = file.read(message.length)
    edition = message.meaning.edition
    is_framed = raw[:4] == b"GRIB" and raw[-4:] == b"7777" and raw[7] == edition
    if len(raw) != message.length or not is_framed:
        reason = "the message that was indexed here is gone; the file has changed since"
        raise DamagedFileError(message.path, message.offset, reason)
    whole = RawMessage(message.path, raw, 0, len(raw), edition, raw[:512], message.offset)
    return raw, sections(whole)


def unpack_as_double(
    message: Message, raw: bytes
) -> tuple[npt.NDArray[np.float64], Packing | None]:
    """Return the values of one message, NaN where missing, and their packing.

    Args:
        message: an entry of the index.
        raw: its bytes, from `read_message`.

    Returns:
        Values, shape (rows, columns), rows north to south, columns eastward; and reference value,
        binary and decimal scale factor and bits per value, or None for packings without these.

    Raises:
        DamagedFileError: ecCodes cannot unpack the values, or no float32 holds them.
        FileError: the process of ecCodes was ended from outside.
    """
    points = message.meaning.grid.rows * message.meaning.grid.columns
    try:
        values, packing = values_of(message.path, raw, points)
    except EccodesError as error:
        raise DamagedFileError(message.path, message.offset, f"cannot unpack ({error})") from error
    if values.size != points:
        reason = f"{values.size} values for {points} grid points"
        raise DamagedFileError(message.path, message.offset, reason)
    largest = max(np.fmax.reduce(values), -np.fmin.reduce(values))  # these two leave out NaN
    if largest > np.finfo(np.float32).max:
        raise DamagedFileError(message.path, message.offset, "values that no float32 holds")
    return message.meaning.scan.orient(values, message.meaning.grid), packing


class Encoder:
    """Encoder of fields as GRIB edition 1 messages with the layout of the ENS-10 files.

    Centre ecmf, regular latitude-longitude grid, north to south, 16-bit simple packing, gaps as a
    bitmap (GRIB readers return 9999 there, their default).

    Args:
        grid: the grid of every field.
        data_type: `pf` for perturbed forecasts (with `stream="enfh"`, hindcasts) or `an`.
        members: size of the ensemble, at most `MAX_MEMBERS`, or 0 for fields that are not members
            of one.
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
        """Return one encoded message.

        Args:
            values: shape (rows, columns), north to south, NaN where missing.
            variable: the variable that the values are of.
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
        present_values = values[~gaps]
        if not present_values.size or present_values.min() == present_values.max():
            # ecCodes packs a constant field with 0 bits, and the next with 24 if this is not set.
            del self._current["bitsPerValue"]
        return bytes(eccodes.codes_get_message(self._handle))

    def _set(self, keys: dict[str, str | int | float]) -> None:
        """Set only keys that changed: a call of ecCodes costs as much as packing a small field."""
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
    span = abs(float(latitude[-1] - latitude[0]))
    return {
        "Ni": grid.columns, "Nj": grid.rows,
        "latitudeOfFirstGridPointInDegrees": float(latitude[0]),
        "latitudeOfLastGridPointInDegrees": float(latitude[-1]),
        "longitudeOfFirstGridPointInDegrees": float(longitude[0]),
        "longitudeOfLastGridPointInDegrees": float(longitude[-1]),
        "iDirectionIncrementInDegrees": grid.spacing,
        "jDirectionIncrementInDegrees": span / max(grid.rows - 1, 1),
    }  # fmt: skip
