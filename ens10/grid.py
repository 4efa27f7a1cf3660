"""Geometry of regular latitude-longitude grids: exact cell areas and location features."""

from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError

Weighting = Literal["cell", "cos", "none"]
Floats = npt.NDArray[np.floating[Any]]


@overload
def area_weights(latitude: "xr.DataArray", weighting: Weighting = "cell") -> "xr.DataArray": ...
@overload
def area_weights(
    latitude: npt.ArrayLike, weighting: Weighting = "cell"
) -> npt.NDArray[np.float64]: ...
def area_weights(latitude: Any, weighting: Weighting = "cell") -> Any:
    """Return the area weights of a grid's rows, normalised to mean 1.

    "cell" is the exact area of each row's cells, sin(north edge) - sin(south edge), with edges
    half-way between rows and cut at the poles (so a row on a pole has a half cell); "cos" is
    cos(latitude), which gives a pole no weight; "none" is 1 everywhere.

    Args:
        latitude: shape (H,), degrees north, in either order, evenly or unevenly spaced.
        weighting: "cell", "cos" or "none".

    Returns:
        Shape (H,), float64, mean 1; a DataArray if `latitude` is one.

    Examples:
        >>> from ens10.grid import area_weights
        >>> area_weights([90, 45, 0, -45, -90]).round(3).tolist()
        [0.19, 1.353, 1.913, 1.353, 0.19]

    Raises:
        UnknownNameError: another weighting.
        ArgumentError: latitudes that are not monotonic, or not degrees in [-90, 90].
    """
    if weighting not in get_args(Weighting):
        raise UnknownNameError("weighting", weighting, get_args(Weighting))
    if hasattr(latitude, "data_vars"):
        raise ArgumentError("latitude", "expected a DataArray, not a Dataset", "Pass ds.latitude")
    lat = np.asarray(latitude, dtype=np.float64)
    _check_latitude(lat)
    weights = _weights(lat, weighting)
    if type(latitude).__name__ != "DataArray":  # so that xarray need not be imported
        return weights
    bare = latitude.reset_coords(drop=True).copy(data=weights)
    return bare.drop_attrs(deep=False).rename("area_weights")


def _weights(lat: npt.NDArray[np.float64], weighting: Weighting) -> npt.NDArray[np.float64]:
    if weighting == "none" or lat.size == 1:
        return np.ones_like(lat)
    weights = np.cos(np.deg2rad(lat)) if weighting == "cos" else _cell_areas(lat)
    normalised: npt.NDArray[np.float64] = weights / weights.mean()
    return normalised


def _check_latitude(lat: npt.NDArray[np.float64]) -> None:
    steps = np.diff(lat)
    monotonic = bool(np.all(steps > 0) or np.all(steps < 0))
    if lat.ndim != 1 or not lat.size or not monotonic or np.abs(lat).max() > 90.0 + 1e-6:
        reason = "expected degrees between -90 and 90 that only rise or only fall"
        raise ArgumentError("latitude", reason, "Sort the rows from north to south")


def _cell_areas(lat: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    inner = (lat[1:] + lat[:-1]) / 2
    first, last = lat[0] - (lat[1] - lat[0]) / 2, lat[-1] + (lat[-1] - lat[-2]) / 2
    edges = np.clip(np.concatenate([[first], inner, [last]]), -90.0, 90.0)
    areas: npt.NDArray[np.float64] = np.abs(np.diff(np.sin(np.deg2rad(edges))))
    return areas


def grid_shape(grid: str | Sequence[int], argument: str = "grid") -> tuple[int, int]:
    """Return the numbers of rows and columns of a grid.

    Args:
        grid: "ROWSxCOLUMNS", or the two numbers.
        argument: name of the caller's argument, for the message.

    Raises:
        ArgumentError: anything but two whole numbers of 1 or more.
    """
    parts = grid.lower().split("x") if isinstance(grid, str) else grid
    try:
        rows, columns = (int(n) if isinstance(n, str) else index(n) for n in parts)
    except (TypeError, ValueError):
        rows = columns = 0
    if min(rows, columns) < 1:
        remedy = "Write ROWSxCOLUMNS, such as 361x720, or the two numbers"
        raise ArgumentError(argument, f"{grid!r} is not a grid", remedy)
    return rows, columns


def location_features(latitude: npt.ArrayLike, longitude: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return the coordinates of each grid point on the unit sphere.

    Args:
        latitude: degrees north of the rows, shape (H,), or of each point, (H, W).
        longitude: degrees east of the columns, shape (W,), or of each point, (H, W).

    Returns:
        Shape (3, H, W), float32: sin(lat), cos(lat) sin(lon), cos(lat) cos(lon).
    """
    phi, lam = (np.deg2rad(np.asarray(d, dtype=np.float64)) for d in (latitude, longitude))
    if phi.ndim == 1:
        phi, lam = phi[:, None], lam[None, :]
    fields = np.broadcast_arrays(np.sin(phi), np.cos(phi) * np.sin(lam), np.cos(phi) * np.cos(lam))
    return np.stack(fields).astype(np.float32)


def is_global(longitude: npt.ArrayLike) -> bool:
    """Return True if the columns cover all longitudes: the last one borders on the first."""
    lon = np.asarray(longitude, dtype=np.float64)
    if lon.size < 2:
        return False
    step = abs(float(lon[1] - lon[0]))
    return bool(abs(step * lon.size - 360.0) < 0.01 * step)
