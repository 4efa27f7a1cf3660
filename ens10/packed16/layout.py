"""The bytes of a packed16 chunk: a header with one record for each field, then their values.

All numbers are little-endian. The header is 32 bytes (magic, version, number of fields, rows,
columns, crc32c of the records, crc32c of the chunk's key in its store), the record of a field 64;
values begin at a multiple of 64. The key, such as "sfc/t2m/c/0/0/0/0/0", is that of array, date,
step and level: it reveals a chunk that lies in the place of another one. Its checksum is 0 where it
is unknown, as in older stores and in chunks that Zarr writes. A field is one of

    MISSING    no values; every point is NaN
    CONSTANT   no values; every point is `reference * decimal`
    PACKED     uint16 codes x; the value is `(x * scale + reference) * decimal`, computed in double
               precision and rounded once, as ecCodes does; a code equal to `gap` is NaN
    FLOAT      float32 values

so that a chunk of ten 16-bit GRIB fields takes half the bytes of float32 and loses nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import crc32c as _crc32c
import numpy as np
import numpy.typing as npt

MAGIC = b"ens10p16"
VERSION = 1
MISSING, CONSTANT, PACKED, FLOAT = range(4)
_ALIGNMENT = 64
# place: crc32c of the chunk's key, 0 if that is not known
_HEADER = np.dtype([
    ("magic", "S8"), ("version", "<u4"), ("fields", "<u4"), ("rows", "<u4"), ("columns", "<u4"),
    ("crc", "<u4"), ("place", "<u4"),
])  # fmt: skip
# gap: -1 if every point has a value; offset of the values, from the beginning of the chunk; crc:
# crc32c of the values; bits per value in the GRIB message
RECORD = np.dtype([
    ("kind", "<u4"), ("gap", "<i4"), ("reference", "<f8"), ("scale", "<f8"), ("decimal", "<f8"),
    ("offset", "<u8"), ("crc", "<u4"), ("bits", "<u4"), ("spare", "<u8", (2,)),
])  # fmt: skip
PLACE = slice(28, 32)  # of the header's bytes
_BYTES = {MISSING: 0, CONSTANT: 0, PACKED: 2, FLOAT: 4}


class DamagedChunkError(ValueError):
    """The bytes are not a complete and valid packed16 chunk.

    Attributes:
        offset: byte at which the damage begins.
        reason: what is wrong.
    """

    def __init__(self, offset: int, reason: str) -> None:
        self.offset, self.reason = offset, reason
        super().__init__(f"damaged at byte {offset}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.offset, self.reason)


@dataclass(frozen=True, slots=True)
class Packed:
    """A field as 16-bit codes: value = (code * scale + reference) * decimal.

    Attributes:
        codes: shape (rows, columns), uint16.
        reference: GRIB's reference value.
        scale: 2 to the power of GRIB's binary scale factor.
        decimal: 10 to the power of minus GRIB's decimal scale factor.
        gap: the code of missing values, None if there are none.
        bits: bits per value in the message.
    """

    codes: npt.NDArray[np.uint16]
    reference: float
    scale: float
    decimal: float = 1.0
    gap: int | None = None
    bits: int = 16


Field = Packed | npt.NDArray[np.float32] | None


def encode(fields: Sequence[Field], rows: int, columns: int, key: str = "") -> bytearray:
    """Return the bytes of a chunk of fields.

    Args:
        fields: the fields in order; None for a field without any value.
        rows: of a field.
        columns: of a field.
        key: the chunk's key in its store, "" if it is not known.

    Raises:
        ValueError: a field of another shape.
    """
    records, payloads = [], []
    offset = values_begin(len(fields))
    for n, field in enumerate(fields):
        kind, gap, numbers, bits, payload = _encode_field(field)
        if payload is not None and payload.size != rows * columns:
            raise ValueError(f"field {n} has {payload.size} values, not {rows} x {columns}")
        values = _NONE if payload is None else payload.reshape(-1).view(np.uint8)
        crc = crc32c(values) if payload is not None else 0
        records.append((kind, gap, *numbers, offset, crc, bits, (0, 0)))
        payloads.append((offset, values))
        offset += _round_up(values.size, 8)
    chunk = bytearray(offset)
    for begin, values in payloads:
        chunk[begin : begin + values.size] = values.data
    heads = np.array(records, RECORD)
    header_values = (MAGIC, VERSION, len(fields), rows, columns, crc32c(heads), _key_checksum(key))
    header = np.array(header_values, _HEADER)
    chunk[: values_begin(len(fields))] = _pad(header.tobytes() + heads.tobytes())
    return chunk


_NONE = np.empty(0, np.uint8)
_LAST_CODE = 0xFFFF
_EncodedField = tuple[int, int, tuple[float, float, float], int, npt.NDArray[Any] | None]


def _encode_field(field: Field) -> _EncodedField:
    """Return kind, gap, constants and bits of a field's record, and the values to write."""
    if field is None:
        return MISSING, -1, (0.0, 0.0, 1.0), 0, None
    if isinstance(field, Packed):
        numbers = (field.reference, field.scale, field.decimal)
        codes = np.ascontiguousarray(field.codes, dtype="<u2")
        return PACKED, -1 if field.gap is None else field.gap, numbers, field.bits, codes
    values = np.ascontiguousarray(field, dtype="<f4")
    same = values.view("<u4") == values.view("<u4").flat[0]
    if not same.all():
        return FLOAT, -1, (0.0, 0.0, 1.0), 0, values
    first = values.flat[0]
    if np.isnan(first):
        return MISSING, -1, (0.0, 0.0, 1.0), 0, None
    return CONSTANT, -1, (float(first), 0.0, 1.0), 0, None


def _key_checksum(key: str) -> int:
    """Return the checksum of a key, 0 for no key; a checksum of 0 becomes 1."""
    return (crc32c(np.frombuffer(key.encode(), np.uint8)) or 1) if key else 0


def _pad(head: bytes) -> bytes:
    return head.ljust(_round_up(len(head), _ALIGNMENT), b"\0")


def values_begin(fields: int) -> int:
    """Return the byte at which the values of a chunk begin."""
    return _round_up(_HEADER.itemsize + fields * RECORD.itemsize, _ALIGNMENT)


def parse(
    head: memoryview, fields: int, rows: int, columns: int, size: int, key: str = ""
) -> npt.NDArray[Any]:
    """Return the checked records of a chunk, one for each field.

    Args:
        head: the chunk's first `values_begin(fields)` bytes, or more.
        fields: fields that the chunk should hold.
        rows: their rows.
        columns: their columns.
        size: bytes of the whole chunk.
        key: the chunk's key in its store, "" if it is unknown.

    Raises:
        DamagedChunkError: not a packed16 chunk, one of another shape or place, or one cut short.
    """
    if len(head) < values_begin(fields) or bytes(head[:8]) != MAGIC:
        is_short = len(head) < values_begin(fields)
        raise DamagedChunkError(0, f"only {len(head)} bytes" if is_short else "no packed16 chunk")
    header = np.frombuffer(head, _HEADER, 1)[0]
    if header["version"] > VERSION:
        raise DamagedChunkError(8, f"packed16 version {header['version']}: update ens10 to read it")
    shape = tuple(int(header[name]) for name in ("fields", "rows", "columns"))
    if shape != (fields, rows, columns):
        raise DamagedChunkError(12, f"a chunk of shape {shape}, not {(fields, rows, columns)}")
    records = np.frombuffer(head, RECORD, fields, _HEADER.itemsize)
    if crc32c(records) != header["crc"]:
        raise DamagedChunkError(_HEADER.itemsize, "the header does not match its checksum")
    if key and header["place"] not in (0, _key_checksum(key)):
        reason = "a chunk of another place (date, step, level or array)"
        raise DamagedChunkError(PLACE.start, reason)
    kinds, gaps, begins = (records[name].tolist() for name in ("kind", "gap", "offset"))
    end = 0
    for n, (kind, gap, begin) in enumerate(zip(kinds, gaps, begins, strict=True)):
        if kind not in _BYTES or gap > _LAST_CODE:
            place = _HEADER.itemsize + n * RECORD.itemsize
            raise DamagedChunkError(place, f"field {n} is of kind {kind} with the gap code {gap}")
        # in Python's integers: the sum of hostile numbers does not wrap around
        end = max(end, begin + _BYTES[kind] * rows * columns)
    if end > size:
        raise DamagedChunkError(size, f"the chunk lacks {end - size} bytes")
    return records


def read_values(
    chunk: npt.NDArray[np.uint8], records: npt.NDArray[Any], n: int, points: int
) -> npt.NDArray[np.uint8]:
    """Return the bytes of the values of field n of a chunk, after a test of their checksum.

    Raises:
        DamagedChunkError: they do not match their checksum.
    """
    begin = int(records[n]["offset"])
    values = chunk[begin : begin + length_of(records[n], points)]
    if crc32c(values) != records[n]["crc"]:
        raise DamagedChunkError(begin, f"field {n} does not match its checksum")
    return values


def max_chunk_bytes(fields: int, rows: int, columns: int) -> int:
    """Return the maximum number of bytes of a chunk: every field as float32."""
    return values_begin(fields) + fields * _round_up(rows * columns * _BYTES[FLOAT], 8)


def packed_chunk_bytes(fields: int, rows: int, columns: int) -> int:
    """Return the number of bytes of a chunk whose fields all have 16-bit codes."""
    return values_begin(fields) + fields * _round_up(rows * columns * _BYTES[PACKED], 8)


def length_of(record: Any, points: int) -> int:
    """Return the number of bytes of a field's values."""
    return _BYTES[int(record["kind"])] * points


def crc32c(values: npt.NDArray[Any]) -> int:
    """Return the checksum (RFC 3720) of an array's bytes.

    Examples:
        >>> import numpy as np
        >>> from ens10.packed16.layout import crc32c
        >>> hex(crc32c(np.frombuffer(b"123456789", np.uint8)))
        '0xe3069283'
    """
    return int(_crc32c.crc32c(values.reshape(-1).view(np.uint8).data))


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
