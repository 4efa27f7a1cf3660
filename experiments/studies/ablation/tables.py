"""Paired differences of variants over dates and for each seed, as tables and a figure."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ens10.experiments.reporting.report import png
from ens10.experiments.runner.comparisons import families_of
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runner.trainings import read_cell
from ens10.experiments.scoring.contrasts import (
    TIE,
    Contrast,
    corrected,
    pooled_variance,
    verdict,
    with_trainings,
)
from ens10.experiments.scoring.run_results import SCORES, FinishedRun, check_comparable, mean_score
from ens10.experiments.scoring.tables import FEW_DATES
from ens10.experiments.scoring.writers import ABSENT, NOT_CLEAR, Column, csv_of, markdown_of, number
from ens10.experiments.studies.ablation.cells import place_of
from ens10.experiments.studies.ablation.spec import Ablation
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
    """Difference of the scores of two variants on the same dates and seeds.

    Attributes:
        bounds: mean over seeds, with an interval over dates for these trainings; with a verdict
            over dates and trainings.
        by_seed: difference of each seed.
        other: mean score of the other variant.
        verdict: see `add_trainings`; "" where each seed is a world of its own or there is one seed.
    """

    bounds: Interval
    by_seed: Mapping[int, float]
    other: float
    verdict: str = ""

    @property
    def is_clear(self) -> bool:
        """Whether the verdict is "gains" or "loses".

        Without a verdict, whether the interval excludes 0 and all seeds have the same sign.
        """
        if self.verdict:
            return self.verdict in ("gains", "loses")
        bounds = self.bounds
        signs = {np.sign(value) for value in self.by_seed.values()}
        return bounds.lower * bounds.upper > 0 and len(signs) == 1


@dataclass(frozen=True)
class Line:
    """Runs of a variant, and its differences from the variant that it is compared with.

    Attributes:
        name: of the variant.
        reference: name of the variant that it is compared with; None for the base.
        runs: by seed.
        differences: by score, "crps" and perhaps "eecrps"; empty for the base.
    """

    name: str
    reference: str | None
    runs: Mapping[int, FinishedRun]
    differences: Mapping[str, Difference]

    @property
    def units(self) -> str:
        """Units of the CRPS."""
        return self._first.units

    @property
    def dates(self) -> int:
        """Number of test dates of a seed."""
        return int(self._first.states.sizes["time"])

    @property
    def _first(self) -> FinishedRun:
        return next(iter(self.runs.values()))

    def mean(self, value_of: Callable[[FinishedRun], float]) -> float:
        """Return the mean over the seeds of a function of each run."""
        return float(np.mean([value_of(run) for run in self.runs.values()]))

    @property
    def crps(self) -> float:
        """Mean CRPS over the seeds."""
        return self.mean(lambda run: mean_score(run.states, CRPS))

    @property
    def spread_error(self) -> float:
        """Ratio of spread to error; NaN if unknown."""

        def ratio(run: FinishedRun) -> float:
            scores = summarise(run.states, maps=False, method="student")
            return float(scores.get("spread_error", np.nan))

        return self.mean(ratio)

    def cost(self, key: str) -> float:
        """Return the mean of a number of the provenance, such as "cpu_seconds"; NaN if unknown."""
        return self.mean(lambda run: float(run.provenance.get(key) or np.nan))


def read_lines(
    ablation: Ablation,
    cells_folder: Path,
    seeds: Sequence[int],
    *,
    same_data: bool,
    places: Collection[str] | None = None,
) -> list[Line]:
    """Return a line for each variant that has a result, in the ablation's order.

    Args:
        ablation: whose variants are read.
        cells_folder: folder of the unpacked cells of all ablations.
        seeds: to read.
        same_data: whether seeds are trainings on the same data, so that their dates are the same.
        places: places of the cells to read; None for all.

    Raises:
        FileError: a kept cell that cannot be read.
        ArgumentError, MissingDataError: variants that were scored on different points or dates.
    """
    runs: dict[str, dict[int, FinishedRun]] = {}
    for variant in ablation.variants:
        for seed in seeds:
            place = place_of(ablation.name, seed, variant.name)
            if (cells_folder / place / SCORES).exists() and (places is None or place in places):
                runs.setdefault(variant.name, {})[seed] = read_cell(cells_folder / place)
    lines = []
    for variant in (v for v in ablation.variants if v.name in runs):
        pair = runs[variant.name], runs.get(variant.reference or "", {})
        deltas = {score: difference(*pair, score, same_data=same_data) for score in (CRPS, EECRPS)}
        known = {score: delta for score, delta in deltas.items() if delta}
        lines.append(Line(variant.name, variant.reference, pair[0], known))
    if same_data and any(len(line.runs) > 1 for line in lines):
        return add_trainings(lines, families_of(cells_folder / ablation.name, list(runs)))
    return lines


def add_trainings(lines: Sequence[Line], families: Mapping[str, str]) -> list[Line]:
    """Return the lines with the variation between trainings in the bounds, and with verdicts.

    Args:
        lines: whose seeds are trainings on the same data.
        families: class of each variant's network, over which the variance is pooled; "" for
            methods without random numbers.
    """
    differences = {line.name: dict(line.differences) for line in lines}
    for score in (CRPS, EECRPS):
        variances = _training_variances(lines, families, score)
        contrasts = {
            line.name: _contrast(
                line.differences[score], variances[line.name] + variances[line.reference]
            )
            for line in lines
            if line.reference and score in line.differences
        }
        p_values = corrected(list(contrasts.values()), primary=False)
        for (name, one), p in zip(contrasts.items(), p_values, strict=True):
            delta = differences[name][score]
            unit = -delta.other / 100  # of a gain in percent
            bounds = replace(delta.bounds, lower=one.upper * unit, upper=one.lower * unit)
            words = verdict(one.lower, one.upper, p)
            differences[name][score] = replace(delta, bounds=bounds, verdict=words)
    return [replace(line, differences=differences[line.name]) for line in lines]


def _training_variances(
    lines: Sequence[Line], families: Mapping[str, str], score: str
) -> dict[str, float]:
    """Return the variance of a score between the trainings of each line's family; 0 without one."""
    trainings: dict[str, list[list[float]]] = {}
    for line in lines:
        states = [run.states_of(score) for run in line.runs.values()]
        scores = [mean_score(one, score) for one in states if one is not None]
        trainings.setdefault(families.get(line.name, ""), []).append(scores)
    pooled = {family: pooled_variance(scores) for family, scores in trainings.items()} | {"": 0.0}
    return {line.name: pooled[families.get(line.name, "")] for line in lines}


def _contrast(delta: Difference, variance: float) -> Contrast:
    """Return a difference of scores as a gain in percent, with bounds over dates and trainings.

    Args:
        delta: of the scores of two variants.
        variance: over trainings, of one training of the first plus that of one of the second.
    """
    unit = -delta.other / 100
    dates = replace(
        delta.bounds,
        value=delta.bounds.value / unit,
        lower=delta.bounds.upper / unit,
        upper=delta.bounds.lower / unit,
    )
    by_seed = [value / unit for value in delta.by_seed.values()]
    return with_trainings(dates, variance / len(by_seed) / unit**2, by_seed)


def difference(
    runs: Mapping[int, FinishedRun],
    reference_runs: Mapping[int, FinishedRun],
    score: str,
    *,
    same_data: bool,
) -> Difference | None:
    """Return the paired difference over the seeds that both have; None if there are none.

    Dates of different worlds are concatenated. Dates of the same data are summed over the seeds
    first, so that the bootstrap resamples a date with all its trainings.

    Args:
        runs: of the variant, by seed.
        reference_runs: of the variant that it is compared with, by seed.
        score: "crps" or "eecrps".
        same_data: whether the seeds are trainings on the same data.
    """
    sums: dict[int, Sums] = {}
    for seed in sorted(set(runs) & set(reference_runs)):
        pair = runs[seed], reference_runs[seed]
        check_comparable(pair)
        states, reference = (run.states_of(score) for run in pair)
        if states is not None and reference is not None:
            order = np.argsort(states["time"].to_numpy(), kind="stable")
            seed_sums = paired_sums(states, reference, score)
            sums[seed] = {name: values[order] for name, values in seed_sums.items()}
    if not sums:
        return None
    date_sums = _join_seeds(list(sums.values()), same_data)
    few = min(len(one["sum"]) for one in sums.values()) < FEW_DATES
    method: Method = "student" if few else "bootstrap"
    over_dates = interval(date_sums, difference_of, method=method)
    by_seed = {seed: float(difference_of(_total(one))) for seed, one in sums.items()}
    total = _total(date_sums)
    other = float(total["reference_sum"] / total["reference_weight"])
    return Difference(over_dates, by_seed, other)


def _total(sums: Sums) -> Sums:
    return {name: values.sum() for name, values in sums.items()}


def _join_seeds(sums: Sequence[Sums], same_data: bool) -> Sums:
    names = sums[0]
    join = (lambda parts: np.sum(parts, axis=0)) if same_data else np.concatenate
    date_sums = {name: join([one[name] for one in sums]) for name in names}
    mask = date_sums["weight"] != 0
    return {name: values[mask] for name, values in date_sums.items()}


def write_pages(
    ablation: Ablation,
    lines: Sequence[Line],
    out: Path,
    notes: Sequence[str],
    missing: Mapping[str, str],
) -> str:
    """Write `table.md`, `table.csv` and `differences.png`, and return the first.

    Args:
        ablation: of the lines.
        lines: of `read_lines`.
        out: folder of its tables.
        notes: sentences on data and trainings.
        missing: reason why a cell has no result, by its name.
    """
    parts = [f"# {ablation.name}", ablation.question, markdown_of(table(lines)).rstrip()]
    missing_notes = [f"Missing: {name}: {why}" for name, why in missing.items()]
    bullets = [f"- {note}" for note in (*notes, *_notes(lines), *missing_notes)]
    text = "\n\n".join([*parts, "\n".join(bullets)]) + "\n"
    files: dict[str, str | bytes] = {TABLE: text, PLAIN: to_csv(lines)}
    if any(line.differences for line in lines):
        files[FIGURE] = png(difference_figure(lines))
    else:
        (out / FIGURE).unlink(missing_ok=True)
    write_files(out, files)
    return text


def table(lines: Sequence[Line]) -> list[Column]:
    """Return the columns of the table, without empty ones."""
    units, crps = in_units(lines[0].units), lines[0].crps
    digits = max(3 - math.floor(math.log10(crps)), 4 if crps < 10 else 2)
    change = f"+.{digits}f"
    others = {line.reference for line in lines if line.reference}
    cells: dict[str, Callable[[Line], str]] = {"Variant": lambda line: line.name}
    if len(others) > 1:
        cells["Against"] = lambda line: line.reference or ABSENT
    cells |= {
        f"CRPS{units}": lambda line: f"{line.crps:.{digits}f}",
        f"Δ CRPS{units}": lambda line: _bounds(line, CRPS, change),
        "Δ (%)": _percent,
        "Verdict": lambda line: _verdict(line) or ABSENT,
    }
    if any(len(line.runs) > 1 for line in lines):
        cells[f"By seed{units}"] = lambda line: _seeds(line, change)
    cells |= {
        f"Δ EECRPS{units}": lambda line: _bounds(line, EECRPS, change),
        "Spread/error": lambda line: number(line.spread_error, ".3f"),
    }
    for heading, key, form in _COSTS:
        cells[heading] = lambda line, key=key, form=form: number(line.cost(key), form)  # type: ignore[misc]
    columns = [
        Column(heading, tuple(map(cell, lines)), heading not in ("Variant", "Against", "Verdict"))
        for heading, cell in cells.items()
    ]
    return [column for column in columns if set(column.cells) != {ABSENT}]


def to_csv(lines: Sequence[Line]) -> str:
    """Return CSV with a line for each variant and seed, and one for all seeds with bounds."""
    head = ["variant", "against", "seed", "crps", "difference", "difference_lower"]
    head += ["difference_upper", "eecrps_difference", "eecrps_difference_lower"]
    head += ["eecrps_difference_upper", *(key for _, key, _ in _COSTS)]
    rows = []
    for line in lines:
        for seed in [*line.runs, None]:
            one = line if seed is None else replace(line, runs={seed: line.runs[seed]})
            values = [one.crps, *_with_bounds(line, CRPS, seed), *_with_bounds(line, EECRPS, seed)]
            values += [one.cost(key) for _, key, _ in _COSTS]
            rows.append([line.name, line.reference, seed, *values])
    return csv_of(head, rows, ".9g")


def difference_figure(lines: Sequence[Line]) -> Figure:
    """Draw the differences of the CRPS with their bounds, and a small mark for each seed."""
    rows = [line for line in lines if CRPS in line.differences]
    with mpl.rc_context(STYLE):
        figure = new_figure(0.9 + _ROW * len(rows))
        axes = figure.subplots()
        axes.axvline(0, color=INK, linewidth=1)
        for place, line in enumerate(rows):
            delta = line.differences[CRPS]
            colour = BLUE if delta.is_clear else GREY
            bounds = [delta.bounds.lower, delta.bounds.upper]
            axes.plot(bounds, [place] * 2, color=colour, linewidth=2.5, solid_capstyle="butt")
            axes.plot(delta.bounds.value, place, "o", color=colour, markeredgecolor="white")
            values = list(delta.by_seed.values())
            if len(values) > 1:
                axes.plot(values, [place + 0.27] * len(values), "|", color=colour, markersize=6)
        several = len({line.reference for line in rows}) > 1
        names = [f"{x.name}, against {x.reference}" if several else x.name for x in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.margins(x=0.06)
        base = f" less that of {'the other' if several else rows[0].reference}"
        axes.set_xlabel(f"CRPS{base}{in_units(rows[0].units)}; left of the line it is better")
    return figure


def _notes(lines: Sequence[Line]) -> list[str]:
    others = list(dict.fromkeys(line.reference for line in lines if line.reference))
    other = others[0] if len(others) == 1 else "the variant under Against"
    blocks = blocks_in_words(d.bounds for line in lines for d in line.differences.values())
    delta = f"Δ: less that of {other}, on the same dates; below 0 it is better. In brackets: 95 %"
    if any(map(_verdict, lines)):
        notes = [
            f"{delta}, from the variance over the {lines[0].dates} test dates ({blocks}) plus that "
            "over trainings, pooled over networks of one class; methods without random numbers "
            "have none.",
            "Verdict: on the CRPS; p values are corrected by the method of Benjamini and Hochberg. "
            "What is not significant at 0.05 is a tie if its bounds lie within "
            f"{TIE} % of the other's score. {NOT_CLEAR} marks both.",
        ]
    else:
        notes = [
            f"{delta} over the {lines[0].dates} test dates of each seed, which says nothing of "
            f"what another training would give; the differences by seed do ({blocks}).",
            f"{NOT_CLEAR} marks a difference whose interval holds 0, or whose sign differs between "
            "seeds.",
        ]
    most = max(len(line.runs) for line in lines)
    few = [f"{x.name} ({len(x.runs)} of {most})" for x in lines if len(x.runs) < most]
    if few:
        notes.append(
            f"Of fewer seeds: {', '.join(few)}. Compare their differences and not their CRPS."
        )
    if any(EECRPS in line.differences for line in lines):
        notes.append("EECRPS: CRPS weighted by the absolute extreme forecast index of all members.")
    return notes


def _bounds(line: Line, score: str, form: str) -> str:
    delta = line.differences.get(score)
    if delta is None:
        return ABSENT
    bounds = delta.bounds
    text, lower, upper = (number(x, form) for x in (bounds.value, bounds.lower, bounds.upper))
    text += "" if math.isnan(bounds.lower) else f" [{lower}, {upper}]"
    return text if delta.is_clear else f"{text} {NOT_CLEAR}"


def _percent(line: Line) -> str:
    delta = line.differences.get(CRPS)
    return ABSENT if delta is None else number(100 * delta.bounds.value / delta.other, "+.1f")


def _verdict(line: Line) -> str:
    delta = line.differences.get(CRPS)
    return delta.verdict if delta else ""


def _seeds(line: Line, form: str) -> str:
    delta = line.differences.get(CRPS)
    if delta is None:
        return ABSENT
    return ", ".join(number(value, form) for value in delta.by_seed.values())


def _with_bounds(line: Line, score: str, seed: int | None) -> list[float]:
    delta = line.differences.get(score)
    if delta is None:
        return [math.nan] * 3
    if seed is not None:
        return [delta.by_seed.get(seed, math.nan), math.nan, math.nan]
    return [delta.bounds.value, delta.bounds.lower, delta.bounds.upper]
