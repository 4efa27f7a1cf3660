"""The charts of a report: intervals, histograms, reliability, learning curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import xarray as xr

from ens10.experiments.finished import FinishedRun
from ens10.experiments.reporting.svg import Plot, label, nice_ticks
from ens10.metrics import Interval

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
) -> str:
    """Values with their intervals, a row each: text at its own size on any screen.

    Args:
        dots: the rows.
        axis: name of the axis, with units.
        rule: where a line is drawn through all rows.
        told: what the line is.
    """
    ends = _ends(dots, rule)
    lines = [_row(dot, ends, rule) for dot in dots]
    ticks = "".join(
        f'<text x="{_share(t, ends)}" y="14" text-anchor="middle">{label(t)}</text>'
        for t in nice_ticks(*ends, 5)
    )
    axis_told = f"{axis}; dashed: {told}" if rule is not None else axis
    lines.append(
        '<li class="axis" aria-hidden="true"><span></span>\n'
        '<svg width="100%" height="18" aria-hidden="true">'
        f"{ticks}</svg>\n<span></span></li>"
    )
    rows = "\n".join(lines)
    return (
        f'<ul class="dots" aria-label="{escape(axis)}">\n{rows}\n</ul>\n'
        f'<p class="note">{escape(axis_told)}</p>'
    )


def _ends(dots: Sequence[Dot], rule: float | None) -> tuple[float, float]:
    middle = float(np.median([dot.value.value for dot in dots]))
    near = [dot.value for dot in dots if dot.value.value <= _FAR * middle]
    values = [v for one in near for v in (one.value, one.lower, one.upper) if np.isfinite(v)]
    values += [] if rule is None else [rule]
    pad = 0.04 * (max(values) - min(values)) or 0.05 * abs(values[0]) or 1.0
    return min(values) - pad, max(values) + pad


def _share(value: float, ends: tuple[float, float]) -> str:
    return f"{100 * float(np.clip((value - ends[0]) / (ends[1] - ends[0]), 0, 1)):.2f}%"


def _row(dot: Dot, ends: tuple[float, float], rule: float | None) -> str:
    marks = [
        f'<line class="grid" x1="{s}" x2="{s}" y1="0" y2="20"/>'
        for s in (_share(t, ends) for t in nice_ticks(*ends, 5))
    ]
    if rule is not None:
        at = _share(rule, ends)
        marks.append(f'<line class="rule" x1="{at}" x2="{at}" y1="0" y2="20"/>')
    value = dot.value
    if value.value > ends[1]:
        marks.append('<text x="100%" y="14" text-anchor="end">beyond →</text>')
    else:
        if np.isfinite(value.lower):
            low, high = _share(value.lower, ends), _share(value.upper, ends)
            marks.append(f'<line class="span" x1="{low}" x2="{high}" y1="10" y2="10"/>')
        marks.append(f'<circle class="fill" cx="{_share(value.value, ends)}" cy="10" r="4.5"/>')
    kind = ' class="ref"' if dot.reference else ""
    number, _, interval = dot.told.partition(" [")
    small = f" <small>[{escape(interval)}</small>" if interval else ""
    return (
        f"<li{kind}><span>{escape(dot.name)}{' (reference)' * dot.reference}</span>\n"
        f'<svg width="100%" height="20" aria-hidden="true">{"".join(marks)}</svg>\n'
        f'<span class="told">{escape(number)}{small}</span></li>'
    )


def histogram(counts: xr.DataArray, name: str, top: float, *, reference: bool) -> str:
    """Frequencies of ranks or PIT values, relative to a calibrated forecast's.

    Args:
        counts: over `rank` or `pit_bin`.
        name: of the forecast.
        top: end of the axis, one for all panels.
        reference: whether it is the reference.
    """
    heights = relative(counts)
    bins, ranks = heights.size, counts.dims == ("rank",)
    plot = Plot((0.0, float(bins)), (0.0, top))
    for n, height in enumerate(heights):
        kind = "fill ref" if reference else "fill"
        plot.rectangle((n + 0.08, n + 0.92), (0.0, min(float(height), top)), kind)
    plot.line([(0.0, 1.0), (bins, 1.0)], "rule")
    plot.ticks([], nice_ticks(0.0, top, 3))
    ends = ("0", str(bins - 1)) if ranks else ("0", "1")
    for place, text in zip((0.5, bins - 0.5) if ranks else (0.0, float(bins)), ends, strict=True):
        plot.note(place, text)
    what = "Rank" if ranks else "PIT"
    told = f"{what} histogram of {name}: first bin {heights[0]:.2f}, last {heights[-1]:.2f}, "
    return plot.picture(told + f"between them {heights[1:-1].mean():.2f}; 1 is calibrated")


def relative(counts: xr.DataArray) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Frequency of each bin relative to a calibrated forecast's."""
    values = counts.to_numpy().astype(np.float64)
    made: np.ndarray[tuple[int], np.dtype[np.float64]] = values * values.size / max(1, values.sum())
    return made


def reliability(diagram: xr.Dataset, name: str, *, reference: bool) -> str:
    """Observed frequency against forecast probability, with consistency bars.

    Args:
        diagram: of `ens10.metrics.reliability_diagram`.
        name: of the forecast.
        reference: whether it is the reference.
    """
    plot = Plot((0.0, 1.0), (0.0, 1.0), (180.0, 160.0))
    given, seen = (diagram[v].to_numpy() for v in ("forecast_mean", "observed_frequency"))
    for p, low, high in zip(given, diagram["band_lower"], diagram["band_upper"], strict=True):
        if np.isfinite(p) and np.isfinite(low):
            plot.line([(p, float(low)), (p, float(high))], "band")
    plot.line([(0.0, 0.0), (1.0, 1.0)], "rule")
    known = np.isfinite(given) & np.isfinite(seen)
    plot.line(zip(given[known], seen[known], strict=True), "curve")
    for p, o in zip(given[known], seen[known], strict=True):
        plot.dot(float(p), float(o), "fill ref" if reference else "fill", 2.4)
    plot.ticks([0.0, 0.5, 1.0], [0.0, 0.5, 1.0])
    pairs = "; ".join(f"{p:.2f} {o:.2f}" for p, o in zip(given[known], seen[known], strict=True))
    return plot.picture(f"{name}: forecast probability and observed frequency: {pairs}")


def curves(run: FinishedRun, ends: tuple[float, float]) -> str:
    """Training and validation loss by epoch; a dot at the lowest validation loss.

    Args:
        run: with a log.
        ends: of the axis of losses.
    """
    first, last = run.log[0].number, run.log[-1].number
    plot = Plot((first, max(last, first + 1)), ends, (250.0, 150.0))
    told = []
    for name, kind in (("train_loss", "curve second"), ("val_loss", "curve")):
        points = [(e.number, v) for e in run.log if (v := getattr(e, name)) is not None]
        plot.line([(n, min(max(v, ends[0]), ends[1])) for n, v in points], kind)
        finite = [(v, n) for n, v in points if np.isfinite(v)]
        if name == "val_loss" and finite:
            value, epoch = min(finite)
            plot.dot(epoch, min(max(value, ends[0]), ends[1]))
            told.append(f"lowest validation loss {value:.4g} in epoch {epoch}")
    whole = [t for t in nice_ticks(first, last, 5) if float(t).is_integer()]
    plot.ticks(whole, nice_ticks(*ends, 4))
    return plot.picture(
        f"Learning curves of {run.name}: {len(run.log)} epochs" + ", ".join(["", *told])
    )


def losses(run: FinishedRun) -> tuple[float, float]:
    """Ends of an axis for the losses of a run, without a first epoch that is far above the rest."""
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
