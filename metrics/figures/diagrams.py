"""Diagrams of scores: reliability, ROC, histograms, and scores along latitude or lead time."""

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import bdtr, bdtrik

from ens10.errors import ArgumentError, MissingDataError, listing
from ens10.metrics.figures.maps import degrees
from ens10.metrics.figures.style import (
    BLUE,
    GREY,
    INK,
    STYLE,
    by_title,
    in_units,
    line_style,
    new_figure,
)

_ACROSS = 3
Fields = Mapping[str, xr.DataArray] | xr.DataArray  # one, or several by title
Diagrams = Mapping[str, xr.Dataset] | xr.Dataset


def reliability_figure(diagrams: Diagrams) -> Figure:
    """Draw reliability diagrams, one panel per forecast.

    The bars are consistency bands: where a reliable forecast's points lie by chance. Below
    each panel is a histogram of the forecast probabilities.

    Args:
        diagrams: Dataset of `ens10.metrics.events.reliability_diagram`, over `bin`; or several, by
            title.

    Raises:
        ArgumentError: no diagrams.
        MissingDataError: a Dataset lacks a variable.
    """
    diagrams = by_title(diagrams)
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
            _draw_sharpness(grid[2 * row + 1, column], diagram)
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
    finite = np.isfinite(p) & np.isfinite(o)
    axes.plot(p[finite], o[finite], "o-", color=colour, markersize=3.5, linewidth=1)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])


def _draw_sharpness(axes: Axes, diagram: xr.Dataset) -> None:
    p, share = (diagram[v].to_numpy() for v in ("forecast_mean", "share"))
    axes.vlines(p, 0, share, color=INK, linewidth=3)
    axes.set_ylim(0, max(0.05, 1.1 * float(np.nanmax(share, initial=0.0))))


def roc_figure(curves: Diagrams) -> Figure:
    """Draw ROC curves, one line per forecast, with the area under the curve in the legend.

    Args:
        curves: Dataset of `ens10.metrics.events.roc_curve`, over `threshold`; or several, by name.

    Raises:
        ArgumentError: no curves.
        MissingDataError: a Dataset lacks a variable.
    """
    curves = by_title(curves)
    _check(curves, ("hit_rate", "false_alarm_rate", "area"), "threshold")
    with mpl.rc_context(STYLE):
        figure = new_figure(3.2, 5.2)
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
        for n, (name, curve) in enumerate(curves.items()):
            hits, alarms = (curve[v].to_numpy() for v in ("hit_rate", "false_alarm_rate"))
            order = np.lexsort((hits, alarms))
            label = f"{name}: {float(curve['area']):.3f}"
            axes.plot(alarms[order], hits[order], marker=".", label=label, **line_style(n))
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


def histogram_figure(
    counts: Mapping[str, xr.DataArray | xr.Dataset] | Fields | xr.Dataset,
    *,
    cases: int | None = None,
    confidence: float = 0.9,
    colours: Mapping[str, str] | None = None,
) -> Figure:
    """Draw rank or PIT histograms, as frequencies relative to a flat histogram (the line at 1).

    Args:
        counts: over `rank` (whole numbers) or `pit_bin` (in [0, 1]), or a Dataset that holds them,
            such as those of `rank_histogram`, `pit_histogram` and `verify`; or several, by title.
        cases: effective number of independent cases, for a band that contains the bins of a
            calibrated forecast. Errors of neighbouring points are correlated, so that it is near
            the number of dates, not that of points; None for no band.
        confidence: coverage of the band for each single bin.
        colours: by title; blue by default.

    Raises:
        ArgumentError: no counts, or of another dimension.
    """
    fields = {title: _counts_of(one) for title, one in by_title(counts).items()}
    if not fields:
        raise ArgumentError("counts", "there are none to draw")
    for name, field in fields.items():
        if field.dims not in (("rank",), ("pit_bin",)):
            raise ArgumentError("counts", f"{name} has the dimensions {field.dims}")
    with mpl.rc_context(STYLE):
        across = min(_ACROSS, len(fields))
        down = -(-len(fields) // across)
        figure = new_figure(0.4 + 1.65 * down)
        grid = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
        for axes, (name, field) in zip(grid, fields.items(), strict=False):
            histogram_panel(axes, field, (colours or {}).get(name, BLUE))
            if cases:
                axes.axhspan(*_band(field.size, cases, confidence), color="0.88", zorder=0)
            axes.set_title(name, loc="left")
        for axes in grid[len(fields) :]:
            axes.set_visible(False)
        grid[0].set_ylim(bottom=0)
        figure.supylabel("frequency, 1 if calibrated", fontsize=9)
    return figure


def _counts_of(counts: xr.DataArray | xr.Dataset) -> xr.DataArray:
    """Return the counts of a Dataset: of ranks if it has them, otherwise of the PIT."""
    if isinstance(counts, xr.DataArray):
        return counts
    for name in ("rank_count", "pit_count", "count"):
        if name in counts and counts[name].dims in (("rank",), ("pit_bin",)):
            return counts[name]
    reason = f"no counts over rank or pit_bin, only {listing([str(name) for name in counts])}"
    raise ArgumentError("counts", reason)


def relative_frequency(field: xr.DataArray) -> npt.NDArray[np.float64]:
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
    frequency, ranks = np.minimum(relative_frequency(field), top), field.dims == ("rank",)
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


_PARALLELS = (-90, -60, -45, -30, -15, 0, 15, 30, 45, 60, 90)


def latitude_figure(scores: Fields, *, label: str | None = None, zero: bool = False) -> Figure:
    """Draw scores by latitude, on an axis in which equal areas of the Earth have equal length.

    Args:
        scores: over latitude; or several, by name.
        label: label of the scores' axis; None for the first one's `long_name` and `units`.
        zero: True to draw a line at 0, for skill and bias.

    Raises:
        ArgumentError: no scores, or other dimensions.
    """
    scores = by_title(scores)
    if not scores:
        raise ArgumentError("scores", "there are none to draw")
    for name, field in scores.items():
        if field.dims != ("latitude",):
            raise ArgumentError("scores", f"{name} has the dimensions {field.dims}")
    with mpl.rc_context(STYLE):
        figure = new_figure(3.4)
        axes = figure.subplots()
        for n, (name, field) in enumerate(scores.items()):
            north = np.sin(np.deg2rad(field["latitude"].to_numpy()))
            axes.plot(field.to_numpy(), north, label=name, **line_style(n))
        if zero:
            axes.axvline(0.0, color=GREY, linewidth=1)
        low, high = (np.sin(np.deg2rad(f(*_end_latitudes(scores)))) for f in (min, max))
        ticks = [p for p in _PARALLELS if low - 1e-9 <= np.sin(np.deg2rad(p)) <= high + 1e-9]
        axes.set_yticks(np.sin(np.deg2rad(ticks)), [degrees(p, "NS") for p in ticks])
        axes.set_ylim(low, high)
        first = next(iter(scores.values()))
        long_name = str(first.attrs.get("long_name", first.name or "score"))
        axes.set_xlabel(label or long_name + in_units(str(first.attrs.get("units", ""))))
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _end_latitudes(scores: Mapping[str, xr.DataArray]) -> tuple[float, ...]:
    rows = [float(e) for f in scores.values() for e in f["latitude"].to_numpy()[[0, -1]]]
    return tuple(rows)


def spread_error_figure(
    scores: Diagrams, *, along: str = "step", units: str | None = None
) -> Figure:
    """Draw RMSE (solid) and spread (dashed) by lead time, one colour per forecast.

    Args:
        scores: Dataset with `rmse` and `spread_error` (the ratio spread / error) over `along`,
            such as `verify(..., by=["step"])`; or several, by name.
        along: the dimension of the axis.
        units: units of `along`; None for those of its coordinate.

    Raises:
        ArgumentError: no scores.
        MissingDataError: a Dataset lacks one of the two, or the dimension.
    """
    scores = by_title(scores)
    if not scores:
        raise ArgumentError("scores", "there are none to draw")
    for name, dataset in scores.items():
        absent = [v for v in ("rmse", "spread_error") if v not in dataset]
        absent += [] if along in dataset.dims else [f"dimension {along}"]
        if absent:
            raise MissingDataError(f"scores of {name}", absent)
    with mpl.rc_context(STYLE):
        figure = new_figure(2.9)
        axes = figure.subplots()
        for n, (name, dataset) in enumerate(scores.items()):
            colour = line_style(n)["color"]
            error = dataset["rmse"].to_numpy()
            axes.plot(dataset[along], error, "o-", color=colour, label=name, markersize=4)
            spread = error * dataset["spread_error"].to_numpy()
            axes.plot(dataset[along], spread, "s--", color=colour, markersize=3.5, mfc="white")
        axes.plot([], [], "o-", color=GREY, label="error", markersize=4)
        axes.plot([], [], "s--", color=GREY, label="spread", markersize=3.5, mfc="white")
        first = next(iter(scores.values()))
        axes.set_ylim(bottom=0)
        axes.set_xticks(first[along].to_numpy())
        where = str(first[along].attrs.get("units", "")) if units is None else units
        axes.set_xlabel(along + in_units(where))
        axes.set_ylabel("RMSE, spread" + in_units(str(first["rmse"].attrs.get("units", ""))))
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure
