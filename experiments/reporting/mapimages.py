"""Maps with one pixel a grid cell, or one disc a station, and their colour bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import xarray as xr
from markupsafe import Markup
from matplotlib.colors import Colormap, LogNorm, Normalize

from ens10.experiments.reporting.svg import PAGE_STYLE, axes_of, label, svg
from ens10.metrics.figures.maps import (
    cell_edges,
    draw_stations,
    nice_limit,
    set_ticks,
    station_places,
    unwrapped,
)
from ens10.stations import STATION

Floats = npt.NDArray[np.float64]
Kind = Literal["better", "deviation", "ratio", "no"]
# told apart with any colour vision; diverging ones are white where nothing is told
_COLOURS = {"better": "RdBu", "deviation": "RdBu_r", "ratio": "PuOr_r", "no": "viridis"}
_SHADES = 127  # few colours make small files; an odd number of them has one in the middle
_GAP = "#969696"  # missing points
_MOST = 360  # columns of an image: finer grids are averaged
_WIDTH = 300.0


@dataclass(frozen=True)
class Scale:
    """Colours of values.

    Attributes:
        kind: "better" (blue is above 0), "deviation" (red is above 0), "ratio" (orange is above
            1, ends are 1/limit and limit) or "no" (0 and above).
        limit: where the colours end.
    """

    kind: Kind
    limit: float

    @property
    def ticks(self) -> list[float]:
        """Values to be named, from one end of the colours to the other."""
        top = self.limit
        if self.kind == "ratio":
            return [1 / top, 1.0, top]
        return [0.0, top / 2, top] if self.kind == "no" else [-top, -top / 2, 0.0, top / 2, top]

    @property
    def norm(self) -> Normalize:
        """Where values lie between the ends, which are 0 and 1."""
        return (LogNorm if self.kind == "ratio" else Normalize)(self.ticks[0], self.limit)

    @property
    def colours(self) -> Colormap:
        """The colours, and that of missing points."""
        return mpl.colormaps[_COLOURS[self.kind]].resampled(_SHADES).with_extremes(bad=_GAP)


def scale_of(fields: Sequence[xr.DataArray], kind: Kind) -> Scale:
    """Return one scale for several maps, within which nearly all points lie."""
    values = np.concatenate([field.to_numpy().ravel() for field in fields])
    values = values[np.isfinite(values)]
    if kind == "ratio":
        logs = np.abs(np.log(values[values > 0]))
        far = float(np.percentile(logs, 98)) if logs.size else 0.0
        return Scale(kind, next((n for n in (1.25, 1.5, 2.0, 3.0, 5.0) if np.log(n) >= far), 10.0))
    return Scale(kind, nice_limit(values, kind == "better"))


@mpl.rc_context(PAGE_STYLE)
def map_picture(field: xr.DataArray, scale: Scale, words: str) -> Markup:
    """Draw a map with a few parallels and meridians.

    Args:
        field: over latitude and longitude, or over `station`, each station a point.
        scale: of its colours.
        words: what stands in its place.
    """
    points = STATION in field.dims
    if points:
        east, lat, x, y = station_places(field)
    else:
        field = _coarser(field.transpose("latitude", "longitude"))
        order, east = unwrapped(field["longitude"])
        x, y = cell_edges(east), cell_edges(field["latitude"], 90.0)
    south, north = sorted((y[0], y[-1]))
    # a degree of longitude is shorter away from the equator; a global map is left as it is
    stretch = 1.0 if np.ptp(x) > 180 else 1.0 / np.cos(np.deg2rad((south + north) / 2))
    height = _WIDTH * float(np.clip(stretch * np.ptp(y) / np.ptp(x), 0.3, 1.6))
    axes = axes_of(_WIDTH + 58, height + 26, right=24)
    if points:
        draw_stations(axes, east, lat, field.to_numpy(), scale.norm, scale.colours)
        axes.set(xlim=x, ylim=(south, north))
    else:
        values = _regular(field.to_numpy()[:, order].astype(np.float64), x, y)
        axes.imshow(
            np.clip(values, scale.ticks[0], scale.limit), scale.colours, scale.norm, aspect="auto",
            interpolation="none", extent=(x[0], x[-1], south, north),
        )  # fmt: skip
    set_ticks(axes, x, y)
    axes.grid(color="black", alpha=0.28)
    axes.set_axisbelow(False)
    axes.spines[:].set_visible(True)
    return svg(axes, words)


def _coarser(field: xr.DataArray) -> xr.DataArray:
    factor = -(-field.sizes["longitude"] // _MOST)
    if factor == 1:
        return field
    sizes = {"latitude": factor, "longitude": factor}
    averaged: xr.DataArray = field.coarsen(sizes, boundary="pad").mean()
    return averaged


def _regular(values: Floats, x: Floats, y: Floats) -> Floats:
    """Values on even rows from north to south and columns from west to east, by nearest cell."""
    if y[0] < y[-1]:
        values, y = values[::-1], y[::-1]
    picked: Floats = values[np.ix_(_cells(-y), _cells(x))]
    return picked


def _cells(edges: Floats) -> npt.NDArray[np.intp]:
    """The cell of each of even steps between rising edges; as many as its narrowest cell asks."""
    widths = np.diff(edges)
    number = int(min(2 * _MOST, np.ceil(np.ptp(edges) / widths.min() - 1e-6)))
    middles = edges[0] + np.ptp(edges) * (np.arange(number) + 0.5) / number
    found: npt.NDArray[np.intp] = np.searchsorted(edges, middles, side="right") - 1
    return np.clip(found, 0, widths.size - 1)


@mpl.rc_context(PAGE_STYLE)
def colour_bar(scale: Scale, what: str) -> Markup:
    """Draw the colours of a scale with their values.

    Args:
        scale: of the maps.
        what: the quantity with its units.
    """
    axes = axes_of(_WIDTH + 40, 32, left=20, right=20, bottom=18, top=2)
    axes.imshow(
        np.linspace(0, 1, _SHADES)[None], scale.colours, aspect="auto", interpolation="none",
        extent=(0, 1, 0, 1),
    )  # fmt: skip
    axes.set_xticks(scale.norm(scale.ticks), [label(float(f"{v:.3g}")) for v in scale.ticks])
    axes.set_yticks([])
    axes.spines[:].set_visible(True)
    return svg(axes, f"Colours: {what}")
