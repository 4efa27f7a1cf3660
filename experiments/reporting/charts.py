"""The charts of a report: intervals, histograms, reliability, learning curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from markupsafe import Markup

from ens10.experiments.figures import loss_curves
from ens10.experiments.finished import FinishedRun
from ens10.experiments.reporting.svg import PAGE_STYLE, axes_of, label, nice_ticks, svg
from ens10.metrics import Interval
from ens10.metrics.figures.diagrams import histogram_panel, relative, reliability_panel
from ens10.metrics.figures.style import BLUE, ORANGE

_STEEP = 4.0  # times what most losses are above the lowest: steeper beginnings are cut off
_FAR = 1.8  # times the median: values beyond would squeeze all others together


@dataclass(frozen=True)
class Dot:
    """One row of a chart of intervals.

    Attributes:
        name: of the forecast.
        value: with its bounds, which may be NaN.
        told: the value in words.
        reference: whether it is the reference.
    """

    name: str
    value: Interval
    told: str
    reference: bool = False


def interval_chart(
    dots: Sequence[Dot], axis: str, *, rule: float | None = None, told: str = ""
) -> dict[str, Any]:
    """Return values with their intervals, for the template that draws a row of each.

    Args:
        dots: the rows.
        axis: name of the axis, with units.
        rule: where a line is drawn through all rows.
        told: what the line is.

    Returns:
        Places are in percent of the axis, the upper bound's (`high`) from its end.
    """
    low, high = _ends(dots, rule)

    def place(value: float, *, back: bool = False) -> str | None:
        share = float(np.clip((value - low) / (high - low), 0, 1))
        return f"{100 * (1 - share if back else share):.2f}" if np.isfinite(value) else None

    rows = [
        {
            "name": dot.name,
            "reference": dot.reference,
            "told": dot.told,
            "beyond": dot.value.value > high,
            "place": place(dot.value.value),
            "low": place(dot.value.lower),
            "high": place(dot.value.upper, back=True),
        }
        for dot in dots
    ]
    ticks = {label(tick): place(tick) for tick in nice_ticks(low, high, 5)}
    line = None if rule is None else place(rule)
    return {"axis": axis, "ticks": ticks, "rule": line, "rule_told": told, "rows": rows}


def _ends(dots: Sequence[Dot], rule: float | None) -> tuple[float, float]:
    middle = float(np.median([dot.value.value for dot in dots]))
    near = [dot.value for dot in dots if dot.value.value <= _FAR * middle]
    values = [v for one in near for v in (one.value, one.lower, one.upper) if np.isfinite(v)]
    values += [] if rule is None else [rule]
    pad = 0.04 * (max(values) - min(values)) or 0.05 * abs(values[0]) or 1.0
    return min(values) - pad, max(values) + pad


@mpl.rc_context(PAGE_STYLE)
def histogram(counts: xr.DataArray, name: str, top: float, *, reference: bool) -> Markup:
    """Draw frequencies of ranks or PIT values, relative to a calibrated forecast's.

    Args:
        counts: over `rank` or `pit_bin`.
        name: of the forecast.
        top: end of the axis, one for all panels.
        reference: whether it is the reference.
    """
    axes = axes_of(180, 124)
    histogram_panel(axes, counts, ORANGE if reference else BLUE, top)
    axes.set_ylim(0, top)
    axes.set_yticks(nice_ticks(0.0, top, 3))
    axes.grid(axis="y")
    heights, what = relative(counts), "Rank" if counts.dims == ("rank",) else "PIT"
    words = f"{what} histogram of {name}: first bin {heights[0]:.2f}, last {heights[-1]:.2f}, "
    return svg(axes, words + f"between them {heights[1:-1].mean():.2f}; 1 is calibrated")


@mpl.rc_context(PAGE_STYLE)
def reliability(diagram: xr.Dataset, name: str, *, reference: bool) -> Markup:
    """Draw observed frequency against forecast probability, with consistency bars.

    Args:
        diagram: of `ens10.metrics.reliability_diagram`.
        name: of the forecast.
        reference: whether it is the reference.
    """
    axes = axes_of(180, 160)
    reliability_panel(axes, diagram, ORANGE if reference else BLUE)
    axes.grid(axis="y")
    pairs = np.stack([diagram[v].to_numpy() for v in ("forecast_mean", "observed_frequency")], 1)
    words = "; ".join(f"{p:.2f} {o:.2f}" for p, o in pairs[np.isfinite(pairs).all(axis=1)])
    return svg(axes, f"{name}: forecast probability and observed frequency: {words}")


@mpl.rc_context(PAGE_STYLE)
def curves(run: FinishedRun, ends: tuple[float, float]) -> Markup:
    """Draw training and validation loss by epoch; a dot at the lowest validation loss.

    Args:
        run: with a log.
        ends: of the axis of losses.
    """
    axes = axes_of(250, 150)
    best = loss_curves(axes, run, BLUE, ORANGE, ends=ends)
    first, last = run.log[0].number, run.log[-1].number
    axes.set_xlim(first, max(last, first + 1))
    axes.set_ylim(*ends)
    axes.set_xticks([t for t in nice_ticks(first, last, 5) if float(t).is_integer()])
    axes.set_yticks(nice_ticks(*ends, 4))
    axes.grid(axis="y")
    words = f"Learning curves of {run.name}: {len(run.log)} epochs"
    if best is not None:
        words += f", lowest validation loss {best.val_loss:.4g} in epoch {best.number}"
    return svg(axes, words)


def losses(run: FinishedRun) -> tuple[float, float]:
    """Return the ends of an axis for a run's losses, without a first epoch far above the rest."""
    held = [v for e in run.log for v in (e.train_loss, e.val_loss) if v is not None]
    values = np.array([v for v in held if np.isfinite(v)])
    if not values.size:
        return 0.0, 1.0
    low = float(values.min())
    high = min(float(values.max()), low + _STEEP * (float(np.percentile(values, 80)) - low))
    if not high > low:
        high = float(values.max())
    pad = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - pad, high + pad
