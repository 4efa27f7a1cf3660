"""A score card: a table of skill scores, with marks where they are significant."""

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ens10.errors import ArgumentError
from ens10.metrics.figures.maps import nice_limit
from ens10.metrics.figures.style import STYLE, WIDTH, new_figure

_BETTER, _WORSE = "▲", "▼"


def score_card(
    skill: xr.DataArray,
    lower: xr.DataArray,
    upper: xr.DataArray,
    *,
    label: str = "CRPSS (%)",
    limit: float | None = None,
) -> Figure:
    """Draw a table of skill scores: blue is better than the reference, red worse.

    A triangle marks a cell whose confidence interval excludes 0: up for better, down for worse.

    Args:
        skill: over two dimensions with coordinates (rows and columns), in percent; NaN for cells
            that were not scored.
        lower: lower confidence bounds, same shape.
        upper: upper confidence bounds, same shape.
        label: label of the colour bar.
        limit: end of the colour scale; None for a round number.

    Raises:
        ArgumentError: other than two dimensions, or bounds that do not fit.
    """
    if skill.ndim != 2:
        raise ArgumentError("skill", f"expected rows and columns, got dimensions {skill.dims}")
    for name, bound in (("lower", lower), ("upper", upper)):
        if bound.dims != skill.dims or bound.shape != skill.shape:
            raise ArgumentError(name, f"has {bound.dims} of {bound.shape}, unlike skill")
    values = skill.to_numpy().astype(np.float64)
    marks = np.where(lower.to_numpy() > 0, _BETTER, np.where(upper.to_numpy() < 0, _WORSE, ""))
    top = nice_limit(values[np.isfinite(values)], positive=True) if limit is None else limit
    rows, columns = values.shape
    with mpl.rc_context(STYLE):
        wide = min(WIDTH, 1.7 + 0.85 * columns)
        figure = new_figure(0.9 + 0.27 * rows, wide)
        axes = figure.subplots()
        cmap = mpl.colormaps["RdBu"].with_extremes(bad="0.9")
        colours = ScalarMappable(Normalize(-top, top), cmap)
        axes.pcolormesh(
            np.ma.masked_invalid(values), norm=Normalize(-top, top), cmap=cmap,
            edgecolors="white", linewidth=1.5,
        )  # fmt: skip
        for i, j in np.ndindex(rows, columns):
            if np.isfinite(values[i, j]):
                strong = abs(values[i, j]) > 0.6 * top
                text = f"{values[i, j]:+.1f} {marks[i, j]}".rstrip().replace("-", "−")
                colour = "white" if strong else "black"
                axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", size=8, color=colour)
        names = [[str(v) for v in skill[dim].to_numpy()] for dim in skill.dims]
        axes.set_yticks(np.arange(rows) + 0.5, names[0])
        axes.set_xticks(np.arange(columns) + 0.5, names[1])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.invert_yaxis()
        beyond = bool((np.abs(values[np.isfinite(values)]) > top).any())
        bar = figure.colorbar(
            colours, ax=axes, location="bottom", shrink=0.6, aspect=40,
            extend="both" if beyond else "neither",
        )  # fmt: skip
        bar.set_label(f"{label}; {_BETTER} better, {_WORSE} worse than the reference, significant")
    return figure
