"""Figure and numbers of a case study: maps of each forecast, and means over the region."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure

from ens10.experiments.case import Event, ForecastMaps
from ens10.metrics.figures.maps import MapGrid, colour_scale, finite_values, map_grid, nice_limit
from ens10.metrics.figures.style import STYLE, WIDTH, in_units, new_figure

EXTREME = 0.5  # |EFI| from which ECMWF's charts show an index


@dataclass(frozen=True)
class Numbers:
    """Means of one forecast over the region; NaN where one is not defined.

    Attributes:
        name: of the run.
        centre: mean of the forecast (median of quantiles), in the units of the target.
        error: centre less truth.
        rmse: root of the mean squared error of the centre.
        spread: root of the mean variance.
        crps: of the points.
        gain: CRPS of the raw ensemble less this one.
        skill: 1 - CRPS / CRPS of the raw ensemble.
        better: share of the area where this CRPS is below the raw one.
        crps_extreme: CRPS weighted by |EFI| as well, sum(w |EFI| CRPS) / sum(w |EFI|).
    """

    name: str
    centre: float
    error: float
    rmse: float
    spread: float
    crps: float
    gain: float
    skill: float
    better: float
    crps_extreme: float


def area_mean(field: xr.DataArray, weights: xr.DataArray) -> float:
    """Weighted mean of the points that have a value.

    Args:
        field: over latitude and longitude.
        weights: over any of its dimensions.

    Returns:
        NaN without any value.
    """
    valid = field.notnull()
    shares = (weights * valid).transpose(*field.dims).to_numpy().astype(np.float64)
    if not shares.sum() > 0:
        return float("nan")
    return float((shares * field.where(valid, 0).to_numpy()).sum() / shares.sum())


def numbers_of(event: Event) -> list[Numbers]:
    """Return the means of each forecast over the region, the raw ensemble first."""
    return [_numbers(event, forecast) for forecast in event.forecasts]


def _numbers(event: Event, forecast: ForecastMaps) -> Numbers:
    def mean(field: xr.DataArray) -> float:
        return area_mean(field, event.weights)

    gain, undefined = forecast.gain, float("nan")
    raw = mean(event.forecasts[0].crps.where(forecast.crps.notnull()))
    by_efi = undefined
    if event.efi is not None:
        by_efi = area_mean(forecast.crps, event.weights * abs(event.efi).fillna(0))
    return Numbers(
        name=forecast.name,
        centre=mean(forecast.centre),
        error=mean(forecast.error),
        rmse=float(np.sqrt(mean(forecast.error**2))),
        spread=float(np.sqrt(mean(forecast.spread**2))),
        crps=mean(forecast.crps),
        gain=undefined if gain is None else mean(gain),
        skill=1.0 - mean(forecast.crps) / raw if gain is not None and raw > 0 else undefined,
        better=undefined if gain is None else mean((gain > 0).where(gain.notnull())),
        crps_extreme=by_efi,
    )


def event_facts(event: Event) -> dict[str, float]:
    """Return statistics of truth, departure and EFI over the region, by name."""
    truth = event.truth
    facts = {
        "points": float(truth.notnull().sum()),
        "truth, mean": area_mean(truth, event.weights),
        "truth, least": float(truth.min()),
        "truth, most": float(truth.max()),
    }
    if event.departure is not None and event.efi is not None:
        size = abs(event.efi)
        extreme = (size > EXTREME).where(size.notnull())
        facts["departure from the model climate's median, mean"] = area_mean(
            event.departure, event.weights
        )
        facts["EFI of the raw ensemble, mean"] = area_mean(event.efi, event.weights)
        facts[f"share of the area with |EFI| above {EXTREME:g}"] = area_mean(extreme, event.weights)
    return facts


Floats = npt.NDArray[np.float64]
# as on ECMWF's charts, where indices below 0.5 are left white
EFI_BOUNDS = (-1, -0.9, -0.8, -0.7, -0.6, -0.5, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
_PANEL, _HIGHEST = 1.9, 1.8  # least width and most height of a panel, inches
_MOST_TICKS = 4  # what a narrow panel has room to name
_GREY = "0.75"  # points without a value


@dataclass(frozen=True)
class _Row:
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
        rows = _rows(event, units)
        count = len(event.forecasts)
        width = max(WIDTH, 0.9 + _PANEL * count)
        top_height = 0.95 + min(grid.shape * (width / 3 - 0.4), _HIGHEST)
        row_height = 0.3 + min(grid.shape * ((width - 1.0) / count - 0.15), _HIGHEST)
        figure = new_figure(top_height + len(rows) * row_height + 0.3, width)
        parts: Any = figure.subfigures(
            2, 1, height_ratios=[top_height, len(rows) * row_height + 0.3]
        )
        top, bottom = parts
        _event(top, event, grid, rows[0], units)
        _forecasts(bottom, event, grid, rows)
    return figure


def _rows(event: Event, units: str) -> list[_Row]:
    def scaled(
        label: str, cmap: str, signed: bool, field: Callable[[ForecastMaps], xr.DataArray | None]
    ) -> _Row:
        values = finite_values(f for one in event.forecasts if (f := field(one)) is not None)
        limit = nice_limit(values, False)
        return _Row(label + units, *colour_scale(values, cmap, -limit * signed, limit), field)

    centres = finite_values([event.truth, *(forecast.centre for forecast in event.forecasts)])
    low, high = np.percentile(centres, [0.5, 99.5]) if centres.size else (0.0, 1.0)
    high = high if high > low else low + 1.0
    rows = [
        _Row(f"mean{units}", *colour_scale(centres, "viridis", low, high), lambda one: one.centre),
        scaled("spread", "cividis", False, lambda one: one.spread),
        scaled("mean less truth", "RdBu_r", True, lambda one: one.error),
        scaled("CRPS", "magma_r", False, lambda one: one.crps),
    ]
    if any(forecast.gain is not None for forecast in event.forecasts):
        rows.append(scaled("CRPS gained", "RdBu", True, lambda one: one.gain))
    return rows


def _event(figure: Any, event: Event, grid: MapGrid, mean: _Row, units: str) -> None:
    axes = figure.subplots(1, 3, squeeze=False)[0]
    _map(axes[0], event.truth, grid, mean.colours, "truth", event)
    _bar(figure, mean.colours, axes[0], f"truth{units}", mean.extend)
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
    _map(axes[1], event.departure, grid, colours, "departure", event)
    _bar(figure, colours, axes[1], f"truth less climate median{units}", extend)
    cmap = mpl.colormaps["PuOr_r"].with_extremes(bad=_GREY)
    index = ScalarMappable(BoundaryNorm(EFI_BOUNDS, cmap.N), cmap)
    _map(axes[2], event.efi, grid, index, "EFI of raw", event)
    bar = _bar(figure, index, axes[2], "index (white: within ±0.5)", "neither")
    bar.set_ticks([-1, -0.8, -0.6, 0.6, 0.8, 1])


def _forecasts(figure: Any, event: Event, grid: MapGrid, rows: Sequence[_Row]) -> None:
    panels = figure.subplots(len(rows), len(event.forecasts), squeeze=False)
    for row, line in zip(rows, panels, strict=True):
        for n, (axes, forecast) in enumerate(zip(line, event.forecasts, strict=True)):
            field = row.field(forecast)
            if field is None:
                axes.axis("off")
                axes.text(0.5, 0.5, "reference", ha="center", va="center", color="0.4")
                continue
            _map(axes, field, grid, row.colours, forecast.name if row is rows[0] else "", event)
            # the raw ensemble has no gain, so that its column ends one row earlier
            ends = row is rows[-1] or (forecast.gain is None and row is rows[-2])
            axes.tick_params(labelleft=n == 0, labelbottom=ends)
        bar = figure.colorbar(
            row.colours, ax=list(line), location="right", aspect=14, extend=row.extend, pad=0.01
        )
        bar.set_label(row.label)


def _map(
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


def _bar(figure: Any, colours: ScalarMappable, axes: Axes, label: str, extend: str) -> Any:
    bar = figure.colorbar(colours, ax=axes, location="bottom", shrink=0.8, aspect=22, extend=extend)
    bar.set_label(label)
    return bar
