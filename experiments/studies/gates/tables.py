"""The table and the figure of the study of gates."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from ens10.errors import MissingDataError
from ens10.experiments.studies.gates.cells import VARIANTS
from ens10.experiments.studies.heat.module import match_regions
from ens10.experiments.studies.json_cells import Result, read_json_cells
from ens10.metrics import Interval, interval
from ens10.metrics.figures.style import STYLE, new_figure


def read_results(folder: Path) -> list[Result]:
    """Return the results of unpacked cells, by world and seed, in the order of `VARIANTS`."""
    results = [{**r, "kind": place.split("/")[0]} for place, r in read_json_cells(folder).items()]
    order = list(VARIANTS)
    return sorted(results, key=lambda r: (r["kind"], r["seed"], order.index(r["variant"])))


def crps_gain(result: Result, reference: Result) -> Interval:
    """Return the CRPS of the reference less that of a result, with its interval over dates."""
    sums = {"sum": np.array(result["crps"]), "reference_sum": np.array(reference["crps"])}
    count = np.ones(len(result["crps"]))
    return interval(
        {**sums, "weight": count},
        lambda s: (s["reference_sum"] - s["sum"]) / s["weight"],
        method="bootstrap",
    )


HEADINGS = (
    *("world", "seed", "last layer", "CRPS", "gain on U-Net", "interval", "of oracle's"),
    *("map found", "best epoch"),
)


def table(results: Sequence[Result]) -> list[list[str]]:
    """Return the rows of the table, under `HEADINGS`."""
    rows = []
    for result in results:
        group = {r["variant"]: r for r in results if (r["kind"], r["seed"]) == _group(result)}
        rows.append([result["kind"], str(result["seed"]), *_row(result, group)])
    return rows


def _group(result: Result) -> tuple[str, int]:
    return result["kind"], result["seed"]


def _row(result: Result, group: Mapping[str, Result]) -> list[str]:
    crps, agreement = float(np.mean(result["crps"])), result["agreement"]
    improving = result["epochs"] and result["epoch"] == result["epochs"]
    cells = [VARIANTS[result["variant"]].label, f"{crps:.4f}"]
    if "unet" in group and result["variant"] != "unet":
        gain = crps_gain(result, group["unet"])
        cells += [f"{gain.value:+.4f}", f"{gain.lower:+.4f} to {gain.upper:+.4f}"]
        oracle = crps_gain(group["oracle"], group["unet"]).value if "oracle" in group else np.nan
        cells.append(f"{100 * gain.value / oracle:.0f} %" if oracle > 0 else "–")
    else:
        cells += ["–", "–", "–"]
    cells.append("–" if agreement is None else f"{100 * agreement:.0f} %")
    cells.append(f"{result['epoch']}{'*' if improving else ''}" if result["epochs"] else "–")
    return cells


def draw(results: Sequence[Result]) -> Figure:
    """Return the true map and the points that each expert serves, of the seed with most maps.

    Raises:
        MissingDataError: no result has a map.
    """
    runs = [r for r in results if r["map"] and r["variant"] != "oracle"]
    if not runs:
        raise MissingDataError("results", ["a map of experts"], "Compute a variant with experts")
    groups = [_group(r) for r in runs]
    runs = [r for r in runs if _group(r) == max(groups, key=groups.count)]
    region = np.array(runs[0]["region"])
    colours = ListedColormap(["#E3EAF2", "#8DA9C4", "#2F4B6E", "#E69F00"])
    with mpl.rc_context(STYLE):
        rows = -(-(1 + len(runs)) // 3)
        figure = new_figure(1.25 * rows)
        axes = figure.subplots(rows, 3, squeeze=False).ravel()
        maps = [("true regions", region)]
        for r in runs:
            label = f"{VARIANTS[r['variant']].label}\n{100 * r['agreement']:.0f} % found"
            maps.append((label, match_regions(np.array(r["map"]), region)[0]))
        for ax in axes:
            ax.set_axis_off()
        for ax, (label, values) in zip(axes, maps, strict=False):
            ax.imshow(values, cmap=colours, vmin=-0.5, vmax=3.5, interpolation="nearest")
            ax.set_title(label, fontsize=7)
    return figure
