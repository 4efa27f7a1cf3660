"""Cell edges, column order and tick labels of a grid, or places of stations, on a map."""

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes

from ens10.grid import is_global

Floats = npt.NDArray[np.float64]
_SPACINGS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 45, 60, 90)
_MOST_TICKS = 7


def cell_edges(centres: npt.ArrayLike, limit: float = np.inf) -> Floats:
    """Return the edges of cells: half-way between the centres, clipped at +-limit.

    Args:
        centres: shape (n,), ascending or descending, not necessarily evenly spaced.
        limit: 90 for latitudes.

    Returns:
        Shape (n + 1,).
    """
    c = np.asarray(centres, dtype=np.float64)
    half = np.diff(c) / 2 if c.size > 1 else np.array([0.5])
    edges = np.concatenate([c[:1] - half[0], c[:-1] + half[: c.size - 1], c[-1:] + half[-1]])
    cut: Floats = np.clip(edges, -limit, limit)
    return cut


def unwrapped(longitude: npt.ArrayLike) -> tuple[npt.NDArray[np.intp], Floats]:
    """Return the order of the columns from west to east, and their longitudes in that order.

    A regional grid begins after the widest gap, wherever the meridians of 0 and 180 lie; a
    global one begins at 180 W.

    Args:
        longitude: shape (W,), degrees east, in [0, 360) or [-180, 180), in any order.

    Returns:
        Indices and ascending longitudes, each of shape (W,).
    """
    east = np.mod(np.asarray(longitude, dtype=np.float64) + 180.0, 360.0) - 180.0
    order = np.argsort(east, kind="stable")
    east = east[order]
    if is_global(east):
        return order, east
    gaps = np.diff(east, append=east[0] + 360.0)
    first = (int(np.argmax(gaps)) + 1) % east.size
    east = np.concatenate([east[first:], east[:first] + 360.0])
    shift = 360.0 if east.mean() >= 180.0 else 0.0
    return np.roll(order, -first), east - shift


def station_places(field: xr.DataArray) -> tuple[Floats, Floats, Floats, Floats]:
    """Return where stations are drawn, and the limits of their map.

    Args:
        field: over `station`, with the coordinates `lat` and `lon`.

    Returns:
        Longitudes (N,), without a gap at 0 or 180 degrees, and latitudes (N,); lowest and highest
        longitude and latitude of the map, (2,) each.
    """
    order, sorted_east = unwrapped(field["lon"])
    east = np.empty(order.size)
    east[order] = sorted_east
    north = field["lat"].to_numpy().astype(np.float64)
    x, y = (
        np.array([v.min(), v.max()]) + max(0.06 * np.ptp(v), 0.5) * np.array([-1.0, 1.0])
        for v in (east, north)
    )
    return east, north, x, np.clip(y, -90.0, 90.0)


def degrees(value: float, names: str) -> str:
    """Format a coordinate as a label, such as 30°N.

    Args:
        value: degrees north or east.
        names: letters of the positive and negative side, "NS" or "EW".
    """
    angle = (value + 180.0) % 360.0 - 180.0 if names == "EW" else value
    if angle in (0.0, -180.0):
        return f"{abs(angle):g}°"
    return f"{abs(angle):g}°{names[int(angle < 0)]}"


def set_ticks(axes: Axes, x: Floats, y: Floats) -> None:
    """Set ticks at round degrees.

    Args:
        axes: of the map.
        x: edges of the columns, degrees east.
        y: edges of the rows, degrees north.
    """
    for axis, edges, names in ((axes.xaxis, x, "EW"), (axes.yaxis, y, "NS")):
        low, high = edges.min(), edges.max()
        spacing = next((s for s in _SPACINGS if (high - low) / s < _MOST_TICKS), 90)
        if names == "EW" and high - low > 180:
            spacing = 90  # room for labels in narrow panels
        ticks = spacing * np.arange(np.ceil(low / spacing), np.floor(high / spacing) + 1)
        axis.set_ticks(list(ticks), [degrees(round(t, 6), names) for t in ticks])
