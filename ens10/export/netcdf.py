"""CF netCDF, written field by field."""

from collections.abc import Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.progress import track

_CONVENTIONS = "CF-1.11"
_TIME_UNITS = "seconds since 1970-01-01 00:00:00"
_WHOLE = ("number", "channel", "quantile", "latitude", "longitude", "station")  # in one chunk
# fmt: off
_COORDINATES: Mapping[str, dict[str, Any]] = {
    "time": {"standard_name": "forecast_reference_time", "long_name": "start of the forecast",
             "axis": "T"},
    "valid_time": {"standard_name": "time", "long_name": "time at which the forecast is valid"},
    "step": {"standard_name": "forecast_period", "long_name": "time since the start"},
    "number": {"standard_name": "realization", "long_name": "ensemble member", "units": "1"},
    "level": {"standard_name": "air_pressure", "long_name": "pressure", "units": "hPa",
              "positive": "down", "axis": "Z"},
    "latitude": {"standard_name": "latitude", "units": "degrees_north", "axis": "Y"},
    "longitude": {"standard_name": "longitude", "units": "degrees_east", "axis": "X"},
    "station": {"long_name": "station", "cf_role": "timeseries_id"},
    "lat": {"standard_name": "latitude", "units": "degrees_north"},
    "lon": {"standard_name": "longitude", "units": "degrees_east"},
    "altitude": {"standard_name": "altitude", "units": "m"},
    "quantile": {"long_name": "quantile level", "units": "1"},
    "channel": {"long_name": "variable, with its level in hPa"},
}
# fmt: on


def write_netcdf(path: Path, dataset: xr.Dataset, compression: int, progress: bool) -> None:
    """Write a lazy dataset as netCDF-4, one chunk in memory at a time.

    Args:
        path: the file; what is there is replaced.
        dataset: its coordinates `place_of_...` are left out.
        compression: 0 to 9.
        progress: show a progress bar.
    """
    if not 0 <= compression <= 9:
        raise ArgumentError("compression", f"{compression} is not a level of zlib", "Choose 0 to 9")
    names = sorted(str(n) for n in dataset.coords if not str(n).startswith("place_of_"))
    with netCDF4.Dataset(path, "w", format="NETCDF4") as file:
        file.setncatts({"Conventions": _CONVENTIONS, **_attributes(dataset.attrs)})
        for dim in sorted(dataset.sizes, key=str):
            file.createDimension(str(dim), dataset.sizes[dim])
        for name in names:
            _write_coordinate(file, name, dataset[name])
        fields = {str(name): field for name, field in dataset.data_vars.items()}
        targets = {n: _create(file, n, fields[n], names, compression) for n in sorted(fields)}
        work = [(name, place) for name in targets for place in _places(dataset[name])]
        for name, place in track(work, "export", len(work), progress):
            index = tuple(place.get(str(d), slice(None)) for d in dataset[name].dims)
            targets[name][index] = dataset[name].isel(place).to_numpy()


def _places(field: xr.DataArray) -> list[dict[str, int]]:
    """Return the position of each chunk along the dimensions that are split into chunks."""
    outer = [str(dim) for dim in field.dims if dim not in _WHOLE]
    each = product(*(range(field.sizes[dim]) for dim in outer))
    return [dict(zip(outer, place, strict=True)) for place in each]


def _write_coordinate(file: Any, name: str, coordinate: xr.DataArray) -> None:
    values = coordinate.to_numpy()
    usual = _COORDINATES.get(name, {})
    attributes = {**usual, **_attributes(coordinate.attrs)}
    attributes |= {key: value for key, value in usual.items() if key != "units"}
    if np.issubdtype(values.dtype, np.datetime64):
        values = values.astype("datetime64[s]").astype(np.int64)
        attributes |= {"units": _TIME_UNITS, "calendar": "standard"}
    dtype: Any = values.dtype.newbyteorder("=") if values.dtype.kind in "iuf" else str
    variable = file.createVariable(name, dtype, coordinate.dims)
    variable.setncatts(attributes)
    variable[...] = values.astype(object) if dtype is str else values


def _create(
    file: Any, name: str, field: xr.DataArray, coordinates: list[str], compression: int
) -> Any:
    """Create an empty variable with the store's chunks, without filling it first."""
    gap = np.nan if np.issubdtype(field.dtype, np.floating) else None
    chunks = [field.sizes[d] if d in _WHOLE else 1 for d in field.dims]
    packing = {"compression": "zlib" if compression else None, "complevel": compression}
    dtype, sizes = field.dtype.newbyteorder("="), chunks if prod(chunks) else None
    variable = file.createVariable(
        name, dtype, field.dims, fill_value=gap, chunksizes=sizes, **packing
    )
    dims, others = set(map(str, field.dims)), [c for c in coordinates if c not in field.dims]
    auxiliary = [other for other in others if set(file[other].dimensions) <= dims]
    attributes = _attributes(field.attrs)
    if auxiliary:
        attributes["coordinates"] = " ".join(auxiliary)
    variable.setncatts(attributes)
    return variable


def _attributes(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Return attributes that netCDF can hold: no booleans, no empty or nested lists.

    Lists of texts are joined by blanks, but for the labels of members.
    """
    plain: dict[str, Any] = {}
    for key, value in attributes.items():
        if key in ("coordinates", "_FillValue") or value is None:
            continue
        has_texts = isinstance(value, list | tuple) and any(isinstance(v, str) for v in value)
        if has_texts and key != "labels":  # texts of members, which may have blanks
            value = " ".join(map(str, value))
        if isinstance(value, bool):
            value = int(value)
        plain[str(key)] = value if not isinstance(value, dict) else str(value)
    return plain
