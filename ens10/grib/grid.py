"""The grid of a GRIB message, and how its values are scanned over it.

Two messages lie on the same grid however they were scanned: `LatLonGrid` is the grid in this
package's layout (rows from north to south, columns eastward, a global grid beginning at the first
column east of Greenwich), `Scan` converts a message's values to that layout.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_DIGITS = 6  # GRIB keeps millidegrees (edition 1) or microdegrees (edition 2)


@dataclass(frozen=True, slots=True)
class LatLonGrid:
    """A regular latitude-longitude grid, north to south and eastward.

    Attributes:
        rows: number of latitudes.
        columns: number of longitudes.
        north: first latitude, degrees north.
        south: last latitude.
        west: first longitude, degrees east.
        spacing: degrees between columns.
    """

    rows: int
    columns: int
    north: float
    south: float
    west: float
    spacing: float

    def latitude(self) -> npt.NDArray[np.float64]:
        """Return the latitudes, shape (rows,), degrees north, decreasing."""
        rows: npt.NDArray[np.float64] = np.linspace(self.north, self.south, self.rows)
        return rows.round(_DIGITS)

    def longitude(self) -> npt.NDArray[np.float64]:
        """Return the longitudes, shape (columns,), degrees east, increasing."""
        columns = np.arange(self.columns, dtype=np.float64)
        return (self.west + self.spacing * columns).round(_DIGITS)

    def __str__(self) -> str:
        east = self.west + self.spacing * (self.columns - 1)
        return (
            f"{self.rows} x {self.columns}, {self.north:g} to {self.south:g} N, "
            f"{self.west:g} to {east:g} E"
        )


@dataclass(frozen=True, slots=True)
class Scan:
    """The scanning order of a message's values.

    Attributes:
        by_column: consecutive values run along a meridian.
        northward: the first row is the southernmost.
        westward: the first column is the easternmost.
        roll: columns between the message's westernmost one and the grid's first.
    """

    by_column: bool = False
    northward: bool = False
    westward: bool = False
    roll: int = 0

    def orient(self, values: npt.NDArray[Any], grid: LatLonGrid) -> npt.NDArray[Any]:
        """Reorder a message's values, shape (rows * columns,), to the grid's (rows, columns)."""
        shape = (grid.rows, grid.columns)
        field = values.reshape(shape[::-1]).T if self.by_column else values.reshape(shape)
        field = field[:: -1 if self.northward else 1, :: -1 if self.westward else 1]
        return np.roll(field, -self.roll, axis=1) if self.roll else field


def from_header(
    shape: tuple[int, int], latitudes: tuple[float, float], longitudes: tuple[float, float], *,
    by_column: bool = False, westward: bool = False,
) -> tuple[LatLonGrid, Scan]:  # fmt: skip
    """Return grid and scan from the corners in a header.

    Args:
        shape: rows and columns.
        latitudes: of the first and the last row as scanned, degrees north.
        longitudes: of the first and the last column as scanned, degrees east.
        by_column: consecutive values run along a meridian.
        westward: columns are scanned from east to west.
    """
    rows, columns = shape
    west, east = longitudes[::-1] if westward else longitudes
    spacing = _spacing(west, east, columns)
    roll = _columns_to_greenwich(west, spacing, columns)
    north, south = round(max(latitudes), _DIGITS), round(min(latitudes), _DIGITS)
    first = round(_westmost(west, spacing, columns, roll), _DIGITS)
    grid = LatLonGrid(rows, columns, north, south, first, round(spacing, _DIGITS + 3))
    return grid, Scan(by_column, latitudes[0] < latitudes[1], westward, roll % columns)


def _spacing(west: float, east: float, columns: int) -> float:
    """Return degrees between columns; exact for global grids, whose corners are rounded."""
    if columns == 1:
        return 0.0
    span = (east - west) % 360.0 or 360.0  # 360: both 0 and 360 degrees are columns
    spacing = span / (columns - 1)
    return 360.0 / columns if _is_round(spacing, columns) else spacing


def _is_round(spacing: float, columns: int) -> bool:
    return columns > 1 and abs(spacing * columns - 360.0) < 0.01 * spacing


def _columns_to_greenwich(west: float, spacing: float, columns: int) -> int:
    if not _is_round(spacing, columns):
        return 0
    return int(np.ceil(((-west) % 360.0) / spacing - 1e-3))


def _westmost(west: float, spacing: float, columns: int, roll: int) -> float:
    if _is_round(spacing, columns):
        first = (west + roll * spacing) % 360.0
        return 0.0 if 360.0 - first < 1e-3 * spacing else first
    west %= 360.0
    crosses_greenwich = west > 0.0 and west + spacing * (columns - 1) >= 360.0 - 1e-3 * spacing
    return west - 360.0 if crosses_greenwich else west
