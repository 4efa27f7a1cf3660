"""Independent readings of fuzz inputs: Python's csv, pyarrow without pandas, and bytes of chunks.

What ens10 accepts is compared with them, value by value, at the labels of its axes. A reading that
does not understand an input returns None, and the input's values are not compared.
"""

import base64
import csv
import io
import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import numcodecs
import numpy as np

_ROLES = {
    "station_id": "station", "site": "station", "latitude": "lat", "station_latitude": "lat",
    "longitude": "lon", "station_longitude": "lon", "elevation": "altitude",
    "station_altitude": "altitude",
}  # fmt: skip
_AXES = ("time", "step", "level", "number", "station")
_PLACES = ("lat", "lon", "altitude")
_GRID = ("time", "step", "number", "latitude", "longitude")
_SECONDS = {"hours": 3600.0, "days": 86400.0, "minutes": 60.0, "seconds": 1.0}
_EMPTY = (  # cells that pandas reads as missing
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
_DATE = re.compile(  # parts and zones of one digit, as pandas accepts them
    r"(\d{4})-?(\d\d?)?-?(\d\d?)?"
    r"(?:[T ](\d\d?)(?::?(\d\d?))?(?::?(\d\d?)(\.\d*)?)?)?\s?(Z|[+-]\d\d?(?::?\d\d?)?)?"
)
Cells = dict[tuple[Any, ...], float]


class WrongValueError(Exception):
    """A value differs from the independent reading."""


def check_table(content: bytes, dataset: Any, *, truth: bool) -> bool:
    """Compare a dataset with the table that it was read from; return False if it is not read.

    Raises:
        WrongValueError: an axis or a value differs.
    """
    table = _parquet_rows(content) if content.startswith(b"PAR1") else _csv_rows(content)
    if table is None:
        return False
    header, rows = table
    if not {str(name) for name in dataset.data_vars} <= {*header}:  # pandas renames by its metadata
        return False
    columns = _columns(header, truth=truth)
    axes = [str(dim) for dim in dataset.dims]
    keys = [_key(row, columns, axes) for row in rows]
    for n, axis in enumerate(axes):
        _same_labels(axis, {key[n] for key in keys}, dataset[axis].to_numpy())
    for name, field in dataset.data_vars.items():
        at = header.index(name)
        wanted = {key: _number(row[at]) for key, row in zip(keys, rows, strict=True)}
        _compare(str(name), field.transpose(*axes), axes, wanted)
    used = {*columns.values(), *(header.index(name) for name in dataset.data_vars)}
    for n in set(range(len(header))) - used:
        if all(_is_number(row[n]) for row in rows):
            raise WrongValueError(f"the column {header[n]!r} of numbers is not read")
    stations = [key[axes.index("station")] for key in keys]
    for place in {*_PLACES} & {*columns}:
        cells = [_number(row[columns[place]]) for row in rows]
        _compare_places(place, dataset[place], set(zip(stations, cells, strict=True)))
    return True


def _columns(header: list[str], *, truth: bool) -> dict[str, int]:
    """Return the place of each column of the index and of places; our own names come first."""
    columns: dict[str, int] = {}
    for own in (True, False):
        for n, name in enumerate(header):
            role = name if name in (*_AXES, *_PLACES, "valid_time") else _ROLES.get(name, "")
            if role and (name == role) == own:
                columns.setdefault(role, n)
    if truth and "time" not in columns:
        columns["time"] = columns["valid_time"]
    return columns


def _compare_places(place: str, coordinate: Any, cells: set[tuple[Any, float]]) -> None:
    values = dict(zip(coordinate["station"].to_numpy().tolist(), coordinate, strict=True))
    for label, cell in cells:
        if not math.isnan(cell) and not _equal(cell, float(values[label])):
            raise WrongValueError(f"{place} of {label} is {float(values[label])}, not {cell}")


def _csv_rows(content: bytes) -> tuple[list[str], list[list[Any]]] | None:
    text = content.decode("utf-8-sig")

    def parse(separator: str) -> list[list[Any]]:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        return [line for line in lines if "".join(line).strip(" \t") or len(line) > 1]

    rows = parse(",")
    if len(rows[0]) == 1 and ";" in rows[0][0]:
        rows = parse(";")
    header, *rows = rows
    return [name or f"Unnamed: {n}" for n, name in enumerate(header)], [
        [None if cell in _EMPTY else cell for cell in row] for row in rows
    ]


def _parquet_rows(content: bytes) -> tuple[list[str], list[list[Any]]] | None:
    from pyarrow import BufferReader, parquet

    table = parquet.read_table(BufferReader(content))
    try:
        rows = zip(*[column.to_pylist() for column in table.columns], strict=True)
    except OverflowError:  # dates that Python does not have, in a column that is not read
        return None
    return list(table.column_names), [
        [cell.decode("latin-1") if isinstance(cell, bytes) else cell for cell in row]
        for row in rows
    ]


def _key(row: list[Any], columns: dict[str, int], axes: list[str]) -> tuple[Any, ...]:
    return tuple(_label(row, columns, axis) for axis in axes)


def _label(row: list[Any], columns: dict[str, int], axis: str) -> Any:
    if axis == "time":
        return _date(row[columns["time"]])
    if axis == "step" and "step" not in columns:
        return (_date(row[columns["valid_time"]]) - _date(row[columns["time"]])) / timedelta(
            hours=1
        )
    cell = row[columns[axis]]
    if axis == "station" or (axis == "number" and not _is_number(cell)):
        return cell
    return cell if isinstance(cell, int) else _number(cell)  # a float has no digits beyond 2^53


def _date(cell: Any) -> datetime:
    """Return a date without a time zone; of texts and numbers as the documentation has them."""
    if isinstance(cell, datetime):
        return cell.astimezone(UTC).replace(tzinfo=None) if cell.tzinfo else cell
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day)
    text = str(cell).strip()
    if re.fullmatch(r"\d+\.0*", text) or isinstance(cell, float | Decimal):
        text = str(int(float(text)))
    if re.fullmatch(r"\d{10}", text):
        return datetime.strptime(text, "%Y%m%d%H")
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"no date: {text!r}")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    parts = [int(year), *(int(part or 1) for part in (month, day))]
    parts += [int(part or 0) for part in (hour, minute, second)]
    sign, hours, minutes = re.fullmatch(
        r"([+-]?)(\d?\d?):?(\d?\d?)", (zone or "").strip("Z")
    ).groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(f"{minutes:0<2}"))
    local = datetime(*parts) + timedelta(seconds=float(f"0{fraction or '.0'}0"))
    return local + offset if sign == "-" else local - offset


def _is_number(cell: Any) -> bool:
    if not isinstance(cell, str | int | float | Decimal):  # durations are no variables
        return False
    try:
        return math.isfinite(_number(cell))
    except (TypeError, ValueError):
        return False


def _number(cell: Any) -> float:
    if cell is None:
        return math.nan
    if isinstance(cell, timedelta):
        return cell / timedelta(hours=1)
    words = {"true": 1.0, "false": 0.0}
    text = cell.strip().lower() if isinstance(cell, str) else ""
    return words[text] if text in words else float(cell)


def _same_labels(axis: str, wanted: set[Any], labels: Any) -> None:
    known = {*labels.tolist()}
    if labels.dtype.kind == "M":
        known = {_from_nanoseconds(label) for label in labels}
    if known != wanted:
        raise WrongValueError(f"{axis} is {sorted(known, key=str)}, not {sorted(wanted, key=str)}")


def _from_nanoseconds(label: Any) -> datetime:
    seconds = label.astype("datetime64[us]").astype(np.int64)
    return datetime(1970, 1, 1) + timedelta(microseconds=int(seconds))


def _compare(name: str, field: Any, axes: list[str], wanted: Cells) -> None:
    labels = [
        [_from_nanoseconds(label) for label in field[axis].to_numpy()]
        if axis == "time"
        else field[axis].to_numpy().tolist()
        for axis in axes
    ]
    values = field.to_numpy()
    for place, key in zip(np.ndindex(values.shape), product(*labels), strict=True):
        if not _equal(wanted.get(key, math.nan), float(values[place])):
            raise WrongValueError(f"{name} at {key} is {values[place]}, not {wanted.get(key)}")


def _equal(wanted: float, value: float) -> bool:
    both_nan = math.isnan(wanted) and math.isnan(value)
    return both_nan or wanted == value or math.isclose(wanted, value, rel_tol=1e-6, abs_tol=1e-300)


def check_zarr(files: dict[str, bytes], dataset: Any) -> bool:
    """Compare a dataset with the store that it was read from; return False if it is not read.

    Args:
        files: content by path.
        dataset: with its values.

    Raises:
        WrongValueError: a value differs.
    """
    axes = {}
    for axis in _GRID:
        if axis in dataset.dims:
            array = _array(files, axis)
            axes[axis] = None if array is None else _labels(axis, *array)
    if None in axes.values():
        return False
    arrays = {name: (field, _array(files, str(name))) for name, field in dataset.data_vars.items()}
    known = {
        name: (field, array)
        for name, (field, array) in arrays.items()
        if array is not None
        and array[1].get("units", "m s-1") == "m s-1"
        and set(array[2]) == set(field.dims)
    }
    for name, (field, (values, _, dims)) in known.items():
        wanted = {
            tuple(axes[dim][n] for dim, n in zip(dims, at, strict=True)): float(values[at])
            for at in np.ndindex(values.shape)
        }
        if field.size != len(wanted):
            raise WrongValueError(f"{name} has {field.size} values, and its store {len(wanted)}")
        labels = [_labels(dim, field[dim].to_numpy(), {}, (dim,)) for dim in dims]
        found = field.transpose(*dims).to_numpy()
        for at, key in zip(np.ndindex(found.shape), product(*labels), strict=True):
            if key not in wanted or not _equal(wanted[key], float(found[at])):
                raise WrongValueError(f"{name} at {key} is {found[at]}, not {wanted.get(key)}")
    return bool(known)


def _labels(axis: str, values: Any, attributes: dict[str, Any], dims: Iterable[str]) -> Any:
    """Return comparable labels: seconds since 1970, hours, degrees in [0, 360), or numbers."""
    if tuple(dims) != (axis,):
        return None
    if values.dtype.kind == "M":
        return (values.astype("datetime64[ns]").astype(np.int64) / 1e9).round(3).tolist()
    if axis == "time" or (axis == "step" and attributes):
        units = re.fullmatch(
            r"(hours|days|minutes|seconds)(?: since (\d{4}-\d\d-\d\d)(?: 00:00:00)?)?",
            str(attributes.get("units")),
        )
        calendar = attributes.get("calendar", "standard")
        if units is None or (units[2] is None) == (axis == "time"):
            return None
        seconds = values.astype(np.float64) * _SECONDS[units[1]]
        if axis == "step":
            return (seconds / 3600.0).round(3).tolist()
        if calendar not in ("standard", "gregorian", "proleptic_gregorian"):
            return None
        return (seconds + float(np.datetime64(units[2], "s").astype(np.int64))).round(3).tolist()
    numbers = values.astype(np.float64)
    return (numbers % 360.0 if axis == "longitude" else numbers).round(6).tolist()


def _array(files: dict[str, bytes], name: str) -> Any:
    """Return values (NaN where missing), attributes and dimensions of an array, or None."""
    if f"{name}/zarr.json" in files:
        about = json.loads(files[f"{name}/zarr.json"])
        if "data_type" not in about:
            return None
        return _decoded(files, name, *_version_3(about))
    about = json.loads(files.get(f"{name}/.zarray", b"{}"))
    if "dtype" not in about:  # no array, unless the consolidated metadata know it
        return None
    attributes = json.loads(files.get(f"{name}/.zattrs", b"{}"))
    dims = attributes.pop("_ARRAY_DIMENSIONS", None)
    codec = about.get("compressor")
    if about.get("filters") or about.get("order", "C") != "C" or dims is None:
        return None
    if np.dtype(about["dtype"]).kind == "M":  # dates as such, whatever units beside them say
        return None
    fill = about.get("fill_value")
    missing = [] if fill is None else [float(fill)]
    separator = about.get("dimension_separator", ".")
    layout = about["shape"], about["chunks"], np.dtype(about["dtype"]), separator, ""
    return _decoded(files, name, layout, codec, attributes, dims, missing)


def _version_3(about: dict[str, Any]) -> tuple[Any, ...]:
    encoding = about["chunk_key_encoding"]
    separator = encoding.get("configuration", {}).get("separator", "/")
    names = [codec["name"] for codec in about["codecs"]]
    first = about["codecs"][0].get("configuration") or {}
    order = {"little": "<", "big": ">"}.get(first.get("endian", "little"))
    known = names[:1] == ["bytes"] and names[1:] in ([], ["zstd"])
    codec = {"id": "zstd"} if names[1:] else None
    stated = about.get("attributes")
    attributes = dict(stated) if isinstance(stated, dict) else {}  # as ens10, which notes units
    missing = attributes.pop("_FillValue", None)
    dtype = np.dtype(about["data_type"]).newbyteorder(order)
    if isinstance(missing, str) and dtype.kind == "f":
        missing = np.frombuffer(base64.b64decode(missing), "<f8")[0]
    chunk = about["chunk_grid"]["configuration"]["chunk_shape"]
    kind = encoding["name"]
    layout = about["shape"], chunk, dtype, separator, "c" if kind == "default" else ""
    return (
        layout if known else None, codec, attributes, about.get("dimension_names"),
        [] if missing is None else [float(missing)],
    )  # fmt: skip


def _decoded(
    files: dict[str, bytes], name: str, layout: Any, codec: Any, attributes: dict[str, Any],
    dims: Any, missing: list[float],
) -> Any:  # fmt: skip
    if layout is None or dims is None:
        return None
    shape, chunk, dtype, separator, prefix = layout
    shape, chunk = np.ravel(shape).tolist(), np.ravel(chunk).tolist()
    raw = np.full(shape, np.nan)
    grid = [range(math.ceil(n / size)) for n, size in zip(shape, chunk, strict=True)]
    for place in product(*grid):
        key = separator.join([*([prefix] if prefix else []), *map(str, place)])
        content = files.get(f"{name}/{key}")
        if content is None:  # NaN, as ens10 reads absent chunks of fields
            continue
        data = content if codec is None else numcodecs.get_codec(codec).decode(content)
        values = np.frombuffer(data, dtype).reshape(chunk).astype(np.float64)
        where = tuple(slice(n * size, (n + 1) * size) for n, size in zip(place, chunk, strict=True))
        inside = raw[where].shape
        raw[where] = values[tuple(slice(0, size) for size in inside)]
    also = attributes.get("missing_value")
    for value in [*missing, *([] if also is None else np.ravel(also).tolist())]:
        raw[raw == float(value)] = np.nan
    scale, offset = (attributes.get(key) for key in ("scale_factor", "add_offset"))
    raw = raw * np.ravel(1.0 if scale is None else scale) + np.ravel(offset or 0.0)
    return raw, attributes, tuple(dims)
