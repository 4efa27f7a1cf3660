"""Tables of the study of experts: the skill of each arm, and the contrasts that were named."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ens10.experiments.scoring.contrasts import (
    CONTRAST_COLUMNS,
    Contrast,
    contrast_row,
    corrected,
    over_trainings,
    over_worlds,
    pooled_variance,
)
from ens10.experiments.studies.experts.cells import CONTENT, OPTIMUM, RAW, arms_of, options_of
from ens10.experiments.studies.experts.forms import Form, form_of, walk
from ens10.experiments.studies.json_cells import Result, read_json_cells

Scores = dict[tuple[str, int], Result]
ARM_HEADINGS = (
    *("experts", "embedding", "start", "CRPS", "gain (%)", "attained (%)", "best epochs"),
    *("seeds", "parameters"),
)
CONTRAST_HEADINGS = ("contrast", "gain (% of the raw CRPS)", *CONTRAST_COLUMNS)
SEARCH_HEADINGS = ("varied", "form", "validation loss", "best epoch", "kept")
TRY_HEADINGS = ("arm", "factor", "validation loss", "best epoch")


def read_scores(folder: Path, target: str) -> tuple[Scores, list[Result]]:
    """Return the results of a target by arm and seed, with the chosen rates; and all tries."""
    cells = read_json_cells(folder)
    results = [r for place, r in cells.items() if place.startswith(f"{target}/")]
    trained = [r for r in results if "factor" in r]
    factors = chosen_factors(trained)
    scores = {(r["variant"], r["seed"]): r for r in results if "factor" not in r}
    for r in trained:
        if r["factor"] == factors.get(convolution_of(r["variant"]), 1.0):
            scores[r["variant"], r["seed"]] = r
    tried = [r for r in trained if r["seed"] == 0 and r["variant"] in trunk_of(target).values()]
    return scores, tried


def convolution_of(arm: str) -> str:
    """Return whose learning rate an arm has: "plain" or "experts"."""
    return "plain" if arm.startswith("plain") else "experts"


def trunk_of(target: str) -> Mapping[str, str]:
    """Return the arms at which the learning rates of a target are tried, by kind."""
    starts_at_emos = "emos" in CONTENT["arms"][target]["start"]
    trunk: Mapping[str, str] = CONTENT["trunk" if starts_at_emos else "trunk_of_raw"]
    return trunk


def chosen_factors(tries: Sequence[Result]) -> dict[str, float]:
    """Return the factor of the learning rate with the smallest validation loss, by kind."""
    best: dict[str, Result] = {}
    for one in tries:
        if one["seed"] == 0 and one["variant"] in trunk_of(one["target"]).values():
            kind = convolution_of(one["variant"])
            if kind not in best or one["val"] < best[kind]["val"]:
                best[kind] = one
    return {kind: one["factor"] for kind, one in best.items()}


def arm_rows(scores: Scores, target: str) -> list[list[str]]:
    """Return a row for each arm, under `ARM_HEADINGS`, by falling gain."""
    rows = []
    for arm in arms_of(target):
        own = {seed: r for (name, seed), r in scores.items() if name == arm}
        seeds = [seed for seed in sorted(own) if (RAW, _data_seed(scores, seed)) in scores]
        if not seeds:
            continue
        crps, raw, best = (
            np.array([_mean(scores, name, seed) for seed in seeds]) for name in (arm, RAW, OPTIMUM)
        )
        gain, attained = 100 * (1 - crps / raw), 100 * (raw - crps) / (raw - best)
        improving = any(own[seed]["epoch"] == own[seed]["epochs"] for seed in seeds)
        epochs = " ".join(str(own[seed]["epoch"]) for seed in seeds)
        row = [
            *options_of(arm)["labels"].values(), _four_digits(crps.mean()), f"{gain.mean():.2f}",
            "–" if np.isnan(attained).any() else f"{attained.mean():.1f}",
            epochs + (" (+)" if improving else ""), str(len(seeds)),
            f"{own[seeds[0]]['parameters']:,}",
        ]  # fmt: skip
        rows.append((gain.mean(), row))
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def _four_digits(value: float) -> str:
    return f"{value:.4f}" if value >= 0.01 else f"{value:.4g}"  # of m of precipitation


def _data_seed(scores: Scores, seed: int) -> int:
    """Return the seed whose raw ensemble counts: the first one's where all have the same data."""
    return seed if (RAW, seed) in scores else 0


def _mean(scores: Scores, name: str, seed: int) -> float:
    result = scores.get((name, seed)) or scores.get((name, _data_seed(scores, seed)))
    return float(np.mean(result["crps"])) if result else np.nan


def contrast_rows(scores: Scores, target: str) -> list[list[str]]:
    """Return a row for each contrast whose arms the target has, under `CONTRAST_HEADINGS`."""
    named = {}
    for words, (first, second) in CONTENT["contrasts"].items():
        seeds = sorted(n for arm, n in scores if arm == first and (second, n) in scores)
        if {first, second} <= {*arms_of(target)} and seeds:
            named[words] = contrast(scores, first, second, seeds)
    p_values = corrected(list(named.values()), primary=True)
    return [
        contrast_row(words, one, p) for (words, one), p in zip(named.items(), p_values, strict=True)
    ]


def contrast(scores: Scores, first: str, second: str, seeds: Sequence[int]) -> Contrast:
    """Return what the first arm gains on the second, in percent of the raw CRPS, with 95 % bounds.

    Where each seed has a world of its own, seeds are pairs: Student's t over them. Where all have
    the same data, the variance is that over dates plus that over trainings, which is pooled over
    the arms with experts and over those without.
    """
    raw = [_mean(scores, RAW, seed) for seed in seeds]
    parts = [
        100 * (np.array(scores[second, n]["crps"]) - np.array(scores[first, n]["crps"])) / r
        for n, r in zip(seeds, raw, strict=True)
    ]
    if (RAW, seeds[-1]) in scores and len(seeds) > 1:
        return over_worlds(parts)
    variances = (_training_variance(scores, arm) for arm in (first, second))
    return over_trainings(parts, sum(variances) / len(seeds))


def _training_variance(scores: Scores, arm: str) -> float:
    """Return the variance over trainings, (% of the raw CRPS)^2, pooled over arms of its kind."""
    raw = _mean(scores, RAW, 0)
    trainings: dict[str, list[float]] = {}
    for (name, _), result in scores.items():
        if name not in (RAW, OPTIMUM) and convolution_of(name) == convolution_of(arm):
            trainings.setdefault(name, []).append(100 * float(np.mean(result["crps"])) / raw)
    return pooled_variance(list(trainings.values()))


def try_rows(tried: Sequence[Result]) -> list[list[Any]]:
    """Return a row for each try of a learning rate, under `TRY_HEADINGS`."""
    ordered = sorted(tried, key=lambda r: (r["variant"], r["factor"]))
    return [[r["variant"], f"{r['factor']:g}", f"{r['val']:.5f}", str(r["epoch"])] for r in ordered]


def arm_of(form: Form, target: str) -> str:
    """Return the arm of the target's trunk whose experts have a form."""
    _, rest = trunk_of(target)["experts"].split("-", 1)
    return f"{form.name}-{rest}"


def walk_of(scores: Scores) -> tuple[list[list[Form]], Form | None]:
    """Return how far the search came, and the best form; see `walk`."""
    losses = {}
    for (arm, seed), result in scores.items():
        form = form_of(arm.split("-")[0])
        if form and seed == 0:
            losses[form] = result["val"]
    content = CONTENT["search"]
    start = Form(**{**content["start"], "levels": tuple(content["start"]["levels"])})
    return walk(start, content["parts"], losses)


def search_rows(scores: Scores, target: str) -> list[list[str]]:
    """Return a row for each form of the search, under `SEARCH_HEADINGS`; none without a search."""
    steps, _ = walk_of(scores)
    rows = []
    for part, forms in zip(CONTENT["search"]["parts"], steps, strict=False):
        known = {form: scores.get((arm_of(form, target), 0)) for form in forms}
        losses = {form: result["val"] for form, result in known.items() if result}
        for form in losses:
            result = scores[arm_of(form, target), 0]
            kept = "yes" if losses[form] == min(losses.values()) else ""
            rows.append([part, form.label, f"{result['val']:.5f}", str(result["epoch"]), kept])
    return rows


def best_rows(scores: Scores, target: str) -> list[list[str]]:
    """Return what the best form gains on the same trunk without experts, as `contrast_rows`."""
    _, best = walk_of(scores)
    plain = trunk_of(target)["plain"]
    arm = best and arm_of(best, target)
    seeds = sorted(n for name, n in scores if name == arm and (plain, n) in scores)
    if not (best and arm and seeds):
        return []
    one = contrast(scores, arm, plain, seeds)
    return [contrast_row(f"{best.label}, against no experts", one, one.p)]
