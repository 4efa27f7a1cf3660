"""Comparisons of models over seeds: named pairs as a table, and which models are level.

`comparisons.yaml` names the pairs; `scoring/contrasts.py` has the statistics.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import xarray as xr

from ens10.experiments.scoring.contrasts import (
    CONTRAST_COLUMNS,
    Contrast,
    contrast_row,
    corrected,
    leaders,
    over_trainings,
    over_worlds,
    pooled_variance,
)
from ens10.experiments.scoring.run_results import FinishedRun
from ens10.experiments.scoring.writers import columns_of, markdown_of
from ens10.metrics import paired_differences
from ens10.metrics.uncertainty import Floats
from ens10.untrusted import read_mapping

COMPARISONS = read_mapping(Path(__file__).with_name("comparisons.yaml"))
_WORLDS_NOTE = "Bounds: 95 %, Student's t over the seeds, each a pair of models on its own world."
_ONE_WORLD_NOTE = (
    "Bounds: 95 %, over the test dates (block bootstrap) of one world and one training of each."
)
_TRAININGS_NOTE = (
    "Bounds: 95 %, from the variance over the test dates (block bootstrap) plus that over "
    "trainings, pooled over networks of one class; methods without random numbers have none."
)
_VERDICTS_NOTE = (
    "p is corrected for the number of comparisons: those of the primary list, which "
    "`experiments/runner/comparisons.yaml` names, by Holm's method, the others by that of "
    "Benjamini and Hochberg. What is not significant at 0.05 is a tie if its bounds lie within "
    "0.3 %."
)


def families_of(cells_folder: Path, models: Sequence[str]) -> dict[str, str]:
    """Return the class path of the network of each model; "" for a method without a network."""
    families = {}
    for model in models:
        for file in sorted(cells_folder.glob(f"seed*/{model}/config.yaml"))[:1]:
            network = read_mapping(file)["model"]["init_args"].get("network")
            families[model] = str(network["class_path"]) if isinstance(network, dict) else ""
    return families


def contrasts_as_markdown(
    runs: Mapping[int, Sequence[FinishedRun]], families: Mapping[str, str], *, same_data: bool
) -> str:
    """Markdown: contrasts of the pairs of `comparisons.yaml`; "" if no seed has one.

    Args:
        runs: of each seed.
        families: name of each model's family, whose variance over trainings is pooled; "" for
            methods without random numbers.
        same_data: whether seeds are trainings on the same data; otherwise they are worlds.
    """
    daily = _by_seed(runs)
    rows = []
    for kind, pairs in COMPARISONS.items():
        contrasts = {
            f"{pair[0]} against {pair[1]}": contrast
            for pair in pairs
            if (contrast := _contrast(daily, families, *pair, same_data=same_data))
        }
        p_values = corrected(list(contrasts.values()), primary=kind == "primary")
        for (words, one), p in zip(contrasts.items(), p_values, strict=True):
            rows.append([*contrast_row(words, one, p), kind])
    if not rows:
        return ""
    heads = ["Comparison", "Lower CRPS (%)", *CONTRAST_COLUMNS, "list"]
    note = _WORLDS_NOTE if len(runs) > 1 else _ONE_WORLD_NOTE
    note = _TRAININGS_NOTE if same_data else note
    table = markdown_of(columns_of(heads, rows, text=(0, 6, 7)), escape=False)
    return f"{table}\n{note} {_VERDICTS_NOTE}\n"


def leaders_in(
    runs: Mapping[int, Sequence[FinishedRun]], families: Mapping[str, str], *, same_data: bool
) -> dict[str, str]:
    """Return `leaders` of the models of a table; raw ensemble and optimum are not among them.

    Args:
        runs: of each seed.
        families: see `contrasts_as_markdown`.
        same_data: whether seeds are trainings on the same data; otherwise they are worlds.
    """
    daily = _by_seed(runs)
    kinds = {run.name: run.kind for seed_runs in runs.values() for run in seed_runs}
    crps = {
        name: float(np.mean([seed[name].mean() for seed in daily if name in seed]))
        for name, kind in kinds.items()
        if kind == "model"
    }
    models = sorted(crps, key=crps.__getitem__)
    pairs = {
        pair: _contrast(daily, families, *pair, same_data=same_data)
        for pair in combinations(models, 2)
    }
    return leaders(models, {pair: one for pair, one in pairs.items() if one})


def _by_seed(runs: Mapping[int, Sequence[FinishedRun]]) -> list[dict[str, xr.DataArray]]:
    """Return the CRPS of each date by model, for each seed."""
    return [{run.name: _daily(run) for run in seed_runs} for seed_runs in runs.values()]


def _contrast(
    daily: Sequence[Mapping[str, xr.DataArray]],
    families: Mapping[str, str],
    better: str,
    worse: str,
    *,
    same_data: bool,
) -> Contrast | None:
    """Return what one model gains on another over the seeds that have both; None without one."""
    both = [seed for seed in daily if better in seed and worse in seed]
    gains = [gain_in_percent(seed[better], seed[worse]) for seed in both]
    if not both or not same_data:
        return over_worlds(gains) if both else None
    variance = sum(_training_variance(daily, families, name) for name in (better, worse))
    unit = float(np.mean([seed[worse].mean() for seed in both])) / 100
    return over_trainings(gains, variance / len(both) / unit**2)


def _daily(run: FinishedRun) -> xr.DataArray:
    """Return the CRPS of each date, times its share of the weight and the number of dates."""
    total, weight = run.states["crps_sum"], run.states["crps_weight"]
    return (total / weight.mean()).sortby("time")


def gain_in_percent(better: xr.DataArray, worse: xr.DataArray) -> Floats:
    """Return what each date adds to the gain on the worse, in percent of its mean CRPS."""
    gain = -paired_differences(better, worse).to_numpy()
    return 100 * np.asarray(gain, np.float64) / float(worse.mean())


def _training_variance(
    daily: Sequence[Mapping[str, xr.DataArray]], families: Mapping[str, str], model: str
) -> float:
    """Return the variance of the mean CRPS over trainings, pooled over a model's family."""
    family = families.get(model, "")
    members = [name for name, other in families.items() if family and other == family]
    return pooled_variance(
        [[float(seed[n].mean()) for seed in daily if n in seed] for n in members]
    )
