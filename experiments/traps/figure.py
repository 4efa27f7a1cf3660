"""What traps report against what their forecasts are worth, a dot for each seed."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ens10.durable import whole_file
from ens10.experiments.traps.table import TRAPS, Mean, Results, against, mean_of, shown
from ens10.metrics.figures.style import BLUE, INK, ORANGE, STYLE, new_figure

_SHOWN = {
    "reported": ("what the protocol reports", ORANGE, 0.16),
    "fresh": ("what the forecast is worth, on years that nothing has looked at", BLUE, -0.16),
}
_HEIGHT, _ROW = 0.95, 0.36


def traps_figure(results: Results) -> Figure:
    """A row for each trap: CRPS against that of the clean protocol, mean, interval and seeds."""
    names = shown(results)
    with mpl.rc_context(STYLE):
        figure = new_figure(_HEIGHT + _ROW * len(names))
        axes = figure.subplots()
        for place, name in enumerate(reversed(names)):
            for score, (_, colour, shift) in _SHOWN.items():
                _row(axes, results, name, score, place + shift, colour)
        axes.axvline(0.0, color=INK, linewidth=0.8, zorder=0)
        axes.set_yticks(range(len(names)), [TRAPS[n] for n in reversed(names)])
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_xlabel("CRPS against the clean protocol (%); less is better")
        handles = [
            axes.plot([], [], "o", color=colour, label=label)[0]
            for label, colour, _ in _SHOWN.values()
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=2, fontsize=8)
    return figure


def _row(axes: Axes, results: Results, name: str, score: str, y: float, colour: str) -> None:
    of = against(name, score)
    seeds = [of(held) for held in results.values() if {name, "clean"} <= set(held)]
    axes.plot(seeds, [y] * len(seeds), "|", color=colour, markersize=6, alpha=0.6)
    mean: Mean = mean_of(results, of)
    if mean.seeds > 1:
        axes.plot([mean.lower, mean.upper], [y, y], color=colour, linewidth=1.4)
    axes.plot([mean.value], [y], "o", color=colour, markersize=5)


def draw(results: Results, path: Path) -> None:
    """Writes the figure."""
    with whole_file(path) as file:
        traps_figure(results).savefig(file, format="png", dpi=160, metadata={"Software": None})
