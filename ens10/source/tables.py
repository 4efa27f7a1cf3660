"""Tables of station data in long form, CSV or Parquet, as datasets.

A row has the values of one station, start date, lead time and member, which the columns `station`,
`time`, `step` and `number` identify; `lat`, `lon` and `altitude` are repeated in each row. Other
names of columns are mapped as in `ens10.source.names`. A table of observations needs only `station`
and `time`.
"""

import csv
import gzip
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ens10.catalog import ACCUMULATED, VARIABLES
from ens10.errors import FileError, MissingDataError, listing
from ens10.extras import telling_extras
from ens10.identity import OF_FORECAST
from ens10.source.gribs import Missing
from ens10.source.names import NAMES_OPTION, TRUTH_OPTION, Names
from ens10.source.times import STORED_DATES
from ens10.untrusted import readable

if TYPE_CHECKING:
    import pandas as pd

_INDEX = ("time", "step", "level", "number", "station")
_PLACES = ("lat", "lon", "altitude")
_ALIASES = {
    **dict.fromkeys(("station_id", "site"), "station"),
    **dict.fromkeys(("latitude", "station_latitude"), "lat"),
    **dict.fromkeys(("longitude", "station_longitude"), "lon"),
    **dict.fromkeys(("elevation", "station_altitude"), "altitude"),
}
_CSV, _PARQUET = (".csv", ".csv.gz"), (".parquet", ".pq")
_MOST_CELLS_PER_ROW = 1000  # of the array that the rows fill
_SMALL = 10**6  # cells
_NAME_EACH = "Name each column; write decimal points, not commas"
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
_WITH_POINTS = (
    "Write points: pandas.read_csv(FILE, sep=';', decimal=',', dtype={'station': str})"
    ".to_csv(FILE, index=False)"
)
_NUMBERED = re.compile(r"(.*?)[_ -]?(\d+)")  # m1, t2m_01 or 1
_TIMES = ("datetime", "datetimetz", "timedelta")  # types of columns that are no variables


def is_table(path: Path) -> bool:
    """Return True if a file's suffix is that of a table: .csv, .csv.gz, .parquet or .pq."""
    return path.name.lower().endswith((*_CSV, *_PARQUET))


def is_parquet(path: Path) -> bool:
    """Return True if a file's suffix is that of Parquet."""
    return path.name.lower().endswith(_PARQUET)


def table_dataset(
    path: Path, names: Names, missing: Missing = "error", *, truth: bool = False
) -> xr.Dataset:
    """Read a table in long form.

    Missing rows of some stations become NaN, as do empty cells.

    Args:
        path: CSV (with a header, separated by commas or semicolons) or Parquet.
        names: mapping of the names of columns to ours.
        missing: if no station has a row of some date, step and member: "error" to raise an error,
            "nan" to fill them with NaN, "skip" to leave out these dates.
        truth: True for observations, which may be repeated for each member.

    Returns:
        Dataset over the index columns of the table, with the names of `names.dimensions` as in the
        table and all others under our names.

    Raises:
        FileError: the table cannot be read, or has duplicate rows or a station with several places.
        MissingDataError: the columns of station or time, or rows of forecasts, are missing.
        MissingExtraError: Parquet, and pyarrow is not installed.
    """
    with readable(path, "no table that can be read", "Correct it"):
        return _dataset(path, names, missing, truth)


@dataclass(frozen=True)
class TableForm:
    """The form of a table of forecasts, in which another table can be written.

    Attributes:
        columns: names of the columns of index, valid time and places, ours to theirs, in order.
        rows: index of each row, in order, with our names.
        separator: of the cells of a CSV file.
    """

    columns: dict[str, str]
    rows: "pd.DataFrame"
    separator: str


def table_form(path: Path, names: Names) -> TableForm:
    """Return the form of a table of forecasts; arguments as those of `table_dataset`."""
    with readable(path, "no table that can be read", "Correct it"):
        theirs, separator = table_header(path)
        ours = _column_names(theirs, names)
        columns = {ours.get(name, name): name for name in theirs}
        known = {
            name: columns[name] for name in columns if name in (*_INDEX, *_PLACES, "valid_time")
        }
        frame = _rows(path, names, truth=False)
        return TableForm(known, frame[[name for name in _INDEX if name in frame]], separator)


def _dataset(path: Path, names: Names, missing: Missing, truth: bool) -> xr.Dataset:
    frame = _rows(path, names, truth)
    index = [name for name in _INDEX if name in frame]
    places = {name: _station_values(frame, name, path, truth) for name in _PLACES if name in frame}
    fields = frame.drop(columns=[*places, "valid_time"], errors="ignore")
    if truth and "number" in index:
        index.remove("number")
        columns = [c for c in _variable_columns(fields, names) if c not in (*index, "number")]
        fields = fields[[*index, *columns]].drop_duplicates()
    duplicates = fields.duplicated(index)
    if duplicates.any():
        first = fields.loc[duplicates, index].iloc[0]
        where = ", ".join(f"{name} {first[name]}" for name in index)
        raise FileError(path, f"it has several rows of {where}", "Remove all but one")
    values = _numbers(fields.set_index(index), path, names.variables)
    if values.columns.empty:
        if absent := [name for name in names.variables if name not in frame]:
            raise MissingDataError(path, absent, f"It holds {', '.join(map(str, frame))}")
        reason = f"no column but {', '.join([*index, *places])} has numbers"
        raise FileError(path, reason, "Write numbers with points, and without separators")
    _check_density(values, path)
    cube = values.to_xarray()
    if not truth:
        cube = _handle_missing_rows(cube, values.index, missing, path)
    for name in cube if truth else ():
        if names.variables.get(str(name), name) in ACCUMULATED:
            cube[name].attrs["window"] = OF_FORECAST
    dataset = cube.assign_coords({name: ("station", v) for name, v in places.items()})
    present = {*dataset.dims, *places}
    columns_of = {_ALIASES.get(name, name): column for column, name in names.dimensions.items()}
    others = {n: column for n, column in columns_of.items() if n in present and column != n}
    result: xr.Dataset = dataset.rename(others)
    return result


def _rows(path: Path, names: Names, truth: bool) -> "pd.DataFrame":
    """Return the rows of a table, whose index and places have our names and types."""
    frame = _read_table(path, names)
    if truth and "valid_time" in frame and not {"time", "step"} <= {*frame}:
        # `time` beside it without a step is the start of a forecast
        frame = frame.drop(columns="time", errors="ignore").rename(columns={"valid_time": "time"})
    missing_columns = [f"the column {name}" for name in ("station", "time") if name not in frame]
    if missing_columns:
        option = TRUTH_OPTION if truth else NAMES_OPTION
        columns_text = f"The table has {listing([str(name) for name in frame.columns])}"
        remedy = f"{columns_text}: map them with `dimensions: {{theirs: ours}}` in {option} FILE"
        raise MissingDataError(path, missing_columns, remedy)
    if frame.empty:
        raise FileError(path, "the table has no rows", "Fetch or write it again")
    if not (truth or names.variables or "number" in frame):
        _refuse_member_columns(frame, path)
    frame = frame if truth else _with_step(frame, path)
    return _with_numbers(frame, [name for name in _INDEX if name in frame], path)


def _refuse_member_columns(frame: "pd.DataFrame", path: Path) -> None:
    """Refuse columns such as m1, m2, ... of a table that has neither members nor our variables."""
    groups: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for match in filter(None, map(_NUMBERED.fullmatch, map(str, frame.columns))):
        groups[match[1]][match[0]] = int(match[2])
    for stem, members in groups.items():
        count, first = len(members), min(members.values())
        is_run = first < 2 < count and sorted(members.values()) == list(range(first, first + count))
        if is_run and not VARIABLES.keys() & set(frame.columns):
            others = [name for name in table_header(path)[0] if name not in members]
            value = stem if stem in VARIABLES else "t2m"
            melt = f"melt({others}, var_name='number', value_name='{value}')"
            reason = f"the columns {listing(list(members))} look like members, and members are rows"
            line = f"pandas.read_csv(FILE, dtype={{'station': str}}).{melt}"
            remedy = f"if they are variables, name them under `variables` in {NAMES_OPTION} FILE"
            raise FileError(path, reason, f"Write a row for each: {line}; {remedy}")


def _variable_columns(frame: "pd.DataFrame", names: Names) -> list[str]:
    return [str(name) for name in frame.columns if not names.variables or name in names.variables]


def _read_table(path: Path, names: Names) -> "pd.DataFrame":
    """Read a table, with our names of index and place columns, and dates as datetime64."""
    import pandas as pd

    if is_parquet(path):
        with telling_extras("Reading Parquet"):
            import_module("pyarrow")
        frame = pd.read_parquet(path)
        frame = frame.reset_index() if any(frame.index.names) else frame
        for name in frame.select_dtypes("category"):
            frame[name] = frame[name].astype(frame[name].cat.categories.dtype)
    else:
        frame = _read_csv(path, names)
    frame = frame.rename(columns=_column_names(frame.columns, names))
    _refuse_duplicate_columns(frame.columns, path)
    for name in {"time", "valid_time"} & set(frame.columns):
        frame[name] = _dates(frame[name], path)
    if "step" in frame and pd.api.types.is_timedelta64_dtype(frame["step"]):
        frame["step"] /= pd.Timedelta("1h")
    return frame


def table_header(path: Path) -> tuple[list[str], str]:
    """Return the names of the columns of a table, and the separator of a CSV file."""
    if is_parquet(path):
        return list(import_module("pyarrow.parquet").read_schema(path).names), ","
    import pandas as pd

    first: Any = {"header": None, "nrows": 1, "dtype": str, "na_filter": False}
    separator, header = ",", pd.read_csv(path, **first)
    if header.shape[1] == 1 and ";" in header.iloc[0, 0]:
        separator = ";"
        header = pd.read_csv(path, sep=separator, **first)
    return header.iloc[0].tolist(), separator


def _read_csv(path: Path, names: Names) -> "pd.DataFrame":
    import pandas as pd

    columns, separator = table_header(path)
    _refuse_duplicate_columns(columns, path)
    texts = {old: str for old, new in _column_names(columns, names).items() if new == "station"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pd.errors.DtypeWarning)  # columns of texts and numbers
        frame = pd.read_csv(path, sep=separator, dtype=texts)  # 06447 keeps its 0
    if len(frame) and not isinstance(frame.index, pd.RangeIndex):
        raise FileError(path, "its rows have more cells than its header", _NAME_EACH)
    if len(frame) and frame.iloc[:, -1].isna().any():
        _refuse_short_rows(path, separator, len(columns))
    return frame


def _refuse_short_rows(path: Path, separator: str, width: int) -> None:
    """Refuse rows that end early, as the last one of an incomplete file; pandas reads gaps."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8-sig") as file:
        for n, row in enumerate(row for row in csv.reader(file, delimiter=separator) if row):
            if len(row) < width:
                reason = f"row {n} has {len(row)} cells, and the header {width}"
                raise FileError(path, reason, "Fetch the table again, or complete the row")


def _refuse_duplicate_columns(columns: Iterable[Any], path: Path) -> None:
    names = list(map(str, columns))
    duplicates = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if duplicates:
        reason = f"it has several columns {', '.join(duplicates)}"
        raise FileError(path, reason, f"Rename all but one, or map one with {NAMES_OPTION} FILE")


def _refuse_cell(path: Path, column: "pd.Series", is_wrong: Any, reason: str) -> None:
    """Refuse the first wrong cell of a column, by its row, counted from 1 below the header."""
    wrong = np.flatnonzero(np.asarray(is_wrong))
    if wrong.size:
        row, cell = int(wrong[0]), column.iloc[wrong[0]]
        count = f" ({wrong.size} cells are wrong)" if wrong.size > 1 else ""
        text = "it" if column.isna().iloc[row] else repr(str(cell))
        remedy = "Correct the cell, or remove the row"
        if _DECIMAL_COMMA.fullmatch(text.strip("'")):
            reason, remedy = "has a decimal comma", _WITH_POINTS
        where = f"row {row + 1}, column {column.name}: {text} {reason}{count}"
        raise FileError(path, where, remedy)


def _with_numbers(frame: "pd.DataFrame", index: list[str], path: Path) -> "pd.DataFrame":
    """Return the table with numbers in the columns of steps, members, levels and places.

    Raises:
        FileError: an empty cell in what identifies a row, a text, or an impossible place.
    """
    import pandas as pd

    for name in index:
        _refuse_cell(path, frame[name], frame[name].isna(), "is empty")
    for name in [n for n in ("step", "number", "level", *_PLACES) if n in frame]:
        numbers = pd.to_numeric(frame[name], errors="coerce")
        if not isinstance(numbers.dtype, np.dtype):  # with pandas' own missing value
            kind = "float64" if numbers.isna().any() else numbers.dtype.numpy_dtype
            numbers = numbers.astype(kind)
        is_text = numbers.isna() & frame[name].notna()
        if name == "number" and is_text.all():  # members may have names
            continue
        is_wrong = is_text | np.isinf(numbers) | (frame[name].dtype.kind in "bmM")
        _refuse_cell(path, frame[name], is_wrong, "is no number")
        frame = frame.assign(**{name: numbers})
    for name, most in (("lat", 90), ("lon", 360)):
        if name in frame:
            _refuse_cell(path, frame[name], frame[name].abs() > most, "is no place on Earth")
    return frame


def _check_density(values: "pd.DataFrame", path: Path) -> None:
    """Refuse rows that are so sparse that the array of all combinations would not fit in memory."""
    levels = {name: values.index.unique(name).size for name in values.index.names}
    cells = prod(levels.values())
    if cells > max(_SMALL, _MOST_CELLS_PER_ROW * len(values)):
        sizes = ", ".join(f"{size} of {name}" for name, size in levels.items())
        reason = f"{len(values)} rows for {cells} combinations ({sizes})"
        raise FileError(path, reason, "Check the columns, or split the table")


def _with_step(frame: "pd.DataFrame", path: Path) -> "pd.DataFrame":
    """Return forecasts with the step, in hours, from start and valid time.

    Raises:
        FileError: a valid time is not the start and the step.
    """
    import pandas as pd

    if not {"time", "valid_time"} <= set(frame.columns):
        return frame
    hours = (frame["valid_time"] - frame["time"]) / pd.Timedelta("1h")
    if "step" not in frame:
        return frame.assign(step=hours)
    step = pd.to_numeric(frame["step"], errors="coerce")
    differs = (hours - step).abs() > 1e-6
    _refuse_cell(path, frame["valid_time"], differs, "is not the time and the step")
    return frame


def _numbers(fields: "pd.DataFrame", path: Path, mapped: Iterable[str]) -> "pd.DataFrame":
    """Return the columns of numbers; columns of texts, such as names of stations, are left out.

    Raises:
        FileError: a column has numbers and texts, numbers with decimal commas, or is mapped and
            has texts.
    """
    import pandas as pd

    for name in fields.select_dtypes(exclude=["number", *_TIMES]).columns:
        numbers = pd.to_numeric(fields[name], errors="coerce")
        has_commas = fields[name].astype(str).str.fullmatch(_DECIMAL_COMMA).any()
        if numbers.notna().any() or has_commas or name in mapped:
            is_text = numbers.isna() & fields[name].notna()
            _refuse_cell(path, fields[name], is_text, "is no number")
            fields = fields.assign(**{name: numbers.astype("float64")})
    return fields.select_dtypes("number", exclude=_TIMES)


def _dates(column: "pd.Series", path: Path) -> "pd.Series":
    """Return dates in texts, or in numbers such as 20010131 and 2001013106."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        numbers = column.astype("float64")
        digits = numbers.map("{:.0f}".format)
        is_date = digits.str.fullmatch(r"(1[6-9]|2[012])\d\d(0[1-9]|1[012])[0-3]\d([012]\d)?")
        is_date &= numbers % 1 == 0
        _refuse_cell(path, column, ~is_date & column.notna(), "is no date such as 20010131")
        texts = digits.where(column.notna()).str.pad(10, "right", "0")
        dates = pd.to_datetime(texts, format="%Y%m%d%H", errors="coerce")
    else:
        if not pd.api.types.is_datetime64_any_dtype(column):
            is_ambiguous = column.astype(str).str.fullmatch(r"\d\d?[/.-]\d\d?[/.-]\d{2,4}.*")
            _refuse_cell(path, column, is_ambiguous, "is a date whose day and month are ambiguous")
        dates = pd.to_datetime(column, utc=True, errors="coerce", format="ISO8601")
        is_digit = column.astype(str).str.match(r"\d")  # pandas reads "now", the time of reading
        dates = dates.dt.tz_localize(None).where(is_digit)
    _refuse_cell(path, column, dates.isna() & column.notna(), "is no date")
    is_far = dates.notna() & ~dates.between(pd.Timestamp.min, pd.Timestamp.max)
    _refuse_cell(path, column, is_far, f"lies outside {STORED_DATES}")
    return dates.astype("datetime64[ns]")


def _column_names(columns: Iterable[Any], names: Names) -> dict[str, str]:
    """Return the names of index and place columns, theirs to ours; each of ours at most once."""
    present = [str(name) for name in columns]
    mapping = {column: _ALIASES.get(name, name) for column, name in names.dimensions.items()}
    table = {column: name for column, name in mapping.items() if column in present}
    for column in present:
        name = column if column in (*_INDEX, *_PLACES) else _ALIASES.get(column, "")
        if name and column not in table and name not in table.values():
            table[column] = name
    return table


def _station_values(frame: "pd.DataFrame", name: str, path: Path, truth: bool) -> Any:
    """Return the values of a coordinate of the stations, in the order of the dataset.

    Raises:
        FileError: a station has several values, or one of forecasts has no place.
    """
    groups = frame.groupby("station", sort=True)[name]
    is_ambiguous = groups.nunique() > 1
    if is_ambiguous.any():
        first = is_ambiguous[is_ambiguous].index[0]
        raise FileError(path, f"station {first} has several values of {name}", "Keep one")
    values = groups.first()
    if not truth and name != "altitude" and values.isna().any():
        station = values.index[values.isna()][0]
        raise FileError(path, f"station {station} has no {name}", "Add it")
    return values.to_numpy()


def _handle_missing_rows(
    cube: xr.Dataset, index: "pd.MultiIndex", missing: Missing, path: Path
) -> xr.Dataset:
    """Refuse, fill or leave out dates that lack all stations of a step or member.

    Args:
        cube: the values.
        index: index of the rows in the table.
        missing: "error", "nan" or "skip".
        path: of the table, for errors.

    Raises:
        MissingDataError: rows are missing, and `missing` is "error".
    """
    dims = [str(dim) for dim in cube.dims if dim != "station"]
    valid = np.zeros([cube.sizes[dim] for dim in dims], bool)
    valid[tuple(cube.indexes[dim].get_indexer(index.get_level_values(dim)) for dim in dims)] = True
    if valid.all() or missing == "nan":
        return cube
    if missing == "skip":
        complete = valid.all(axis=tuple(n for n, dim in enumerate(dims) if dim != "time"))
        return cube.isel(time=np.flatnonzero(complete))
    missing_rows = [
        ", ".join(f"{d} {str(cube[d].to_numpy()[n])[:13]}" for d, n in zip(dims, at, strict=True))
        for at in np.argwhere(~valid)
    ]
    remedy = (
        "Add the rows, fill them with --missing nan, or leave the dates out with --missing skip"
    )
    raise MissingDataError(path, missing_rows, remedy)
