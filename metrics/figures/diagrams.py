"""Reliability and ROC diagrams."""

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ens10.errors import ArgumentError, MissingDataError
from ens10.metrics.figures.style import BLUE, GREY, INK, STYLE, look, new_figure

_ACROSS = 3


def reliability_figure(diagrams: Mapping[str, xr.Dataset]) -> Figure:
    """Draw reliability diagrams, one panel per forecast.

    The bars are consistency bands: where a reliable forecast's points lie by chance. Below
    each panel is a histogram of the forecast probabilities.

    Args:
        diagrams: by title, Datasets of `ens10.metrics.events.reliability_diagram`, over `bin`.

    Raises:
        ArgumentError: no diagrams.
        MissingDataError: a Dataset lacks a variable.
    """
    _check(diagrams, ("forecast_mean", "observed_frequency", "share"), "bin")
    with mpl.rc_context(STYLE):
        across = min(_ACROSS, len(diagrams))
        down = -(-len(diagrams) // across)
        figure = new_figure(0.3 + 3.0 * down, 7.2 if across > 1 else 3.4)
        grid = figure.subplots(
            2 * down, across, squeeze=False, sharex=True, height_ratios=[3.2, 1] * down
        )
        for n, (name, diagram) in enumerate(diagrams.items()):
            row, column = divmod(n, across)
            reliability_panel(grid[2 * row, column], diagram)
            _sharpness(grid[2 * row + 1, column], diagram)
            grid[2 * row, column].set_title(name, loc="left")
            if column == 0:
                grid[2 * row, 0].set_ylabel("observed frequency")
                grid[2 * row + 1, 0].set_ylabel("share")
        for n in range(len(diagrams), down * across):
            row, column = divmod(n, across)
            grid[2 * row, column].set_visible(False)
            grid[2 * row + 1, column].set_visible(False)
        figure.supxlabel("forecast probability", fontsize=9)
    return figure


def reliability_panel(axes: Axes, diagram: xr.Dataset, colour: str = BLUE) -> None:
    """Draw one diagram, without its axis labels.

    Args:
        axes: where to draw.
        diagram: a Dataset of `ens10.metrics.events.reliability_diagram`.
        colour: colour of the curve.
    """
    p, o = (diagram[v].to_numpy() for v in ("forecast_mean", "observed_frequency"))
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    if "band_lower" in diagram:
        axes.vlines(p, diagram["band_lower"], diagram["band_upper"], color="0.8", linewidth=5)
    known = np.isfinite(p) & np.isfinite(o)
    axes.plot(p[known], o[known], "o-", color=colour, markersize=3.5, linewidth=1)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])


def _sharpness(axes: Axes, diagram: xr.Dataset) -> None:
    p, share = (diagram[v].to_numpy() for v in ("forecast_mean", "share"))
    axes.vlines(p, 0, share, color=INK, linewidth=3)
    axes.set_ylim(0, max(0.05, 1.1 * float(np.nanmax(share, initial=0.0))))


def roc_figure(curves: Mapping[str, xr.Dataset]) -> Figure:
    """Draw ROC curves, one line per forecast, with the area under the curve in the legend.

    Args:
        curves: by name, Datasets of `ens10.metrics.events.roc_curve`, over `threshold`.

    Raises:
        ArgumentError: no curves.
        MissingDataError: a Dataset lacks a variable.
    """
    _check(curves, ("hit_rate", "false_alarm_rate", "area"), "threshold")
    with mpl.rc_context(STYLE):
        figure = new_figure(3.2, 5.2)
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
        for n, (name, curve) in enumerate(curves.items()):
            hits, alarms = (curve[v].to_numpy() for v in ("hit_rate", "false_alarm_rate"))
            order = np.lexsort((hits, alarms))
            label = f"{name}: {float(curve['area']):.3f}"
            axes.plot(alarms[order], hits[order], marker=".", label=label, **look(n))
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_aspect("equal")
        axes.set_xlabel("false alarm rate")
        axes.set_ylabel("hit rate")
        axes.grid()
        axes.legend(title="area", loc="center left", bbox_to_anchor=(1.01, 0.5), alignment="left")
    return figure


def _check(datasets: Mapping[str, xr.Dataset], names: tuple[str, ...], dim: str) -> None:
    if not datasets:
        raise ArgumentError("diagrams", "there are none to draw")
    for name, dataset in datasets.items():
        absent = [v for v in names if v not in dataset]
        if absent:
            raise MissingDataError(f"diagram of {name}", absent)
        if dataset[names[0]].dims != (dim,):
            raise ArgumentError(
                "diagrams", f"{name} has the dimensions {dataset[names[0]].dims}", "Select one"
            )
