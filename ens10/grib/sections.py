"""The sections of a GRIB message, checked before ecCodes sees the message.

ecCodes trusts lengths and counts of a header: a flipped bit makes it read beyond the message,
allocate gigabytes, or abort the process. `sections` compares all of them with each other and with
the length of the message. Octets are numbered from 1 within their section, as in the WMO's manual
on codes (FM 92, editions 1 and 2).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ens10.errors import DamagedFileError, FileError

MOST_POINTS = 1 << 24  # of a field that is constant or compressed; 5760 x 2881 are fewer
_POINTS_OF_A_BYTE = 64  # of a compressed field that is larger still
_MOST_BITS = 64  # per value
_MOST_BINARY, _MOST_DECIMAL = 1074, 308  # powers of 2 and 10 that double precision has
_MOST_PADDING = 120  # bytes between the last section of edition 1 and 7777
_LONG = 0x800000  # flag of an edition 1 message of more than 8 MB, whose length is in units of 120
_TIME_UNITS = frozenset((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 254, 255))
_END = 4  # bytes: 7777

_NAMES1 = {1: "product", 2: "grid", 3: "bitmap", 4: "data"}
_SHORTEST1 = {1: 28, 2: 32, 3: 6, 4: 11}
_NAMES2 = {1: "identification", 2: "local use", 3: "grid", 4: "product", 5: "packing",
           6: "bitmap", 7: "data"}  # fmt: skip
_SHORTEST2 = {1: 21, 2: 5, 3: 14, 4: 9, 5: 11, 6: 6, 7: 5}
_REQUIRED2 = frozenset((1, 3, 4, 5, 6, 7))
# Octets of section 5 by packing: simple, complex, with differences, IEEE, JPEG, PNG, CCSDS.
_PACKINGS2 = {0: 21, 2: 47, 3: 49, 4: 12, 40: 23, 41: 21, 42: 25}
_SIMPLE, _IEEE, _COMPLEX_PACKINGS = 0, 4, (2, 3)
_IEEE_BITS = {1: 32, 2: 64}  # by octet 12
# Product templates: octet of the number of time ranges, octets without them, octets of each.
_RANGES2 = {8: (42, 46, 12), 11: (45, 49, 12), 61: (52, 56, 12)}
_TIME_TEMPLATES2 = frozenset((0, 1, 8, 11, 60, 61))  # with the unit of time in octet 18
_NO_LIST = 255  # octet 5 of a grid without vertical coordinates or lengths of rows
_NO_BITMAP, _SAME_BITMAP = 255, 254

Spans = Mapping[int, tuple[int, int]]


class RawMessage(NamedTuple):
    """The bytes of a GRIB message, from `GRIB` to `7777`.

    Attributes:
        path: the file.
        view: bytes that hold the message (anything that slices to bytes).
        offset: first byte of the message in `view`.
        end: the byte after its last.
        edition: GRIB edition.
        head: the first bytes of the message, if they were read already; a cache of `view`.
        origin: where `view` begins in the file.
        number: number of the message in the file, from 1; None if unknown.
    """

    path: Path
    view: Any
    offset: int
    end: int
    edition: int
    head: bytes = b""
    origin: int = 0
    number: int | None = None

    def octets(self, begin: int, size: int) -> bytes:
        """Return `size` bytes of `view` from `begin` on; they may lie behind the message."""
        first = begin - self.offset
        if first + size <= len(self.head):
            return self.head[first : first + size]
        content: bytes = self.view[begin : begin + size]
        return content

    def section(self, span: tuple[int, int]) -> bytes:
        """Return the bytes of a section."""
        return self.octets(span[0], span[1] - span[0])

    def raise_error(self, section: int, position: int, reason: str) -> NoReturn:
        """Raise the error of a damaged message.

        Args:
            section: number of the section.
            position: first byte in `view` of the invalid part.
            reason: the invalid part, and what is wrong with it.

        Raises:
            DamagedFileError: always.
        """
        name = (_NAMES1 if self.edition == 1 else _NAMES2).get(section, "unknown")
        prefix = "" if self.number is None else f"message {self.number}, "
        place = f"{prefix}section {section} ({name}), byte {self.origin + position}"
        raise DamagedFileError(self.path, self.origin + self.offset, f"{place}: {reason}")


def sections(message: RawMessage) -> Spans:
    """Return the spans of a message's sections, after checking them.

    Args:
        message: begins with GRIB, ends with 7777, and has the length in its header.

    Returns:
        First byte and the byte after the last of each section, by its number, in `message.view`.

    Raises:
        DamagedFileError: lengths, numbers of points and values, bits per value, scale factors or
            units of time that are impossible, or contradict each other or the message's length.
        FileError: several fields in one message.
    """
    spans = spans_of(message)
    check(message, spans)
    return spans


def spans_of(message: RawMessage) -> Spans:
    """Return the spans of the sections, checking only their lengths.

    Raises:
        DamagedFileError: the lengths do not fit the message's.
        FileError: several fields in one message.
    """
    return _spans1(message) if message.edition == 1 else _spans2(message)


def check(message: RawMessage, spans: Spans) -> None:
    """Check numbers of points and values, packing, scale factors and units of time.

    Raises:
        DamagedFileError: they are impossible, or contradict each other or the message's length.
    """
    (_check1 if message.edition == 1 else _check2)(message, spans)


def long_length(view: Any, offset: int, length: int) -> int:
    """Return the length of a large edition 1 message (over 8 MB).

    ECMWF's convention for messages of more than 8 MB: if the length in section 4 is below 120, the
    message's length is given in units of 120 octets, from which section 4's is subtracted.

    Args:
        view: bytes that hold the message.
        offset: first byte of the message.
        length: octets 5 to 7.
    """
    start = offset + 8
    flags = view[start + 7 : start + 8]
    if not flags:
        return length
    for present in (True, flags[0] & 128, flags[0] & 64):
        start += _integer(view, start, 3) if present else 0
    last = _integer(view, start, 3)
    return (length & ~_LONG) * 120 - last + 4 if last < 120 else length


def _integer(view: Any, start: int, size: int) -> int:
    return int.from_bytes(view[start : start + size], "big")


def _spans1(message: RawMessage) -> Spans:
    start, last = message.offset + 8, message.end - _END
    flags = message.octets(start, 8)[7]
    spans: dict[int, tuple[int, int]] = {}
    for section, present in ((1, 1), (2, flags & 128), (3, flags & 64), (4, 1)):
        if not present:
            continue
        size, remaining = int.from_bytes(message.octets(start, 3), "big"), last - start
        if section == 4 and size < 120 and remaining >= _LONG - 120:
            size = remaining
        if not _SHORTEST1[section] <= size <= remaining:
            reason = f"octets 1 to 3 give its length as {size}, of {remaining} bytes that are left"
            message.raise_error(section, start, reason)
        spans[section] = (start, start + size)
        start += size
    if last - start >= _MOST_PADDING:
        message.raise_error(4, start, f"{last - start} bytes behind it belong to no section")
    return spans


def _check1(message: RawMessage, spans: Spans) -> None:
    product = message.section(spans[1])
    if product[17] not in _TIME_UNITS:
        message.raise_error(1, spans[1][0] + 17, f"octet 18, the unit of time, is {product[17]}")
    data, end = spans[4]
    head = message.octets(data, 11)
    bits, simple = head[10], not head[3] & 0xF0
    points = _points1(message, spans[2]) if 2 in spans else None
    if bits > _MOST_BITS:
        message.raise_error(4, data + 10, f"octet 11, bits per value, is {bits}")
    if bits and simple:
        decimal = (1, spans[1][0] + 26, product[26:28])
        _check_scales(message, (4, data + 4, head[4:6]), decimal)
    if points is None:
        return
    if 3 in spans:
        _check_bitmap1(message, spans[3], points)
    if not (simple and bits):
        _check_size(message, points)
        return
    values = (8 * (end - data - 11) - (head[3] & 15)) // bits
    if values > points or (values != points and 3 not in spans):
        message.raise_error(4, data, f"it holds {values} values of {bits} bits for {points} points")


def _points1(message: RawMessage, span: tuple[int, int]) -> int | None:
    """Return Ni * Nj; None for grids that are not regular in latitude and longitude."""
    begin, end = span
    grid = message.octets(begin, 28)
    if grid[4] == _NO_LIST and grid[3]:
        reason = f"octet 4: {grid[3]} vertical coordinates, and no place of them"
        message.raise_error(2, begin + 3, reason)
    if grid[4] != _NO_LIST and grid[4] - 1 + 4 * grid[3] > end - begin:
        # ecCodes follows this octet wherever it points, out of the message too.
        reason = f"octet 5 of its grid description points to octet {grid[4]}, beyond its end"
        message.raise_error(2, begin + 4, reason)
    columns, rows = int.from_bytes(grid[6:8], "big"), int.from_bytes(grid[8:10], "big")
    if grid[5] or columns == 0xFFFF:
        return None
    if not rows * columns:
        message.raise_error(2, begin + 6, f"octets 7 to 10: Ni is {columns}, Nj {rows}")
    return rows * columns


def _check_bitmap1(message: RawMessage, span: tuple[int, int], points: int) -> None:
    begin, end = span
    head = message.octets(begin, 6)
    bits = 8 * (end - begin - 6) - head[3]
    if head[4:] == bytes(2) and bits != points:  # else a bitmap that the centre has predefined
        message.raise_error(3, begin, f"a bitmap of {bits} points for {points} grid points")


def _spans2(message: RawMessage) -> Spans:
    start, last = message.offset + 16, message.end - _END
    spans: dict[int, tuple[int, int]] = {}
    while start < last:
        head, remaining = message.octets(start, 5), last - start
        size, section = int.from_bytes(head[:4], "big"), head[4]
        if section not in _NAMES2:
            message.raise_error(section, start + 4, f"octet 5: there is no section {section}")
        if section in spans:
            raise _several_fields(message)
        if not _SHORTEST2[section] <= size <= remaining:
            reason = f"octets 1 to 4 give its length as {size}, of {remaining} bytes that are left"
            message.raise_error(section, start, reason)
        spans[section] = (start, start + size)
        start += size
    if not _REQUIRED2.issubset(spans):
        missing = min(_REQUIRED2 - set(spans))
        message.raise_error(missing, message.offset, f"there is none; there are {sorted(spans)}")
    return spans


def _check2(message: RawMessage, spans: Spans) -> None:
    _check_product2(message, *spans[4])
    _check_values2(message, spans, _points2(message, *spans[3]))


def _points2(message: RawMessage, begin: int, end: int) -> int:
    grid = message.octets(begin, 38)
    points = int.from_bytes(grid[6:10], "big")
    if grid[12:14] == bytes(2):  # regular in latitude and longitude
        if end - begin < 72:
            message.raise_error(3, begin, f"{end - begin} octets, and its template 0 has 72")
        columns, rows = int.from_bytes(grid[30:34], "big"), int.from_bytes(grid[34:38], "big")
        if columns != 0xFFFFFFFF and not 0 < rows * columns == points:
            reason = f"Nj is {rows}, Ni {columns}, and the number of points {points}"
            message.raise_error(3, begin + 6, f"octets 7 to 10 and 31 to 38: {reason}")
        if 72 + grid[10] * rows > end - begin:
            reason = f"octet 11: a list of {grid[10]} octets for each row"
            message.raise_error(3, begin + 10, reason)
    return points


def _check_product2(message: RawMessage, begin: int, end: int) -> None:
    size = end - begin
    product = message.octets(begin, min(size, 60))
    coordinates = int.from_bytes(product[5:7], "big")
    if 9 + 4 * coordinates > size:
        message.raise_error(4, begin + 5, f"octets 6 and 7: {coordinates} vertical coordinates")
    template = int.from_bytes(product[7:9], "big")
    if template not in _TIME_TEMPLATES2:
        return
    if size < 34:
        message.raise_error(4, begin, f"{size} octets, and its template {template} has 34 or more")
    if product[17] not in _TIME_UNITS:
        message.raise_error(4, begin + 17, f"octet 18, the unit of time, is {product[17]}")
    octet, base_size, range_size = _RANGES2.get(template, (1, 0, 0))
    ranges = product[octet - 1] if octet <= len(product) else 0
    if base_size + ranges * range_size > size:
        message.raise_error(4, begin + octet - 1, f"octet {octet}: {ranges} time ranges")


def _check_values2(message: RawMessage, spans: Spans, points: int) -> None:
    """Compare sections 5 to 7 with each other and with the number of points."""
    begin, end = spans[5]
    packing = message.octets(begin, 35)
    values, template = int.from_bytes(packing[5:9], "big"), int.from_bytes(packing[9:11], "big")
    if end - begin < _PACKINGS2.get(template, 11):
        reason = f"{end - begin} octets are too few for its template {template}"
        message.raise_error(5, begin, reason)
    if values > points:
        message.raise_error(5, begin + 5, f"octets 6 to 9: {values} values for {points} points")
    _check_bitmap2(message, spans[6], values, points)
    bits = _bits2(message, begin, packing, template)
    if template in _COMPLEX_PACKINGS and int.from_bytes(packing[31:35], "big") > values:
        message.raise_error(5, begin + 31, f"octets 32 to 35: more groups than its {values} values")
    if template not in (_SIMPLE, _IEEE) or not bits:
        _check_size(message, points)
        return
    octets, expected = spans[7][1] - spans[7][0] - 5, (values * bits + 7) // 8
    if octets != expected:
        reason = f"{octets} octets for {values} values of {bits} bits, which need {expected}"
        message.raise_error(7, spans[7][0], reason)


def _bits2(message: RawMessage, begin: int, packing: bytes, template: int) -> int:
    """Return the bits per value; 0 for constant fields and packings unknown here."""
    if template == _IEEE:
        if packing[11] not in _IEEE_BITS:
            reason = f"octet 12: the precision {packing[11]} is not supported"
            message.raise_error(5, begin + 11, reason)
        return _IEEE_BITS[packing[11]]
    bits = packing[19] if template in _PACKINGS2 else 0
    if bits > _MOST_BITS:
        message.raise_error(5, begin + 19, f"octet 20, bits per value, is {bits}")
    if bits:
        binary, decimal = (5, begin + 15, packing[15:17]), (5, begin + 17, packing[17:19])
        _check_scales(message, binary, decimal)
    return bits


def _check_bitmap2(message: RawMessage, span: tuple[int, int], values: int, points: int) -> None:
    begin, end = span
    kind = message.octets(begin, 6)[5]
    if kind == _SAME_BITMAP:
        reason = "octet 6: the bitmap of a field before this one; there is none"
        message.raise_error(6, begin + 5, reason)
    if kind == 0 and 8 * (end - begin - 6) < points:
        message.raise_error(6, begin, f"a bitmap of {end - begin - 6} octets for {points} points")
    if kind == _NO_BITMAP and values != points:
        message.raise_error(5, begin + 5, f"it says to hold {values} values for {points} points")


Octets = tuple[int, int, bytes]  # section, position in the view, and the octets


def _check_scales(message: RawMessage, binary: Octets, decimal: Octets) -> None:
    """Refuse scale factors beyond double precision; the octets' highest bit is their sign."""
    for (section, position, octets), most, reason in (
        (binary, _MOST_BINARY, "the binary scale factor is {} or its negative"),
        (decimal, _MOST_DECIMAL, "the decimal scale factor is {}, or negative"),
    ):
        power = int.from_bytes(octets, "big") & 0x7FFF
        if power > most:
            message.raise_error(section, position, reason.format(power))


def _check_size(message: RawMessage, points: int) -> None:
    """Refuse more points than a constant or compressed field of this size may have."""
    size = message.end - message.offset
    if points > max(MOST_POINTS, _POINTS_OF_A_BYTE * size):
        section = 2 if message.edition == 1 else 3
        reason = f"{points} points in a message of {size} bytes; {MOST_POINTS} is the most"
        message.raise_error(section, message.offset, reason)


def _several_fields(message: RawMessage) -> FileError:
    reason = (
        f"the message at byte {message.origin + message.offset} holds several fields, of which "
        "ecCodes reads the first"
    )
    return FileError(message.path, reason, "Split it with grib_copy")
