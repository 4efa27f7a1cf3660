"""Style of all figures: text-column width, light axes, colour-blind safe colours."""

import io
from collections.abc import Mapping
from typing import Any

import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_DPI = 150
WIDTH = 7.2  # inches: a text column, at 9 pt
BLUE, ORANGE, GREY, INK = "#0072B2", "#D55E00", "#7F7F7F", "#222222"
# Okabe and Ito (2008): told apart with any colour vision
COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.")  # when the colours come round again
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure, without pyplot and its global state."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def png(figure: Figure) -> bytes:
    """Return a figure as PNG; the same figure gives the same bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, bbox_inches="tight", metadata={"Software": None})
    return file.getvalue()


def by_title(data: Any) -> Mapping[str, Any]:
    """Return data by title; a single Dataset or DataArray is titled "forecast"."""
    return {"forecast": data} if isinstance(data, xr.Dataset | xr.DataArray) else data


def in_units(units: str) -> str:
    """Return a unit as suffix of an axis label; "" for the units "" and "1"."""
    return f" ({units})" if units not in ("", "1") else ""


def line_style(n: int) -> dict[str, Any]:
    """Return colour and line style of the n-th curve of a figure."""
    cycle, place = divmod(n, len(COLOURS))
    return {"color": COLOURS[place], "linestyle": LINES[cycle % len(LINES)]}
