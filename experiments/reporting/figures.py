"""The figures of reports and case studies, each drawn by one function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ens10.errors import UnknownNameError
from ens10.experiments.reporting.case import Event, ForecastMaps, area_mean
from ens10.experiments.scoring.run_results import Epoch, FinishedRun
from ens10.experiments.scoring.tables import ScoreRow
from ens10.metrics import finish_mean, reliability_diagram, roc_curve, summarise
from ens10.metrics.figures.card import score_card
from ens10.metrics.figures.diagrams import (
    histogram_figure,
    latitude_figure,
    reliability_figure,
    roc_figure,
)
from ens10.metrics.figures.maps import (
    MapGrid,
    colour_scale,
    finite_values,
    map_grid,
    nice_limit,
    score_maps,
)
from ens10.metrics.figures.style import (
    BLUE,
    COLOURS,
    GREY,
    INK,
    LINES,
    ORANGE,
    STYLE,
    WIDTH,
    in_units,
    new_figure,
)

# as on ECMWF's charts, where indices below 0.5 are left white
_EFI_BOUNDS = (-1, -0.9, -0.8, -0.7, -0.6, -0.5, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
_PANEL, _HIGHEST = 1.9, 1.8  # least width and most height of a panel, inches
_MOST_TICKS = 4  # what a narrow panel has room to name


def skill_maps(runs: Sequence[FinishedRun], reference: str = "raw") -> Figure | None:
    """Draw the CRPSS against the reference at each grid point, one panel a run.

    Blue is better than the reference and red worse; points without truth are grey.

    Args:
        runs: on one grid, the reference among them.
        reference: name of the run that skill is measured against.

    Returns:
        The figure, or None if there is no other run, or none kept its map.

    Raises:
        UnknownNameError: no run of that name.
    """
    reference_run = next((run for run in runs if run.name == reference), None)
    if reference_run is None:
        raise UnknownNameError("reference", reference, [run.name for run in runs])
    others = [run for run in runs if run is not reference_run and "crps_map_sum" in run.states]
    if not others or "crps_map_sum" not in reference_run.states:
        return None
    skills = {run.name: 100 * skill_map(run.states, reference_run.states) for run in others}
    return score_maps(skills, f"CRPSS against {reference} (%)", signed="better")


def skill_map(states: xr.Dataset, reference: xr.Dataset) -> xr.DataArray:
    """Return 1 - CRPS / reference CRPS at each point; NaN where the latter is 0 or missing."""
    reference_crps = finish_mean(reference, "crps_map")
    crps = finish_mean(states, "crps_map").assign_coords(reference_crps.coords)
    return 1.0 - crps / reference_crps.where(reference_crps > 0)


def crps_chart(rows: Sequence[ScoreRow]) -> Figure:
    """Draw the CRPS of each run with its interval, and the optimum as a line.

    Args:
        rows: of `score_table`.
    """
    with mpl.rc_context(STYLE):
        model_rows = [row for row in rows if row.kind != "optimum"]
        figure = new_figure(1.0 + 0.3 * len(rows))
        axes = figure.subplots()
        for place, row in enumerate(model_rows):
            reference = row.crpss is None and any(other.crpss for other in rows)
            _dot(axes, place, row, GREY if reference else BLUE)
        optimum = next((row for row in rows if row.kind == "optimum"), None)
        if optimum:
            axes.axvline(optimum.crps.value, color=INK, linestyle="--", linewidth=1)
            anchor = (optimum.crps.value, 1.0)
            axes.annotate(
                optimum.model,
                anchor,
                (0, 3),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
            )
        axes.set_yticks(range(len(model_rows)), [row.model for row in model_rows])
        axes.set_ylim(len(model_rows) - 0.4, -0.6)
        axes.margins(x=0.06)
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(f"CRPS{in_units(rows[0].units)}, {100 * rows[0].confidence:g} % interval")
    return figure


def _dot(axes: Axes, place: int, row: ScoreRow, colour: str) -> None:
    if np.isfinite(row.crps.lower):
        bounds = [row.crps.lower, row.crps.upper]
        axes.plot(bounds, [place, place], color=colour, linewidth=2.5, solid_capstyle="butt")
    axes.plot(row.crps.value, place, "o", color=colour, markersize=6, markeredgecolor="white")


def calibration(runs: Sequence[FinishedRun], reference: str = "raw") -> Figure | None:
    """Draw the rank histogram and PIT of the reference, then the PIT of each other run.

    Heights are frequencies relative to a calibrated forecast's, which is the line at 1. No band
    is drawn around it: neighbouring points err together, so that counts of points say nothing
    about how much chance would make of them.

    Returns:
        The figure, or None if no run kept its histograms.
    """
    panels = histograms_of(runs, reference)
    if not panels:
        return None
    counts = {f"{name}: {kind}": counts for name, kind, counts in panels}
    colours = {f"{name}: {kind}": ORANGE for name, kind, _ in panels if name == reference}
    return histogram_figure(counts, colours=colours)


def histograms_of(
    runs: Sequence[FinishedRun], reference: str
) -> list[tuple[str, str, xr.DataArray]]:
    """Return names of runs, "rank" or "PIT", and counts: those of the reference first."""
    histograms = []
    for run in sorted(runs, key=lambda run: run.name != reference):
        if run.name == reference and "rank_count" in run.states:
            histograms.append((run.name, "rank", run.states["rank_count"]))
        if "pit_count" in run.states:
            histograms.append((run.name, "PIT", run.states["pit_count"]))
    return histograms


def learning_curves(runs: Sequence[FinishedRun]) -> Figure | None:
    """Draw training and validation loss by epoch, a colour a model; mark the best epoch.

    Returns:
        The figure, or None if no run has a log of two epochs or more.
    """
    logged_runs = [run for run in runs if len(run.log) > 1]
    if not logged_runs:
        return None
    with mpl.rc_context(STYLE):
        figure = new_figure(2.9)
        axes = figure.subplots()
        for n, run in enumerate(logged_runs):
            cycle, place = divmod(n, len(COLOURS))
            colour = COLOURS[place]
            loss_curves(axes, run, colour, colour, LINES[cycle % len(LINES)], label=run.name)
        axes.plot([], [], color=GREY, label="validation")
        axes.plot([], [], color=GREY, linestyle=":", label="training")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("epoch")
        names = {run.loss_name for run in logged_runs}
        axes.set_ylabel(names.pop() if len(names) == 1 else "loss")
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def crps_by_latitude(runs: Sequence[FinishedRun]) -> Figure | None:
    """Draw the mean CRPS by latitude, a line a run; None if no run kept its map of a grid."""
    means = {}
    for run in runs:
        if "crps_map_sum" in run.states and "longitude" in run.states["crps_map_sum"].dims:
            sums = [run.states[f"crps_map_{part}"].sum("longitude") for part in ("sum", "weight")]
            attrs = {"long_name": "mean CRPS", "units": run.units}
            means[run.name] = (sums[0] / sums[1]).assign_attrs(attrs)
    return latitude_figure(means) if means else None


def skill_card(runs: Sequence[FinishedRun], reference: str = "raw") -> Figure | None:
    """Draw the CRPSS of each run by season of the valid dates; None without another run."""
    states = {run.name: run.states for run in runs}
    others = [name for name in states if name != reference]
    if reference not in states or not others:
        return None
    scores = [summarise(states[name], states[reference], by=["season"]) for name in others]
    skill, lower, upper = (
        xr.concat([100 * one[f"crpss{end}"] for one in scores], pd.Index(others, name="run"))
        for end in ("", "_lower", "_upper")
    )
    return score_card(skill, lower, upper, label=f"CRPSS against {reference} (%)")


def diagnostic_figures(
    biases: Mapping[str, xr.DataArray], events: Mapping[str, xr.Dataset], units: str
) -> dict[str, Callable[[], Figure | None]]:
    """Return functions that draw bias, reliability and ROC; without any run they return None.

    Args:
        biases: mean of the forecast less the truth, by run.
        events: sums for `reliability_diagram`, by run.
        units: of the target.
    """
    draws: dict[str, Callable[[], Figure]] = {
        "bias": lambda: score_maps(biases, f"bias{in_units(units)}", signed="deviation"),
        "reliability": lambda: reliability_figure(
            {name: reliability_diagram(sums, independent=0.01) for name, sums in events.items()}
        ),
        "roc": lambda: roc_figure({name: roc_curve(sums) for name, sums in events.items()}),
    }
    return {name: draw if biases else lambda: None for name, draw in draws.items()}


def loss_curves(
    axes: Axes,
    run: FinishedRun,
    colour: str,
    training: str,
    line: str = "-",
    *,
    label: str = "",
    ends: tuple[float, float] = (-np.inf, np.inf),
) -> Epoch | None:
    """Draw training and validation loss by epoch, with a dot at the lowest validation loss.

    Args:
        axes: where to draw.
        run: with a log.
        colour: of the validation loss.
        training: colour of the training loss, which is dotted.
        line: style of the validation loss.
        label: of the validation loss, in a legend.
        ends: losses outside are drawn at these.

    Returns:
        The epoch of the dot; None without a finite validation loss.
    """
    for name, shade, style, legend in (
        ("train_loss", training, ":", ""),
        ("val_loss", colour, line, label),
    ):
        points = [(e.number, v) for e in run.log if (v := getattr(e, name)) is not None]
        epochs, losses = np.array(points, dtype=np.float64).reshape(-1, 2).T
        axes.plot(epochs, np.clip(losses, *ends), color=shade, linestyle=style, label=legend)
    finite = [e for e in run.log if e.val_loss is not None and np.isfinite(e.val_loss)]
    best = min(finite, key=lambda epoch: epoch.val_loss or 0.0, default=None)
    if best is not None:
        height = np.clip(best.val_loss or 0.0, *ends)
        axes.plot(best.number, height, "o", color=colour, markersize=5)
    return best


@dataclass(frozen=True)
class _MapRow:
    """One quantity of all forecasts, on one scale."""

    label: str
    colours: ScalarMappable
    extend: str
    field: Callable[[ForecastMaps], xr.DataArray | None]


def case_figure(event: Event) -> Figure:
    """Draw maps of truth, departure from the climate and EFI; below them those of each forecast.

    A column is a forecast, a row a quantity on one scale: mean, spread, error of the mean, CRPS,
    and the gain over the raw ensemble (blue is better than raw, red worse). Small numbers are
    means over the region. Points without a value are grey.
    """
    with mpl.rc_context({**STYLE, "axes.titlesize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7}):
        grid, units = map_grid(event.truth), in_units(event.units)
        rows = _map_rows(event, units)
        count = len(event.forecasts)
        width = max(WIDTH, 0.9 + _PANEL * count)
        top_height = 0.95 + min(grid.shape * (width / 3 - 0.4), _HIGHEST)
        row_height = 0.3 + min(grid.shape * ((width - 1.0) / count - 0.15), _HIGHEST)
        figure = new_figure(top_height + len(rows) * row_height + 0.3, width)
        parts: Any = figure.subfigures(
            2, 1, height_ratios=[top_height, len(rows) * row_height + 0.3]
        )
        top, bottom = parts
        _draw_event(top, event, grid, rows[0], units)
        _draw_forecasts(bottom, event, grid, rows)
    return figure


def _map_rows(event: Event, units: str) -> list[_MapRow]:
    def scaled(
        label: str, cmap: str, signed: bool, field: Callable[[ForecastMaps], xr.DataArray | None]
    ) -> _MapRow:
        values = finite_values(f for one in event.forecasts if (f := field(one)) is not None)
        limit = nice_limit(values, False)
        return _MapRow(label + units, *colour_scale(values, cmap, -limit * signed, limit), field)

    centres = finite_values([event.truth, *(forecast.centre for forecast in event.forecasts)])
    low, high = np.percentile(centres, [0.5, 99.5]) if centres.size else (0.0, 1.0)
    high = high if high > low else low + 1.0
    rows = [
        _MapRow(
            f"mean{units}", *colour_scale(centres, "viridis", low, high), lambda one: one.centre
        ),
        scaled("spread", "cividis", False, lambda one: one.spread),
        scaled("mean less truth", "RdBu_r", True, lambda one: one.error),
        scaled("CRPS", "magma_r", False, lambda one: one.crps),
    ]
    if any(forecast.gain is not None for forecast in event.forecasts):
        rows.append(scaled("CRPS gained", "RdBu", True, lambda one: one.gain))
    return rows


def _draw_event(figure: Any, event: Event, grid: MapGrid, mean: _MapRow, units: str) -> None:
    axes = figure.subplots(1, 3, squeeze=False)[0]
    _draw_map(axes[0], event.truth, grid, mean.colours, "truth", event)
    _draw_bar(figure, mean.colours, axes[0], f"truth{units}", mean.extend)
    if event.departure is None or event.efi is None:
        for panel in axes[1:]:
            panel.set_visible(False)
        axes[1].set_visible(True)
        axes[1].axis("off")
        axes[1].text(0.5, 0.5, "no climate:\nno departure, no EFI", ha="center", va="center")
        return
    values = finite_values([event.departure])
    limit = nice_limit(values, False)
    colours, extend = colour_scale(values, "RdBu_r", -limit, limit)
    _draw_map(axes[1], event.departure, grid, colours, "departure", event)
    _draw_bar(figure, colours, axes[1], f"truth less climate median{units}", extend)
    cmap = mpl.colormaps["PuOr_r"].with_extremes(bad="0.75")
    index = ScalarMappable(BoundaryNorm(_EFI_BOUNDS, cmap.N), cmap)
    _draw_map(axes[2], event.efi, grid, index, "EFI of raw", event)
    bar = _draw_bar(figure, index, axes[2], "index (white: within ±0.5)", "neither")
    bar.set_ticks([-1, -0.8, -0.6, 0.6, 0.8, 1])


def _draw_forecasts(figure: Any, event: Event, grid: MapGrid, rows: Sequence[_MapRow]) -> None:
    panels = figure.subplots(len(rows), len(event.forecasts), squeeze=False)
    for row, line in zip(rows, panels, strict=True):
        for n, (axes, forecast) in enumerate(zip(line, event.forecasts, strict=True)):
            field = row.field(forecast)
            if field is None:
                axes.axis("off")
                axes.text(0.5, 0.5, "reference", ha="center", va="center", color="0.4")
                continue
            _draw_map(
                axes, field, grid, row.colours, forecast.name if row is rows[0] else "", event
            )
            # the raw ensemble has no gain, so that its column ends one row earlier
            ends = row is rows[-1] or (forecast.gain is None and row is rows[-2])
            axes.tick_params(labelleft=n == 0, labelbottom=ends)
        bar = figure.colorbar(
            row.colours, ax=list(line), location="right", aspect=14, extend=row.extend, pad=0.01
        )
        bar.set_label(row.label)


def _draw_map(
    axes: Axes,
    field: xr.DataArray,
    grid: MapGrid,
    colours: ScalarMappable,
    title: str,
    event: Event,
) -> None:
    values = grid.values(field).astype(np.float64)
    grid.draw(axes, values, colours, rasterized=True)
    axes.set_title(title, loc="left")
    axes.set_title(f"{area_mean(field, event.weights):.3g}", loc="right", color="0.35", fontsize=7)
    if len(axes.get_xticks()) > _MOST_TICKS:
        names = [label.get_text() for label in axes.get_xticklabels()]
        axes.set_xticks(axes.get_xticks()[::2], names[::2])
    axes.spines[["top", "right"]].set_visible(True)


def _draw_bar(figure: Any, colours: ScalarMappable, axes: Axes, label: str, extend: str) -> Any:
    bar = figure.colorbar(colours, ax=axes, location="bottom", shrink=0.8, aspect=22, extend=extend)
    bar.set_label(label)
    return bar
