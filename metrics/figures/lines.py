"""Scores along an axis: latitude, or lead time."""

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ens10.errors import ArgumentError, MissingDataError
from ens10.metrics.figures.geometry import degrees
from ens10.metrics.figures.style import GREY, STYLE, in_units, look, new_figure

_PARALLELS = (-90, -60, -45, -30, -15, 0, 15, 30, 45, 60, 90)


def latitude_figure(
    scores: Mapping[str, xr.DataArray], *, label: str | None = None, zero: bool = False
) -> Figure:
    """Draw scores by latitude, on an axis in which equal areas of the Earth have equal length.

    Args:
        scores: by name, each over latitude.
        label: label of the scores' axis; None for the first one's `long_name` and `units`.
        zero: True to draw a line at 0, for skill and bias.

    Raises:
        ArgumentError: no scores, or other dimensions.
    """
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
            axes.plot(field.to_numpy(), north, label=name, **look(n))
        if zero:
            axes.axvline(0.0, color=GREY, linewidth=1)
        low, high = (np.sin(np.deg2rad(f(*_ends(scores)))) for f in (min, max))
        ticks = [p for p in _PARALLELS if low - 1e-9 <= np.sin(np.deg2rad(p)) <= high + 1e-9]
        axes.set_yticks(np.sin(np.deg2rad(ticks)), [degrees(p, "NS") for p in ticks])
        axes.set_ylim(low, high)
        first = next(iter(scores.values()))
        named = str(first.attrs.get("long_name", first.name or "score"))
        axes.set_xlabel(label or named + in_units(str(first.attrs.get("units", ""))))
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _ends(scores: Mapping[str, xr.DataArray]) -> tuple[float, ...]:
    rows = [float(e) for f in scores.values() for e in f["latitude"].to_numpy()[[0, -1]]]
    return tuple(rows)


def spread_error_figure(
    scores: Mapping[str, xr.Dataset], *, along: str = "step", units: str | None = None
) -> Figure:
    """Draw RMSE (solid) and spread (dashed) by lead time, one colour per forecast.

    Args:
        scores: by name, Datasets with `rmse` and `spread_error` (the ratio spread / error) over
            `along`.
        along: the dimension of the axis.
        units: units of `along`; None for those of its coordinate.

    Raises:
        ArgumentError: no scores.
        MissingDataError: a Dataset lacks one of the two, or the dimension.
    """
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
            colour = look(n)["color"]
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
