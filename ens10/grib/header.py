"""The header of a GRIB message: ecCodes reads it once for all messages that share it.

A file of an ensemble holds thousands of messages whose headers differ only in the start time and
the member number. ecCodes decodes each header, without those octets, once; the octets are then
read directly, from their positions in the WMO's manual and ECMWF's local definitions 1, 26 and 30.
The first message of each header is read in both ways. Where the results differ, ecCodes decodes
every message of that header; where the layout is unknown, the octets stay in the header.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ens10.catalog import variable_of_param
from ens10.errors import DamagedFileError, FileError
from ens10.grib.grid import LatLonGrid, Scan, from_header
from ens10.grib.isolated import EccodesError, keys_of
from ens10.grib.message import Meaning
from ens10.grib.sections import RawMessage, Spans, check, spans_of
from ens10.identity import FieldKind, Method, Window

Keys = Mapping[str, Any]

_EPOCH = datetime(1970, 1, 1)
_ROUNDING = 2e-3  # degrees; edition 1 rounds corners and increments to a thousandth


class Header(NamedTuple):
    """The meaning of a message, its start in seconds since 1970, and its member (-1 for none)."""

    meaning: Meaning
    time: int
    number: int


def read_by_eccodes(path: Path, offset: int, raw: bytes) -> Header:
    """Return the header of a message, read by ecCodes.

    Args:
        path: of the file, for errors.
        offset: of the message in the file.
        raw: the message.

    Raises:
        FileError: a grid that is not supported.
        DamagedFileError: no date, or a grid that contradicts itself.
        EccodesError: ecCodes cannot read the header.
    """
    keys = keys_of(path, raw)
    for key in ("paramId", "shortName", "edition", "typeOfLevel"):
        if keys.get(key) is None:
            reason = f"the message at byte {offset} has no {key}, which says what it holds"
            raise FileError(path, reason, "Remove it, or update ecCodes")
    significance = _get(keys, "significanceOfReferenceTime")
    if significance in _NO_STARTS:
        reason = f"the time of the message at byte {offset} is {_NO_STARTS[significance]}, no start"
        raise FileError(path, reason, "Write the start and the lead time")
    if keys.get("startStep") is None:
        template = keys.get("productDefinitionTemplateNumber")
        reason = f"the message at byte {offset} (product template 4.{template}) has no lead time"
        remedy = f"Remove it with `grib_copy -w productDefinitionTemplateNumber!={template}`"
        raise FileError(path, reason, remedy)
    number = _get(keys, "perturbationNumber")
    time = _time(keys, path, offset)
    meaning = _meaning(keys, path, offset)
    return Header(meaning, time, -1 if number is None else int(number))


def _meaning(keys: Keys, path: Path, offset: int) -> Meaning:
    grid, scan = _grid(keys, path, offset)
    param_id = int(_get(keys, "paramId"))
    variable = variable_of_param(param_id)
    short_name = str(_get(keys, "shortName"))
    hindcast = _get(keys, "hdate") is not None
    # MARS calls the model version `date` and the date hindcast `hdate`.
    model_date = int(_get(keys, "mars.date") or 0) or None if hindcast else None
    return Meaning(
        edition=int(_get(keys, "edition")), param_id=param_id, short_name=short_name,
        name=variable.name if variable else str(_get(keys, "cfVarName") or short_name),
        units=str(_get(keys, "units") or "unknown"), kind=_kind(keys), product=_product(keys),
        level_type=str(_get(keys, "typeOfLevel")), level=int(_get(keys, "level") or 0),
        window=_window(keys, path, offset), data_type=str(_get(keys, "dataType")),
        model_date=model_date, version=str(_get(keys, "expver") or ""),
        centre=str(_get(keys, "centre")), packing=str(_get(keys, "packingType")),
        bits=int(_get(keys, "bitsPerValue")), grid=grid, scan=scan,
    )  # fmt: skip


# Types of MARS that are products of an ensemble, whatever the rest of the header contains.
PRODUCT_TYPES = {
    **dict.fromkeys(("em", "cm", "taem"), FieldKind.MEAN),
    **dict.fromkeys(("es", "cs", "taes", "ef", "ea"), FieldKind.SPREAD),
    **dict.fromkeys(("pb", "pd", "cd"), FieldKind.QUANTILE),
    **dict.fromkeys(("ep", "fp"), FieldKind.PROBABILITY),
    **dict.fromkeys(("efi", "efic", "sot", "ed", "ci"), FieldKind.OTHER),
}
# Edition 2, code table 4.7: means, and measures of spread, of all members or of a cluster
_DERIVED = {
    **dict.fromkeys((0, 1, 6), FieldKind.MEAN), **dict.fromkeys((2, 3, 4, 7), FieldKind.SPREAD),
}  # fmt: skip
# Edition 2, code table 4.3: fields of a template of members or forecasts that are neither
_PROCESSES = {
    **dict.fromkeys((6, 7), FieldKind.SPREAD), 5: FieldKind.PROBABILITY,
    8: FieldKind.OBSERVATION, 9: FieldKind.OTHER, 10: FieldKind.MEAN,
    **dict.fromkeys((18, 20, 21), FieldKind.DIFFERENCE),
}  # fmt: skip
# Edition 2, code table 4.0: errors, statistics over an area, categories, parts and tiles of cells
_TEMPLATES = {
    7: FieldKind.SPREAD,
    **dict.fromkeys((15, 51, 53, 54, 55, 56, 59, 62, 63, 91), FieldKind.OTHER),
}
_NO_STARTS = {2: "the verifying time of the forecast", 4: "a local time"}  # code table 1.2
_PERTURBED = ("pf", "cf")
# Types of step of ecCodes; those that it lacks here are "other"
METHODS = {
    "instant": Method.POINT, "accum": Method.SUM, "sum": Method.SUM, "avg": Method.MEAN,
    "max": Method.MAXIMUM, "min": Method.MINIMUM, "range": Method.RANGE,
    "sd": Method.STANDARD_DEVIATION,
}  # fmt: skip
_CALENDAR_UNITS = {3: "months", 4: "years", 5: "decades", 6: "30 years", 7: "centuries"}
_LONGEST = 100 * 365 * 86400  # seconds; a longer lead time is damage, such as an octet of all ones


def _kind(keys: Keys) -> FieldKind:
    """Return the kind of a field, from ECMWF's type or the keys of its product template."""
    data_type, template = _get(keys, "dataType"), _get(keys, "productDefinitionTemplateNumber")
    is_second = _get(keys, "edition") == 2  # ecCodes computes these keys for edition 1, too
    derived = _get(keys, "derivedForecast")
    if data_type in PRODUCT_TYPES:
        return PRODUCT_TYPES[data_type]
    if str(_get(keys, "stepType")).startswith("diff"):
        return FieldKind.DIFFERENCE
    if is_second and derived is not None:
        return _DERIVED.get(derived, FieldKind.OTHER)
    if is_second and {"percentileValue", "quantileValue"} & keys.keys():
        return FieldKind.QUANTILE
    if is_second and "probabilityType" in keys:
        return FieldKind.PROBABILITY
    if is_second and template in _TEMPLATES:
        return _TEMPLATES[template]
    process = _get(keys, "typeOfGeneratingProcess")
    if is_second and process in _PROCESSES:
        return _PROCESSES[process]
    # Edition 1 has a member number in deterministic forecasts, too.
    total = _get(keys, "numberOfForecastsInEnsemble")
    if "perturbationNumber" in keys and (is_second or data_type in _PERTURBED or total != 0):
        return FieldKind.MEMBER
    return FieldKind.DETERMINISTIC


def _product(keys: Keys) -> str:
    """Return which quantile or probability a field is, "" for other fields."""
    if "percentileValue" in keys:
        return f"{_get(keys, 'percentileValue')} %"
    if "quantileValue" in keys:
        return f"{_get(keys, 'quantileValue')} of {_get(keys, 'totalNumberOfQuantiles')}"
    if "forecastProbabilityNumber" in keys:
        return f"number {_get(keys, 'forecastProbabilityNumber')}"
    return ""  # a quantile of edition 1 has its number in that of the member


def _window(keys: Keys, path: Path, offset: int) -> Window:
    """Return the time window of a field, exact to the second.

    Raises:
        FileError: lead times in months or years, which have no fixed length.
        DamagedFileError: a lead time of more than a century.
    """
    ranges = ("indicatorOfUnitForTimeRange",) if keys["edition"] == 2 else ()
    for key in ("indicatorOfUnitOfTimeRange", *ranges):
        units = _CALENDAR_UNITS.get(keys.get(key, -1))
        if units:
            reason = f"the message at byte {offset} gives its lead time in {units}"
            raise FileError(path, reason, "Write it in hours, minutes or seconds")
    step_type = str(_get(keys, "stepType"))
    begin, end = int(_get(keys, "startStep")), int(_get(keys, "endStep"))
    if max(abs(begin), abs(end)) > _LONGEST:
        reason = f"its time range from {begin} to {end} s after the start is impossible"
        raise DamagedFileError(path, offset, reason)
    method = METHODS.get(step_type, Method.OTHER)
    return Window.at(end) if method == Method.POINT else Window(method, begin, end)


def _get(keys: Keys, key: str) -> Any:
    """Return the value of a key, or None if this message does not have it."""
    value = keys.get(key)
    if isinstance(value, EccodesError):
        raise value
    return value


def _time(keys: Keys, path: Path, offset: int) -> int:
    year, month_day = divmod(int(_get(keys, "dataDate")), 10000)
    hour_minute = divmod(int(_get(keys, "dataTime")), 100)
    return _date(path, offset, (year, *divmod(month_day, 100), *hour_minute))


def _grid(keys: Keys, path: Path, offset: int) -> tuple[LatLonGrid, Scan]:
    kind = _get(keys, "gridType")
    if kind != "regular_ll":
        remedy = "Interpolate the file to a regular latitude-longitude grid first"
        raise FileError(path, f"the message at byte {offset} lies on a {kind!r} grid", remedy)

    if _get(keys, "alternativeRowScanning"):
        reason = f"the message at byte {offset} scans every second row backwards"
        raise FileError(path, reason, "Write the file again with all rows in one direction")

    def corner(end: str, axis: str) -> float:
        return float(_get(keys, f"{axis}Of{end}GridPointInDegrees"))

    rows, columns = int(_get(keys, "Nj")), int(_get(keys, "Ni"))
    points = int(_get(keys, "numberOfDataPoints"))
    if not 0 < rows * columns == points:
        reason = f"Nj is {rows}, Ni {columns}, and the number of points {points}"
        raise DamagedFileError(path, offset, f"its grid contradicts itself: {reason}")
    latitudes = (corner("First", "latitude"), corner("Last", "latitude"))
    longitudes = (corner("First", "longitude"), corner("Last", "longitude"))
    by_column = bool(_get(keys, "jPointsAreConsecutive"))
    order = {"by_column": by_column, "westward": bool(_get(keys, "iScansNegatively"))}
    grid, scan = from_header((rows, columns), latitudes, longitudes, **order)
    contradiction = _contradiction(keys, grid, latitudes)
    if contradiction:
        raise DamagedFileError(path, offset, f"its grid contradicts itself: {contradiction}")
    return grid, scan


def _contradiction(keys: Keys, grid: LatLonGrid, latitudes: tuple[float, float]) -> str | None:
    """Describe how a grid's flags and increments contradict its corners; None if they agree."""
    northward = int(_get(keys, "jScansPositively"))
    if grid.rows > 1 and (latitudes[0] < latitudes[1]) != bool(northward):
        first, last = latitudes
        return f"jScansPositively is {northward}, its rows run from {first:g} to {last:g} N"
    if not _get(keys, "ijDirectionIncrementGiven"):
        return None
    between_rows = (grid.north - grid.south) / max(grid.rows - 1, 1)
    for axis, size, degrees in (
        ("iDirection", grid.columns, grid.spacing),
        ("jDirection", grid.rows, between_rows),
    ):
        delta = float(_get(keys, f"{axis}IncrementInDegrees"))
        if size > 1 and abs(delta - degrees) > _ROUNDING:
            return f"{axis}Increment is {delta:g}, its corners are {degrees:g} degrees apart a step"
    return None


_ECMWF = 98
# Definitions with the member in octet 50: MARS labelling, hindcasts, forecasting systems.
_MEMBER_DEFINITIONS = (1, 26, 30)
_NO_LOCAL = 28  # octets of an edition 1 product section without a local part
# Edition 2 product templates of ensemble forecasts that keep the member in octet 36: at a point in
# time, over an interval, and the same of hindcasts.
_MEMBER_TEMPLATES = (1, 11, 60, 61)
# Edition 2 packings (simple, complex, CCSDS, JPEG, PNG) with their scaling in octets 12 to 19.
_SCALED_PACKINGS = (0, 2, 3, 40, 41, 42)
_MAX_HEADERS = 100_000  # headers, 50 MB; reached only where every message has a different header

# Key, time and member; None where they are part of the key.
_Head = tuple[bytes, int | None, int | None]

_headers: dict[bytes, Header] = {}
# Headers in which ecCodes reads another time or member than the direct reading of the octets.
_uncacheable_keys: set[bytes] = set()
_dates: dict[bytes, int] = {}
_unique_meanings: dict[Meaning, Meaning] = {}


def describe(message: RawMessage) -> Header:
    """Return the header of one message.

    Raises:
        FileError: a grid that is not supported, or several fields in one message.
        DamagedFileError: the header is invalid.
    """
    spans = spans_of(message)
    try:
        split_header = _split_header1 if message.edition == 1 else _split_header2
        key, time, number = split_header(message, spans)
        header = _headers.get(key)
        if header is None:
            check(message, spans)  # its result depends on nothing but the key
            return _read_and_cache(message, key, time, number)
    except (ValueError, TypeError, LookupError, EccodesError) as error:
        reason = f"the message's header makes no sense ({error})"
        raise DamagedFileError(message.path, message.offset, reason) from error
    if time is None:
        return header
    return Header(header.meaning, time, header.number if number is None else number)


def _read_and_cache(
    message: RawMessage, key: bytes, time: int | None, number: int | None
) -> Header:
    """Read a header by ecCodes; cache it if the time and member read directly agree with it."""
    raw = message.view[message.offset : message.end]
    header = read_by_eccodes(message.path, message.offset, raw)
    meaning = _unique_meanings.setdefault(header.meaning, header.meaning)
    header = Header(meaning, header.time, header.number)
    if len(_headers) >= _MAX_HEADERS:
        _headers.clear()
    if (
        time in (None, header.time)
        and number in (None, header.number)
        and key not in _uncacheable_keys
    ):
        _headers[key] = header
    else:
        _uncacheable_keys.add(key)
    return header


def _split_header1(message: RawMessage, spans: Spans) -> _Head:
    """Return the cache key, start time and member of an edition 1 message."""
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


def _date1(message: RawMessage, product: bytes) -> int:
    octets = product[12:17] + product[24:25]
    time = _dates.get(octets)
    if time is None:
        year, *parts, century = octets
        year += 100 * (century - 1)
        time = _dates[octets] = _date(message.path, message.offset, (year, *parts))
    return time


def _split_header2(message: RawMessage, spans: Spans) -> _Head:
    """Return the cache key, start time and member of an edition 2 message."""
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


def _date2(message: RawMessage, octets: bytes) -> int:
    time = _dates.get(octets)
    if time is None:
        parts = (int.from_bytes(octets[:2], "big"), *octets[2:6])
        time = _dates[octets] = _date(message.path, message.offset, parts)
    return time


def _date(path: Path, offset: int, parts: tuple[int, ...]) -> int:
    """Return a date of year, month, day, hour and minute in seconds since 1970."""
    year, month, day, hour, minute = parts
    try:
        since = datetime(year, month, day, hour, minute) - _EPOCH
    except ValueError as error:
        reason = (
            f"dataDate {year:04d}{month:02d}{day:02d}, dataTime {hour:02d}{minute:02d} is not a "
            f"date ({error})"
        )
        raise DamagedFileError(path, offset, reason) from error
    return since.days * 86400 + since.seconds
