"""Figures as SVG inside a page: in its colours, light or dark, and its fonts."""

import io
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from ens10.metrics.figures.style import BLUE, GREY, INK, ORANGE, STYLE

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
    "axes.facecolor": "none", "figure.facecolor": "none",
}  # fmt: skip


def nice_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Return round numbers within bounds, at most so many (or two more)."""
    if not high > low:
        return [low]
    found = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    slack = 1e-9 * (high - low)
    return [float(t) for t in found if low - slack <= t <= high + slack]


def label(value: float, _: object = None) -> str:
    """Return a number as it stands on an axis, with a minus that is one."""
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


def svg(axes: Axes, words: str) -> Markup:
    """Return a figure as an SVG element that is as wide as its box.

    What only a file by itself needs is left out: metadata, identifiers, which have to be unique in
    a page, and fonts.

    Args:
        axes: with all that is drawn.
        words: what stands in its place for those who do not see it.
    """
    for artist in axes.findobj():
        artist.set_clip_on(False)  # clipping needs identifiers
    file = io.StringIO()
    axes.figure.canvas.print_figure(file, format="svg", metadata={"Date": None})
    drawn = ElementTree.fromstring(file.getvalue())
    shapes = {f"#{part.get('id')}": part.get("d", "") for part in drawn.iter(f"{_SVG}path")}
    kept = {"class": "chart", "viewBox": drawn.attrib["viewBox"], "role": "img"}
    made = ElementTree.Element("svg", {**kept, "aria-label": words})
    made.extend(_parts(drawn, shapes))
    return Markup(ElementTree.tostring(made, encoding="unicode"))


def _parts(node: ElementTree.Element, shapes: Mapping[str, str]) -> list[ElementTree.Element]:
    """Return what is drawn, out of its groups; markers become paths by the names in `shapes`."""
    tag = node.tag.removeprefix(_SVG)
    if tag in ("svg", "g"):
        return [part for child in node for part in _parts(child, shapes)]
    found = {name.rpartition("}")[2]: value for name, value in node.attrib.items() if name != "id"}
    found["style"] = _restyled(found.get("style", ""))
    if tag in ("metadata", "defs") or found["style"] == "fill: none":  # an empty background
        return []
    if tag == "image":
        found["href"] = _with_palette(found["href"])
    elif tag == "text":
        del found["transform"]  # rotated by nothing
    elif tag == "use":
        place = f"translate({found.pop('x')} {found.pop('y')})"
        tag, found = "path", found | {"d": shapes[found.pop("href")], "transform": place}
    made = ElementTree.Element(tag, found)
    made.text = node.text
    return [made]


def _restyled(style: str) -> str:
    parts = [part.strip() for part in style.split(";")]
    made = "; ".join(part for part in parts if part and not part.startswith("font"))
    for colour, name in _VARIABLES.items():
        made = made.replace(colour.lower(), f"var(--{name})")
    return made


def _with_palette(address: str) -> str:
    """Return the address of an image with a byte a pixel: maps have less than 256 colours."""
    image = Image.open(io.BytesIO(b64decode(address.partition(",")[2])))
    file = io.BytesIO()
    image.convert("RGB").quantize(256).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + b64encode(file.getvalue()).decode("ascii")
