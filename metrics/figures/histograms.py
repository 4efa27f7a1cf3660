"""Rank and PIT histograms."""

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import bdtr, bdtrik

from ens10.errors import ArgumentError
from ens10.metrics.figures.style import BLUE, INK, STYLE, new_figure

_ACROSS = 3


def histogram_figure(
    counts: Mapping[str, xr.DataArray],
    *,
    cases: int | None = None,
    confidence: float = 0.9,
    colours: Mapping[str, str] | None = None,
) -> Figure:
    """Draw rank or PIT histograms, as frequencies relative to a flat histogram (the line at 1).

    Args:
        counts: by title, each over `rank` (whole numbers) or `pit_bin` (in [0, 1]).
        cases: effective number of independent cases, for a band that contains the bins of a
            calibrated forecast. Errors of neighbouring points are correlated, so that it is near
            the number of dates, not that of points; None for no band.
        confidence: coverage of the band for each single bin.
        colours: by title; blue by default.

    Raises:
        ArgumentError: no counts, or of another dimension.
    """
    if not counts:
        raise ArgumentError("counts", "there are none to draw")
    for name, field in counts.items():
        if field.dims not in (("rank",), ("pit_bin",)):
            raise ArgumentError("counts", f"{name} has the dimensions {field.dims}")
    with mpl.rc_context(STYLE):
        across = min(_ACROSS, len(counts))
        down = -(-len(counts) // across)
        figure = new_figure(0.4 + 1.65 * down)
        grid = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
        for axes, (name, field) in zip(grid, counts.items(), strict=False):
            histogram_panel(axes, field, (colours or {}).get(name, BLUE))
            if cases:
                axes.axhspan(*_band(field.size, cases, confidence), color="0.88", zorder=0)
            axes.set_title(name, loc="left")
        for axes in grid[len(counts) :]:
            axes.set_visible(False)
        grid[0].set_ylim(bottom=0)
        figure.supylabel("frequency, 1 if calibrated", fontsize=9)
    return figure


def relative(field: xr.DataArray) -> npt.NDArray[np.float64]:
    """Return the frequency of each bin relative to a calibrated forecast's."""
    counts = field.to_numpy().astype(np.float64)
    frequency: npt.NDArray[np.float64] = counts * counts.size / max(1, counts.sum())
    return frequency


def histogram_panel(axes: Axes, field: xr.DataArray, colour: str, top: float = np.inf) -> None:
    """Draw one histogram with the line of a calibrated forecast.

    Args:
        axes: where to draw.
        field: counts over `rank` or `pit_bin`.
        colour: of the bars.
        top: where higher bars are cut off.
    """
    frequency, ranks = np.minimum(relative(field), top), field.dims == ("rank",)
    bins = frequency.size
    edges = np.arange(bins + 1) - 0.5 if ranks else np.linspace(0, 1, bins + 1)
    axes.stairs(frequency, edges, fill=True, alpha=0.85, color=colour)
    axes.axhline(1.0, color=INK, linestyle="--", linewidth=1)
    axes.set_xlim(edges[0], edges[-1])
    if ranks:
        axes.set_xticks([0, (bins - 1) / 2, bins - 1] if bins % 2 else [0, bins - 1])
        axes.xaxis.set_major_formatter("{x:.0f}")
    else:
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])


def _band(bins: int, cases: int, confidence: float) -> tuple[float, float]:
    """Return binomial quantiles of one bin's frequency, relative to its expectation."""
    tail = (1 - confidence) / 2
    # the smallest k whose distribution function reaches the probability
    bounds = []
    for p in (tail, 1 - tail):
        k = max(0.0, np.ceil(float(bdtrik(p, cases, 1 / bins)) - 1e-9))
        bounds.append(k if bdtr(k, cases, 1 / bins) >= p else k + 1)
    return bounds[0] * bins / cases, bounds[1] * bins / cases
