"""The table of an ablation as Markdown and CSV, and its figure."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from ens10.durable import write_whole
from ens10.experiments.ablation.results import CRPS, EECRPS, Difference, Line
from ens10.experiments.ablation.spec import Ablation
from ens10.experiments.report import png
from ens10.experiments.writers import ABSENT, NOT_CLEAR, Column, markdown_of
from ens10.metrics.figures.style import BLUE, GREY, INK, STYLE, in_units, new_figure
from ens10.metrics.uncertainty import blocks_in_words

TABLE, PLAIN, FIGURE = "table.md", "table.csv", "differences.png"
_COSTS = (
    ("CPU (s)", "cpu_seconds", ".0f"),
    ("Memory (MB)", "memory_mb", ".0f"),
    ("Parameters", "parameters", ",.0f"),
)
_ROW = 0.32  # inches


def write_pages(
    ablation: Ablation,
    lines: Sequence[Line],
    out: Path,
    told: Sequence[str],
    missing: Mapping[str, str],
) -> str:
    """Writes `table.md`, `table.csv` and `differences.png`, and returns the first.

    Args:
        ablation: that was asked.
        lines: of `read_lines`.
        out: folder of its results.
        told: what a reader has to know of data and trainings.
        missing: cells that are not there, and why.
    """
    parts = [f"# {ablation.name}", ablation.question, markdown_of(table(lines)).rstrip()]
    gone = [f"Missing: {name}: {why}" for name, why in missing.items()]
    notes = [*told, *_notes(lines), *gone]
    text = "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)]) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / TABLE, text)
    write_whole(out / PLAIN, to_csv(lines))
    (out / FIGURE).unlink(missing_ok=True)
    if any(line.differences for line in lines):
        write_whole(out / FIGURE, png(difference_figure(lines)))
    return text


def table(lines: Sequence[Line]) -> list[Column]:
    """The columns that hold anything."""
    units = in_units(lines[0].units)
    crps = lines[0].crps
    digits = max(3 - math.floor(math.log10(crps)), 4 if crps < 10 else 2)
    several = any(len(line.kept) > 1 for line in lines)

    def made(heading: str, cells: Sequence[str]) -> Column:
        return Column(heading, tuple(cells))

    others = {line.against for line in lines if line.against}
    found = [Column("Variant", tuple(line.name for line in lines), numeric=False)]
    if len(others) > 1:
        against = tuple(line.against or ABSENT for line in lines)
        found.append(Column("Against", against, numeric=False))
    found.append(made(f"CRPS{units}", [f"{line.crps:.{digits}f}" for line in lines]))
    found.append(made(f"Δ CRPS{units}", [_bounds(line, CRPS, digits) for line in lines]))
    found.append(made("Δ (%)", [_share(line) for line in lines]))
    if several:
        found.append(made(f"By seed{units}", [_seeds(line, digits) for line in lines]))
    found.append(made(f"Δ EECRPS{units}", [_bounds(line, EECRPS, digits) for line in lines]))
    found.append(made("Spread/error", [_number(line.spread_error, ".3f") for line in lines]))
    for heading, key, form in _COSTS:
        found.append(made(heading, [_number(line.cost(key), form) for line in lines]))
    return [column for column in found if set(column.cells) != {ABSENT}]


def to_csv(lines: Sequence[Line]) -> str:
    """A line for each variant and seed, and one for all seeds with the bounds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["variant", "against", "seed", "crps", "difference", "difference_lower"]
    head += ["difference_upper", "eecrps_difference", "eecrps_difference_lower"]
    writer.writerow([*head, "eecrps_difference_upper", *(key for _, key, _ in _COSTS)])
    for line in lines:
        for seed in [*line.kept, None]:
            one = line if seed is None else Line(
                line.name, line.against, {seed: line.kept[seed]}, line.differences
            )  # fmt: skip
            values = [one.crps, *_three(line, CRPS, seed), *_three(line, EECRPS, seed)]
            values += [one.cost(key) for _, key, _ in _COSTS]
            shown = ["" if math.isnan(value) else f"{value:.9g}" for value in values]
            writer.writerow([line.name, line.against or "", "" if seed is None else seed, *shown])
    return text.getvalue()


def difference_figure(lines: Sequence[Line]) -> Figure:
    """The differences with their bounds, and small marks for each seed."""
    shown = [line for line in lines if CRPS in line.differences]
    with mpl.rc_context(STYLE):
        figure = new_figure(0.9 + _ROW * len(shown))
        axes = figure.subplots()
        axes.axvline(0, color=INK, linewidth=1)
        for place, line in enumerate(shown):
            made = line.differences[CRPS]
            colour = BLUE if made.clear else GREY
            bounds = [made.over_dates.lower, made.over_dates.upper]
            axes.plot(bounds, [place] * 2, color=colour, linewidth=2.5, solid_capstyle="butt")
            axes.plot(made.over_dates.value, place, "o", color=colour, markeredgecolor="white")
            each = list(made.each.values())
            if len(each) > 1:
                axes.plot(each, [place + 0.27] * len(each), "|", color=colour, markersize=6)
        several = len({line.against for line in shown}) > 1
        names = [f"{x.name}, against {x.against}" if several else x.name for x in shown]
        axes.set_yticks(range(len(shown)), names)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.margins(x=0.06)
        base = f" less that of {'the other' if several else shown[0].against}"
        axes.set_xlabel(f"CRPS{base}{in_units(shown[0].units)}; left of the line it is better")
    return figure


def _notes(lines: Sequence[Line]) -> list[str]:
    others = list(dict.fromkeys(line.against for line in lines if line.against))
    named = others[0] if len(others) == 1 else "the variant under Against"
    told = [
        f"Δ: less that of {named}, on the same dates; below 0 it is better. In brackets: 95 % over "
        f"the {lines[0].dates} test dates of each seed, which says nothing of what another "
        "training would give; the differences by seed do "
        f"({blocks_in_words(d.over_dates for line in lines for d in line.differences.values())}).",
        f"{NOT_CLEAR} marks a difference whose interval holds 0, or whose sign differs between "
        "seeds.",
    ]
    most = max(len(line.kept) for line in lines)
    few = [f"{x.name} ({len(x.kept)} of {most})" for x in lines if len(x.kept) < most]
    if few:
        told.append(
            f"Of fewer seeds: {', '.join(few)}. Compare their differences and not their CRPS."
        )
    if any(EECRPS in line.differences for line in lines):
        told.append("EECRPS: CRPS weighted by the absolute extreme forecast index of all members.")
    return told


def _bounds(line: Line, score: str, digits: int) -> str:
    made = line.differences.get(score)
    if made is None:
        return ABSENT
    bounds = made.over_dates
    text = _signed(bounds.value, digits)
    if not math.isnan(bounds.lower):
        text += f" [{_signed(bounds.lower, digits)}, {_signed(bounds.upper, digits)}]"
    return text if made.clear else f"{text} {NOT_CLEAR}"


def _share(line: Line) -> str:
    made = line.differences.get(CRPS)
    return ABSENT if made is None else _signed(100 * made.over_dates.value / made.other, 1)


def _seeds(line: Line, digits: int) -> str:
    made = line.differences.get(CRPS)
    if made is None:
        return ABSENT
    return ", ".join(_signed(value, digits) for value in made.each.values())


def _three(line: Line, score: str, seed: int | None) -> list[float]:
    made: Difference | None = line.differences.get(score)
    if made is None:
        return [math.nan] * 3
    if seed is not None:
        return [made.each.get(seed, math.nan), math.nan, math.nan]
    return [made.over_dates.value, made.over_dates.lower, made.over_dates.upper]


def _signed(value: float, digits: int) -> str:
    text = f"{value:+.{digits}f}"
    if not any(c in "123456789" for c in text):
        return text[1:]  # a rounded zero has no sign
    return text.replace("-", "−")


def _number(value: float, form: str) -> str:
    return ABSENT if math.isnan(value) else format(value, form)
