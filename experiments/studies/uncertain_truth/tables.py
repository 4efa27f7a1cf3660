"""Tables of the study on a store: CRPS by kind of errors, and the pairs whose order changes."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from ens10.experiments.scoring.contrasts import (
    CONTRAST_COLUMNS,
    Contrast,
    contrast_row,
    corrected,
    over_trainings,
    pooled_variance,
    verdict,
)
from ens10.experiments.studies.json_cells import read_json_cells
from ens10.experiments.studies.uncertain_truth.analyses import AGAINST, CORRELATIONS, NONE

Daily = dict[str, list[list[float]]]  # CRPS of each date, by model and seed
Scores = dict[tuple[str, str], Daily]  # by kind of errors and what is scored against
Pair = tuple[str, str]
TRUE = (NONE, AGAINST[0])
CHANGE_HEADINGS = (
    "error",
    "scored against",
    "pair",
    "gain without errors (%)",
    "verdict then",
    "gain (%)",
    *CONTRAST_COLUMNS,
)
ORDER_HEADINGS = ("error", "scored against", "pairs", "changed", "reversed", "from best to worst")


def read_scores(folder: Path) -> Scores:
    """Return the CRPS of each date from unpacked cells."""
    found: Scores = {}
    for result in read_json_cells(folder, ("case", "model", "seed", "crps")).values():
        for against, daily in result["crps"].items():
            models = found.setdefault((result["case"], against), {})
            models.setdefault(result["model"], []).append(daily)
    keys = [(case, against) for case in (NONE, *CORRELATIONS) for against in AGAINST]
    return {key: found[key] for key in keys if key in found}


def ranking(daily: Daily) -> list[str]:
    """Return the models from the least to the largest mean CRPS."""
    return sorted(daily, key=lambda model: float(np.mean(daily[model])))


def crps_rows(scores: Scores) -> list[list[str]]:
    """Return a row for each kind of errors and truth: the mean CRPS of each model, worst first."""
    models = ranking(scores[TRUE])[::-1]
    return [
        [*key, *(f"{np.mean(daily[m]):.4f}" if m in daily else "–" for m in models)]
        for key, daily in scores.items()
    ]


def contrasts(daily: Daily, pairs: Sequence[Pair]) -> list[Contrast]:
    """Return what the first model of each pair gains on the second, in percent of its CRPS.

    The variance is that over dates, and with several trainings that over trainings; a method
    without random numbers counts with each of them.
    """
    found = []
    for first, second in pairs:
        unit = float(np.mean(daily[second])) / 100
        gains = [
            (np.array(b) - np.array(a)) / unit
            for a, b in zip(*_alike(daily[first], daily[second]), strict=True)
        ]
        variance = 0.0
        for series in (daily[first], daily[second]):
            variance += pooled_variance([[float(np.mean(one)) for one in series]]) / len(series)
        found.append(over_trainings(gains, variance / unit**2))
    return found


def _alike(*trainings: list[list[float]]) -> list[list[list[float]]]:
    """Return as many series of each; a single one is repeated."""
    most = max(map(len, trainings))
    return [series * most if len(series) == 1 else series[:most] for series in trainings]


def order_rows(scores: Scores) -> tuple[list[list[str]], list[list[str]]]:
    """Return the rows of `ORDER_HEADINGS` and of `CHANGE_HEADINGS`.

    A pair is changed if the mean CRPS has another order than without errors, and reversed if both
    orders are distinguished at 0.05 after Benjamini and Hochberg's correction for all pairs.
    """
    reference = scores[TRUE]
    orders, changes = [], []
    for key, daily in scores.items():
        pairs = list(combinations([m for m in ranking(reference) if m in daily], 2))
        before, now = contrasts(reference, pairs), contrasts(daily, pairs)
        p_before, p_now = (corrected(family, primary=False) for family in (before, now))
        changed = reversed_pairs = 0
        for (a, b), old, p_old, new, p in zip(pairs, before, p_before, now, p_now, strict=True):
            if new.value < 0:
                row = contrast_row(f"{a} against {b}", new, p)
                known = verdict(old.lower, old.upper, p_old)
                changes.append([*key, row[0], f"{old.value:+.2f}", known, *row[1:]])
                changed += 1
                reversed_pairs += (known, row[-1]) == ("gains", "loses")
        order = " < ".join(ranking(daily))
        orders.append([*key, str(len(pairs)), str(changed), str(reversed_pairs), order])
    return orders, changes
