"""CRPS by number of input members: how many post-processed members equal the raw ensemble.

The base of such an ablation is the raw ensemble, and its variants are models with fewer and more
input members. The raw CRPS of any number of members follows from that of the available ones, see
`ens10.experiments.studies.members_worth`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ens10.errors import ArgumentError
from ens10.experiments.reporting.report import png
from ens10.experiments.runner.tables import write_files
from ens10.experiments.scoring.run_results import mean_score
from ens10.experiments.scoring.writers import ABSENT, Column, markdown_of
from ens10.experiments.studies.ablation.spec import Ablation
from ens10.experiments.studies.ablation.tables import CRPS, Line
from ens10.experiments.studies.members_worth import RawCurve, members_in_words, raw_curve
from ens10.metrics.figures.style import COLOURS, GREY, INK, STYLE, in_units, new_figure

TABLE, FIGURE = "worth.md", "worth.png"
_MAX_MEMBERS = 50  # members that the raw curve is drawn to
_TICKS = (1, 2, 3, 5, 7, 10, 20, 50)
Curves = Mapping[int, RawCurve]


def write_sensitivity(ablation: Ablation, lines: Sequence[Line], out: Path) -> str:
    """Write `worth.md` and `worth.png`, and return the first.

    Args:
        ablation: whose base is the raw ensemble.
        lines: of `read_lines`.
        out: folder of its results.

    Raises:
        ArgumentError: the base is no ensemble, or is not among the lines.
    """
    base = next((line for line in lines if line.reference is None), None)
    if base is None:
        raise ArgumentError("worth", f"{ablation.base.name} is not there to count in")
    curves = {seed: raw_curve(run) for seed, run in base.runs.items()}
    models = lines_by_model(ablation, lines, next(iter(curves.values())).ensemble_size)
    text = sensitivity_table(base.name, models, curves)
    write_files(out, {TABLE: text, FIGURE: png(sensitivity_figure(base.name, models, curves))})
    return text


def lines_by_model(
    ablation: Ablation, lines: Sequence[Line], ensemble_size: int
) -> dict[str, dict[int, Line]]:
    """Return lines by configuration and number of input members.

    Args:
        ablation: of the variants.
        lines: of the variants.
        ensemble_size: number of members of the full ensemble.
    """
    models: dict[str, dict[int, Line]] = {}
    for line in lines:
        variant = ablation.variant(line.name)
        size = int(variant.content["data"].get("ensemble") or ensemble_size)
        models.setdefault(variant.config.stem, {})[size] = line
    return {name: dict(sorted(by_size.items())) for name, by_size in models.items()}


def sensitivity_table(base: str, models: Mapping[str, Mapping[int, Line]], curves: Curves) -> str:
    """Return CRPS and worth by number of input members as Markdown, and the result in words."""
    units = in_units(next(iter(curves.values())).units)
    sizes = sorted({size for by_size in models.values() for size in by_size})
    expected = [float(np.mean([c.crps(size) for c in curves.values()])) for size in sizes]
    columns = [Column("Members given", tuple(map(str, sizes)))]
    columns.append(Column(f"{base}, expected{units}", tuple(f"{e:.4f}" for e in expected)))
    notes = []
    for name, by_size in models.items():
        lines = [by_size.get(size) for size in sizes]
        cells = tuple(f"{line.crps:.4f}" if line else ABSENT for line in lines)
        columns.append(Column(f"{name}{units}", cells))
        if name != base:
            worth = tuple(_worth(line, curves) if line else ABSENT for line in lines)
            columns.append(Column(f"{name}, worth in {base} members", worth))
            notes.append(answer_in_words(name, by_size, curves))
    notes.append(
        f"Expected: the CRPS of so many members, all choices of the {_member_count(curves)} being "
        "as likely (Ferro 2014). Worth: members of the raw ensemble with the same CRPS; ∞ where it "
        "is below the limit of ever more of them. In brackets: least and most of the seeds."
    )
    return markdown_of(columns) + "\n" + "\n".join(f"- {note}" for note in notes) + "\n"


def answer_in_words(name: str, by_size: Mapping[int, Line], curves: Curves) -> str:
    """Return from how many input members a model is better than the full raw ensemble."""
    raw = f"the raw {_member_count(curves)}"
    deltas = {s: line.differences[CRPS] for s, line in by_size.items() if CRPS in line.differences}
    better = {size: delta for size, delta in deltas.items() if delta.bounds.value < 0}
    if not better:
        return f"{name}: none of these numbers of members is better with it than {raw}."
    fewest = min(better)
    note = " (the fewest that were tried)" if fewest == min(by_size) else ""
    share = -100 * better[fewest].bounds.value / better[fewest].other
    text = f"{name}: {fewest} members{note} have a CRPS {share:.1f} % below that of {raw} with it"
    clear = min((size for size, delta in better.items() if delta.is_clear), default=None)
    if clear is None:
        return f"{text}; with none of these numbers is it clear."
    return f"{text}; from {clear} on it is clear." if clear > fewest else f"{text}, clearly."


def sensitivity_figure(
    base: str, models: Mapping[str, Mapping[int, Line]], curves: Curves
) -> Figure:
    """Draw CRPS by number of input members: the raw ensemble, and a line for each model."""
    first = next(iter(curves.values()))
    with mpl.rc_context(STYLE):
        figure = new_figure(3.2)
        axes = figure.subplots()
        members = np.geomspace(1, _MAX_MEMBERS, 100)
        raw = [float(np.mean([c.crps(m) for c in curves.values()])) for m in members]
        axes.plot(members, raw, color=GREY, label=f"{base}, expected")
        raw_crps = float(np.mean([c.plain for c in curves.values()]))
        axes.axhline(raw_crps, color=INK, linestyle=":", linewidth=1)
        axes.annotate(
            f"{base}, {first.ensemble_size} members", (_MAX_MEMBERS, raw_crps), (0, 3),
            textcoords="offset points", ha="right", fontsize=8,
        )  # fmt: skip
        for n, (name, by_size) in enumerate(models.items()):
            if name == base:
                crps = [line.crps for line in by_size.values()]
                axes.plot(list(by_size), crps, "o", color=GREY, label=f"{base}, scored")
            else:
                _draw(axes, name, by_size, COLOURS[n % len(COLOURS)])
        axes.set_xscale("log")
        axes.set_xticks(_TICKS, [str(tick) for tick in _TICKS])
        axes.minorticks_off()
        axes.set_xlabel("members given")
        axes.set_ylabel(f"CRPS{in_units(first.units)}")
        axes.set_ylim(top=1.02 * max(raw[0], raw_crps))
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _draw(axes: Axes, name: str, by_size: Mapping[int, Line], colour: str) -> None:
    """Draw a model's line, with the range of its seeds shaded."""
    sizes, lines = list(by_size), list(by_size.values())
    axes.plot(sizes, [line.crps for line in lines], "o-", color=colour, markersize=5, label=name)
    scores = [[mean_score(run.states, CRPS) for run in line.runs.values()] for line in lines]
    bounds = list(map(min, scores)), list(map(max, scores))
    axes.fill_between(sizes, *bounds, color=colour, alpha=0.15, linewidth=0)


def _worth(line: Line, curves: Curves) -> str:
    worths = [
        curves[seed].members(mean_score(run.states, CRPS))
        for seed, run in line.runs.items()
        if seed in curves
    ]
    inverse = float(np.mean([1 / members for members in worths]))
    text = members_in_words(1 / inverse if inverse else float("inf"))
    spread = f" [{members_in_words(min(worths))}, {members_in_words(max(worths))}]"
    return text + spread if len(worths) > 1 and np.isfinite(min(worths)) else text


def _member_count(curves: Curves) -> int:
    return next(iter(curves.values())).ensemble_size
