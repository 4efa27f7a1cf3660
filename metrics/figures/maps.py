"""Maps of scores, skill and bias, of grids or stations, with coastlines if cartopy is installed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

from ens10.errors import ArgumentError
from ens10.grid import is_global
from ens10.metrics.figures.style import STYLE, WIDTH, by_title, new_figure
from ens10.stations import STATION

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
    clipped: Floats = np.clip(edges, -limit, limit)
    return clipped


def unwrap_columns(longitude: npt.ArrayLike) -> tuple[npt.NDArray[np.intp], Floats]:
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


@dataclass(frozen=True, eq=False)
class MapGrid:
    """Where the values of maps are drawn: cells of a grid, or stations.

    Attributes:
        columns: order of the columns from west to east; None for stations.
        east: longitudes of columns or stations, ascending for columns, without a gap at 0 or 180.
        north: latitudes of rows or stations.
        x: edges of the columns, or limits of the map.
        y: edges of the rows, or limits of the map.
    """

    columns: npt.NDArray[np.intp] | None
    east: Floats
    north: Floats
    x: Floats
    y: Floats

    @property
    def stretch(self) -> float:
        """Height of a degree of latitude by the width of one of longitude; 1 for a global map."""
        middle = np.cos(np.deg2rad((self.y[0] + self.y[-1]) / 2))
        return 1.0 if np.ptp(self.x) > 180 else float(1.0 / max(middle, 0.2))

    @property
    def shape(self) -> float:
        """Height of a map by its width, within what a page can show."""
        return float(np.clip(self.stretch * np.ptp(self.y) / np.ptp(self.x), 0.3, 1.6))

    def values(self, field: xr.DataArray) -> Any:
        """Return the values of a map, of any type, with columns from west to east."""
        if self.columns is None:
            return field.to_numpy()
        return field.transpose("latitude", "longitude").to_numpy()[:, self.columns]

    def draw(self, axes: Axes, values: Floats, colours: ScalarMappable, **options: Any) -> None:
        """Draw `values` with ticks at round degrees.

        Args:
            axes: of the map.
            values: as `values` returns them; points that are not finite have the colour of gaps.
            colours: norm and colours.
            **options: of `pcolormesh`.
        """
        norm: Any = colours.norm
        if self.columns is None:
            draw_stations(axes, self.east, self.north, values, norm, colours.cmap)
            axes.set(xlim=self.x, ylim=self.y)
        else:
            masked = np.ma.masked_invalid(values)
            axes.pcolormesh(self.x, self.y, masked, norm=norm, cmap=colours.cmap, **options)
        axes.set_aspect(self.stretch)
        set_ticks(axes, self.x, self.y)

    def mark(self, axes: Axes, where: npt.NDArray[np.bool_]) -> None:
        """Draw dots on some points, on a grid thinned so that they remain distinguishable."""
        dots: dict[str, Any] = {"linestyle": "none", "marker": ".", "color": "0.25"}
        if self.columns is None:
            axes.plot(self.east[where], self.north[where], **dots, markersize=1.2)
            return
        rows, columns = (max(1, n // 60) for n in where.shape)
        i, j = np.nonzero(where[::rows, ::columns])
        middles = ((edges[:-1] + edges[1:]) / 2 for edges in (self.x, self.y))
        east, north = next(middles)[::columns][j], next(middles)[::rows][i]
        axes.plot(east, north, **dots, markersize=1.2)


def map_grid(field: xr.DataArray) -> MapGrid:
    """Return where the values of a map are drawn.

    Args:
        field: over latitude and longitude, or over `station` with the coordinates `lat`, `lon`.
    """
    stations = STATION in field.dims
    order, east = unwrap_columns(field["lon" if stations else "longitude"])
    if not stations:
        north = field["latitude"].to_numpy().astype(np.float64)
        return MapGrid(order, east, north, cell_edges(east), cell_edges(north, 90.0))
    places, north = np.empty(order.size), field["lat"].to_numpy().astype(np.float64)
    places[order] = east
    x, y = (
        np.array([v.min(), v.max()]) + max(0.06 * np.ptp(v), 0.5) * np.array([-1.0, 1.0])
        for v in (places, north)
    )
    return MapGrid(None, places, north, x, np.clip(y, -90.0, 90.0))


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


Signed = Literal["better", "deviation", "no"]
_COLOURS = {"better": "RdBu", "deviation": "RdBu_r", "no": "viridis"}


def score_maps(
    fields: Mapping[str, xr.DataArray] | xr.DataArray,
    label: str,
    *,
    signed: Signed,
    limit: float | None = None,
    significant: Mapping[str, xr.DataArray] | None = None,
    coasts: bool | None = None,
) -> Figure:
    """Draw maps, one panel per field, with one colour bar; missing points are grey.

    Args:
        fields: over latitude and longitude (a global or regional grid), or over `station` with the
            coordinates `lat` and `lon`, each station a point; or several on one grid, by title.
        label: label of the colour bar, with the unit.
        signed: "better" for skill (blue is above 0), "deviation" for a bias (red is above 0),
            "no" for scores of 0 and above.
        limit: end of the colour scale; None for a round number that covers nearly all points.
        significant: by title, True where a field is significant: all other points are dotted.
        coasts: True to draw coastlines, which needs cartopy; None to draw them if it is installed.

    Returns:
        The figure.

    Raises:
        ArgumentError: no fields, other dimensions, or coasts without cartopy.
    """
    fields = by_title(fields)
    if not fields:
        raise ArgumentError("fields", "there are none to draw")
    for name, field in fields.items():
        if set(field.dims) not in ({"latitude", "longitude"}, {STATION}):
            raise ArgumentError("fields", f"{name} has the dimensions {field.dims}", "Pass maps")
    projection = _projection(coasts)
    with mpl.rc_context(STYLE):
        return _draw_figure(fields, label, signed, limit, significant or {}, projection)


def _projection(coasts: bool | None) -> Any:
    """Return cartopy's module of projections, or None to draw without coastlines."""
    if coasts is False:
        return None
    try:
        return import_module("cartopy.crs")
    except ImportError as error:
        if coasts:
            raise ArgumentError(
                "coasts", "cartopy is not installed", "pip install cartopy"
            ) from error
        return None


def _draw_figure(
    fields: Mapping[str, xr.DataArray],
    label: str,
    signed: Signed,
    limit: float | None,
    significant: Mapping[str, xr.DataArray],
    crs: Any,
) -> Figure:
    grid = map_grid(next(iter(fields.values())))
    across = min(len(fields), 2 if len(fields) < 7 else 3)
    down = -(-len(fields) // across)
    panel = (WIDTH - 0.6) / across * (0.62 if across == 1 else 1.0)
    figure = new_figure(0.95 + down * (0.35 + grid.shape * (panel - 0.2)))
    kind = {"projection": crs.PlateCarree()} if crs else {}
    panels = figure.subplots(down, across, squeeze=False, subplot_kw=kind).ravel()
    arrays = {name: grid.values(field).astype(np.float64) for name, field in fields.items()}
    finite = finite_values(arrays.values())
    top = limit if limit is not None else nice_limit(finite, signed == "better")
    colours, extend = colour_scale(finite, _COLOURS[signed], -top if signed != "no" else 0.0, top)
    for n, (axes, (name, values)) in enumerate(zip(panels, arrays.items(), strict=False)):
        grid.draw(axes, values, colours)
        if name in significant:
            grid.mark(axes, ~grid.values(significant[name]) & np.isfinite(values))
        axes.set_title(name, loc="left")
        axes.tick_params(labelleft=n % across == 0, labelbottom=n + across >= len(fields))
        axes.spines[["top", "right"]].set_visible(True) if not crs else axes.coastlines(lw=0.5)
    for axes in panels[len(fields) :]:
        axes.set_visible(False)
    maps = list(panels[: len(fields)])
    bar = figure.colorbar(colours, ax=maps, location="bottom", shrink=0.6, aspect=40, extend=extend)
    bar.set_label(label)
    return figure


def draw_stations(
    axes: Axes, east: Floats, north: Floats, values: Any, norm: Any, colours: Colormap
) -> None:
    """Draw a disc of its colour for each station; fewer stations have larger discs.

    Args:
        axes: of the map.
        east: longitudes, (N,).
        north: latitudes, (N,).
        values: (N,), NaN where missing.
        norm: from values to colours.
        colours: the colours.
    """
    size = float(np.clip(2000.0 / max(1, east.size), 6.0, 60.0))
    axes.scatter(
        east, north, s=size, c=np.ma.masked_invalid(values), norm=norm, cmap=colours,
        plotnonfinite=True, edgecolors="0.35", linewidths=0.4,
    )  # fmt: skip


def finite_values(arrays: Iterable[Any]) -> Floats:
    """Return the finite values of arrays or DataArrays, one after the other."""
    values = np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays])
    finite: Floats = values[np.isfinite(values)]
    return finite


def colour_scale(
    values: Floats, colours: str, low: float, high: float
) -> tuple[ScalarMappable, str]:
    """Return colours between two values, grey for gaps, and `extend` of their colour bar.

    Args:
        values: finite values that are drawn.
        colours: name of matplotlib.
        low: value of the first colour.
        high: value of the last colour.
    """
    beyond = (bool((values < low).any()), bool((values > high).any()))
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max"}
    cmap = mpl.colormaps[colours].with_extremes(bad="0.75")
    return ScalarMappable(Normalize(low, high), cmap), extend.get(beyond, "both")


def nice_limit(values: Floats, positive: bool) -> float:
    """Return a round number that covers nearly all absolute values.

    Args:
        values: finite values.
        positive: True to consider positive values only: skill has no lower bound, so that a
            forecast much worse than the reference would otherwise use up the colour scale. At
            least half of all points are within the limit.
    """
    sizes = np.abs(values)
    some = values[values > 0] if positive else sizes
    most = max(
        float(np.percentile(some, 98)) if some.size else 0.0,
        float(np.median(sizes)) if sizes.size else 0.0,
    )
    if most <= 0.0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(most))
    return float(next(n * power for n in (1, 1.5, 2, 3, 4, 5, 7.5, 10) if n * power >= most))
