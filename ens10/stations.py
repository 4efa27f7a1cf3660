"""Stations: points with names, which are handled as a grid of one row.

People read and write the dimension `station`, with the coordinates `station` (names or numbers),
`lat`, `lon` (degrees) and, where it is known, `altitude` (m). Stores and all computation have one
row of `latitude` and a column of `longitude` for each station. These two coordinates only count (0;
0, 1, ...); the stations' own coordinates lie along the columns. Weights of one row are equal.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, FileError, MissingDataError, listing

STATION = "station"
PLACES = ("lat", "lon")
COORDINATES = (STATION, *PLACES, "altitude")
_DIMENSIONS = {
    *("station", "stations", "station_id", "stationid", "station_index", "site", "sites"),
    *("point", "points", "location", "locations", "ncells", "cell", "cells"),
}
_ALIASES = {
    STATION: ("station", "station_id", "stationid", "site", "station_name"),
    "lat": ("lat", "latitude", "station_latitude", "station_lat"),
    "lon": ("lon", "longitude", "station_longitude", "station_lon"),
    "altitude": ("altitude", "alt", "station_altitude", "elevation", "station_elevation", "elev"),
}
_ATTRIBUTES: Mapping[str, dict[str, str]] = {
    STATION: {},
    "lat": {"units": "degrees_north"},
    "lon": {"units": "degrees_east"},
    "altitude": {"units": "m"},
}
SINGLE_LEVELS = ("surface", "heightAboveGround", "depthBelowLandLayer")  # of size 1
Data = TypeVar("Data", xr.Dataset, xr.DataArray)


def has_stations(data: xr.Dataset | xr.DataArray) -> bool:
    """Return True if the data are of stations, in either form."""
    return STATION in data.coords or STATION in data.dims


def as_row(data: Data) -> Data:
    """Return data of stations as a grid of one row; other data are unchanged.

    Args:
        data: over the dimension `station`.

    Examples:
        >>> import xarray as xr
        >>> from ens10.stations import as_row
        >>> field = xr.DataArray([280.0, 281.5], dims="station", coords={"station": ["a", "b"]})
        >>> as_row(field).sizes
        Frozen({'latitude': 1, 'longitude': 2})
    """
    if STATION not in data.dims:
        return data
    if STATION not in data.coords:
        data = data.assign_coords({STATION: np.arange(data.sizes[STATION])})
    points = data.assign_coords(longitude=(STATION, np.arange(data.sizes[STATION])))
    row = points.swap_dims({STATION: "longitude"})
    row = row.assign_coords({STATION: ("longitude", row[STATION].to_numpy())})  # without an index
    if isinstance(row, xr.DataArray):
        return row.expand_dims(latitude=[0], axis=row.dims.index("longitude"))
    fields = {
        name: field.expand_dims("latitude", field.dims.index("longitude"))
        for name, field in row.data_vars.items()
        if "longitude" in field.dims
    }
    return row.assign(fields).assign_coords(latitude=[0])


def as_stations(data: Data) -> Data:
    """Return a grid of one row of stations as data over `station`; other data are unchanged."""
    if STATION not in data.coords or STATION in data.dims:
        return data
    points = data.isel(latitude=0, drop=True) if "latitude" in data.dims else data
    return points.swap_dims({"longitude": STATION}).drop_vars(
        ["latitude", "longitude"], errors="ignore"
    )


def station_dims(dims: Sequence[str]) -> tuple[str, ...]:
    """Return the dimensions of a field of one row of stations as they are written."""
    return tuple(STATION if dim == "longitude" else dim for dim in dims if dim != "latitude")


def coordinates(data: xr.Dataset | xr.DataArray) -> dict[str, Any]:
    """Return the stations' own coordinates along the columns, as xarray takes them; {} of a grid.

    Args:
        data: in the form of one row.
    """
    names = [name for name in COORDINATES if name in data.coords and STATION not in data.dims]
    return {name: data[name].variable.compute() for name in names}


def degrees(data: xr.Dataset) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return latitude and longitude of each point of a grid or row, (H, W) each."""
    if has_stations(data):
        lat, lon = (np.asarray(data[name].to_numpy())[None] for name in PLACES)
        return lat, lon
    rows, columns = np.meshgrid(data["latitude"], data["longitude"], indexing="ij")
    return rows, columns


def recognise_stations(dataset: xr.Dataset, source: Path | str, *, located: bool) -> xr.Dataset:
    """Return a file of stations as a grid of one row; other datasets are unchanged.

    Recognised are a dimension with a usual name (such as `station_id` of EUPPBench), or any other
    along which latitude and longitude lie.

    Args:
        dataset: as in the file, or with names of `COORDINATES` by a mapping.
        source: where it comes from, for errors.
        located: True if latitude and longitude are required, as of forecasts.

    Raises:
        MissingDataError: they are missing.
        FileError: a station occurs twice.
    """
    dim = _dimension(dataset)
    if dim is None:
        return dataset
    single_levels = [name for name in SINGLE_LEVELS if dataset.sizes.get(name) == 1]
    dataset = dataset.squeeze(single_levels, drop=True)
    candidates = {str(name): v for name, v in dataset.variables.items() if v.dims == (dim,)}
    variables = {
        name: next((candidates[alias] for alias in aliases if alias in candidates), None)
        for name, aliases in _ALIASES.items()
    }
    for name in _ALIASES:
        variables[name] = (
            variables[name] if variables[name] is not None else _by_attributes(name, candidates)
        )
    missing = [f"{name} of the stations" for name in PLACES if variables[name] is None]
    if located and missing:
        remedy = "Map the coordinates with --names FILE, such as dimensions: {y: lat, x: lon}"
        raise MissingDataError(source, missing, remedy)
    names = variables.pop(STATION)
    variables[STATION] = xr.Variable(dim, _identifiers(names, dataset.sizes[dim], source))
    old_names = {name for names in _ALIASES.values() for name in names} & {*candidates, dim}
    bare = dataset.drop_vars(old_names, errors="ignore").rename({dim: STATION})
    coords = {
        name: (STATION, values.to_numpy(), _ATTRIBUTES[name] | values.attrs)
        for name, values in variables.items()
        if values is not None
    }
    return as_row(bare.assign_coords(coords))


def _dimension(dataset: xr.Dataset) -> str | None:
    """Return the dimension of the stations; None if there is none, or a grid beside it."""
    if {"latitude", "longitude"} <= set(dataset.dims) or {"lat", "lon"} <= set(dataset.dims):
        return None
    for dim in map(str, dataset.dims):
        if dim.lower() in _DIMENSIONS:
            return dim
    dims_by_name = {str(name): v.dims for name, v in dataset.variables.items() if v.ndim == 1}
    for y in _ALIASES["lat"]:
        for x in _ALIASES["lon"]:
            if y in dims_by_name and dims_by_name[y] == dims_by_name.get(x):
                return str(dims_by_name[y][0])
    return None


def _by_attributes(name: str, candidates: Mapping[str, xr.Variable]) -> xr.Variable | None:
    """Return the variable that the attributes of CF say is one of the coordinates, if one is."""
    standard = {"lat": "latitude", "lon": "longitude", "altitude": "altitude"}
    for values in candidates.values():
        role = "station" if values.attrs.get("cf_role") == "timeseries_id" else None
        if name == role or values.attrs.get("standard_name") == standard.get(name, ""):
            return values
    return None


def _identifiers(names: xr.Variable | None, size: int, source: Path | str) -> npt.NDArray[Any]:
    """Return whole numbers or texts that name the stations, each once."""
    if names is None:
        return np.arange(size)
    values = np.asarray(names.to_numpy())
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    if values.dtype.kind not in "iu":
        values = np.array([str(value) for value in values], dtype=np.dtypes.StringDType())
    unique, counts = np.unique(values, return_counts=True)
    if (counts > 1).any():
        duplicates = listing([str(value) for value in unique[counts > 1]])
        raise FileError(
            source, f"stations occur more than once: {duplicates}", "Remove one of the two"
        )
    return values


def places_of(wanted: xr.Dataset, held: xr.Dataset, what: str) -> npt.NDArray[np.int64]:
    """Return the columns of `held` that are the stations of `wanted`, by their names.

    Args:
        wanted: stations in one row.
        held: stations in one row, in any order.
        what: name of `held`, for errors.

    Raises:
        ArgumentError: one of the two has a grid.
        MissingDataError: stations are missing.
    """
    if not (has_stations(wanted) and has_stations(held)):
        grid, stations = ("the forecasts", what) if has_stations(held) else (what, "the forecasts")
        raise ArgumentError(
            what, f"{grid} have a grid and {stations} have stations",
            "Pass both at the same points",
        )  # fmt: skip
    places = {str(name): n for n, name in enumerate(held[STATION].to_numpy().tolist())}
    names = [str(name) for name in wanted[STATION].to_numpy().tolist()]
    missing = [f"station {name}" for name in names if name not in places]
    if missing:
        raise MissingDataError(what, missing, "Pass data of all stations")
    return np.array([places[name] for name in names], dtype=np.int64)
