"""The header of a GRIB message, read from its octets where it differs only in time and member.

A file of an ensemble holds thousands of messages whose headers differ in nothing but the start time
and the member number. ecCodes is asked once for each header with those octets left out; they are
then read directly, from where the WMO's manual and ECMWF's local definitions 1, 26 and 30 put them.
The first message of each header shows whether ecCodes reads the same from them; where it does not,
or where the layout is not known, ecCodes is asked for every message whose header is new.
"""

from ens10.errors import DamagedFileError
from ens10.grib.isolated import EccodesError
from ens10.grib.meaning import Header, ask_eccodes, seconds
from ens10.grib.message import Meaning
from ens10.grib.sections import Framed, Spans, check, spans_of

_ECMWF = 98
# Definitions with the member in octet 50: MARS labelling, hindcasts, forecasting systems.
_MEMBER_DEFINITIONS = (1, 26, 30)
_NO_LOCAL = 28  # octets of an edition 1 product section without a local part
# Edition 2 product templates of ensemble forecasts that keep the member in octet 36: at a point in
# time, over an interval, and the same of hindcasts.
_MEMBER_TEMPLATES = (1, 11, 60, 61)
# Edition 2 packings (simple, complex, CCSDS, JPEG, PNG) with their scaling in octets 12 to 19.
_SCALED_PACKINGS = (0, 2, 3, 40, 41, 42)
_MOST_KNOWN = 100_000  # headers: 50 MB; only where every message has a header of its own

# Key, time and member; None where they are part of the key.
_Head = tuple[bytes, int | None, int | None]

_known: dict[bytes, Header] = {}
_distrusted: set[bytes] = set()  # headers in which ecCodes reads another time or member than we do
_dates: dict[bytes, int] = {}
_interned: dict[Meaning, Meaning] = {}


def describe(message: Framed) -> Header:
    """The header of one framed message.

    Raises:
        FileError: a grid that is not supported, or several fields in one message.
        DamagedFileError: the header makes no sense.
    """
    spans = spans_of(message)
    try:
        key, time, number = (_edition1 if message.edition == 1 else _edition2)(message, spans)
        found = _known.get(key)
        if found is None:
            check(message, spans)  # its result depends on nothing but the key
            return _learn(message, key, time, number)
    except (ValueError, TypeError, LookupError, EccodesError) as error:
        reason = f"the message's header makes no sense ({error})"
        raise DamagedFileError(message.path, message.offset, reason) from error
    if time is None:
        return found
    return Header(found.meaning, time, found.number if number is None else number)


def _learn(message: Framed, key: bytes, time: int | None, number: int | None) -> Header:
    """Asks ecCodes, and remembers the answer if the octets read directly agree with it."""
    raw = message.view[message.offset : message.end]
    found = ask_eccodes(message.path, message.offset, raw)
    meaning = _interned.setdefault(found.meaning, found.meaning)
    found = Header(meaning, found.time, found.number)
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    if time in (None, found.time) and number in (None, found.number) and key not in _distrusted:
        _known[key] = found
    else:
        _distrusted.add(key)
    return found


def _edition1(message: Framed, spans: Spans) -> _Head:
    product = message.section(spans[1])
    grid = message.section(spans[2]) if 2 in spans else b""
    bitmap = message.octets(spans[3][0], 6) if 3 in spans else b""
    data, size = message.octets(spans[4][0], 11), len(product)
    # Without the packing's reference and scale.
    key = (data[:4], data[10:], bitmap, grid)
    local = product[40] if size > 50 and product[4] == _ECMWF else -1
    if size == _NO_LOCAL:
        time, number = _date1(message, product), None
        return b"".join((product[:12], product[17:24], product[25:], *key)), time, number
    if local not in _MEMBER_DEFINITIONS:
        return b"".join((b"whole", product, *key)), None, None
    time = _date1(message, product)
    parts = (product[:12], product[17:24], product[25:49], product[50:])
    return b"".join((*parts, *key)), time, product[49]


def _date1(message: Framed, product: bytes) -> int:
    octets = product[12:17] + product[24:25]
    known = _dates.get(octets)
    if known is None:
        year, month, day, hour, minute, century = octets
        year += 100 * (century - 1)
        known = _dates[octets] = _date(message, (year, month, day, hour, minute, 0))
    return known


def _edition2(message: Framed, spans: Spans) -> _Head:
    first, product, packing = (message.section(spans[n]) for n in (1, 4, 5))
    local = message.section(spans[2]) if 2 in spans else b""
    time = _date2(message, first[12:19])
    number = product[35] if int.from_bytes(product[7:9], "big") in _MEMBER_TEMPLATES else None
    if number is not None:
        product = product[:35] + product[36:]
    if int.from_bytes(packing[9:11], "big") in _SCALED_PACKINGS:
        packing = packing[:11] + packing[19:]
    head = message.octets(message.offset, 7)[6:] + message.octets(spans[7][0], 4)
    parts = (head, first[:12], first[19:], local, message.section(spans[3]), product)
    return b"".join((*parts, packing, message.octets(spans[6][0], 6))), time, number


def _date2(message: Framed, octets: bytes) -> int:
    known = _dates.get(octets)
    if known is None:
        year = int.from_bytes(octets[:2], "big")
        known = _dates[octets] = _date(message, (year, *octets[2:6], 0))
    return known


def _date(message: Framed, parts: tuple[int, ...]) -> int:
    try:
        return seconds(*parts)
    except ValueError as error:
        year, month, day, hour, minute, _ = parts
        raise DamagedFileError(
            message.path,
            message.offset,
            f"dataDate {year:04d}{month:02d}{day:02d}, dataTime {hour:02d}{minute:02d} is no date "
            f"({error})",
        ) from error
