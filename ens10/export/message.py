"""GRIB edition 1 messages from a header and a packing that keeps every bit of the values."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import eccodes
import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.catalog import VARIABLES, Variable
from ens10.errors import ArgumentError
from ens10.grib import Encoder, LatLonGrid, to_float32
from ens10.grib.grid import from_header
from ens10.grib.packing import power, same_bits
from ens10.packed16.layout import CONSTANT, MISSING, PACKED, Field, Packed

_MAX_BITS = 24  # what every reader of GRIB takes
_MAX_EXPONENT = 60
_SIGN = 0x8000


@dataclass(frozen=True)
class SimplePacking:
    """A simple packing: value = (code * 2^binary + reference) * 10^-decimal.

    Attributes:
        codes: shape (points,), unsigned; of the values that are not missing.
        reference: a number that IBM's 32 bits hold.
        binary: exponent.
        decimal: exponent.
        bits: per code; 0 where all values are the reference.
        present: shape (points,), or None where no value is missing.
    """

    codes: npt.NDArray[np.unsignedinteger]
    reference: float
    binary: int
    decimal: int
    bits: int
    present: npt.NDArray[np.bool_] | None


def field_of_record(record: Any, values: npt.NDArray[np.uint8], shape: tuple[int, int]) -> Field:
    """Return a field of a packed16 chunk without unpacking its codes."""
    kind = int(record["kind"])
    if kind == MISSING:
        return None
    if kind == CONSTANT:
        return np.full(shape, np.float32(record["reference"] * record["decimal"]), np.float32)
    if kind != PACKED:
        return np.frombuffer(values.tobytes(), "<f4").reshape(shape).astype(np.float32)
    codes = np.frombuffer(values.tobytes(), "<u2").reshape(shape).astype(np.uint16)
    gap = int(record["gap"])
    reference, scale, decimal = (float(record[name]) for name in ("reference", "scale", "decimal"))
    gap_code = None if gap < 0 else gap
    return Packed(codes, reference, scale, decimal, gap_code, int(record["bits"]))


def packing_of_source(field: Packed) -> SimplePacking | None:
    """Return the packing of a field in its GRIB source; None if edition 1 cannot express it."""
    mantissa, exponent = np.frexp(field.scale)
    decimal = _exponent_of_ten(field.decimal)
    binary = int(exponent) - 1
    if mantissa != 0.5 or decimal is None or abs(binary) >= _SIGN:
        return None
    if power(2, binary) != field.scale or to_ibm(field.reference) is None:
        return None
    codes, present = field.codes.ravel(), None
    if field.gap is not None:
        present = codes != field.gap
        codes, present = codes[present], None if present.all() else present
    bits = field.bits or 16
    if codes.size and int(codes.max()) >> bits:
        return None
    return SimplePacking(codes, field.reference, binary, decimal, bits, present)


def exact_packing(field: npt.NDArray[np.float32]) -> SimplePacking | None:
    """Return a packing of at most 24 bits that keeps the values bit for bit, or None.

    All values are multiples of the lowest bit that is set in any of them; the reference is the
    greatest IBM number not above the smallest value.
    """
    flat = field.ravel().astype(np.float64)
    present = ~np.isnan(flat)
    values = flat[present]
    bitmap = None if present.all() else present
    if not values.size:
        return SimplePacking(values.astype(np.uint32), 0.0, 0, 0, 0, bitmap)
    if not np.isfinite(values).all() or np.any((values == 0) & np.signbit(values)):
        return None  # no packing keeps the sign of zero
    low, high = float(values.min()), float(values.max())
    reference = ibm_below(low)
    if reference is None:
        return None
    if low == high == reference:
        return SimplePacking(values.astype(np.uint32)[:0], low, 0, 0, 0, bitmap)
    binary = _lowest_bit(np.append(values, reference))
    bits = int((high - reference) / 2.0**binary).bit_length()
    if bits > _MAX_BITS:
        return None
    codes = np.rint((values - reference) / 2.0**binary).astype(np.uint32)
    return SimplePacking(codes, reference, binary, 0, bits, bitmap)


def _lowest_bit(values: npt.NDArray[np.float64]) -> int:
    """Return the exponent of the lowest bit set in any of the values, which are not all 0."""
    fraction, exponent = np.frexp(values[values != 0])
    mantissa = np.abs(fraction * 2.0**53).astype(np.uint64)
    lowest = (mantissa & (~mantissa + np.uint64(1))).astype(np.float64)
    return int(np.min(np.log2(lowest) + exponent - 53))


def _exponent_of_ten(decimal: float) -> int | None:
    for exponent in (0, *range(1, _MAX_EXPONENT), *range(-_MAX_EXPONENT, 0)):
        if power(10, -exponent) == decimal:
            return int(exponent)
    return None


def to_ibm(value: float) -> int | None:
    """Return a number as 32-bit IBM float, None if that is not exact."""
    if value == 0:
        return 0
    exponent = 64
    mantissa = abs(value)
    while mantissa >= 1:
        mantissa, exponent = mantissa / 16, exponent + 1
    while mantissa < 1 / 16:
        mantissa, exponent = mantissa * 16, exponent - 1
    scaled_mantissa = mantissa * 2.0**24
    if scaled_mantissa != int(scaled_mantissa) or not 0 <= exponent <= 127:
        return None
    return (0x80000000 if value < 0 else 0) | exponent << 24 | int(scaled_mantissa)


def ibm_below(value: float) -> float | None:
    """Return the greatest IBM number not above a value; None out of range."""
    if to_ibm(value) is not None:
        return value
    _, exponent = np.frexp(value)
    digit = 16.0 ** (-(-int(exponent) // 4) - 6)  # what the last of six digits stands for
    below = float(np.floor(value / digit) * digit)
    return below if to_ibm(below) is not None else None


def data_section(packing: SimplePacking) -> bytes:
    """Return the binary data section (4), padded to an even number of bytes."""
    data = _bit_stream(packing.codes, packing.bits) if packing.bits else b""
    code_bits = packing.codes.size * packing.bits if packing.bits else 0
    size = 11 + len(data)
    padding = size % 2
    unused_bits = 8 * (len(data) + padding) - code_bits
    reference = to_ibm(packing.reference) or 0
    head = (size + padding).to_bytes(3, "big") + bytes([unused_bits])
    scaling = sign_and_magnitude(packing.binary) + reference.to_bytes(4, "big")
    return head + scaling + bytes([packing.bits]) + data + bytes(padding)


def _bit_stream(codes: npt.NDArray[np.unsignedinteger], bits: int) -> bytes:
    if bits == 16:
        return codes.astype(">u2").tobytes()
    octets = codes.astype(">u4").view(np.uint8).reshape(-1, 4)
    if bits % 8 == 0:
        return octets[:, 4 - bits // 8 :].tobytes()
    return np.packbits(np.unpackbits(octets, axis=1)[:, 32 - bits :]).tobytes()


def bitmap_section(present: npt.NDArray[np.bool_]) -> bytes:
    """Return the bitmap section (3), padded to an even number of bytes."""
    data = np.packbits(present).tobytes()
    padding = len(data) % 2
    unused_bits = 8 * (len(data) + padding) - present.size
    size = 6 + len(data) + padding
    return size.to_bytes(3, "big") + bytes([unused_bits, 0, 0]) + data + bytes(padding)


def sign_and_magnitude(value: int) -> bytes:
    """Return a number in GRIB's two bytes of sign and magnitude."""
    return (abs(value) | (_SIGN if value < 0 else 0)).to_bytes(2, "big")


_REMEDY = "Export to netCDF"
_MISSING_VALUE = float(np.finfo(np.float64).max)
_INDICATOR, _MAX_BYTES = 8, 1 << 23  # longer messages encode their length differently
# Octets of the product section, from its first.
_FLAGS, _LEVEL, _DATE, _CENTURY, _DECIMAL, _NUMBER = 7, 9, 12, 24, 26, 49
_IN_PASCAL = bytes([210])  # type of level, ECMWF's own; 100 is hPa
_HAS_BITMAP = 64
_ZERO_FIELD = SimplePacking(np.zeros(0, np.uint32), 0.0, 0, 0, 0, None)  # a field of zeros


@dataclass(frozen=True)
class Label:
    """Variable, level (hPa, 0 at the surface), date, step (hours) and member of a message."""

    variable: Variable
    level: float
    time: np.datetime64
    step: int
    number: int = 0


class Messages:
    """Encoder of messages on one grid.

    Args:
        grid: of every field.
        members: size of the ensemble, or 0 for analyses and single forecasts.

    Raises:
        ArgumentError: edition 1 cannot hold the grid.
    """

    def __init__(self, grid: LatLonGrid, members: int) -> None:
        kinds = ("pf", "cf") if members else ("an", "fc")
        try:
            self._encoders = {kind: Encoder(grid, kind, members) for kind in kinds}
        except eccodes.CodesInternalError as error:
            reason = f"GRIB edition 1 cannot tell the grid {grid} ({error})"
            raise ArgumentError("to", reason, _REMEDY) from error
        self._grid, self._members = grid, members
        self._zeros = np.zeros((grid.rows, grid.columns))
        self._section_cache: dict[tuple[str, str, float, int], tuple[bytes, bytes]] = {}

    def message(self, field: Field, label: Label) -> bytes:
        """Return a message that ecCodes decodes to exactly the field's values.

        Raises:
            ArgumentError: edition 1 cannot hold the field or its label.
        """
        values = to_float32(field, (self._grid.rows, self._grid.columns))
        product, grid = self._sections(label)
        for packing in _packings(field, values):
            message = _assemble(product, grid, packing)
            if same_bits(_decode(message, values.shape), values):
                return message
        message = _as_ieee(_assemble(product, grid, _ZERO_FIELD), values)
        if not same_bits(_decode(message, values.shape), values):
            raise ArgumentError("to", f"GRIB does not hold {label.variable.name} exactly", _REMEDY)
        return message

    def _sections(self, label: Label) -> tuple[bytes, bytes]:
        """Return product and grid section, made by ecCodes once per variable, level and step."""
        kinds = ("pf", "cf") if self._members else ("fc", "an")
        kind = kinds[0 if (label.number if self._members else label.step) else 1]
        key = (kind, label.variable.name, label.level, label.step)
        if key not in self._section_cache:
            self._section_cache[key] = self._encode_sections(kind, label)
        head, grid = self._section_cache[key]
        product = bytearray(head)
        moment = label.time.astype("datetime64[s]").item()
        if moment.second:
            raise ArgumentError("dates", f"{moment} has seconds, GRIB edition 1 none", _REMEDY)
        century, year = divmod(moment.year - 1, 100)
        product[_DATE : _DATE + 5] = bytes(
            [year + 1, moment.month, moment.day, moment.hour, moment.minute]
        )
        product[_CENTURY] = century + 1
        product[_NUMBER] = label.number
        return bytes(product), grid

    def _encode_sections(self, kind: str, label: Label) -> tuple[bytes, bytes]:
        try:
            keys = {"date": 20000101, "step": label.step, "level": int(label.level)}
            message = self._encoders[kind].message(self._zeros, label.variable, **keys)
        except eccodes.CodesInternalError as error:
            description = f"{label.variable.name} at level {label.level}, step {label.step}"
            reason = f"GRIB edition 1 has no {description} ({error})"
            raise ArgumentError("to", reason, _REMEDY) from error
        first = _INDICATOR + int.from_bytes(message[8:11], "big")
        last = first + int.from_bytes(message[first : first + 3], "big")
        product = bytearray(message[_INDICATOR:first])
        if label.level != int(label.level):
            product[_LEVEL : _LEVEL + 3] = _IN_PASCAL + round(label.level * 100).to_bytes(2, "big")
        return bytes(product), message[first:last]


def _packings(field: Field, values: npt.NDArray[np.float32]) -> Iterator[SimplePacking]:
    """Yield simple packings that may hold a field exactly, its source's packing first."""
    source_packing = packing_of_source(field) if isinstance(field, Packed) else None
    if source_packing is not None:
        yield source_packing
    exact = exact_packing(values)
    if exact is not None:
        yield exact


def _assemble(product: bytes, grid: bytes, packing: SimplePacking) -> bytes:
    """Return the message of a packed field."""
    product_section = bytearray(product)
    product_section[_FLAGS] = 128 | (_HAS_BITMAP if packing.present is not None else 0)
    product_section[_DECIMAL : _DECIMAL + 2] = sign_and_magnitude(packing.decimal)
    bitmap = b"" if packing.present is None else bitmap_section(packing.present)
    body = bytes(product_section) + grid + bitmap + data_section(packing) + b"7777"
    size = _INDICATOR + len(body)
    if size >= _MAX_BYTES:
        raise ArgumentError("to", f"a field of {size} bytes is too long for GRIB 1", _REMEDY)
    return b"GRIB" + size.to_bytes(3, "big") + b"\x01" + body


def _as_ieee(message: bytes, values: npt.NDArray[np.float32]) -> bytes:
    """Return a message with its field as 32-bit IEEE numbers, by ecCodes."""
    gaps = np.isnan(values)
    with handle_of(message) as handle:
        if gaps.any():
            eccodes.codes_set(handle, "bitmapPresent", 1)
            eccodes.codes_set(handle, "missingValue", _MISSING_VALUE)
        eccodes.codes_set(handle, "packingType", "grid_ieee")
        eccodes.codes_set(handle, "precision", 1)
        flat = np.where(gaps, _MISSING_VALUE, values.astype(np.float64)).ravel()
        eccodes.codes_set_values(handle, flat)
        return bytes(eccodes.codes_get_message(handle))


def _decode(message: bytes, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    with handle_of(message) as handle:
        eccodes.codes_set(handle, "missingValue", _MISSING_VALUE)
        values = eccodes.codes_get_values(handle)
    values[values == _MISSING_VALUE] = np.nan
    single: npt.NDArray[np.float32] = values.astype(np.float32).reshape(shape)
    return single


@contextmanager
def handle_of(message: bytes) -> Iterator[Any]:
    """Yield ecCodes' handle of a message, released at the end of the block."""
    handle = eccodes.codes_new_from_message(message)
    try:
        yield handle
    finally:
        eccodes.codes_release(handle)


def variable_of(field: xr.DataArray) -> Variable:
    """Return the GRIB variable of a field, by the catalogue or its attribute `paramId`.

    Raises:
        ArgumentError: neither has a parameter number.
    """
    name, kind = str(field.name), "pl" if "level" in field.dims else "sfc"
    if name in VARIABLES:
        return replace(VARIABLES[name], kind=kind)  # type: ignore[arg-type]
    number = field.attrs.get("paramId", field.attrs.get("GRIB_paramId"))
    if number is None:
        reason = f"{name} has no GRIB parameter number (attribute paramId)"
        raise ArgumentError("variables", reason, f"{_REMEDY}, or leave it out")
    units = str(field.attrs.get("units", ""))
    return Variable(name, name, int(number), kind, units, name, "", (-np.inf, np.inf))  # type: ignore[arg-type]


def grid_of(dataset: xr.Dataset) -> LatLonGrid:
    """Return the grid as GRIB edition 1 can express it, in thousandths of a degree.

    Raises:
        ArgumentError: it is not regular, or needs more digits.
    """
    latitude, longitude = (dataset[d].to_numpy().astype(float) for d in ("latitude", "longitude"))
    ends = [(round(float(c[0]), 3), round(float(c[-1]), 3)) for c in (latitude, longitude)]
    grid, scan = from_header((latitude.size, longitude.size), ends[0], ends[1])
    is_exact = (
        scan.roll == 0
        and not scan.northward
        and np.allclose(grid.latitude(), latitude, rtol=0, atol=1e-5)
        and np.allclose(grid.longitude(), longitude, rtol=0, atol=1e-5)
    )
    if not is_exact:
        reason = "the grid is not regular to a thousandth of a degree, as GRIB edition 1 needs"
        raise ArgumentError("to", reason, _REMEDY)
    return grid
