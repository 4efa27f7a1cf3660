"""The tables of the traps (trainings, raw ensemble, extreme forecast index) and their figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import stdtrit

from ens10.experiments.runner.tables import write_files
from ens10.experiments.scoring.writers import (
    ABSENT,
    NOT_CLEAR,
    Column,
    columns_of,
    csv_of,
    fill_section,
    markdown_of,
    number,
)
from ens10.experiments.studies.json_cells import Result, read_json_cells
from ens10.experiments.studies.study import image_of
from ens10.experiments.studies.traps.cells import EFI_RULES, RAW
from ens10.metrics.figures.style import BLUE, INK, ORANGE, STYLE, new_figure

Results = Mapping[int, Mapping[str, Result]]  # by seed and name
ValueOf = Callable[[Mapping[str, Result]], float]
CONFIDENCE = 0.95
_MIN_SEEDS = 3
TRAPS = {
    "selection": "best epoch on the test years",
    "normalisation": "normalised with all years",
    "weights": "no area weights",
    "deviation": "deviation with n",
    "epsilon": "0.1 added to deviations",
    "masks": "gaps without a mask",
    "all": "all of these",
}
INDICES = {
    "clean": "exact, 101 levels, training years",
    "levels": "21 levels, step function",
    "years": "climate with the year judged",
    "all": "all of paper",
}
# Rows of the table of the raw ensemble: a score, and the one that it is compared with.
_RAW_CHANGES = {
    "CRPS without area weights, to that with": ("crps.none", "crps.cell"),
    "normal with deviation by n, to n − 1: CRPS": ("normal.n", "normal.n-1"),
    "deviation by n, to n − 1: spread/error": ("spread_error.n", "spread_error.n-1"),
    "plain CRPS of 10 members, to the fair one": ("estimators.plain.10", "estimators.fair.10"),
    "plain CRPS of 5 members, to the fair one": ("estimators.plain.5", "estimators.fair.5"),
    "5 members, to 10: plain CRPS": ("estimators.plain.5", "estimators.plain.10"),
    "5 members, to 10: fair CRPS": ("estimators.fair.5", "estimators.fair.10"),
}
# Columns of the table of the index: part of the result, format, whether its change is in percent.
_EXTREMES = {
    "Mean EFI": ("mean", "+.3f", False),
    "Mean |EFI|": ("mean_abs", "+.3f", True),
    "Largest |EFI|": ("max_abs", "+.3f", False),
    "EECRPS of raw (K)": ("raw", "+.3f", True),
    "EECRPS of the optimum (K)": ("optimum", "+.3f", True),
    "Skill of the optimum (%)": ("skill", "+.2f", False),
}
_SERIES = {
    "reported": ("what the protocol reports", ORANGE, 0.16),
    "fresh": ("what the forecast is worth, on years that nothing has looked at", BLUE, -0.16),
}
_HEIGHT, _ROW = 0.95, 0.36


@dataclass(frozen=True)
class Mean:
    """A mean over seeds and its interval by Student's t; NaN bounds for a single seed."""

    value: float
    lower: float
    upper: float
    values: tuple[float, ...]

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.values)

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.lower > 0 or self.upper < 0

    def text(self, form: str, unit: str = "") -> str:
        """Return the mean with its interval as text, with a mark if that contains 0."""
        if not self.seeds:
            return ABSENT
        text = f"{number(self.value, form)}{unit}"
        if self.seeds > 1:
            text += f" [{number(self.lower, form)}, {number(self.upper, form)}]"
            text += "" if self.is_clear else f" {NOT_CLEAR}"
        return text

    def range(self, form: str) -> str:
        """Return the smallest and the largest value as text."""
        return f"{number(min(self.values), form)} to {number(max(self.values), form)}"


def read_results(folder: Path) -> Results:
    """Return the results of unpacked cells, by seed and name; see `read_json_cells`."""
    results: dict[int, dict[str, Result]] = {}
    for place, result in read_json_cells(folder).items():
        results.setdefault(int(place.split("/")[0].removeprefix("seed")), {}).update(result)
    return {seed: dict(sorted(by_name.items())) for seed, by_name in sorted(results.items())}


def mean_of(results: Results, value_of: ValueOf) -> Mean:
    """Return the mean of a function of the results over the seeds that have these results."""
    values = []
    for by_name in results.values():
        try:
            values.append(value_of(by_name))
        except KeyError:
            continue
    if len(values) < 2:
        value = values[0] if values else float("nan")
        return Mean(value, float("nan"), float("nan"), tuple(values))
    centre, spread = float(np.mean(values)), float(np.std(values, ddof=1))
    factor = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))  # Student's t
    half = factor * spread / len(values) ** 0.5
    return Mean(centre, centre - half, centre + half, tuple(values))


def value_at(path: str) -> ValueOf:
    """Return a function: the value of the results at a path such as "raw.crps.cell"."""

    def value(by_name: Mapping[str, Any]) -> float:
        for key in path.split("."):
            by_name = by_name[key]
        return float(by_name)  # type: ignore[arg-type]

    return value


def change(value_of: ValueOf, reference_of: ValueOf) -> ValueOf:
    """Return a function: the change (%) of a value from a reference with the same seed."""
    return lambda by_name: 100 * (value_of(by_name) / reference_of(by_name) - 1)


def change_from_clean(name: str, score: str) -> ValueOf:
    """Return a function: the change (%) of a score from that of `clean` with the same seed."""
    return change(value_at(f"{name}.{score}"), value_at(f"clean.{score}"))


def tables(results: Results) -> dict[str, list[Column]]:
    """Return the columns of each table by its name: "trained", "raw" and "extremes"."""
    return {
        "trained": _training_columns(results),
        "raw": _raw_columns(results),
        "extremes": _extreme_columns(results),
    }


def trap_rows(results: Results) -> list[str]:
    """Return the traps that are trained with at least three seeds, or all seeds if fewer."""
    least = min(_MIN_SEEDS, len(results))
    return [n for n in TRAPS if mean_of(results, change_from_clean(n, "fresh")).seeds >= least]


def _training_columns(results: Results) -> list[Column]:
    names, rows = trap_rows(results), []
    for name in names:
        reported, fresh = (
            mean_of(results, change_from_clean(name, score)) for score in ("reported", "fresh")
        )
        rows.append([TRAPS[name], reported.text("+.2f"), fresh.text("+.2f"), str(fresh.seeds)])
    return columns_of(["Trap", "What it reports (%)", "What it is worth (%)", "Seeds"], rows)


def _raw_columns(results: Results) -> list[Column]:
    rows = []
    for label, (path, reference) in _RAW_CHANGES.items():
        pair = value_at(f"{RAW}.{path}"), value_at(f"{RAW}.{reference}")
        mean = mean_of(results, change(*pair))
        rows.append([label, mean.text("+.1f"), mean.range("+.1f")])
    return columns_of(["Raw ensemble", "Change (%)", "Seeds from to (%)"], rows)


def _extreme_columns(results: Results) -> list[Column]:
    """Return the values of the clean index, and the changes by the others, paired by seed."""

    def value(name: str, part: str) -> ValueOf:
        raw, optimum = (value_at(f"{RAW}.extremes.{name}.{p}") for p in ("raw", "optimum"))
        if part == "skill":
            return lambda by_name: 100 * (1 - optimum(by_name) / raw(by_name))
        return value_at(f"{RAW}.extremes.{name}.{part}")

    def cells(part: str, form: str, percent: bool) -> list[str]:
        clean = value("clean", part)

        def cell(name: str) -> str:
            own = value(name, part)
            if percent:
                return mean_of(results, change(own, clean)).text("+.1f", " %")
            return mean_of(results, lambda by_name: own(by_name) - clean(by_name)).text(form)

        first = number(mean_of(results, clean).value, form.lstrip("+"))
        return [first, *(cell(name) for name in EFI_RULES if name != "clean")]

    columns = [cells(*options) for options in _EXTREMES.values()]
    names = [INDICES[name] for name in EFI_RULES]
    return columns_of(["Index", *_EXTREMES], zip(names, *columns, strict=True))


def write_tables(results: Results, folder: Path) -> str:
    """Write table.md and table.csv; return the Markdown."""
    all_tables = tables(results)
    text = "\n".join(markdown_of(columns) for columns in all_tables.values())
    rows = [
        (seed, name, *leaf)
        for seed, by_name in sorted(results.items())
        for name, result in sorted(by_name.items())
        for leaf in _leaves(result)
    ]
    csv = csv_of(["seed", "name", "quantity", "value"], rows)
    write_files(folder, {"table.md": text, "table.csv": csv})
    return text


def _leaves(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    leaves: list[tuple[str, str]] = []
    for name, value in sorted(result.items()):
        if isinstance(value, dict):
            leaves += _leaves(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            leaves.append((f"{prefix}{name}", f"{value:.6g}"))
    return leaves


def fill_page(page: str, columns_by_table: Mapping[str, Sequence[Column]]) -> str:
    """Return a page with new tables, each between `<!-- table NAME -->` and `<!-- end -->`.

    Raises:
        MissingDataError: the page has no place for a table.
    """
    for name, columns in columns_by_table.items():
        page = fill_section(page, f"table {name}", markdown_of(columns).strip())
    return page


def traps_figure(results: Results) -> Figure:
    """Draw the change of the CRPS from the clean protocol, a row for each trap."""
    names = trap_rows(results)
    with mpl.rc_context(STYLE):
        figure = new_figure(_HEIGHT + _ROW * len(names))
        axes = figure.subplots()
        for place, name in enumerate(reversed(names)):
            for score, (_, colour, shift) in _SERIES.items():
                _row(axes, results, name, score, place + shift, colour)
        axes.axvline(0.0, color=INK, linewidth=0.8, zorder=0)
        axes.set_yticks(range(len(names)), [TRAPS[n] for n in reversed(names)])
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_xlabel("CRPS against the clean protocol (%); less is better")
        handles = [
            axes.plot([], [], "o", color=colour, label=label)[0]
            for label, colour, _ in _SERIES.values()
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=2, fontsize=8)
    return figure


def _row(axes: Axes, results: Results, name: str, score: str, y: float, colour: str) -> None:
    value_of = change_from_clean(name, score)
    values = [value_of(by_name) for by_name in results.values() if {name, "clean"} <= set(by_name)]
    axes.plot(values, [y] * len(values), "|", color=colour, markersize=6, alpha=0.6)
    mean: Mean = mean_of(results, value_of)
    if mean.seeds > 1:
        axes.plot([mean.lower, mean.upper], [y, y], color=colour, linewidth=1.4)
    axes.plot([mean.value], [y], "o", color=colour, markersize=5)


def draw(results: Results, path: Path) -> None:
    """Write the figure as PNG."""
    image = image_of(traps_figure(results), 160, metadata={"Software": None})
    write_files(path.parent, {path.name: image})
