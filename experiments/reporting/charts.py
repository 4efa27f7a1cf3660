"""Charts and maps of a report, as SVG and images inside the page."""

import io
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import xarray as xr
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from ens10.experiments.reporting.figures import loss_curves
from ens10.experiments.scoring.run_results import FinishedRun
from ens10.metrics import Interval
from ens10.metrics.figures.diagrams import histogram_panel, relative_frequency, reliability_panel
from ens10.metrics.figures.maps import finite_values, map_grid, nice_limit, set_ticks
from ens10.metrics.figures.style import BLUE, GREY, INK, ORANGE, STYLE
from ens10.stations import STATION

# variables of the page's style, by the colours of figures; other colours are left as they are
_SVG = "{http://www.w3.org/2000/svg}"
_EDGE = "#838d98"
_VARIABLES = {
    BLUE: "mark", ORANGE: "other", GREY: "ink", INK: "ink", _EDGE: "edge", "#dddddd": "line",
    "#cccccc": "band",
}  # fmt: skip
# At 72 dpi a unit is a pixel. Text stays text; a run's name is not a formula.
PAGE_STYLE: dict[Any, Any] = STYLE | {
    "svg.fonttype": "none", "svg.hashsalt": "ens10", "text.parse_math": False, "font.size": 11,
    "xtick.labelsize": 11, "ytick.labelsize": 11, "xtick.major.size": 0, "ytick.major.size": 0,
    "xtick.major.pad": 5, "ytick.major.pad": 4, "axes.edgecolor": _EDGE, "axes.spines.left": False,
    "axes.facecolor": "none", "figure.facecolor": "none", "figure.constrained_layout.use": False,
}  # fmt: skip


def nice_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Return round numbers within bounds, about `most` of them (at most two more)."""
    if not high > low:
        return [low]
    ticks = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    slack = 1e-9 * (high - low)
    return [float(t) for t in ticks if low - slack <= t <= high + slack]


def label(value: float, _: object = None) -> str:
    """Return a number as the label of an axis tick, with a proper minus sign."""
    return f"{0.0 if abs(value) < 1e-12 else value:.6g}".replace("-", "−")


def axes_of(
    width: float, height: float, *, left: float = 34, right: float = 8, bottom: float = 20,
    top: float = 8,
) -> Axes:  # fmt: skip
    """Return axes of a picture with margins for labels; lengths are pixels."""
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    shares = (left / width, bottom / height, 1 - (left + right) / width)
    axes = figure.add_axes((*shares, 1 - (bottom + top) / height))
    axes.xaxis.set_major_formatter(label)
    axes.yaxis.set_major_formatter(label)
    return axes


def svg(axes: Axes, alt_text: str) -> Markup:
    """Return a figure as an SVG element that is as wide as its box.

    Metadata, fonts and identifiers, which must be unique in a page, are left out.

    Args:
        axes: of the finished figure.
        alt_text: description for readers who do not see it.
    """
    for artist in axes.findobj():
        artist.set_clip_on(False)  # clipping needs identifiers
    file = io.StringIO()
    axes.figure.canvas.print_figure(file, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    shapes = {f"#{part.get('id')}": part.get("d", "") for part in root.iter(f"{_SVG}path")}
    attributes = {"class": "chart", "viewBox": root.attrib["viewBox"], "role": "img"}
    element = ElementTree.Element("svg", {**attributes, "aria-label": alt_text})
    element.extend(_parts(root, shapes))
    return Markup(ElementTree.tostring(element, encoding="unicode"))


def _parts(node: ElementTree.Element, shapes: Mapping[str, str]) -> list[ElementTree.Element]:
    """Return the drawn elements without their groups; markers become the paths of `shapes`."""
    tag = node.tag.removeprefix(_SVG)
    if tag in ("svg", "g"):
        return [part for child in node for part in _parts(child, shapes)]
    attrs = {name.rpartition("}")[2]: value for name, value in node.attrib.items() if name != "id"}
    attrs["style"] = _restyle(attrs.get("style", ""))
    if tag in ("metadata", "defs") or attrs["style"] == "fill: none":  # an empty background
        return []
    if tag == "image":
        attrs["href"] = _with_palette(attrs["href"])
    elif tag == "text":
        del attrs["transform"]  # rotated by nothing
    elif tag == "use":
        shift = f"translate({attrs.pop('x')} {attrs.pop('y')})"
        tag, attrs = "path", attrs | {"d": shapes[attrs.pop("href")], "transform": shift}
    element = ElementTree.Element(tag, attrs)
    element.text = node.text
    return [element]


def _restyle(style: str) -> str:
    parts = [part.strip() for part in style.split(";")]
    new_style = "; ".join(part for part in parts if part and not part.startswith("font"))
    for colour, name in _VARIABLES.items():
        new_style = new_style.replace(colour.lower(), f"var(--{name})")
    return new_style


def _with_palette(address: str) -> str:
    """Return the address of an image with a byte a pixel: maps have less than 256 colours."""
    image = Image.open(io.BytesIO(b64decode(address.partition(",")[2])))
    file = io.BytesIO()
    image.convert("RGB").quantize(256).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + b64encode(file.getvalue()).decode("ascii")


_STEEP = 4.0  # times what most losses are above the lowest: steeper beginnings are cut off
_FAR = 1.8  # times the median: values beyond would squeeze all others together


@dataclass(frozen=True)
class Dot:
    """One row of a chart of intervals.

    Attributes:
        name: of the forecast.
        value: with its bounds, which may be NaN.
        text: the value in words.
        reference: whether it is the reference.
    """

    name: str
    value: Interval
    text: str
    reference: bool = False


def interval_chart(
    dots: Sequence[Dot], axis: str, *, rule: float | None = None, rule_label: str = ""
) -> dict[str, Any]:
    """Return a chart of values with intervals, one row each, as data for the HTML template.

    Args:
        dots: the rows.
        axis: name of the axis, with units.
        rule: value at which a line is drawn through all rows.
        rule_label: what the line stands for.

    Returns:
        A mapping for the template. Positions are in percent of the axis from its left end, and from
        its right end for the upper bound (`high`).
    """
    low, high = _axis_limits(dots, rule)

    def place(value: float, *, back: bool = False) -> str | None:
        share = float(np.clip((value - low) / (high - low), 0, 1))
        return f"{100 * (1 - share if back else share):.2f}" if np.isfinite(value) else None

    rows = [
        {
            "name": dot.name,
            "reference": dot.reference,
            "told": dot.text,
            "beyond": dot.value.value > high,
            "place": place(dot.value.value),
            "low": place(dot.value.lower),
            "high": place(dot.value.upper, back=True),
        }
        for dot in dots
    ]
    ticks = {label(tick): place(tick) for tick in nice_ticks(low, high, 5)}
    line = None if rule is None else place(rule)
    return {"axis": axis, "ticks": ticks, "rule": line, "rule_told": rule_label, "rows": rows}


def _axis_limits(dots: Sequence[Dot], rule: float | None) -> tuple[float, float]:
    middle = float(np.median([dot.value.value for dot in dots]))
    near = [dot.value for dot in dots if dot.value.value <= _FAR * middle]
    values = [v for one in near for v in (one.value, one.lower, one.upper) if np.isfinite(v)]
    values += [] if rule is None else [rule]
    pad = 0.04 * (max(values) - min(values)) or 0.05 * abs(values[0]) or 1.0
    return min(values) - pad, max(values) + pad


@mpl.rc_context(PAGE_STYLE)
def histogram(counts: xr.DataArray, name: str, top: float, *, reference: bool) -> Markup:
    """Draw frequencies of ranks or PIT values, relative to a calibrated forecast's.

    Args:
        counts: over `rank` or `pit_bin`.
        name: of the forecast.
        top: end of the axis, one for all panels.
        reference: whether it is the reference.
    """
    axes = axes_of(180, 124)
    histogram_panel(axes, counts, ORANGE if reference else BLUE, top)
    axes.set_ylim(0, top)
    axes.set_yticks(nice_ticks(0.0, top, 3))
    axes.grid(axis="y")
    heights, kind = relative_frequency(counts), "Rank" if counts.dims == ("rank",) else "PIT"
    words = f"{kind} histogram of {name}: first bin {heights[0]:.2f}, last {heights[-1]:.2f}, "
    return svg(axes, words + f"between them {heights[1:-1].mean():.2f}; 1 is calibrated")


@mpl.rc_context(PAGE_STYLE)
def reliability(diagram: xr.Dataset, name: str, *, reference: bool) -> Markup:
    """Draw observed frequency against forecast probability, with consistency bars.

    Args:
        diagram: of `ens10.metrics.reliability_diagram`.
        name: of the forecast.
        reference: whether it is the reference.
    """
    axes = axes_of(180, 160)
    reliability_panel(axes, diagram, ORANGE if reference else BLUE)
    axes.grid(axis="y")
    pairs = np.stack([diagram[v].to_numpy() for v in ("forecast_mean", "observed_frequency")], 1)
    words = "; ".join(f"{p:.2f} {o:.2f}" for p, o in pairs[np.isfinite(pairs).all(axis=1)])
    return svg(axes, f"{name}: forecast probability and observed frequency: {words}")


@mpl.rc_context(PAGE_STYLE)
def curves(run: FinishedRun, ends: tuple[float, float]) -> Markup:
    """Draw training and validation loss by epoch; a dot at the lowest validation loss.

    Args:
        run: with a log.
        ends: of the axis of losses.
    """
    axes = axes_of(250, 150)
    best = loss_curves(axes, run, BLUE, ORANGE, ends=ends)
    first, last = run.log[0].number, run.log[-1].number
    axes.set_xlim(first, max(last, first + 1))
    axes.set_ylim(*ends)
    axes.set_xticks([t for t in nice_ticks(first, last, 5) if float(t).is_integer()])
    axes.set_yticks(nice_ticks(*ends, 4))
    axes.grid(axis="y")
    words = f"Learning curves of {run.name}: {len(run.log)} epochs"
    if best is not None:
        words += f", lowest validation loss {best.val_loss:.4g} in epoch {best.number}"
    return svg(axes, words)


def loss_limits(run: FinishedRun) -> tuple[float, float]:
    """Return axis limits for a run's losses, which cut off the steep first epochs."""
    all_losses = [v for e in run.log for v in (e.train_loss, e.val_loss) if v is not None]
    values = np.array([v for v in all_losses if np.isfinite(v)])
    if not values.size:
        return 0.0, 1.0
    low = float(values.min())
    high = min(float(values.max()), low + _STEEP * (float(np.percentile(values, 80)) - low))
    if not high > low:
        high = float(values.max())
    pad = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - pad, high + pad


Floats = npt.NDArray[np.float64]
Kind = Literal["better", "deviation", "ratio", "no"]
# distinct for any colour vision; diverging scales are white at their neutral value
_COLOURS = {"better": "RdBu", "deviation": "RdBu_r", "ratio": "PuOr_r", "no": "viridis"}
_SHADES = 127  # few colours make small files; an odd number of them has one in the middle
_GAP = "#969696"  # missing points
_MAX_COLUMNS = 360  # columns of an image: finer grids are averaged
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
        """Values with labels, from one end of the colours to the other."""
        top = self.limit
        if self.kind == "ratio":
            return [1 / top, 1.0, top]
        return [0.0, top / 2, top] if self.kind == "no" else [-top, -top / 2, 0.0, top / 2, top]

    @property
    def norm(self) -> Normalize:
        """Normalisation of values: the ends of the colours become 0 and 1."""
        return (LogNorm if self.kind == "ratio" else Normalize)(self.ticks[0], self.limit)

    @property
    def colours(self) -> Colormap:
        """The colours, and that of missing points."""
        return mpl.colormaps[_COLOURS[self.kind]].resampled(_SHADES).with_extremes(bad=_GAP)


def scale_of(fields: Sequence[xr.DataArray], kind: Kind) -> Scale:
    """Return one colour scale for several maps, which covers nearly all of their values."""
    values = finite_values(fields)
    if kind == "ratio":
        logs = np.abs(np.log(values[values > 0]))
        far = float(np.percentile(logs, 98)) if logs.size else 0.0
        return Scale(kind, next((n for n in (1.25, 1.5, 2.0, 3.0, 5.0) if np.log(n) >= far), 10.0))
    return Scale(kind, nice_limit(values, kind == "better"))


@mpl.rc_context(PAGE_STYLE)
def map_picture(field: xr.DataArray, scale: Scale, alt_text: str) -> Markup:
    """Draw a map with a few parallels and meridians.

    Args:
        field: over latitude and longitude, or over `station`, each station a point.
        scale: of its colours.
        alt_text: description for readers who do not see it.
    """
    if STATION not in field.dims:
        field = _coarsen(field.transpose("latitude", "longitude"))
    grid = map_grid(field)
    height = _WIDTH * grid.shape
    axes = axes_of(_WIDTH + 58, height + 26, right=24)
    if grid.columns is None:
        grid.draw(axes, field.to_numpy(), ScalarMappable(scale.norm, scale.colours))
        axes.set_aspect("auto")
    else:
        south, north = sorted((grid.y[0], grid.y[-1]))
        values = _regrid(grid.values(field).astype(np.float64), grid.x, grid.y)
        axes.imshow(
            np.clip(values, scale.ticks[0], scale.limit), scale.colours, scale.norm, aspect="auto",
            interpolation="none", extent=(grid.x[0], grid.x[-1], south, north),
        )  # fmt: skip
    set_ticks(axes, grid.x, grid.y)
    axes.grid(color="black", alpha=0.28)
    axes.set_axisbelow(False)
    axes.spines[:].set_visible(True)
    return svg(axes, alt_text)


def _coarsen(field: xr.DataArray) -> xr.DataArray:
    factor = -(-field.sizes["longitude"] // _MAX_COLUMNS)
    if factor == 1:
        return field
    sizes = {"latitude": factor, "longitude": factor}
    averaged: xr.DataArray = field.coarsen(sizes, boundary="pad").mean()
    return averaged


def _regrid(values: Floats, x: Floats, y: Floats) -> Floats:
    """Return a map with equal rows (north first) and columns (west first), by nearest cell."""
    if y[0] < y[-1]:
        values, y = values[::-1], y[::-1]
    regular: Floats = values[np.ix_(_nearest_cells(-y), _nearest_cells(x))]
    return regular


def _nearest_cells(edges: Floats) -> npt.NDArray[np.intp]:
    """Return the cell of each equal step between rising edges; a step fits the narrowest cell."""
    widths = np.diff(edges)
    number = int(min(2 * _MAX_COLUMNS, np.ceil(np.ptp(edges) / widths.min() - 1e-6)))
    middles = edges[0] + np.ptp(edges) * (np.arange(number) + 0.5) / number
    indices: npt.NDArray[np.intp] = np.searchsorted(edges, middles, side="right") - 1
    return np.clip(indices, 0, widths.size - 1)


@mpl.rc_context(PAGE_STYLE)
def colour_bar(scale: Scale, quantity: str) -> Markup:
    """Draw the colours of a scale with their values.

    Args:
        scale: of the maps.
        quantity: name of the quantity, with its units.
    """
    axes = axes_of(_WIDTH + 40, 32, left=20, right=20, bottom=18, top=2)
    axes.imshow(
        np.linspace(0, 1, _SHADES)[None], scale.colours, aspect="auto", interpolation="none",
        extent=(0, 1, 0, 1),
    )  # fmt: skip
    axes.set_xticks(scale.norm(scale.ticks), [label(float(f"{v:.3g}")) for v in scale.ticks])
    axes.set_yticks([])
    axes.spines[:].set_visible(True)
    return svg(axes, f"Colours: {quantity}")
