"""Corrected forecasts of stations as a table, CSV or Parquet, in the form of the input's table."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ens10.extras import telling_extras
from ens10.source.tables import TableForm, table_header
from ens10.stations import STATION

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("time", "step", STATION, "number")
_DEFAULT = (STATION, "time", "step", "lat", "lon", "altitude")


def table_of(dataset: xr.Dataset, forms: Sequence[TableForm] = ()) -> "pd.DataFrame":
    """Return corrected forecasts of stations as a table.

    A row is a station, start and lead time, and a member if the forecast has members. Further
    dimensions, such as levels of quantiles, are in the names of columns: `t2m_quantile_0.9`.

    Args:
        dataset: corrected forecasts over `station`.
        forms: of the tables of the raw forecasts, whose columns of stations, coordinates and times
            have the same names and order; the rows are in their order, and then those of stations
            that they lack. None for the names of this package.
    """
    import pandas as pd

    dataset = _without_further_dimensions(dataset)
    dataset = dataset if "step" in dataset.dims else dataset.expand_dims("step")
    keys = [name for name in _KEYS if name in dataset.dims]
    frame = dataset.to_dataframe(dim_order=keys).reset_index()
    columns = {name: name for name in _DEFAULT}
    if forms:
        columns = forms[0].columns
        rows = pd.concat([form.rows for form in forms])
        frame = frame.iloc[_order(frame[keys], rows)]
    if "number" in keys:
        columns = {**columns, "number": columns.get("number", "number")}
    own = [n for n in columns if n in frame and (n != "number" or n in keys)]
    names = [*own, *map(str, dataset.data_vars)]
    return frame[names].rename(columns=columns)


def write_table(path: Path, table: "pd.DataFrame", suffix: str, separator: str = ",") -> None:
    """Write a table to a path.

    Args:
        path: of the file, whatever its suffix.
        table: its content.
        suffix: "parquet", "csv", or "gz" for CSV with gzip.
        separator: of the cells of CSV.

    Raises:
        MissingExtraError: Parquet, and pyarrow is not installed.
    """
    if suffix == "parquet":
        with telling_extras("Writing Parquet"):
            import_module("pyarrow")
        table.to_parquet(path, index=False)
        return
    compression: Any = "gzip" if suffix == "gz" else None
    table.to_csv(path, sep=separator, index=False, compression=compression)


def has_columns(path: Path, table: "pd.DataFrame") -> bool:
    """Return True if a file is a table with the columns of another, in their order."""
    return table_header(path)[0] == [str(name) for name in table.columns]


def _without_further_dimensions(dataset: xr.Dataset) -> xr.Dataset:
    """Return a variable for each element of dimensions that are not in `_KEYS`."""
    variables: dict[str, xr.DataArray] = {}
    for name, field in dataset.data_vars.items():
        further = [dim for dim in field.dims if dim not in _KEYS]
        if not further:
            variables[str(name)] = field
            continue
        for places in np.ndindex(*(field.sizes[dim] for dim in further)):
            part = field.isel(dict(zip(further, places, strict=True)))
            suffix = "_".join(f"{part[dim].item():g}" for dim in further)
            variables[f"{name}_{suffix}"] = part.drop_vars(further, errors="ignore")
    return xr.Dataset(variables)


def _order(keys: "pd.DataFrame", rows: "pd.DataFrame") -> Any:
    """Return the positions of table rows in the order of the rows of the raw forecasts.

    Args:
        keys: index of each row of the table.
        rows: index of each row of the raw forecasts.
    """
    import pandas as pd

    shared = [name for name in keys if name in rows]
    if "number" in shared and not set(keys["number"]) <= set(rows["number"]):
        shared.remove("number")  # members with labels of their own
    types = {"time": "datetime64[ns]", "step": "float64", STATION: "str"}
    kinds = {name: types[name] for name in shared if name in types}
    unique = pd.MultiIndex.from_frame(rows[shared].astype(kinds).drop_duplicates())
    found = unique.get_indexer(pd.MultiIndex.from_frame(keys[shared].astype(kinds)))
    return np.argsort(np.where(found < 0, len(unique), found), kind="stable")
