"""Fields as the sections of a GRIB edition 1 message, without changing a bit of a value."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.grib.packing import power
from ens10.packed16.layout import CONSTANT, MISSING, PACKED, Field, Packed

_MOST_BITS = 24  # what every reader of GRIB takes
_MOST_EXPONENT = 60
_SIGN = 0x8000


@dataclass(frozen=True)
class Simple:
    """A simple packing: value = (code * 2^binary + reference) * 10^-decimal.

    Attributes:
        codes: shape (points,), unsigned; of the values that are there.
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
    """A field of a packed16 chunk as it is kept."""
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
    kept = None if gap < 0 else gap
    return Packed(codes, reference, scale, decimal, kept, int(record["bits"]))


def kept_packing(field: Packed) -> Simple | None:
    """The packing that a field came with; None if edition 1 cannot express it."""
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
    return Simple(codes, field.reference, binary, decimal, bits, present)


def exact_packing(field: npt.NDArray[np.float32]) -> Simple | None:
    """A packing of at most 24 bits that gives these values bit for bit; None if there is none.

    All values are multiples of the lowest bit that is set in any of them; the reference is the
    greatest IBM number not above the smallest value.
    """
    flat = field.ravel().astype(np.float64)
    present = ~np.isnan(flat)
    known = flat[present]
    gaps = None if present.all() else present
    if not known.size:
        return Simple(known.astype(np.uint32), 0.0, 0, 0, 0, gaps)
    if not np.isfinite(known).all() or np.any((known == 0) & np.signbit(known)):
        return None  # no packing keeps the sign of zero
    low, high = float(known.min()), float(known.max())
    reference = ibm_below(low)
    if reference is None:
        return None
    if low == high == reference:
        return Simple(known.astype(np.uint32)[:0], low, 0, 0, 0, gaps)
    binary = _lowest_bit(np.append(known, reference))
    bits = int((high - reference) / 2.0**binary).bit_length()
    if bits > _MOST_BITS:
        return None
    codes = np.rint((known - reference) / 2.0**binary).astype(np.uint32)
    return Simple(codes, reference, binary, 0, bits, gaps)


def _lowest_bit(values: npt.NDArray[np.float64]) -> int:
    """The exponent of the lowest bit that is set in any of the values, not all of them 0."""
    fraction, exponent = np.frexp(values[values != 0])
    whole = np.abs(fraction * 2.0**53).astype(np.uint64)
    lowest = (whole & (~whole + np.uint64(1))).astype(np.float64)
    return int(np.min(np.log2(lowest) + exponent - 53))


def _exponent_of_ten(decimal: float) -> int | None:
    for exponent in (0, *range(1, _MOST_EXPONENT), *range(-_MOST_EXPONENT, 0)):
        if power(10, -exponent) == decimal:
            return int(exponent)
    return None


def to_ibm(value: float) -> int | None:
    """A number as IBM's 32 bits, None if these do not hold it exactly."""
    if value == 0:
        return 0
    exponent = 64
    mantissa = abs(value)
    while mantissa >= 1:
        mantissa, exponent = mantissa / 16, exponent + 1
    while mantissa < 1 / 16:
        mantissa, exponent = mantissa * 16, exponent - 1
    whole = mantissa * 2.0**24
    if whole != int(whole) or not 0 <= exponent <= 127:
        return None
    return (0x80000000 if value < 0 else 0) | exponent << 24 | int(whole)


def ibm_below(value: float) -> float | None:
    """The greatest IBM number that is not above a value; None out of IBM's range."""
    if to_ibm(value) is not None:
        return value
    _, exponent = np.frexp(value)
    digit = 16.0 ** (-(-int(exponent) // 4) - 6)  # what the last of six digits stands for
    below = float(np.floor(value / digit) * digit)
    return below if to_ibm(below) is not None else None


def data_section(simple: Simple) -> bytes:
    """The binary data section (4), padded to an even number of bytes."""
    data = _bit_stream(simple.codes, simple.bits) if simple.bits else b""
    used = simple.codes.size * simple.bits if simple.bits else 0
    size = 11 + len(data)
    padding = size % 2
    spare = 8 * (len(data) + padding) - used
    reference = to_ibm(simple.reference) or 0
    return b"".join(
        [
            (size + padding).to_bytes(3, "big"),
            bytes([spare]),
            signed(simple.binary),
            reference.to_bytes(4, "big"),
            bytes([simple.bits]),
            data,
            bytes(padding),
        ]
    )


def _bit_stream(codes: npt.NDArray[np.unsignedinteger], bits: int) -> bytes:
    if bits == 16:
        return codes.astype(">u2").tobytes()
    octets = codes.astype(">u4").view(np.uint8).reshape(-1, 4)
    if bits % 8 == 0:
        return octets[:, 4 - bits // 8 :].tobytes()
    return np.packbits(np.unpackbits(octets, axis=1)[:, 32 - bits :]).tobytes()


def bitmap_section(present: npt.NDArray[np.bool_]) -> bytes:
    """The bitmap section (3), padded to an even number of bytes."""
    data = np.packbits(present).tobytes()
    padding = len(data) % 2
    spare = 8 * (len(data) + padding) - present.size
    size = 6 + len(data) + padding
    return size.to_bytes(3, "big") + bytes([spare, 0, 0]) + data + bytes(padding)


def signed(value: int) -> bytes:
    """A number as GRIB's two bytes of sign and magnitude."""
    return (abs(value) | (_SIGN if value < 0 else 0)).to_bytes(2, "big")
