"""Tables of station data in long form, CSV or Parquet, as datasets.

A row has the values of one station, start date, lead time and member, which the columns `station`,
`time`, `step` and `number` identify; `lat`, `lon` and `altitude` are repeated in each row. Other
names of columns are mapped as in `ens10.source.names`. A table of observations needs only `station`
and `time`.
"""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ens10.catalog import ACCUMULATED
from ens10.errors import FileError, MissingDataError, listing
from ens10.extras import telling_extras
from ens10.identity import OF_FORECAST
from ens10.source.gribs import Missing
from ens10.source.names import NAMES_OPTION, TRUTH_OPTION, Names

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


def is_table(path: Path) -> bool:
    """Return True if a file's suffix is that of a table: .csv, .csv.gz, .parquet or .pq."""
    return path.name.lower().endswith((*_CSV, *_PARQUET))


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
    frame = _read_table(path, names)
    if truth and "time" not in frame and "valid_time" in frame:
        frame = frame.rename(columns={"valid_time": "time"})
    missing_columns = [f"the column {name}" for name in ("station", "time") if name not in frame]
    if missing_columns:
        option = TRUTH_OPTION if truth else NAMES_OPTION
        columns_text = f"The table has {listing([str(name) for name in frame.columns])}"
        remedy = f"{columns_text}: map them with `dimensions: {{theirs: ours}}` in {option} FILE"
        raise MissingDataError(path, missing_columns, remedy)
    if frame.empty:
        raise FileError(path, "the table has no rows", "Fetch or write it again")
    frame = frame if truth else _with_step(frame, path)
    index = [name for name in _INDEX if name in frame]
    _check_cells(frame, index, path)
    places = {name: _station_values(frame, name, path) for name in _PLACES if name in frame}
    fields = frame.drop(columns=[*places, "valid_time"], errors="ignore")
    if truth and "number" in index:
        index.remove("number")
        fields = fields[[*index, *_variable_columns(fields, names)]].drop_duplicates()
    duplicates = fields.duplicated(index)
    if duplicates.any():
        first = fields.loc[duplicates, index].iloc[0]
        where = ", ".join(f"{name} {first[name]}" for name in index)
        raise FileError(path, f"it has several rows of {where}", "Remove all but one")
    values = _numbers(fields.set_index(index), path, names.variables)
    if values.columns.empty:
        reason = f"no column but {', '.join([*index, *places])} has numbers"
        raise FileError(path, reason, "Write numbers with points, and without separators")
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


def _variable_columns(frame: "pd.DataFrame", names: Names) -> list[str]:
    return [str(name) for name in frame.columns if not names.variables or name in names.variables]


def _read_table(path: Path, names: Names) -> "pd.DataFrame":
    """Read a table, with our names of index and place columns, and dates as datetime64."""
    import pandas as pd

    try:
        if path.name.lower().endswith(_PARQUET):
            with telling_extras("Reading Parquet"):
                import_module("pyarrow")
            frame = pd.read_parquet(path)
        else:
            columns, separator = pd.read_csv(path, nrows=0).columns, ","
            if len(columns) == 1 and ";" in columns[0]:
                columns, separator = pd.Index(columns[0].split(";")), ";"
            ours = _column_names(columns, names).items()
            texts = {old: str for old, new in ours if new == "station"}
            frame = pd.read_csv(path, sep=separator, dtype=texts)  # 06447 keeps its 0
        frame = frame.rename(columns=_column_names(frame.columns, names))
        for name in {"time", "valid_time"} & set(frame.columns):
            frame[name] = _dates(frame[name], path)
    except FileError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise FileError(path, f"no table that can be read ({error})", "Correct it") from error
    return frame


def _refuse_cell(path: Path, column: "pd.Series", is_wrong: Any, reason: str) -> None:
    """Refuse the first wrong cell of a column, by its row, counted from 1 below the header."""
    wrong = np.flatnonzero(np.asarray(is_wrong))
    if wrong.size:
        row, cell = int(wrong[0]), column.iloc[wrong[0]]
        count = f" ({wrong.size} cells are wrong)" if wrong.size > 1 else ""
        text = "it" if column.isna().iloc[row] else repr(str(cell))
        where = f"row {row + 1}, column {column.name}: {text} {reason}{count}"
        raise FileError(path, where, "Correct the cell, or remove the row")


def _check_cells(frame: "pd.DataFrame", index: list[str], path: Path) -> None:
    """Refuse empty cells of what identifies a row, texts for numbers, and impossible places."""
    import pandas as pd

    for name in index:
        _refuse_cell(path, frame[name], frame[name].isna(), "is empty")
    for name in {"step", "number", "level", *_PLACES} & set(frame.columns):
        numbers = pd.to_numeric(frame[name], errors="coerce")
        is_text = numbers.isna() & frame[name].notna()
        if name != "number" or not is_text.all():  # members may have names
            _refuse_cell(path, frame[name], is_text, "is no number")
    for name, most in (("lat", 90), ("lon", 360)):
        if name in frame:
            degrees = pd.to_numeric(frame[name])
            _refuse_cell(path, frame[name], degrees.abs() > most, "is no place on Earth")


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
        FileError: a column has numbers and texts, or a mapped one has texts.
    """
    import pandas as pd

    for name in fields.select_dtypes(exclude="number").columns:
        numbers = pd.to_numeric(fields[name], errors="coerce")
        if numbers.notna().any() or name in mapped:
            is_text = numbers.isna() & fields[name].notna()
            _refuse_cell(path, fields[name], is_text, "is no number")
            fields = fields.assign(**{name: numbers})
    return fields.select_dtypes("number")


def _dates(column: "pd.Series", path: Path) -> "pd.Series":
    """Return dates in texts, or in numbers such as 20010131 and 2001013106."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        digits = column.map("{:.0f}".format)
        is_date = digits.str.fullmatch(r"(1[6-9]|2[012])\d\d(0[1-9]|1[012])[0-3]\d([012]\d)?")
        _refuse_cell(path, column, ~is_date & column.notna(), "is no date such as 20010131")
        texts = digits.where(column.notna()).str.pad(10, "right", "0")
        dates = pd.to_datetime(texts, format="%Y%m%d%H", errors="coerce")
    else:
        is_ambiguous = column.astype(str).str.fullmatch(r"\d\d?[/.-]\d\d?[/.-]\d{2,4}.*")
        _refuse_cell(path, column, is_ambiguous, "is a date whose day and month are ambiguous")
        dates = pd.to_datetime(column, utc=True, errors="coerce", format="ISO8601")
        dates = dates.dt.tz_localize(None)
    _refuse_cell(path, column, dates.isna() & column.notna(), "is no date")
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


def _station_values(frame: "pd.DataFrame", name: str, path: Path) -> Any:
    """Return the values of a coordinate of the stations, in the order of the dataset.

    Raises:
        FileError: a station has several values.
    """
    groups = frame.groupby("station", sort=True)[name]
    is_ambiguous = groups.nunique() > 1
    if is_ambiguous.any():
        first = is_ambiguous[is_ambiguous].index[0]
        raise FileError(path, f"station {first} has several values of {name}", "Keep one")
    return groups.first().to_numpy()


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
