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

from ens10.errors import FileError, MissingDataError
from ens10.experiments.runner.tables import write_files
from ens10.experiments.studies.heat.module import match_regions
from ens10.experiments.studies.heat.training import RESULT
from ens10.experiments.studies.heat.world import COEFFICIENTS, HeatWorld, Ints
from ens10.experiments.writers import columns_of, csv_of, markdown_of
from ens10.metrics.figures.style import STYLE, new_figure
from ens10.untrusted import parse_json

Result = dict[str, Any]
# In the order of the table: what is compared, then what is changed in the published recipe.
CONFIGS = {
    "heat_smoe_true_map": "SMoE, true map given",
    "heat_conv": "convolution",
    "heat_coordconv": "CoordConv",
    "heat_condconv": "CondConv, 3 experts",
    "heat_lowrank": "low-rank locally connected, rank 3",
    "heat_lcn": "locally connected",
    "heat_smoe_recipe": "SMoE, published recipe",
    "heat_smoe_no_margins": "recipe without margins, damping 0.1, 0.3 epoch",
    "heat_smoe_rates": "recipe + rates",
    "heat_smoe_compared": "rates + comparison with all experts",
    "heat_smoe": "rates + comparison with all experts + balance",
    "heat_smoe_one_rival": "the same, compared with one expert a point",
    "heat_smoe_published_rates": "published rates + comparison with all experts + balance",
    "heat_smoe_undamped": "the same as `heat_smoe`, without damping",
}
_COLUMNS = ("config", "seed", "within", "mse", "agreement", "steps", "parameters", "cpu_seconds")
FIGURE_CONFIGS = {
    "heat_smoe_recipe": "published recipe",
    "heat_smoe_rates": "recipe + rates",
    "heat_smoe_compared": "comparison",
    "heat_smoe": "comparison + balance",
}
# of one hue, so that they also differ in print; wrong points in a colour of their own
_REGIONS = ("#E3EAF2", "#8DA9C4", "#2F4B6E")
_WRONG = "#E69F00"


def read_results(folder: Path) -> list[Result]:
    """Return the results of unpacked cells, in the order of `CONFIGS`, then by name.

    Raises:
        FileError: there are no results, or a file holds none.
    """
    results = []
    for file in sorted(folder.glob(f"seed*/*/{RESULT}")):
        try:
            result = parse_json(file.read_bytes())
            results.append({name: result[name] for name in (*result, *_COLUMNS)})
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(
                file, f"no result ({error!r})", "Restore the archive of results, or delete it"
            ) from error
    if not results:
        raise FileError(folder, "holds no results", "Run cells into it first")
    order = {name: place for place, name in enumerate(CONFIGS)}
    last = len(order)
    return sorted(results, key=lambda r: (order.get(r["config"], last), r["config"], r["seed"]))


def write_tables(results: Sequence[Result], folder: Path) -> None:
    """Write table.md and table.csv."""
    write_files(folder, {"table.md": markdown(results), "table.csv": to_csv(results)})


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


def to_csv(results: Sequence[Result]) -> str:
    """Return CSV with a line for each cell."""
    return csv_of(_COLUMNS, results)


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
