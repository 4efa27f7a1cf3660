"""Zones of the grid that are scored separately: latitude bands, land and sea, regions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.distributions.forecast_dataset import GRID
from ens10.metrics.groups import land_sea, latitude_bands, region_boxes
from ens10.metrics.verification.alignment import check_same_grid
from ens10.stations import has_stations

ZONES = ("latitude_band", "surface", "region")
Box = tuple[float, float, float, float]
# South, north, west, east: areas for which weather services exchange scores (WMO-No. 485, Manual
# on the Global Data-processing and Forecasting System, appendix 2.2.34).
REGIONS: Mapping[str, Box] = {
    "north_america": (25.0, 60.0, -145.0, -50.0),
    "europe_north_africa": (25.0, 70.0, -10.0, 28.0),
    "asia": (25.0, 65.0, 60.0, 145.0),
    "australia_new_zealand": (-55.0, -10.0, 90.0, 180.0),
}


@dataclass(frozen=True)
class Zones:
    """A partition of the grid into parts that no zone divides, and the zones of each part.

    Attributes:
        labels: names of the zones, by dimension.
        part: shape (H, W), the index of each point's part.
        membership: shape (zones of the first dimension, of the second, ..., parts), 0 or 1.
    """

    labels: Mapping[str, tuple[Any, ...]]
    part: npt.NDArray[np.int64]
    membership: npt.NDArray[np.int64]

    @property
    def number(self) -> int:
        """Return the number of parts."""
        return int(self.membership.shape[-1])

    def sums(self, parts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Convert sums over parts, (..., parts), to sums over zones, (..., zones, ...)."""
        zones = self.membership.shape[:-1]
        zone_sums: npt.NDArray[Any] = np.zeros((*parts.shape[:-1], *zones), parts.dtype)
        for zone in np.ndindex(zones):
            # No product with 0 or 1: a NaN belongs to its own zones alone.
            zone_sums[(..., *zone)] = parts[..., self.membership[zone] > 0].sum(axis=-1)
        return zone_sums


def zones_of(
    grid: xr.Dataset,
    by: Sequence[str],
    *,
    bands: Any = None,
    land: xr.DataArray | None = None,
    regions: Mapping[str, Box] | None = None,
) -> Zones | None:
    """Return the zones of a grid; None if `by` is empty.

    Args:
        grid: with the coordinates `latitude` and `longitude`.
        by: some of `ZONES`, in the order of the dimensions.
        bands: latitude bands: names, or edges in degrees; None for all of `groups.BANDS`.
        land: share of land in [0, 1] of each grid cell (latitude, longitude), for "surface".
        regions: south, north, west, east edge by name, in degrees; `REGIONS` if None.

    Raises:
        UnknownNameError: unknown zones.
        ArgumentError: invalid bands or regions; no share of land, or one on another grid.
        MissingDataError: rows or columns that the share of land lacks.
    """
    shares: dict[str, xr.DataArray] = {}
    for name in by:
        if name == "latitude_band":
            rows = grid["lat" if has_stations(grid) else "latitude"]
            shares[name] = latitude_bands(rows, bands)
        elif has_stations(grid):
            reason = f"{name} is a part of a grid, and the forecast has stations"
            raise ArgumentError("by", reason, "Choose latitude_band")
        elif name == "surface":
            shares[name] = land_sea(_on_grid(land, grid))
        elif name == "region":
            shares[name] = region_boxes(
                REGIONS if regions is None else regions, grid["latitude"], grid["longitude"]
            )
        else:
            raise UnknownNameError("by", name, ZONES)
    return _parts(shares, (grid.sizes["latitude"], grid.sizes["longitude"])) if shares else None


def _on_grid(land: xr.DataArray | None, grid: xr.Dataset) -> xr.DataArray:
    if land is None:
        raise ArgumentError("by", "surface needs a land-sea mask", "Pass land")
    if set(land.dims) != set(GRID):
        raise ArgumentError("land", f"dimensions {land.dims} instead of {GRID}")
    check_same_grid("land", grid, land)
    return land.transpose(*GRID)


def _parts(shares: Mapping[str, xr.DataArray], shape: tuple[int, int]) -> Zones:
    masks = {name: _masks(share, shape) for name, share in shares.items()}
    stacked = np.concatenate([mask.reshape(len(mask), -1) for mask in masks.values()])
    codes, part = np.unique(stacked, axis=1, return_inverse=True)
    membership = np.ones((1,) * len(masks) + (codes.shape[1],), dtype=np.int64)
    first = 0
    for place, mask in enumerate(masks.values()):
        mask_of_parts = codes[first : first + len(mask)].astype(np.int64)
        first += len(mask)
        others = [1] * len(masks)
        others[place] = len(mask)
        membership = membership * mask_of_parts.reshape(*others, -1)
    labels = {name: tuple(share[name].to_numpy().tolist()) for name, share in shares.items()}
    return Zones(labels, part.reshape(shape).astype(np.int64), membership)


def _masks(share: xr.DataArray, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    inside = share.to_numpy() > 0
    if inside.ndim == 2:  # bands depend on the row alone, of stations on the column
        inside = inside[:, None] if share.dims[1] == "longitude" else inside[:, :, None]
    return np.broadcast_to(inside, (len(inside), *shape))
