"""The hidden map beside what layers found of it."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ens10.errors import MissingDataError
from ens10.experiments.heat.diffusion import COEFFICIENTS, HeatWorld
from ens10.experiments.heat.scores import Ints, matched
from ens10.metrics.figures.style import STYLE, new_figure

SHOWN = {
    "heat_smoe_recipe": "published recipe",
    "heat_smoe_rates": "recipe + rates",
    "heat_smoe_compared": "comparison",
    "heat_smoe": "comparison + balance",
}
# of one hue, so that they also differ in print; wrong points in a colour of their own
_REGIONS = ("#E3EAF2", "#8DA9C4", "#2F4B6E")
_WRONG = "#E69F00"


def map_figure(results: Sequence[dict[str, Any]], seed: int = 0) -> Figure:
    """The true map, and below it the maps found, with wrong points marked.

    Args:
        results: of cells.
        seed: whose are shown.

    Raises:
        MissingDataError: no cell of that seed found a map.
    """
    own = {r["config"]: r for r in results if r["seed"] == seed and r.get("routing")}
    shown = [name for name in SHOWN if name in own]
    if not shown:
        raise MissingDataError("results", [f"a map found with seed {seed}"], "Run a cell of a SMoE")
    grids = {
        name: np.array([list(map(int, row)) for row in own[name]["routing"]]) for name in shown
    }
    regions = HeatWorld(grid=next(iter(grids.values())).shape, seed=seed).regions
    with mpl.rc_context(STYLE):
        figure = new_figure(2.2)
        axes = figure.subplots(1, 1 + len(shown), squeeze=False)[0]
        _map(axes[0], regions, "hidden map\n")
        for place, name in zip(axes[1:], shown, strict=True):
            renamed, agreement = matched(grids[name], regions)
            wrong = np.where(renamed == regions, regions, len(COEFFICIENTS))
            _map(place, wrong, f"{SHOWN[name]}\n{100 * agreement:.1f} % found")
        _legend(figure)
    return figure


def _map(axes: Axes, values: Ints, title: str) -> None:
    colours = ListedColormap([*_REGIONS, _WRONG])
    axes.imshow(values, cmap=colours, vmin=-0.5, vmax=len(_REGIONS) + 0.5, interpolation="nearest")
    axes.set_title(title, fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)


def _legend(figure: Figure) -> None:
    names = [*(f"a = {a:g}" for a in COEFFICIENTS), "taken for another"]
    colours = (*_REGIONS, _WRONG)
    handles = [
        Patch(facecolor=colour, edgecolor="#777777", linewidth=0.5, label=name)
        for colour, name in zip(colours, names, strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
