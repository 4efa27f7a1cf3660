"""The table and the figure of what forecasts are worth in raw members."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ens10.durable import write_whole
from ens10.experiments.members_worth import SIZES, RawCurve, Worth
from ens10.experiments.report import png
from ens10.experiments.writers import ABSENT
from ens10.metrics.figures.style import BLUE, GREY, INK, ORANGE, STYLE, in_units, new_figure
from ens10.metrics.uncertainty import blocks_in_words

TABLE, PLAIN, FIGURE = "table.md", "table.csv", "worth.png"
_ANY = "more than any number"
_ROW, _ABOVE = 0.24, 2.3  # inches: a run, the panel of the curve
_MOST = 200  # members that the curve is drawn to
_RIGHT = ("axes fraction", "data")
_APART = 0.045  # of the width: numbers of members nearer than that are not both named


def write_worths(curve: RawCurve, worths: Sequence[Worth], out: Path | str) -> None:
    """Writes `table.md`, `table.csv` and `worth.png` into a folder, which is made if needed."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / TABLE, markdown(curve, worths))
    write_whole(folder / PLAIN, to_csv(worths))
    write_whole(folder / FIGURE, png(worth_figure(curve, worths)))


def in_members(worth: Worth) -> str:
    """A number of members with its bounds in words."""
    made = worth.members
    if np.isinf(made.value):
        least = f" (at least {_number(made.lower)})" if np.isfinite(made.lower) else ""
        return f"{_ANY}{least}"
    if np.isnan(made.lower):
        return _number(made.value)
    return f"{_number(made.value)} [{_number(made.lower)}, {_number(made.upper)}]"


def _number(members: float) -> str:
    if np.isinf(members):
        return "∞"
    if members < 1:
        return "< 1"
    return f"{members:.1f}" if members < 20 else f"{members:.0f}"


def markdown(curve: RawCurve, worths: Sequence[Worth]) -> str:
    """Two tables: the raw CRPS by number of members, and what each forecast is worth."""
    units = in_units(curve.units)
    sizes: list[float] = [*sorted({*SIZES, curve.held, *curve.measured}), float("inf")]
    lines = [f"| Members of {curve.name} | Expected CRPS{units} | Measured, first members |"]
    lines.append("| ---: | ---: | ---: |")
    for size in sizes:
        seen = curve.plain if size == curve.held else curve.measured.get(int(min(size, 1e9)))
        shown = ABSENT if seen is None else f"{seen:.4f}"
        name = "∞" if np.isinf(size) else f"{size:.0f}"
        lines.append(f"| {name} | {curve.crps(size):.4f} | {shown} |")
    lines += ["", f"| Forecast | Given members | CRPS{units} | Worth in members of {curve.name} |"]
    lines.append("| --- | ---: | ---: | --- |")
    for worth in worths:
        given = "all" if worth.given is None else str(worth.given)
        lines.append(f"| {worth.name} | {given} | {worth.crps:.4f} | {in_members(worth)} |")
    return "\n".join([*lines, "", *_notes(curve, worths)]) + "\n"


def _notes(curve: RawCurve, worths: Sequence[Worth]) -> list[str]:
    told = [
        f"Expected: fair CRPS + (CRPS - fair CRPS) {curve.held} / M, exact for exchangeable "
        "members (Ferro et al. 2008, Ferro 2014). In brackets: 95 % interval over dates, paired "
        f"({blocks_in_words(worth.members for worth in worths)}).",
        f'"{_ANY}": the CRPS is below the limit of ever more members.',
    ]
    few = [w for w in worths if w.given is not None and w.crps <= curve.plain]
    for name in dict.fromkeys(worth.name for worth in few):
        least = min(w.given for w in few if w.name == name and w.given is not None)
        told.append(
            f"{name} given {least} members is no worse than the raw {curve.held} "
            "(the fewest that were measured to be)."
        )
    return told


def to_csv(worths: Sequence[Worth]) -> str:
    """All numbers with nine digits: `inf` where no number of members is enough."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "given", "crps", "members", "members_lower", "members_upper"])
    for worth in worths:
        made = (worth.members.value, worth.members.lower, worth.members.upper)
        cells = ["" if np.isnan(value) else f"{value:.9g}" for value in made]
        given = "" if worth.given is None else worth.given
        writer.writerow([worth.name, given, f"{worth.crps:.9g}", *cells])
    return text.getvalue()


def worth_figure(curve: RawCurve, worths: Sequence[Worth]) -> Figure:
    """Above: raw CRPS by number of members. Below: each forecast on the same axis of CRPS.

    Reading up from a forecast's dot to the curve gives its worth; those in the shaded part are
    worth more than any number of raw members. Lines are the bounds of the worth over dates.
    """
    least = min([curve.fair, *(worth.crps for worth in worths)])
    # a run worse than one member (a climatology) would take the room from all others
    most = max(curve.crps(2), *(w.crps for w in worths if w.crps < curve.crps(1)), curve.plain)
    pad = 0.06 * (most - least)
    low, high = least - pad, most + pad
    with mpl.rc_context(STYLE):
        below = 0.6 + _ROW * (len(worths) + 1)
        figure = new_figure(_ABOVE + below)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[_ABOVE, below])
        _curve(top, curve, low, high)
        _runs(bottom, curve, worths, high)
        for axes in (top, bottom):
            axes.axvspan(low, curve.fair, color="#EEF3F7", zorder=0, linewidth=0)
            axes.axvline(curve.fair, color=INK, linestyle="--", linewidth=1)
            for size in _named(curve, low, high):
                axes.axvline(curve.crps(size), color="#DDDDDD", linewidth=0.6, zorder=0)
        bottom.set_xlim(low, high)
        bottom.set_xlabel(f"CRPS{in_units(curve.units)}, lower is better")
    return figure


def _curve(axes: Axes, curve: RawCurve, low: float, high: float) -> None:
    members = np.geomspace(1, _MOST, 200)
    axes.plot([curve.crps(m) for m in members], members, color=ORANGE)
    seen = {**curve.measured, curve.held: curve.plain}
    axes.plot(
        list(seen.values()), list(seen), "o", color=ORANGE, markeredgecolor="white", label="scored"
    )
    axes.set_yscale("log")
    axes.set_ylim(1, _MOST)
    ticks = [size for size in (*SIZES, _MOST) if size <= _MOST]
    axes.set_yticks(ticks, [str(size) for size in ticks])
    axes.minorticks_off()
    axes.set_ylabel("members")
    names = axes.secondary_xaxis("top")
    sizes = _named(curve, low, high)
    names.set_xticks(
        [curve.crps(size) for size in sizes],
        ["∞" if np.isinf(size) else f"{size:.0f}" for size in sizes],
    )
    names.set_xlabel(f"so many members of {curve.name}; shaded: {_ANY}")
    axes.tick_params(axis="x", length=0)


def _named(curve: RawCurve, low: float, high: float) -> list[float]:
    """Numbers of members that there is room to name: those held and infinity before others."""
    found: list[float] = []
    for size in (float("inf"), curve.held, 5, 2, 20, 1, 3, 50, 100):
        at = curve.crps(size)
        near = [abs(at - curve.crps(other)) for other in found]
        if low <= at <= high and min(near, default=high) > _APART * (high - low):
            found.append(size)
    return found


def _runs(axes: Axes, curve: RawCurve, worths: Sequence[Worth], high: float) -> None:
    axes.plot(curve.plain, 0, "o", color=ORANGE, markeredgecolor="white")
    names = [f"{curve.name}, {curve.held} members"]
    for place, worth in enumerate(worths, 1):
        whole = worth.given is None
        colour = BLUE if whole else GREY
        names.append(worth.name if whole else f"{worth.name}, given {worth.given}")
        if worth.crps > high:
            told = f"{worth.crps:.3g}, less than one member →"
            axes.annotate(told, (1, place), xycoords=_RIGHT, va="center", ha="right", fontsize=8)
            continue
        bounds = [curve.crps(m) for m in (worth.members.upper, worth.members.lower)]
        if np.isfinite(worth.members.value) and np.isfinite(bounds).all():
            axes.plot(bounds, [place, place], color=colour, linewidth=2.5, solid_capstyle="butt")
        axes.plot(worth.crps, place, "o" if whole else "s", color=colour, markersize=5)
        if np.isfinite(worth.members.value):
            axes.annotate(
                _number(worth.members.value), (np.nanmax([worth.crps, *bounds]), place), (6, 0),
                textcoords="offset points", va="center", fontsize=8, color=INK,
            )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
