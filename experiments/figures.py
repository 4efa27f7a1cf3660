"""The figures of a report, each drawn by one function from the states and logs of runs."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ens10.errors import UnknownNameError
from ens10.experiments.run_results import Epoch, FinishedRun
from ens10.experiments.tables import Row
from ens10.metrics import finish_mean
from ens10.metrics.figures.diagrams import histogram_figure
from ens10.metrics.figures.maps import score_maps
from ens10.metrics.figures.style import (
    BLUE,
    COLOURS,
    GREY,
    INK,
    LINES,
    ORANGE,
    STYLE,
    in_units,
    new_figure,
)


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


def crps_chart(rows: Sequence[Row]) -> Figure:
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


def _dot(axes: Axes, place: int, row: Row, colour: str) -> None:
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
