"""Claim: 64 nodes give the CRPS of exact isotonic regression within 0.5 % at two stations.

    python benchmarks/isotonic.py FRANKFURT INNSBRUCK [--data DIR] [--check] [--out FILE]

FRANKFURT is a folder with `forecasts.nc` and `observations.nc` of precipitation in m over time (and
number), of the data `rain` in the R package isodistrreg: days 1 to 1,809 are for training, 1,810 to
3,255 for the test (Henzi et al. 2021, doi:10.1111/rssb.12450). INNSBRUCK is a folder with
`epp_temp_train.csv` and `epp_temp_test.csv`, `temp` of the R package ensemblepp: obs and members in
degC. The third data are the pointwise world of seed 0 (`experiments/results/models`), T2m at 48 h,
280 training dates, made in `DIR/pointwise/seed0` if it is missing (3 GB more than its store while
it is made).

The exact regression is computed at the stations by scipy's isotonic regression at each threshold;
its CRPS is that of the step functions. On the world as many nodes as dates are exact at the
training dates. CRPS of quantiles is by the rule of stores ("nearest"). `rank` places nodes at the
quantiles of the ensemble mean, `rank and value` is what `IsotonicRegression` does.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
import xarray as xr
from common import Line, run
from scipy.optimize import isotonic_regression

from ens10.experiments.runner.tasks import store_of
from ens10.loader import Batches
from ens10.models.statistical import IsotonicRegression, isotonic

NODES = (16, 32, 48, 64, 96, 128, 192, 256)
ON_THE_WORLD = (16, 32, 64, 128, 280)
NEEDED = ("raw_mean", "raw_std", "target", "weights", "dates")
Floats = npt.NDArray[np.float64]
Batch = dict[str, torch.Tensor]


def by_rank(x: Floats, count: int) -> Floats:
    """The quantiles of x."""
    nodes: Floats = np.quantile(x, np.linspace(0, 1, count))
    return nodes


PLACES: Mapping[str, Callable[[Floats, int], Floats]] = {
    "rank": by_rank,
    "rank and value": isotonic.node_values,
}


@dataclass(frozen=True)
class Station:
    """Ensemble mean and truth of one station, for training and for the test."""

    train: tuple[Floats, Floats]
    test: tuple[Floats, Floats]

    def exact(self) -> float:
        """CRPS of the exact regression; between training values its cdf is linear."""
        (x, y), (new_x, new_y) = self.train, self.test
        known, group, count = np.unique(x, return_inverse=True, return_counts=True)
        thresholds = np.unique(y)
        rows = []
        for threshold in thresholds:
            share = np.bincount(group, y <= threshold) / count
            fit = isotonic_regression(share, weights=count.astype(float), increasing=False).x
            rows.append(np.interp(new_x, known, fit))
        cdf = np.array(rows)
        error = (np.diff(cdf, axis=0, prepend=0) * np.abs(thresholds[:, None] - new_y)).sum(0)
        spread = (np.diff(thresholds)[:, None] * (cdf * (1 - cdf))[:-1]).sum(0)
        return float((error - spread).mean())

    def batches(self) -> tuple[list[Batch], list[Batch]]:
        """One batch of all dates, for training and for the test."""
        return [_batch(*self.train)], [_batch(*self.test)]


def frankfurt(folder: Path) -> Station:
    """24-hour precipitation in mm."""
    members = xr.load_dataset(folder / "forecasts.nc")["tp"]
    mean = 1000 * members.mean("number").to_numpy().reshape(-1)
    truth = 1000 * xr.load_dataset(folder / "observations.nc")["tp"].to_numpy().reshape(-1)
    parts = slice(0, 1809), slice(1809, 3255)
    train, test = ((mean[part], truth[part]) for part in parts)
    return Station(train, test)


def innsbruck(folder: Path) -> Station:
    """Temperature in degC."""
    tables = (pd.read_csv(folder / f"epp_temp_{part}.csv") for part in ("train", "test"))
    train, test = (
        (table.filter(like="tempfc").to_numpy().mean(1), table["obs"].to_numpy())
        for table in tables
    )
    return Station(train, test)


def _batch(mean: Floats, truth: Floats) -> Batch:
    one = torch.ones(len(mean), 1, 1)
    fields = (torch.tensor(v, dtype=torch.float32).reshape(-1, 1, 1) for v in (mean, truth))
    dates = torch.arange(len(mean)) * 86400
    return dict(zip(NEEDED, (next(fields), one, next(fields), one, dates), strict=True))


def of_store(store: Path, split: str) -> list[Batch]:
    """Batches of T2m at 48 h."""
    batches: Iterator[Any] = iter(Batches(store, "t2m", ["t2m"], split, shuffle=False))  # type: ignore[arg-type]
    return [{name: torch.tensor(np.array(one[name])) for name in NEEDED} for one in batches]


def score(train: list[Batch], test: list[Batch], nodes: int, place: str) -> dict[str, float]:
    """CRPS, CPU seconds of the fit, and bytes that the result has at a point."""
    isotonic.node_values = PLACES[place]
    method = IsotonicRegression(nodes=nodes)
    start = time.process_time()
    for batch in train:
        method.collect(batch)
    method.solve()
    seconds = time.process_time() - start
    total = weight = 0.0
    for batch in test:
        forecast = method(batch)
        forecast.rule = "nearest"
        crps = forecast.crps(batch["target"]) * batch["weights"]
        total, weight = total + float(crps.sum()), weight + float(batch["weights"].sum())
    held = 4 * (method.quantiles.numel() + method.node_means.numel())
    size = held / batch["target"][0].numel()
    return {"crps": total / weight, "fit_cpu_seconds": seconds, "bytes_a_point": size}


def table_of(train: list[Batch], test: list[Batch], counts: Sequence[int]) -> dict[str, Any]:
    """Scores by the number of nodes, for both ways to place them."""
    score(train, test, 4, "rank")  # compiles the loops
    found = {
        place: {str(nodes): score(train, test, nodes, place) for nodes in counts}
        for place in PLACES
    }
    return {
        "crps": {p: {n: round(v["crps"], 4) for n, v in row.items()} for p, row in found.items()},
        "fit_cpu_seconds": {n: round(v["fit_cpu_seconds"], 3) for n, v in found["rank"].items()},
        "bytes_a_point": {n: round(v["bytes_a_point"]) for n, v in found["rank"].items()},
    }


def measure(given: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """The default against the exact regression, and CRPS by number and place of nodes."""
    default = str(IsotonicRegression().nodes)
    stations = {
        "Frankfurt, rain, mm": frankfurt(given.frankfurt),
        "Innsbruck, temperature, K": innsbruck(given.innsbruck),
    }
    lines, details = [], {}
    for name, station in stations.items():
        exact, table = station.exact(), table_of(*station.batches(), NODES)
        loss = 100 * (table["crps"]["rank and value"][default] / exact - 1)
        lines.append(Line(f"{name}: CRPS above the exact regression, %", loss, 0.5, False))
        details[name] = {"exact_crps": round(exact, 4), **table}
    folder = given.data / "pointwise" / "seed0"
    folder.mkdir(parents=True, exist_ok=True)
    store = store_of(folder, 0)
    train, test = (of_store(store, split) for split in ("train", "test"))
    table = table_of(train, test, ON_THE_WORLD)
    by_count = table["crps"]["rank and value"]
    loss = 100 * (by_count[default] / by_count["280"] - 1)
    lines.append(Line("pointwise world: CRPS above that of 280 nodes, %", loss, 0.5, False))
    details["pointwise world, 4416 points, K"] = table
    return lines, {"default_nodes": int(default), "results": details}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("frankfurt", type=Path, help="folder of the rain of isodistrreg")
    parser.add_argument("innsbruck", type=Path, help="folder of the temperature of ensemblepp")


if __name__ == "__main__":
    sys.exit(
        run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, rounds=1, options=_options)
    )
