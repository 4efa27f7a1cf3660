"""Draw the skill of each model of some tables against the processor time of its fit.

python -m ens10.experiments.skill_and_cost "Title=TABLE.csv" ... --out FIGURE.png
"""

import csv
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from ens10.durable import write_whole
from ens10.errors import ArgumentError, FileError
from ens10.experiments.demo import config_path
from ens10.metrics.figures.style import BLUE, GREY, INK, ORANGE, STYLE, new_figure, png
from ens10.untrusted import read_mapping
from ens10.usage import command_parser, reports_errors

_COLOURS = {"statistical method": GREY, "network": BLUE, "network of members": ORANGE}
_REFERENCES = ("raw", "optimum")  # skill is measured between these
_NEGLIGIBLE = 1e-6  # square pixels
_INCHES = 0.23  # of height for each label
_ALWAYS_NAMED = ("emos_seasonal", "mlp", "unet", "transformer_members")
_CLEARLY = 0.02  # of the largest skill


@dataclass(frozen=True)
class Model:
    """A model of a table: one dot of the figure.

    Attributes:
        name: of its configuration.
        seconds: processor time of the fit, mean over the seeds.
        skills: of each seed, percent.
        still_improving: whether a training was still improving when it ended.
    """

    name: str
    seconds: float
    skills: tuple[float, ...]
    still_improving: bool

    @property
    def skill(self) -> float:
        """Mean skill over the seeds, percent."""
        return float(np.mean(self.skills))


@dataclass(frozen=True)
class Table:
    """The models of one table, and the kind of their skill.

    Attributes:
        models: without the raw ensemble, the optimum, and models that are worse than the former.
        has_optimum: whether the optimum is known: skill is then the share of the way to it, else
            that of the raw CRPS.
    """

    models: tuple[Model, ...]
    has_optimum: bool

    @property
    def named(self) -> tuple[Model, ...]:
        """The models that get a label: clearly more skill than all faster ones, and references."""
        named, best = [], 0.0
        step = _CLEARLY * max(model.skill for model in self.models)
        for model in sorted(self.models, key=lambda model: (model.seconds, -model.skill)):
            if model.skill > best + step:
                best = model.skill
                named.append(model)
            elif model.name in _ALWAYS_NAMED:
                named.append(model)
        return tuple(named)


def read_table(path: Path) -> Table:
    """Read a table that `ens10.experiments.studies.matrix` wrote as CSV.

    Raises:
        FileError: it cannot be read, is no such table, or holds no model with skill.
    """
    try:
        rows = list(csv.DictReader(path.read_text().splitlines()))
        raw = {row["seed"]: float(row["crps"]) for row in rows if row["model"] == "raw"}
        has_optimum = any(row["model"] == "optimum" for row in rows)
        rows_by_model: dict[str, list[dict[str, str]]] = {}
        for row in rows:
            if row["model"] not in _REFERENCES:
                rows_by_model.setdefault(row["model"], []).append(row)
        all_models = [
            _model(name, seed_rows, raw, has_optimum) for name, seed_rows in rows_by_model.items()
        ]
    except (OSError, UnicodeDecodeError, KeyError, ValueError, StopIteration) as error:
        raise FileError(path, f"no table of models ({error!r})", "Pass a table.csv") from error
    models = tuple(model for model in all_models if model.skill > 0)
    if not models:
        raise FileError(path, "holds no model with skill", "Pass another table")
    return Table(models, has_optimum)


def _model(
    name: str, rows: Sequence[Mapping[str, str]], raw: Mapping[str, float], has_optimum: bool
) -> Model:
    first = next(iter(raw.values()))  # of all seeds, if they share their data
    skills = tuple(
        100
        * (
            float(r["attained"])
            if has_optimum
            else 1 - float(r["crps"]) / raw.get(r["seed"], first)
        )
        for r in rows
    )
    seconds = float(np.mean([float(row["cpu_seconds"]) for row in rows]))
    still_improving = any(row["still_improving"] == "1" for row in rows)
    return Model(name, seconds, skills, still_improving)


def skill_and_cost(tables: Mapping[str, Table]) -> Figure:
    """Draw a panel for each table: skill against processor time, a dot for each model.

    Vertical lines span the seeds; a dot is hollow if the training was still improving at its end.
    Only models with the most skill for their time are named (`Table.named`).

    Args:
        tables: by title.
    """
    with mpl.rc_context(STYLE):
        max_labels = max(len(table.named) for table in tables.values())
        figure = new_figure(max(4.5, _INCHES * max_labels))
        panels = figure.subplots(1, len(tables), squeeze=False)[0]
        for axes, (title, table) in zip(panels, tables.items(), strict=True):
            _panel(axes, title, table)
        kinds = {_kind(model.name) for table in tables.values() for model in table.models}
        marks = [
            Line2D([], [], marker="o", linestyle="", color=colour, label=kind)
            for kind, colour in _COLOURS.items()
            if kind in kinds
        ]
        figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))
        figure.draw_without_rendering()  # places the panels, so that labels can be
        figure.set_layout_engine("none")
        for axes, table in zip(panels, tables.values(), strict=True):
            _label(axes, table)
    return figure


def _kind(name: str) -> str:
    path = config_path(name)
    content = read_mapping(path) if path.is_file() else {}
    if "network" not in content.get("model", {}).get("init_args", {}):
        return "statistical method"
    data = content["data"]
    kind = data.get("kind", "fields")
    features = kind.get("init_args", {}).get("features") if isinstance(kind, dict) else kind
    takes = features == "members" or data.get("members", False)
    return "network of members" if takes else "network"


def _panel(axes: Axes, title: str, table: Table) -> None:
    for model in table.models:
        colour = _COLOURS[_kind(model.name)]
        ends = [min(model.skills), max(model.skills)]
        axes.plot([model.seconds] * 2, ends, color=colour, linewidth=1.5, zorder=1)
        fill = "white" if model.still_improving else colour
        axes.plot(model.seconds, model.skill, "o", color=colour, markerfacecolor=fill, markersize=6)
    axes.set_xscale("log")
    axes.margins(x=0.25, y=0.1)
    axes.set_ylim(0.0, None)
    axes.grid(axis="y")
    best = "share of the way from raw to the best possible (%)"
    skill_label = best if table.has_optimum else "CRPS lower than that of the raw ensemble (%)"
    axes.set(title=title, xlabel="processor time of the fit (s)", ylabel=skill_label)


def _label(axes: Axes, table: Table) -> None:
    """Write the names of the models at free places near their dots, with lines to the dots."""
    dots = [axes.transData.transform((model.seconds, model.skill)) for model in table.models]
    boxes = [Bbox.from_bounds(x - 8, y - 8, 16, 16) for x, y in dots]
    for model in sorted(table.named, key=lambda model: -model.skill):
        dot = (model.seconds, model.skill)
        label = axes.annotate(
            model.name, dot, (0, 0), textcoords="offset points", fontsize=7, color=INK, va="center"
        )
        boxes.append(_place(label, boxes, axes.get_window_extent()))
        line = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
        axes.annotate("", dot, label.get_position(), textcoords="offset points", arrowprops=line)


def _place(label: Annotation, boxes: Sequence[Bbox], canvas: Bbox) -> Bbox:
    """Move a label to the nearest place that overlaps least; return its box."""
    candidates: list[tuple[float, tuple[float, float], str, Bbox]] = []
    for distance in range(7, 100, 6):
        for angle in np.radians(range(0, 360, 15)):
            offset = (distance * math.cos(angle), distance * math.sin(angle))
            side = "left" if offset[0] > 0 else "right"
            label.set(position=offset, horizontalalignment=side)
            box = label.get_window_extent()
            common = Bbox.intersection(box, canvas)
            outside = 1.0 - _area(common) / _area(box)
            overlap = outside + sum(_area(Bbox.intersection(box, other)) for other in boxes)
            candidates.append((overlap, offset, side, box))
            if overlap < _NEGLIGIBLE:
                return box
    _, offset, side, box = min(candidates, key=lambda candidate: candidate[0])
    label.set(position=offset, horizontalalignment=side)
    return box


def _area(box: Bbox | None) -> float:
    return 0.0 if box is None else float(box.width * box.height)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 with one line on bad input."""
    parser = command_parser(
        "python -m ens10.experiments.skill_and_cost", (__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("tables", nargs="+", metavar="TITLE=CSV", help="tables of models")
    parser.add_argument("--out", type=Path, required=True, metavar="PNG")
    options = parser.parse_args(arguments)
    tables = {}
    for text in options.tables:
        title, _, path = text.rpartition("=")
        if not title:
            raise ArgumentError("tables", f"{text!r} has no title", 'Write "Title=table.csv"')
        tables[title] = read_table(Path(path))
    write_whole(options.out, png(skill_and_cost(tables)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
