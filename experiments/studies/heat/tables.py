"""The table and the figure of the heat experiment, from the results of its cells."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ens10.errors import MissingDataError
from ens10.experiments.runner.tables import write_files
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.studies.heat.module import match_regions
from ens10.experiments.studies.heat.world import COEFFICIENTS, HeatWorld, Ints
from ens10.experiments.studies.json_cells import Result, read_json_cells
from ens10.metrics.figures.style import STYLE, new_figure
from ens10.untrusted import read_mapping

_LABELS = read_mapping(Path(__file__).with_name("labels.yaml"))
CONFIGS, FIGURE_CONFIGS = _LABELS["table"], _LABELS["figure"]
_COLUMNS = ("config", "seed", "within", "mse", "agreement", "steps", "parameters", "cpu_seconds")
# of one hue, so that they also differ in print; wrong points in a colour of their own
_REGIONS = ("#E3EAF2", "#8DA9C4", "#2F4B6E")
_WRONG = "#E69F00"


def read_results(folder: Path) -> list[Result]:
    """Return the results of unpacked cells, in the order of `CONFIGS`, then by name."""
    results = read_json_cells(folder, _COLUMNS).values()
    order = {name: place for place, name in enumerate(CONFIGS)}
    last = len(order)
    return sorted(results, key=lambda r: (order.get(r["config"], last), r["config"], r["seed"]))


def write_tables(results: Sequence[Result], folder: Path) -> str:
    """Write table.md and table.csv; return the Markdown."""
    text = markdown(results)
    write_files(folder, {"table.md": text, "table.csv": csv_of(_COLUMNS, results)})
    return text


def markdown(results: Sequence[Result]) -> str:
    """Return Markdown with a row for each configuration: each seed's scores, then means."""
    heads = ["configuration", "layer", "within 1 % (%)", "mean", "MSE", "map found (%)", "steps"]
    lines = []
    for config in dict.fromkeys(r["config"] for r in results):
        rows = [r for r in results if r["config"] == config]
        within = [100 * r["within"] for r in rows]
        agreements = [100 * r["agreement"] for r in rows if r["agreement"] is not None]
        cells = (
            f"`{config}`",
            CONFIGS.get(config, "–"),
            _join_values(within),
            f"{mean(within):.2f}",
            f"{mean(r['mse'] for r in rows):.1e}",
            _join_values(agreements) or "–",
            f"{rows[0]['steps']:,}",
            f"{rows[0]['parameters']:,}",
            f"{mean(r['cpu_seconds'] for r in rows):.0f}",
        )
        lines.append(cells)
    columns = columns_of([*heads, "parameters", "CPU s"], lines, text=(0, 1, 2, 5))
    return markdown_of(columns, escape=False)


def _join_values(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values)


def map_figure(results: Sequence[dict[str, Any]], seed: int = 0) -> Figure:
    """Draw the true map and, beside it, the maps that were learned, with wrong points marked.

    Args:
        results: of cells.
        seed: whose maps are drawn.

    Raises:
        MissingDataError: no cell of that seed has a map.
    """
    by_config = {r["config"]: r for r in results if r["seed"] == seed and r.get("routing")}
    names = [name for name in FIGURE_CONFIGS if name in by_config]
    if not names:
        raise MissingDataError("results", [f"a map found with seed {seed}"], "Run a cell of a SMoE")
    grids = {
        name: np.array([list(map(int, row)) for row in by_config[name]["routing"]])
        for name in names
    }
    regions = HeatWorld(grid=next(iter(grids.values())).shape, seed=seed).regions
    with mpl.rc_context(STYLE):
        figure = new_figure(2.2)
        axes = figure.subplots(1, 1 + len(names), squeeze=False)[0]
        _map(axes[0], regions, "hidden map\n")
        for ax, name in zip(axes[1:], names, strict=True):
            matched_map, agreement = match_regions(grids[name], regions)
            wrong = np.where(matched_map == regions, regions, len(COEFFICIENTS))
            _map(ax, wrong, f"{FIGURE_CONFIGS[name]}\n{100 * agreement:.1f} % found")
        _legend(figure)
    return figure


def _map(axes: Axes, values: Ints, title: str) -> None:
    colours = ListedColormap([*_REGIONS, _WRONG])
    axes.imshow(values, cmap=colours, vmin=-0.5, vmax=len(_REGIONS) + 0.5, interpolation="nearest")
    axes.set_title(title, fontsize=8)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _legend(figure: Figure) -> None:
    names = [*(f"a = {a:g}" for a in COEFFICIENTS), "taken for another"]
    colours = (*_REGIONS, _WRONG)
    handles = [
        Patch(facecolor=colour, edgecolor="#777777", linewidth=0.5, label=name)
        for colour, name in zip(colours, names, strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
