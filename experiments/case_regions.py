"""Regions of a case study: named boxes, or four numbers."""

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import region_boxes
from ens10.metrics.groups import Box

# South, north, west and east edge in degrees, as of `region_boxes`.
REGIONS: dict[str, Box] = {
    "global": (-90.0, 90.0, -180.0, 180.0),
    "europe": (35.0, 75.0, -12.5, 42.5),
    "conus": (24.0, 50.0, -125.0, -66.0),
    "north_america": (25.0, 60.0, -145.0, -50.0),
    "south_america": (-56.0, 13.0, -82.0, -34.0),
    "africa": (-35.0, 37.0, -18.0, 52.0),
    "asia": (25.0, 65.0, 60.0, 145.0),
    "south_asia": (5.0, 38.0, 60.0, 100.0),
    "australia": (-45.0, -10.0, 110.0, 155.0),
    "pacific": (-30.0, 30.0, 150.0, -80.0),
    "arctic": (60.0, 90.0, -180.0, 180.0),
    "antarctic": (-90.0, -60.0, -180.0, 180.0),
}
_CIRCLE = 360.0
_FORM = "Give a name, or SOUTH,WEST,NORTH,EAST in degrees, such as 35,-12.5,75,42.5"


def region_box(region: str) -> Box:
    """South, north, west and east edge of a region.

    Args:
        region: a name of `REGIONS`; or "S,W,N,E" in degrees. A box whose east lies west of its
            west goes across the meridian at which longitudes start anew.

    Raises:
        UnknownNameError: another name.
        ArgumentError: not four numbers, no latitudes, or south not below north.
    """
    name = region.strip().lower()
    if name in REGIONS:
        return REGIONS[name]
    parts = name.split(",")
    if len(parts) == 1:
        raise UnknownNameError("region", region, [*REGIONS, "S,W,N,E"])
    try:
        south, west, north, east = (float(part) for part in parts)
    except ValueError:
        raise ArgumentError("region", f"{region!r} is not four numbers", _FORM) from None
    if not -90.0 <= south < north <= 90.0:
        told = f"south {south:g} and north {north:g} are no latitudes that rise"
        raise ArgumentError("region", told, _FORM)
    if not -360.0 <= west <= 360.0 or not -360.0 <= east <= 360.0:
        raise ArgumentError("region", f"{west:g} or {east:g} is no longitude", _FORM)
    if east - west >= _CIRCLE:  # 0 to 360 is not the meridian that 0 to 0 is
        west, east = -180.0, 180.0
    return south, north, west, east


def part_of_grid(
    region: str, latitude: xr.DataArray, longitude: xr.DataArray
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows and columns of the grid points in a region.

    Args:
        region: as for `region_box`.
        latitude: of the grid's rows, degrees north.
        longitude: of its columns, degrees east.

    Raises:
        UnknownNameError, ArgumentError: as `region_box`; a region without any point of the grid.
    """
    box = region_box(region)
    try:
        inside = region_boxes({region: box}, latitude, longitude).to_numpy()[0] > 0
    except ArgumentError as error:
        lat, lon = latitude.to_numpy(), longitude.to_numpy()
        told = f"{region!r} holds no point of the grid, which goes from {lat.min():g} to "
        told += f"{lat.max():g} north and from {lon.min():g} to {lon.max():g} east"
        raise ArgumentError("region", told, "Give a region that has some") from error
    return np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))


def in_words(region: str) -> str:
    """A region with its edges."""
    south, north, west, east = region_box(region)
    edges = f"{_lat(south)} to {_lat(north)}, {_lon(west)} to {_lon(east)}"
    name = region.strip().lower()
    return f"{name} ({edges})" if name in REGIONS else edges


def file_name(region: str) -> str:
    """A region as a part of the name of a folder."""
    name = region.strip().lower()
    if name in REGIONS:
        return name
    south, north, west, east = region_box(region)
    return "_".join((_lat(south), _lon(west), _lat(north), _lon(east))).replace("°", "")


def _lat(degrees: float) -> str:
    return f"{abs(degrees):g}°" + ("S" if degrees < 0 else "N" if degrees > 0 else "")


def _lon(degrees: float) -> str:
    east = degrees if degrees == 180.0 else (degrees + 180.0) % 360.0 - 180.0
    return f"{abs(east):g}°" + ("W" if east < 0 else "E" if east > 0 else "")
