"""The packed integers of GRIB messages, read without a conversion to floats.

A value of GRIB's simple packing is (code * 2^E + R) * 10^-D. Codes of 16 bits are copied from the
data section to the points that the bitmap marks as present; other packings are unpacked by ecCodes,
and packed again if that gives the same float32 bit for bit.
"""

import struct
from typing import Any, BinaryIO, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS
from ens10.grib.codec import decode, read_message, unpack_as_double
from ens10.grib.message import Message
from ens10.grib.sections import Spans
from ens10.packed16.layout import Field, Packed

_CODES = 65536


def expand_codes(
    bitmap: npt.NDArray[np.uint8], data: npt.NDArray[np.uint8], points: int
) -> tuple[npt.NDArray[np.uint16], int | None] | None:
    """Return the codes of all points of a field.

    Args:
        bitmap: a bit for each point, 1 where it has a value, the highest bit of an octet first.
        data: two octets for each value, the higher first.
        points: of the field.

    Returns:
        Codes, shape (points,), in the message's order; and the code of the gaps, which is the
        highest one that no value has, or None if there are no gaps. None in place of both if no
        code is free for the gaps, or if the number of values differs from the bitmap's.
    """
    if 8 * bitmap.size < points:
        return None
    codes = np.empty(points, np.uint16)
    values = data.size // 2
    gap = _expand_codes(bitmap, data, values, codes)
    if gap < 0:
        return None
    return codes, gap if values < points else None


@numba.njit(**OPTIONS)
def _expand_codes(bitmap, data, values, out):  # type: ignore[no-untyped-def]
    is_used = np.zeros(_CODES, np.bool_)
    for n in range(values):
        is_used[np.uint16(data[2 * n]) << 8 | data[2 * n + 1]] = True
    gap = _CODES - 1
    while gap >= 0 and is_used[gap]:
        gap -= 1
    if gap < 0 and values < out.size:
        return -1
    n = 0
    for i in range(out.size):
        if bitmap[i >> 3] & (128 >> (i & 7)):
            if n == values:
                return -1
            out[i] = np.uint16(data[2 * n]) << 8 | data[2 * n + 1]
            n += 1
        else:
            out[i] = gap
    return max(gap, 0) if n == values else -1


_FLOAT_MAX = float(np.finfo(np.float32).max)
_FLOAT_TINY = float(np.finfo(np.float32).tiny)
_NO_BITMAP = 255
_Signature = tuple[Any, ...]

_exact_packings: dict[_Signature, bool] = {}


class _SimplePacking(NamedTuple):
    """16-bit simple packing of a message, and the offsets of its bitmap and codes.

    Attributes:
        data_offset: first byte of the codes in the message.
        num_values: number of codes.
        bitmap_offset: first byte of the bitmap; None if every point has a value.
        reference: reference value R.
        binary_exponent: E, of the factor 2^E.
        decimal_exponent: D, of the factor 10^-D.
    """

    data_offset: int
    num_values: int
    bitmap_offset: int | None
    reference: float
    binary_exponent: int
    decimal_exponent: int


def pack(message: Message, file: BinaryIO) -> Field:
    """Return the values of one message as a field of a packed16 chunk.

    Args:
        message: an entry of the index.
        file: its file, open for reading.

    Returns:
        `Packed` codes, shape (rows, columns), rows north to south, columns eastward, whose
        values equal those of `decode` bit for bit; or these float32 values where no 16-bit codes
        represent them; or None if every value is missing.

    Raises:
        DamagedFileError: the message is not where the index has it, or cannot be unpacked.
    """
    raw, spans = read_message(message, file)
    find = _simple_packing1 if message.meaning.edition == 1 else _simple_packing2
    simple = find(raw, spans, message)
    if simple is not None:
        packed = _codes(raw, simple, message)
        if packed is not None and _is_verified(packed, simple, message, file):
            return packed
    return _pack_by_eccodes(raw, message)


def _simple_packing1(raw: bytes, spans: Spans, message: Message) -> _SimplePacking | None:
    """Return the simple packing of an edition 1 message, None for other packings."""
    mask, _ = spans.get(3, (None, 0))
    if mask is not None and raw[mask + 4 : mask + 6] != b"\0\0":
        return None  # a bitmap that the centre has defined once for all
    start, end = spans[4]
    bits = 8 * (end - start - 11) - (raw[start + 3] & 15)
    simple = raw[start + 3] & 240 == 0 and raw[start + 10] == 16 and bits % 16 == 0
    bitmap = None if mask is None else mask + 6
    if not simple or not _fits(bits // 16, bitmap, start, message):
        return None
    binary, ibm = struct.unpack_from(">HI", raw, start + 4)
    (decimal,) = struct.unpack_from(">H", raw, 34)
    scaling = ibm_float(ibm), _signed_value(binary), _signed_value(decimal)
    return _SimplePacking(start + 11, bits // 16, bitmap, *scaling)


def _fits(values: int, bitmap: int | None, end: int, message: Message) -> bool:
    """Return True if the number of values fits the points and the bitmap."""
    points = message.meaning.grid.rows * message.meaning.grid.columns
    if bitmap is None:
        return values == points
    return 0 < values <= points and bitmap + (points + 7) // 8 <= end


def _simple_packing2(raw: bytes, spans: Spans, message: Message) -> _SimplePacking | None:
    """Return the simple packing of an edition 2 message, None for other packings."""
    template = struct.unpack_from(">H", raw, spans[5][0] + 9)
    mask, end = spans[6]
    if template != (0,) or raw[mask + 5] not in (0, _NO_BITMAP):
        return None
    count, _, ieee, binary, decimal, bits = struct.unpack_from(">IHfHHB", raw, spans[5][0] + 5)
    bitmap = mask + 6 if raw[mask + 5] == 0 else None
    normal = ieee == 0.0 or _FLOAT_TINY <= abs(ieee) <= _FLOAT_MAX
    if bits != 16 or not normal or not _fits(count, bitmap, end, message):
        return None
    scaling = ieee, _signed_value(binary), _signed_value(decimal)
    return _SimplePacking(spans[7][0] + 5, count, bitmap, *scaling)


def _codes(raw: bytes, simple: _SimplePacking, message: Message) -> Packed | None:
    """Return the message's codes; None if its bitmap leaves no free code for gaps."""
    grid, gap = message.meaning.grid, None
    if simple.bitmap_offset is None:
        codes: Any = np.frombuffer(raw, ">u2", simple.num_values, simple.data_offset)
    else:
        points = grid.rows * grid.columns
        mask = np.frombuffer(raw, np.uint8, (points + 7) // 8, simple.bitmap_offset)
        data = np.frombuffer(raw, np.uint8, 2 * simple.num_values, simple.data_offset)
        codes_and_gap = expand_codes(mask, data, points)
        if codes_and_gap is None:
            return None
        codes, gap = codes_and_gap
    field = np.ascontiguousarray(message.meaning.scan.orient(codes, grid), dtype=np.uint16)
    scale, decimal = power(2, simple.binary_exponent), power(10, -simple.decimal_exponent)
    return Packed(field, simple.reference, scale, decimal, gap)


def _is_verified(packed: Packed, simple: _SimplePacking, message: Message, file: BinaryIO) -> bool:
    """Return True if the codes decode to ecCodes' values; checked once per kind of packing."""
    last = 65535.0 * packed.scale + packed.reference
    if not max(abs(packed.reference), abs(last)) * abs(packed.decimal) <= _FLOAT_MAX:
        return False
    meaning, has_gaps = message.meaning, simple.bitmap_offset is not None
    exponents = (simple.binary_exponent, simple.decimal_exponent)
    signature = (meaning.edition, has_gaps, *exponents, meaning.scan, meaning.grid)
    if signature not in _exact_packings:
        _exact_packings[signature] = same_bits(to_float32(packed), decode(message, file))
    return _exact_packings[signature]


def _pack_by_eccodes(raw: bytes, message: Message) -> Field:
    """Return the values that ecCodes decodes, packed again if that is exact."""
    field, packing = unpack_as_double(message, raw)
    values = np.ascontiguousarray(field, dtype=np.float32)
    gaps = np.isnan(values)
    if gaps.all():
        return None
    if packing is None or not (gaps.any() or np.ptp(values)):
        return values
    packed = _repack(field, packing, gaps)
    if packed is None or not same_bits(to_float32(packed), values):
        return values
    return packed


def _repack(
    field: npt.NDArray[np.float64],
    packing: tuple[float, int, int, int],
    gaps: npt.NDArray[np.bool_],
) -> Packed | None:
    """Recompute codes from the values; None if 16 bits are not exact or none is free for gaps."""
    reference, binary, exponent, bits = packing
    scale, decimal = power(2, binary), power(10, -exponent)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        codes = np.rint((field / decimal - reference) / scale)
    present_codes = codes[~gaps]
    if not np.all((present_codes >= 0) & (present_codes < _CODES)):
        return None
    gap = None
    if gaps.any():
        counts = np.bincount(present_codes.astype(np.int64), minlength=_CODES)
        if counts.all():
            return None
        gap = int(_CODES - 1 - np.argmin(counts[::-1]))  # the highest code that is free
        codes = np.where(gaps, gap, codes)
    return Packed(codes.astype(np.uint16), reference, scale, decimal, gap, bits)


def unpack(message: Message, file: BinaryIO) -> npt.NDArray[np.float32]:
    """Return the result of `decode`, bit for bit, without ecCodes for the usual packing.

    Args:
        message: an entry of the index.
        file: its file, open for reading.

    Returns:
        Shape (rows, columns), float32, rows north to south, columns eastward, NaN where missing.

    Raises:
        DamagedFileError: the message is not where the index has it, or cannot be unpacked.
    """
    meaning = message.meaning
    if (meaning.packing, meaning.bits) != ("grid_simple", 16):
        return decode(message, file)
    return to_float32(pack(message, file), (meaning.grid.rows, meaning.grid.columns))


def to_float32(field: Field, shape: tuple[int, int] | None = None) -> npt.NDArray[np.float32]:
    """Return a field as float32 values, shape (rows, columns), NaN where missing.

    Args:
        field: from `pack`.
        shape: rows and columns, needed where the field may be None.
    """
    if field is None:
        return np.full(shape or (), np.nan, np.float32)
    if not isinstance(field, Packed):
        return field
    values = (field.codes * np.float64(field.scale) + field.reference) * field.decimal
    single = values.astype(np.float32)
    if field.gap is not None:
        single[field.codes == field.gap] = np.nan
    return single


def same_bits(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> bool:
    """Return True if two fields are equal bit for bit; any NaN equals any other."""
    same = (one.view(np.uint32) == other.view(np.uint32)) | (np.isnan(one) & np.isnan(other))
    return one.shape == other.shape and bool(same.all())


def power(base: int, exponent: int) -> float:
    """Return a power rounded as in ecCodes: 10^-3 is 1 / 10 / 10 / 10, not the nearest 0.001."""
    result = 1.0
    for _ in range(abs(exponent)):
        result = result / base if exponent < 0 else result * base
    return result


def ibm_float(octets: int) -> float:
    """Return the exact value of a 32-bit IBM floating point number."""
    sign, exponent, mantissa = octets >> 31, octets >> 24 & 127, octets & 0xFFFFFF
    if exponent == 0 and mantissa <= 1:
        return 0.0  # as ecCodes has it
    value = float(np.ldexp(float(mantissa), 4 * (exponent - 64) - 24))
    return -value if sign else value


def _signed_value(octets: int) -> int:
    """Return the value of GRIB's 16-bit integers of sign and magnitude."""
    return -(octets & 0x7FFF) if octets & 0x8000 else octets
