"""Maps as small images inside SVG: one pixel a grid cell, which a browser scales as it is."""

import io
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import xarray as xr
from PIL import Image

from ens10.experiments.reporting.svg import label, picture
from ens10.metrics.figures.geometry import cell_edges, degrees, unwrapped
from ens10.metrics.figures.maps import nice_limit

Floats = npt.NDArray[np.float64]
Kind = Literal["better", "deviation", "ratio", "no"]
# told apart with any colour vision; diverging ones are white where nothing is told
_COLOURS = {"better": "RdBu", "deviation": "RdBu_r", "ratio": "PuOr_r", "no": "viridis"}
_SHADES = 62  # few colours make small files; an odd number of them has one in the middle
_GAP = (150, 150, 150)  # missing points
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

    def place(self, values: Floats) -> Floats:
        """Where values lie between the ends, which are 0 and 1; not cut off."""
        if self.kind == "no":
            return values / self.limit
        if self.kind == "ratio":
            with np.errstate(divide="ignore", invalid="ignore"):
                logs: Floats = np.log(values) / np.log(self.limit)
            return (logs + 1) / 2
        return (values / self.limit + 1) / 2

    @property
    def ticks(self) -> list[float]:
        """Values to be named."""
        top = self.limit
        if self.kind == "ratio":
            return [1 / top, 1.0, top]
        return [0.0, top / 2, top] if self.kind == "no" else [-top, -top / 2, 0.0, top / 2, top]


def scale_of(fields: Sequence[xr.DataArray], kind: Kind) -> Scale:
    """One scale for several maps, within which nearly all points lie."""
    values = np.concatenate([field.to_numpy().ravel() for field in fields])
    values = values[np.isfinite(values)]
    if kind == "ratio":
        logs = np.abs(np.log(values[values > 0]))
        far = float(np.percentile(logs, 98)) if logs.size else 0.0
        return Scale(kind, next((n for n in (1.25, 1.5, 2.0, 3.0, 5.0) if np.log(n) >= far), 10.0))
    return Scale(kind, nice_limit(values, kind == "better"))


def map_picture(field: xr.DataArray, scale: Scale, told: str) -> str:
    """A map with a few parallels and meridians.

    Args:
        field: over latitude and longitude.
        scale: of its colours.
        told: what stands in its place.
    """
    field = _coarser(field.transpose("latitude", "longitude"))
    order, east = unwrapped(field["longitude"])
    x, y = cell_edges(east), cell_edges(field["latitude"], 90.0)
    values = _regular(field.to_numpy()[:, order].astype(np.float64), x, y)
    west, wide = float(x[0]), float(np.ptp(x))
    north, high = float(max(y[0], y[-1])), float(np.ptp(y))
    # a degree of longitude is shorter away from the equator; a global map is left as it is
    stretch = 1.0 if wide > 180 else 1.0 / np.cos(np.deg2rad(north - high / 2))
    height = _WIDTH * float(np.clip(stretch * high / wide, 0.3, 1.6))
    data = b64encode(_png(values, scale)).decode("ascii")
    parts = [
        f'<image href="data:image/png;base64,{data}" width="{_WIDTH:g}" height="{height:.1f}" '
        'preserveAspectRatio="none"/>'
    ]
    for value, letters in ((v, "EW") for v in _between(west, west + wide)):
        at = _WIDTH * (value - west) / wide
        parts.append(_line(at, at, 0, height))
        parts.append(_name(at, height + 13, degrees(value, letters), "middle"))
    for value in _between(north - high, north):
        at = height * (north - value) / high
        parts.append(_line(0, _WIDTH, at, at))
        parts.append(_name(_WIDTH + 4, at + 4, degrees(value, "NS"), "start"))
    parts.append(f'<rect class="frame" width="{_WIDTH:g}" height="{height:.1f}"/>')
    return picture("\n".join(parts), (_WIDTH + 34, height + 18), told)


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
    rows = _steps(-y, 2 * _MOST)
    columns = _steps(x, 2 * _MOST)
    picked: Floats = values[np.ix_(rows, columns)]
    return picked


def _steps(edges: Floats, most: int) -> npt.NDArray[np.intp]:
    """The cell of each of even steps between rising edges; as many as its narrowest cell asks."""
    widths = np.diff(edges)
    number = int(min(most, np.ceil(np.ptp(edges) / widths.min() - 1e-6)))
    middles = edges[0] + np.ptp(edges) * (np.arange(number) + 0.5) / number
    found: npt.NDArray[np.intp] = np.searchsorted(edges, middles, side="right") - 1
    return np.clip(found, 0, widths.size - 1)


def _png(values: Floats, scale: Scale) -> bytes:
    known = np.isfinite(values)
    place = np.clip(np.where(known, scale.place(values), 0.0), 0.0, 1.0)
    shades = np.where(known, np.round(place * _SHADES), _SHADES + 1).astype(np.uint8)
    image = Image.fromarray(shades)
    image.putpalette([*_palette(scale.kind), *_GAP])
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _palette(kind: Kind) -> list[int]:
    colours = mpl.colormaps[_COLOURS[kind]](np.arange(_SHADES + 1) / _SHADES)
    found: list[int] = np.round(255 * colours[:, :3]).astype(int).ravel().tolist()
    return found


def _between(low: float, high: float) -> list[float]:
    """A few round degrees within an extent."""
    spacing = next(s for s in (1, 2, 5, 10, 15, 30, 60, 90) if (high - low) / s < 5 or s == 90)
    lines = spacing * np.arange(np.ceil(low / spacing), np.floor(high / spacing) + 1)
    edge = 0.04 * (high - low)
    return [float(v) for v in lines if low + edge < v < high - edge]


def _line(x1: float, x2: float, y1: float, y2: float) -> str:
    ends = f'x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"'
    return f'<line class="grid" {ends}/>'


def _name(x: float, y: float, told: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(told)}</text>'


def colour_bar(scale: Scale, what: str, number: str) -> str:
    """The colours of a scale with their values.

    Args:
        scale: of the maps.
        what: the quantity with its units.
        number: of this bar in the page: names of gradients are of the whole page.
    """
    colours = np.array(_palette(scale.kind)).reshape(-1, 3)[:: _SHADES // 31]
    stops = "".join(
        f'<stop offset="{100 * n / (len(colours) - 1):.1f}%" stop-color="#{r:02x}{g:02x}{b:02x}"/>'
        for n, (r, g, b) in enumerate(colours)
    )
    name = f"colours-{number}"
    parts = [
        f'<linearGradient id="{name}">{stops}</linearGradient>',
        f'<rect x="20" y="2" width="{_WIDTH:g}" height="12" fill="url(#{name})"/>',
        f'<rect class="frame" x="20" y="2" width="{_WIDTH:g}" height="12"/>',
    ]
    for tick in scale.ticks:
        at = 20 + _WIDTH * float(scale.place(np.array(tick)))
        parts.append(_name(at, 28, label(float(f"{tick:.3g}")), "middle"))
    parts.append(_name(20 + _WIDTH / 2, 44, what, "middle"))
    size = (_WIDTH + 40, 50.0)
    return f'<div class="bar">\n{picture("".join(parts), size, f"Colours: {what}")}\n</div>'
