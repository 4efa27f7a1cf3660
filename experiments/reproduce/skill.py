"""Skill against the raw ensemble and against the best other model, with its significance."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from ens10.experiments.finished import FinishedRun, check_comparable
from ens10.experiments.matrix.summary import pit_deviation
from ens10.experiments.reproduce.results import Result
from ens10.experiments.tables import FEW_DATES, interval_of
from ens10.experiments.writers import ABSENT, Column
from ens10.metrics import Interval, summarise
from ens10.metrics.uncertainty import Method, blocks_in_words

REFERENCE, OPTIMUM = "raw", "optimum"
_COSTS = (
    ("Fit (s)", "seconds", ".0f"),
    ("Memory (MB)", "memory_mb", ".0f"),
    ("Parameters", "parameters", ",.0f"),
)
Of = Callable[[FinishedRun], float]
_NOTE = (
    "Skill: 1 - CRPS / CRPS of the other, mean over seeds; in brackets the number of seeds in "
    "which the 95 % interval of the difference, paired over the test dates ({}), does not hold 0. "
    "Best other: the model of the lowest mean CRPS but the row's own, over the seeds that all "
    "models have. Attained: 0 is raw, 100 the "
    "best possible forecast of a synthetic world. Spread/error is 1 and PIT deviation 0 for a "
    "calibrated forecast. Seconds and memory are of the fit, on the machine that did it."
)


def skill_note(shown: Sequence[Interval]) -> str:
    """What the columns of skill mean, with the block lengths of their intervals."""
    return _NOTE.format(blocks_in_words(shown))


def skill_columns(results: Sequence[Result]) -> tuple[list[Column], list[Interval]]:
    """Skill, calibration and cost; and the intervals of the differences behind the skill.

    Args:
        results: of one task.
    """
    shown: list[Interval] = []

    def against(result: Result, other: Result | None) -> str:
        skills, differences = _paired(result, other)
        shown.extend(differences)
        return _skill_in_words(skills, differences)

    ranked = _ranked([r for r in results if r.model != OPTIMUM])
    columns = [Column("Model", tuple(r.model for r in results), numeric=False)]
    raw, optimum = (_named(results, name) for name in (REFERENCE, OPTIMUM))
    columns.append(Column("Skill against raw (%)", tuple(against(r, raw) for r in results)))
    best = [next((o for o in ranked if o is not r), None) for r in results]
    pairs = zip(results, best, strict=True)
    columns.append(Column("Skill against best other (%)", tuple(against(r, o) for r, o in pairs)))
    columns.append(Column("Best other", tuple(o.model if o else ABSENT for o in best), False))
    if raw and optimum:
        attained = tuple(_attained(r, raw, optimum) for r in results)
        columns.append(Column("Attained (%)", attained))
    columns.append(Column("Spread/error", tuple(_mean(r, _spread_error, ".3f") for r in results)))
    pit = tuple(_mean(r, lambda run: 100 * pit_deviation(run), ".1f") for r in results)
    columns.append(Column("PIT deviation (%)", pit))
    for heading, key, form in _COSTS:
        columns.append(Column(heading, tuple(_mean(r, _known(key), form) for r in results)))
    return columns, shown


def _ranked(rivals: Sequence[Result]) -> list[Result]:
    """From best to worst, over the seeds that all have; each over its own if there are none."""
    shared = set.intersection(*(set(rival.runs) for rival in rivals)) if rivals else set()

    def place(rival: Result) -> float:
        held = rival.values["crps"]
        return float(np.mean([held[seed] for seed in shared or held]))

    return sorted(rivals, key=place)


def _named(results: Sequence[Result], name: str) -> Result | None:
    return next((result for result in results if result.model == name), None)


def _attained(result: Result, raw: Result, optimum: Result) -> str:
    """Share of the possible improvement that was made, mean over seeds."""
    own, worst, best = (r.values["crps"] for r in (result, raw, optimum))
    seeds = sorted(set(own) & set(worst) & set(best))
    shares = [(worst[s] - own[s]) / (worst[s] - best[s]) for s in seeds]
    return _percent(100 * float(np.mean(shares))) if shares else ABSENT


def _percent(number: float) -> str:
    return f"{number:.1f}".replace("-", "−")


def _paired(result: Result, other: Result | None) -> tuple[list[float], list[Interval]]:
    """Skill in percent and difference of the CRPS, for each seed that both have."""
    if other is None or other is result:
        return [], []
    skills, differences = [], []
    for seed in sorted(set(result.runs) & set(other.runs)):
        mine, its = result.runs[seed], other.runs[seed]
        check_comparable([mine, its])
        few = mine.states.sizes["time"] < FEW_DATES
        method: Method = "student" if few else "bootstrap"
        scores = summarise(mine.states, its.states, maps=False, method=method)
        skills.append(100 * float(scores["crpss"]))
        differences.append(interval_of(scores, "crps_difference"))
    return skills, differences


def _skill_in_words(skills: Sequence[float], differences: Sequence[Interval]) -> str:
    """Mean skill over the seeds, and in how many of them it is clear."""
    if not skills:
        return ABSENT
    clear = sum(one.lower > 0 or one.upper < 0 for one in differences)
    return f"{_percent(float(np.mean(skills)))} [{clear} of {len(skills)}]"


def _mean(result: Result, of: Of, form: str) -> str:
    held = [of(run) for run in result.runs.values()]
    number = float(np.mean(held))
    return ABSENT if math.isnan(number) else format(number, form)


def _spread_error(run: FinishedRun) -> float:
    scores = summarise(run.states, maps=False, method="student")
    return float(scores["spread_error"]) if "spread_error" in scores else math.nan


def _known(key: str) -> Of:
    def read(run: FinishedRun) -> float:
        value = run.provenance.get(key)
        return math.nan if value is None else float(value)

    return read
