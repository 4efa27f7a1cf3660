"""Paired differences of variants over dates and for each seed, as tables and a figure."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ens10.experiments.report import png
from ens10.experiments.run_results import SCORES, FinishedRun, check_comparable, mean_score
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runner.trainings import read_kept
from ens10.experiments.studies.ablation.cells import place_of
from ens10.experiments.studies.ablation.spec import Ablation
from ens10.experiments.tables import FEW_DATES
from ens10.experiments.writers import ABSENT, NOT_CLEAR, Column, csv_of, markdown_of, number
from ens10.metrics import Interval, interval, summarise
from ens10.metrics.figures.style import BLUE, GREY, INK, STYLE, in_units, new_figure
from ens10.metrics.uncertainty import Method, Sums, blocks_in_words, difference_of, paired_sums

CRPS, EECRPS = "crps", "eecrps"
TABLE, PLAIN, FIGURE = "table.md", "table.csv", "differences.png"
_COSTS = (
    ("CPU (s)", "cpu_seconds", ".0f"),
    ("Memory (MB)", "memory_mb", ".0f"),
    ("Parameters", "parameters", ",.0f"),
)
_ROW = 0.32  # inches


@dataclass(frozen=True)
class Difference:
    """A score of a variant less that of another, on the same dates and seeds.

    Attributes:
        over_dates: of the mean over seeds; its bounds are over dates, with the trainings as they
            are.
        each: of each seed.
        other: mean of the other's score.
    """

    over_dates: Interval
    each: Mapping[int, float]
    other: float

    @property
    def clear(self) -> bool:
        """Whether the bounds do not hold 0 and all seeds agree."""
        bounds = self.over_dates
        signs = {np.sign(value) for value in self.each.values()}
        return bounds.lower * bounds.upper > 0 and len(signs) == 1


@dataclass(frozen=True)
class Line:
    """One variant.

    Attributes:
        name: of the variant.
        against: that it is compared with; None for the base.
        runs: by seed.
        differences: by score, "crps" and perhaps "eecrps"; empty for the base.
    """

    name: str
    against: str | None
    runs: Mapping[int, FinishedRun]
    differences: Mapping[str, Difference]

    @property
    def units(self) -> str:
        """Units of the CRPS."""
        return next(iter(self.runs.values())).units

    @property
    def dates(self) -> int:
        """Test dates of a seed."""
        return int(next(iter(self.runs.values())).states.sizes["time"])

    def mean(self, of: Callable[[FinishedRun], float]) -> float:
        """Return the mean over the seeds of a number of each run."""
        return float(np.mean([of(run) for run in self.runs.values()]))

    @property
    def crps(self) -> float:
        """Mean CRPS over the seeds."""
        return self.mean(lambda run: mean_score(run.states, CRPS))

    @property
    def spread_error(self) -> float:
        """Ratio of spread to error; NaN if unknown."""

        def of(run: FinishedRun) -> float:
            scores = summarise(run.states, maps=False, method="student")
            return float(scores.get("spread_error", np.nan))

        return self.mean(of)

    def cost(self, key: str) -> float:
        """A number of the provenance, such as "cpu_seconds"; NaN if unknown."""
        return self.mean(lambda run: float(run.provenance.get(key) or np.nan))


def read_lines(
    ablation: Ablation,
    kept: Path,
    seeds: Sequence[int],
    *,
    same_data: bool,
    shown: Collection[str] | None = None,
) -> list[Line]:
    """Return a line for each variant that has a result, in the ablation's order.

    Args:
        ablation: whose variants are read.
        kept: folder of the unpacked cells of all ablations.
        seeds: to read.
        same_data: whether seeds are trainings on the same data, so that their dates are the same.
        shown: places of the cells that count; None for all.

    Raises:
        FileError: a kept cell that cannot be read.
        ArgumentError, MissingDataError: variants that were scored on different points or dates.
    """
    held: dict[str, dict[int, FinishedRun]] = {}
    for variant in ablation.variants:
        places = {seed: place_of(ablation.name, seed, variant.name) for seed in seeds}
        found = {
            seed: read_kept(kept / place)
            for seed, place in places.items()
            if (kept / place / SCORES).exists() and (shown is None or place in shown)
        }
        if found:
            held[variant.name] = found
    lines = []
    for variant in (v for v in ablation.variants if v.name in held):
        others = held.get(variant.against or "", {})
        differences: dict[str, Difference] = {}
        for score in (CRPS, EECRPS):
            made = difference(held[variant.name], others, score, same_data=same_data)
            differences |= {score: made} if made else {}
        lines.append(Line(variant.name, variant.against, held[variant.name], differences))
    return lines


def difference(
    mine: Mapping[int, FinishedRun],
    others: Mapping[int, FinishedRun],
    score: str,
    *,
    same_data: bool,
) -> Difference | None:
    """The paired difference over the seeds that both have; None if there are none.

    Dates of different worlds are put one after the other; dates of the same data are summed over
    the seeds first, so that a date is drawn with all its trainings.

    Args:
        mine: of the variant, by seed.
        others: of what it is compared with.
        score: "crps" or "eecrps".
        same_data: whether the seeds are trainings on the same data.
    """
    sums: dict[int, Sums] = {}
    for seed in sorted(set(mine) & set(others)):
        check_comparable([mine[seed], others[seed]])
        states, reference = mine[seed].states_of(score), others[seed].states_of(score)
        if states is not None and reference is not None:
            order = np.argsort(states["time"].to_numpy(), kind="stable")
            paired = paired_sums(states, reference, score)
            sums[seed] = {name: values[order] for name, values in paired.items()}
    if not sums:
        return None
    together = _together(list(sums.values()), same_data)
    few = min(len(one["sum"]) for one in sums.values()) < FEW_DATES
    method: Method = "student" if few else "bootstrap"
    over_dates = interval(together, difference_of, method=method)
    each = {seed: _difference(one) for seed, one in sums.items()}
    total = {name: values.sum() for name, values in together.items()}
    return Difference(over_dates, each, float(total["reference_sum"] / total["reference_weight"]))


def _together(sums: Sequence[Sums], same_data: bool) -> Sums:
    names = sums[0]
    join = (lambda parts: np.sum(parts, axis=0)) if same_data else np.concatenate
    joined = {name: join([one[name] for one in sums]) for name in names}
    scored = joined["weight"] != 0
    return {name: values[scored] for name, values in joined.items()}


def _difference(sums: Sums) -> float:
    return float(difference_of({name: values.sum() for name, values in sums.items()}))


def write_pages(
    ablation: Ablation,
    lines: Sequence[Line],
    out: Path,
    notes: Sequence[str],
    missing: Mapping[str, str],
) -> str:
    """Write `table.md`, `table.csv` and `differences.png`, and return the first.

    Args:
        ablation: that was asked.
        lines: of `read_lines`.
        out: folder of its tables.
        notes: what a reader has to know of data and trainings.
        missing: why a cell is not there, by its name.
    """
    parts = [f"# {ablation.name}", ablation.question, markdown_of(table(lines)).rstrip()]
    gone = [f"Missing: {name}: {why}" for name, why in missing.items()]
    listed = [f"- {note}" for note in (*notes, *_notes(lines), *gone)]
    text = "\n\n".join([*parts, "\n".join(listed)]) + "\n"
    files: dict[str, str | bytes] = {TABLE: text, PLAIN: to_csv(lines)}
    if any(line.differences for line in lines):
        files[FIGURE] = png(difference_figure(lines))
    else:
        (out / FIGURE).unlink(missing_ok=True)
    write_files(out, files)
    return text


def table(lines: Sequence[Line]) -> list[Column]:
    """The columns that hold anything."""
    units = in_units(lines[0].units)
    crps = lines[0].crps
    digits = max(3 - math.floor(math.log10(crps)), 4 if crps < 10 else 2)
    change = f"+.{digits}f"
    several = any(len(line.runs) > 1 for line in lines)

    def made(heading: str, cells: Sequence[str]) -> Column:
        return Column(heading, tuple(cells))

    others = {line.against for line in lines if line.against}
    found = [Column("Variant", tuple(line.name for line in lines), numeric=False)]
    if len(others) > 1:
        against = tuple(line.against or ABSENT for line in lines)
        found.append(Column("Against", against, numeric=False))
    found.append(made(f"CRPS{units}", [f"{line.crps:.{digits}f}" for line in lines]))
    found.append(made(f"Δ CRPS{units}", [_bounds(line, CRPS, change) for line in lines]))
    found.append(made("Δ (%)", [_share(line) for line in lines]))
    if several:
        found.append(made(f"By seed{units}", [_seeds(line, change) for line in lines]))
    found.append(made(f"Δ EECRPS{units}", [_bounds(line, EECRPS, change) for line in lines]))
    found.append(made("Spread/error", [number(line.spread_error, ".3f") for line in lines]))
    for heading, key, form in _COSTS:
        found.append(made(heading, [number(line.cost(key), form) for line in lines]))
    return [column for column in found if set(column.cells) != {ABSENT}]


def to_csv(lines: Sequence[Line]) -> str:
    """A line for each variant and seed, and one for all seeds with the bounds."""
    head = ["variant", "against", "seed", "crps", "difference", "difference_lower"]
    head += ["difference_upper", "eecrps_difference", "eecrps_difference_lower"]
    head += ["eecrps_difference_upper", *(key for _, key, _ in _COSTS)]
    rows = []
    for line in lines:
        for seed in [*line.runs, None]:
            one = line if seed is None else Line(
                line.name, line.against, {seed: line.runs[seed]}, line.differences
            )  # fmt: skip
            values = [one.crps, *_three(line, CRPS, seed), *_three(line, EECRPS, seed)]
            values += [one.cost(key) for _, key, _ in _COSTS]
            rows.append([line.name, line.against, seed, *values])
    return csv_of(head, rows, ".9g")


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
    most = max(len(line.runs) for line in lines)
    few = [f"{x.name} ({len(x.runs)} of {most})" for x in lines if len(x.runs) < most]
    if few:
        told.append(
            f"Of fewer seeds: {', '.join(few)}. Compare their differences and not their CRPS."
        )
    if any(EECRPS in line.differences for line in lines):
        told.append("EECRPS: CRPS weighted by the absolute extreme forecast index of all members.")
    return told


def _bounds(line: Line, score: str, form: str) -> str:
    made = line.differences.get(score)
    if made is None:
        return ABSENT
    bounds = made.over_dates
    text = number(bounds.value, form)
    if not math.isnan(bounds.lower):
        text += f" [{number(bounds.lower, form)}, {number(bounds.upper, form)}]"
    return text if made.clear else f"{text} {NOT_CLEAR}"


def _share(line: Line) -> str:
    made = line.differences.get(CRPS)
    return ABSENT if made is None else number(100 * made.over_dates.value / made.other, "+.1f")


def _seeds(line: Line, form: str) -> str:
    made = line.differences.get(CRPS)
    if made is None:
        return ABSENT
    return ", ".join(number(value, form) for value in made.each.values())


def _three(line: Line, score: str, seed: int | None) -> list[float]:
    made: Difference | None = line.differences.get(score)
    if made is None:
        return [math.nan] * 3
    if seed is not None:
        return [made.each.get(seed, math.nan), math.nan, math.nan]
    return [made.over_dates.value, made.over_dates.lower, made.over_dates.upper]
