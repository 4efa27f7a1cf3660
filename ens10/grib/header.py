"""The header of a GRIB message, read from its octets where it differs only in time and member.

A file of an ensemble holds thousands of messages whose headers differ in nothing but the start time
and the member number. ecCodes is asked once for each header with those octets left out; they are
then read directly, from where the WMO's manual and ECMWF's local definitions 1, 26 and 30 put them.
The first message of each header shows whether ecCodes reads the same from them; where it does not,
or where the layout is not known, ecCodes is asked for every message whose header is new.
"""

import struct
from pathlib import Path
from typing import Any

import eccodes

from ens10.errors import DamagedFileError, FileError
from ens10.grib.meaning import Header, ask_eccodes, seconds
from ens10.grib.message import Meaning

_ECMWF = 98
# Definitions with the member in octet 50: MARS labelling, hindcasts, forecasting systems.
_MEMBER_DEFINITIONS = (1, 26, 30)
_NO_LIST = 255  # octet 5 of a grid description without vertical coordinates or lengths of rows
_NO_LOCAL = 28  # octets of an edition 1 product section without a local part
# Edition 2 product templates of ensemble forecasts that keep the member in octet 36: at a point in
# time, over an interval, and the same of hindcasts.
_MEMBER_TEMPLATES = (1, 11, 60, 61)
# Edition 2 packings (simple, complex, CCSDS, JPEG, PNG) with their scaling in octets 12 to 19.
_SCALED_PACKINGS = (0, 2, 3, 40, 41, 42)
_MOST_KNOWN = 100_000  # headers: 50 MB; only where every message has a header of its own

_NEEDED = frozenset((1, 3, 4, 5, 6, 7))
_HEAD2 = struct.Struct(">IB")  # a section's length and number

# Key, time and member; None where they are part of the key.
_Head = tuple[bytes, int | None, int | None]

_known: dict[bytes, Header] = {}
_distrusted: set[bytes] = set()  # headers in which ecCodes reads another time or member than we do
_dates: dict[bytes, int] = {}
_interned: dict[Meaning, Meaning] = {}


def describe(path: Path, view: Any, offset: int, end: int, edition: int) -> Header:
    """The header of one framed message.

    Args:
        path: the file.
        view: its bytes (anything that slices to bytes).
        offset: first byte of the message.
        end: the byte after its last.
        edition: GRIB edition.

    Raises:
        FileError: a grid that is not supported, or several fields in one message.
        DamagedFileError: the header makes no sense.
    """
    try:
        key, time, number = (_edition1 if edition == 1 else _edition2)(path, view, offset, end)
        found = _known.get(key)
        if found is None:
            return _learn(path, offset, key, time, number)
    except (ValueError, TypeError, LookupError, struct.error, eccodes.CodesInternalError) as error:
        raise DamagedFileError(
            path, offset, f"the message's header makes no sense ({error})"
        ) from error
    if time is None:
        return found
    return Header(found.meaning, time, found.number if number is None else number)


def _learn(path: Path, offset: int, key: bytes, time: int | None, number: int | None) -> Header:
    """Asks ecCodes, and remembers the answer if the octets read directly agree with it."""
    found = ask_eccodes(path, offset)
    meaning = _interned.setdefault(found.meaning, found.meaning)
    found = Header(meaning, found.time, found.number)
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    if time in (None, found.time) and number in (None, found.number) and key not in _distrusted:
        _known[key] = found
    else:
        _distrusted.add(key)
    return found


def _edition1(path: Path, view: Any, offset: int, end: int) -> _Head:
    start = offset + 8
    product = _section(view, start)
    size = len(product)
    flags = product[7]
    grid = _section(view, start + size) if flags & 128 else b""
    if grid and grid[4] != _NO_LIST and grid[4] - 1 + 4 * grid[3] > len(grid):
        # ecCodes follows this octet wherever it points, out of the message too.
        reason = f"octet 5 of its grid description points to octet {grid[4]}, beyond its end"
        raise DamagedFileError(path, offset, reason)
    data = start + size + len(grid)
    if flags & 64:
        data += int.from_bytes(view[data : data + 3], "big")
    if data + 11 > end:
        raise DamagedFileError(path, offset, "its sections are longer than the message")
    # Flags and unused bits, bits per value: the packing, but for its reference and scale.
    key = (view[data + 3 : data + 4], view[data + 10 : data + 11], grid)
    local = product[40] if size > 50 and product[4] == _ECMWF else -1
    if size == _NO_LOCAL:
        time, number = _date1(path, offset, product), None
        return b"".join((product[:12], product[17:24], product[25:], *key)), time, number
    if local not in _MEMBER_DEFINITIONS:
        return b"".join((b"whole", product, *key)), None, None
    time = _date1(path, offset, product)
    parts = (product[:12], product[17:24], product[25:49], product[50:])
    return b"".join((*parts, *key)), time, product[49]


def _date1(path: Path, offset: int, product: bytes) -> int:
    octets = product[12:17] + product[24:25]
    known = _dates.get(octets)
    if known is None:
        year, month, day, hour, minute, century = octets
        year += 100 * (century - 1)
        known = _dates[octets] = _date(path, offset, (year, month, day, hour, minute, 0))
    return known


def _edition2(path: Path, view: Any, offset: int, end: int) -> _Head:
    sections = _sections2(path, view, offset, end)
    if not _NEEDED.issubset(sections):
        raise DamagedFileError(path, offset, f"it holds only the sections {sorted(sections)}")
    first, product, packing = sections[1], sections[4], sections[5]
    values, points = (int.from_bytes(octets, "big") for octets in (packing[5:9], sections[3][6:10]))
    if values > points:  # which ecCodes would make room for
        raise DamagedFileError(path, offset, f"it says to hold {values} values for {points} points")
    time = _date2(path, offset, first[12:19])
    number = product[35] if int.from_bytes(product[7:9], "big") in _MEMBER_TEMPLATES else None
    if number is not None:
        product = product[:35] + product[36:]
    if int.from_bytes(packing[9:11], "big") in _SCALED_PACKINGS:
        packing = packing[:11] + packing[19:]
    discipline = view[offset + 6 : offset + 7]
    parts = (discipline, first[:12], first[19:], sections.get(2, b""), sections[3], product)
    return b"".join((*parts, packing, sections[6])), time, number


def _sections2(path: Path, view: Any, offset: int, end: int) -> dict[int, bytes]:
    """The sections of an edition 2 message by number; of bitmap and data, only the first octets."""
    sections: dict[int, bytes] = {}
    start = offset + 16
    while start < end - 4:
        size, which = _HEAD2.unpack_from(view, start)
        if which in sections:
            raise _several_fields(path, offset)
        if size < 5 or start + size > end - 4:
            raise DamagedFileError(path, offset, f"section {which} is {size} bytes long")
        sections[which] = view[start : start + (6 if which > 5 else size)]
        start += size
    return sections


def _date2(path: Path, offset: int, octets: bytes) -> int:
    known = _dates.get(octets)
    if known is None:
        year = int.from_bytes(octets[:2], "big")
        known = _dates[octets] = _date(path, offset, (year, *octets[2:6], 0))
    return known


def _date(path: Path, offset: int, parts: tuple[int, ...]) -> int:
    try:
        return seconds(*parts)
    except ValueError as error:
        year, month, day, hour, minute, _ = parts
        raise DamagedFileError(
            path,
            offset,
            f"dataDate {year:04d}{month:02d}{day:02d}, dataTime {hour:02d}{minute:02d} is no date "
            f"({error})",
        ) from error


def _section(view: Any, start: int) -> bytes:
    size = int.from_bytes(view[start : start + 3], "big")
    section: bytes = view[start : start + size]
    return section


def _several_fields(path: Path, offset: int) -> FileError:
    return FileError(
        path,
        f"the message at byte {offset} holds several fields, of which ecCodes reads the first",
        "Split it with grib_copy",
    )
