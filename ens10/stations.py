"""Stations: points with names, which are handled as a grid of one row.

People read and write the dimension `station`, with the coordinates `station` (names or numbers),
`lat`, `lon` (degrees) and, where it is known, `altitude` (m). Stores and all computation have one
row of `latitude` and a column of `longitude` for each station. These two coordinates are indices
only (0; 0, 1, ...); the coordinates of the stations lie along the columns. The area weights of one
row are equal.
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
_UNITS = {"lat": "degrees_north", "lon": "degrees_east", "altitude": "m"}
_METRES = {
    **dict.fromkeys(("", "m", "metre", "metres", "meter", "meters", "gpm"), 1.0),
    **dict.fromkeys(("km", "kilometre", "kilometres", "kilometer", "kilometers"), 1000.0),
    **dict.fromkeys(("ft", "foot", "feet"), 0.3048),
}
SINGLE_LEVELS = ("surface", "heightAboveGround", "depthBelowLandLayer")  # of size 1
Data = TypeVar("Data", xr.Dataset, xr.DataArray)


def has_stations(data: xr.Dataset | xr.DataArray) -> bool:
    """Return True if the data are of stations, over `station` or as a grid of one row."""
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
    points = points.swap_dims({"longitude": STATION})
    return points.drop_vars(["latitude", "longitude"], errors="ignore")


def station_dims(dims: Sequence[str]) -> tuple[str, ...]:
    """Return the dimensions over `station` of a field on a grid of one row of stations."""
    return tuple(STATION if dim == "longitude" else dim for dim in dims if dim != "latitude")


def coordinates(data: xr.Dataset | xr.DataArray) -> dict[str, Any]:
    """Return the coordinates of stations along the columns, by name; an empty dict for a grid.

    Args:
        data: stations as a grid of one row, or a grid.
    """
    names = [name for name in COORDINATES if name in data.coords and STATION not in data.dims]
    return {name: data[name].variable.compute() for name in names}


def degrees(data: xr.Dataset) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return latitude and longitude of each point, degrees, shape (H, W) each.

    Args:
        data: on a grid, or of stations as a grid of one row.

    Raises:
        MissingDataError: stations without latitude or longitude.
    """
    if has_stations(data):
        missing = [f"{name} of the stations" for name in PLACES if name not in data.coords]
        if missing:
            raise MissingDataError("points", missing, "Add them as coordinates of the stations")
        lat, lon = (np.asarray(data[name].to_numpy()).reshape(1, -1) for name in PLACES)
        return lat, lon
    rows, columns = np.meshgrid(data["latitude"], data["longitude"], indexing="ij")
    return rows, columns


def metres(altitude: xr.Variable | xr.DataArray) -> npt.NDArray[Any]:
    """Return altitudes in metres, of those in m, km or ft; without units they are in m.

    Raises:
        ArgumentError: other units.
    """
    factor = _metres_per_unit(altitude)
    if factor is None:
        reason = f"{altitude.attrs['units']!r} is no known unit of an altitude"
        raise ArgumentError("altitude", reason, "Convert it to m, and set the attribute units")
    values = np.asarray(altitude.to_numpy())
    return values if factor == 1 else values * factor


def _metres_per_unit(altitude: xr.Variable | xr.DataArray) -> float | None:
    return _METRES.get(str(altitude.attrs.get("units", "")).strip().lower())


def recognise_stations(
    dataset: xr.Dataset, source: Path | str, *, require_location: bool
) -> xr.Dataset:
    """Return a file of stations as a grid of one row; other datasets are unchanged.

    The dimension of stations is one with a usual name (such as `station_id` of EUPPBench), or the
    common dimension of latitude and longitude. Altitudes in km and ft are converted to m.

    Args:
        dataset: with the names of the file, or those of `COORDINATES`.
        source: where it comes from, for errors.
        require_location: True if latitude and longitude are required, as of forecasts.

    Raises:
        MissingDataError: latitude or longitude is required and missing.
        FileError: a station occurs more than once.
    """
    dim = _dimension(dataset)
    if dim is None:
        return dataset
    single_levels = [name for name in SINGLE_LEVELS if dataset.sizes.get(name) == 1]
    dataset = dataset.squeeze(single_levels, drop=True)
    candidates = {str(name): v for name, v in dataset.variables.items() if v.dims == (dim,)}
    variables = {name: _coordinate(name, candidates) for name in _ALIASES}
    missing = [f"{name} of the stations" for name in PLACES if variables[name] is None]
    if require_location and missing:
        remedy = "Map the coordinates with --names FILE, such as dimensions: {y: lat, x: lon}"
        raise MissingDataError(source, missing, remedy)
    names = variables.pop(STATION)
    variables[STATION] = xr.Variable(dim, _identifiers(names, dataset.sizes[dim], source))
    old_names = {name for names in _ALIASES.values() for name in names} & {*candidates, dim}
    bare = dataset.drop_vars(old_names, errors="ignore").rename({dim: STATION})
    altitude = variables["altitude"]
    if altitude is not None and _metres_per_unit(altitude) not in (None, 1):
        attrs = altitude.attrs | {"units": "m"}
        variables["altitude"] = xr.Variable(dim, metres(altitude), attrs)
    coords = {
        name: (STATION, values.to_numpy(), _units(name) | values.attrs)
        for name, values in variables.items()
        if values is not None
    }
    return as_row(bare.assign_coords(coords))


def _units(name: str) -> dict[str, str]:
    return {"units": _UNITS[name]} if name in _UNITS else {}


def _dimension(dataset: xr.Dataset) -> str | None:
    """Return the dimension of the stations; None if there is none, or if there is a grid."""
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


def _coordinate(name: str, candidates: Mapping[str, xr.Variable]) -> xr.Variable | None:
    """Return the variable that a usual name or CF attributes mark as a coordinate; None if none."""
    for alias in _ALIASES[name]:
        if alias in candidates:
            return candidates[alias]
    standard = {"lat": "latitude", "lon": "longitude", "altitude": "altitude"}
    for values in candidates.values():
        role = "station" if values.attrs.get("cf_role") == "timeseries_id" else None
        if name == role or values.attrs.get("standard_name") == standard.get(name, ""):
            return values
    return None


def _identifiers(names: xr.Variable | None, size: int, source: Path | str) -> npt.NDArray[Any]:
    """Return the identifiers of the stations: integers or texts; 0, 1, ... if they have none.

    Raises:
        FileError: an identifier occurs more than once.
    """
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
        reason = f"stations occur more than once: {duplicates}"
        raise FileError(source, reason, "Remove one of the two")
    return values


def places_of(names: Sequence[str], available: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the place of each name among the available ones, -1 for others."""
    places = {name: n for n, name in enumerate(available)}
    return np.array([places.get(name, -1) for name in names], np.int64)


def station_columns(
    requested: xr.Dataset, available: xr.Dataset, label: str
) -> npt.NDArray[np.int64]:
    """Return the columns of `available` that hold the stations of `requested`, by station name.

    Args:
        requested: stations in one row.
        available: stations in one row, in any order.
        label: name of `available`, for errors.

    Returns:
        Indices, shape (requested stations,).

    Raises:
        ArgumentError: one of the two has a grid.
        MissingDataError: `available` lacks stations of `requested`.
    """
    if not (has_stations(requested) and has_stations(available)):
        both = (label, "the forecasts")
        grid, stations = reversed(both) if has_stations(available) else both
        reason = f"{grid} have a grid and {stations} have stations"
        raise ArgumentError(label, reason, "Pass both at the same points")
    places = {str(name): n for n, name in enumerate(available[STATION].to_numpy().tolist())}
    names = [str(name) for name in requested[STATION].to_numpy().tolist()]
    missing = [f"station {name}" for name in names if name not in places]
    if missing:
        remedy = (
            "Add them, or drop these stations from the forecasts: their rows of a table, or "
            "dataset.drop_sel(station=[...]) of a Dataset"
        )
        raise MissingDataError(label, missing, remedy)
    return np.array([places[name] for name in names], dtype=np.int64)
