"""Claim: the memory of a statistical fit does not grow with the dates; what all the fits cost.

    python benchmarks/statistical.py [--check] [--out FILE]
    python benchmarks/statistical.py --grid 6x8 --dates 120 --memory
    python benchmarks/statistical.py --grid 6x8 --dates 400 --against CHECKOUT

Fits each method to numbers made up on the way, five dates at a time. Without `--memory` all methods
are fitted in turns in this process, `--rounds` times after a round that does not count; the medians
are those of `collect` and `solve`: wall time, and processor time in all threads (two of dask, one
of BLAS). On a busy machine only the processor time means something.

With `--memory` each method is fitted once more in processes of its own, to all dates and to a
quarter of them. The peak is that of resident memory above the process with torch and one batch in
it. The default is every 48th column of 361 x 720 points and 1784 dates, as many as protocol `clean`
trains on in ENS-10. `--full` adds 60 dates of all points, of each method in a process of its own.

`--against` fits each method in turns with this code and with that of another checkout, in a process
each: first the scores and coefficients must agree, then the processor time is compared, as the
median of the ratios of the rounds.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import Line, run
from dask import config

from ens10.models import statistical
from ens10.models.statistical.base import StatisticalMethod

ROWS, COLUMNS, MEMBERS, FEATURES, BATCH = 361, 720, 10, 4, 5
FULL, TRAINING, EVERY = 60, 1784, 48
YEARS = 18  # 1998 to 2015
AMOUNTS = ("emos_csg", "emos_gev", "emos_amount_truncated")
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "climatology": ("Climatology", {}),
    "seasonal_climatology": ("SeasonalClimatology", {}),
    "bias_map": ("BiasMap", {"harmonics": 1}),
    "emos_global": ("EMOS", {"local": False}),
    "emos_local": ("EMOS", {"local": True}),
    "emos_likelihood": ("EMOS", {"local": True, "criterion": "likelihood"}),
    "emos_paper": ("MemberEMOS", {}),
    "emos_seasonal": ("SeasonalEMOS", {"harmonics": 1}),
    "emos_logistic": ("SeasonalEMOS", {"harmonics": 1, "family": "logistic"}),
    "emos_truncated": ("SeasonalEMOS", {"family": "truncated_normal", "lower": 0.0}),
    "emos_censored": ("SeasonalEMOS", {"family": "censored_logistic", "lower": 0.0}),
    "emos_ridge": ("RidgeEMOS", {"harmonics": 1, "criterion": "crps"}),
    "emos_advection": ("RidgeEMOS", {"harmonics": 1, "criterion": "crps", "advection": True}),
    "emos_neighbours": ("RidgeEMOS", {"harmonics": 1, "criterion": "crps", "neighbours": True}),
    "emos_boosting": ("BoostedEMOS", {"harmonics": 1}),
    "emos_csg": ("AmountEMOS", {"family": "csgd", "threshold": 0.1}),
    "emos_gev": ("AmountEMOS", {"family": "censored_gev", "threshold": 0.1}),
    "emos_amount_truncated": ("AmountEMOS", {"family": "truncated_normal"}),
    "member_by_member": ("MemberByMember", {}),
    "isotonic": ("IsotonicRegression", {}),
    "regions": ("RegionalRegression", {"regions": 4}),
    "emos_window": ("SlidingWindow", {"days": 100}),  # of emos_local
    "ecc": ("ECC", {}),  # of emos_local
    "schaake": ("SchaakeShuffle", {}),  # of emos_local
}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class World:
    """Batches of a few dates, written into one buffer again and again.

    Args:
        columns: points of a row.
        dates: of the whole set, evenly over the years.
        rows: of the grid.
    """

    def __init__(self, columns: int, dates: int, rows: int = ROWS) -> None:
        self.shape, self.dates = (rows, columns), dates
        self.chance = torch.Generator().manual_seed(0)
        self.bias = torch.randn(self.shape, generator=self.chance)
        self.members = torch.empty(BATCH, MEMBERS, *self.shape)
        self.mean, self.std, self.truth = (torch.empty(BATCH, *self.shape) for _ in range(3))
        self.noise = torch.empty(self.shape)
        self.features = torch.empty(BATCH, FEATURES, *self.shape)
        latitude = torch.linspace(90, -90, rows).deg2rad()
        self.weights = latitude.cos().clamp(min=1e-6)[:, None].expand(BATCH, *self.shape).clone()

    def batch(self, first: int, amounts: bool = False) -> dict[str, torch.Tensor]:
        """An annual cycle, an error of the ensemble that follows it, and too small a spread.

        Amounts are what is above the mean.
        """
        self.features.normal_(generator=self.chance)
        days = (first + torch.arange(BATCH)) * (YEARS * 365.25 / self.dates)
        cycles = torch.cos(days * (2 * torch.pi / 365.25))
        for i, cycle in enumerate(cycles.tolist()):
            self.members[i].normal_(generator=self.chance)
            self.noise.normal_(generator=self.chance).mul_(3).add_(280 + 8 * cycle)
            self.members[i].add_(self.noise)
            torch.mean(self.members[i], 0, out=self.mean[i])
            torch.std(self.members[i], 0, out=self.std[i])
            self.noise.normal_(generator=self.chance).mul_(1.4)
            self.truth[i].copy_(self.mean[i]).add_(self.noise)
            self.truth[i].add_(self.bias, alpha=1 + 0.5 * cycle)
            self.truth[i].add_(self.features[i, 0])
        if amounts:
            self.members.sub_(280).clamp_(min=0)
            self.truth.sub_(280).clamp_(min=0)
            torch.mean(self.members, 1, out=self.mean)
            torch.std(self.members, 1, out=self.std)
        return {
            "features": self.features,
            "members": self.members,
            "raw_mean": self.mean,
            "raw_std": self.std,
            "target": self.truth,
            "weights": self.weights,
            "dates": 883612800 + (days * 86400).long(),
        }


def made(name: str, shape: tuple[int, int]) -> StatisticalMethod:
    """The method of that name."""
    kind, options = METHODS[name]
    if kind in ("SlidingWindow", "ECC", "SchaakeShuffle"):
        options = options | {
            "method" if kind == "SlidingWindow" else "marginal": statistical.EMOS(local=True)
        }
    method: StatisticalMethod = getattr(statistical, kind)(**options)
    if isinstance(getattr(method, "advection", None), statistical.Advection):
        channels = ["u10:mean", "v10:mean", *(f"t2m@{n}:mean" for n in range(FEATURES - 2))]
        latitude = torch.linspace(90, -90, shape[0]).tolist()
        longitude = [360 / shape[1] * column for column in range(shape[1])]
        method.advection.place(channels, "t2m", latitude, longitude)  # type: ignore[operator,union-attr]
    return method


def fitted(name: str, world: World) -> tuple[dict[str, float], StatisticalMethod]:
    """Wall and processor seconds of collecting and solving, and the method."""
    method = made(name, world.shape)
    spent = {"wall_seconds": 0.0, "cpu_seconds": 0.0}

    def timed(step: Callable[..., None], *arguments: Any) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        step(*arguments)
        spent["cpu_seconds"] += time.process_time() - cpu
        spent["wall_seconds"] += time.perf_counter() - wall

    for first in range(0, world.dates, BATCH):
        timed(method.collect, world.batch(first, name in AMOUNTS))
    timed(method.solve)
    return spent, method


def in_turns(given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Medians of the seconds of each method, which are fitted one after the other in each round."""
    torch.set_num_threads(1)
    rows, columns = given.grid
    found: dict[str, list[dict[str, float]]] = {name: [] for name in given.methods}
    with config.set(num_workers=2):
        for n in range(given.rounds + 1):
            for name in given.methods:
                spent, _ = fitted(name, World(columns, given.dates, rows))
                if n:
                    found[name].append(spent)
            print(f"round {n} of {given.rounds}", file=sys.stderr, flush=True)
    return {
        name: {key: round(median(one[key] for one in all_), 4) for key in all_[0]}
        for name, all_ in found.items()
    }


def resident(field: str) -> float:
    """A line of this process's status in MB: VmRSS, or VmHWM, the highest so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def case(name: str, rows: int, columns: int, dates: int) -> dict[str, float]:
    """Cost of one fit."""
    torch.set_num_threads(1)
    with config.set(num_workers=2):
        fitted(name, World(8, 100, rows=6))  # imports, compiled code
        world = World(columns, dates, rows)
        world.batch(0)
        Path("/proc/self/clear_refs").write_text("5")  # the highest so far is what it is now
        before = resident("VmRSS")
        spent, _ = fitted(name, world)
    return {**spent, "peak_megabytes": resident("VmHWM") - before}


def in_a_process(name: str, rows: int, columns: int, dates: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--case", name, *map(str, (rows, columns, dates))]
    told = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, env={**os.environ, **ONE_THREAD}
    )
    found: dict[str, float] = json.loads(told.stdout)
    return {key: round(value, 2) for key, value in found.items()}


def answer_requests() -> None:
    """Fit the method that each line of the input names; print times, score and coefficients."""
    torch.set_num_threads(1)
    with config.set(num_workers=2):
        for line in sys.stdin:
            name, *numbers = line.split()
            rows, columns, dates = map(int, numbers)
            spent, method = fitted(name, World(columns, dates, rows))
            batch: Any = World(columns, dates, rows).batch(0, name in AMOUNTS)
            score = float(method(batch).crps(batch["target"]).double().mean())
            state = {k: v.double().flatten().tolist() for k, v in method.state_dict().items()}
            print(json.dumps({**spent, "crps": score, "state": state}), flush=True)


def distance(one: Mapping[str, list[float]], other: Mapping[str, list[float]]) -> float:
    """Largest difference of two states, each array relative to its largest value."""
    pairs = [[torch.tensor(state[key]).nan_to_num() for state in (one, other)] for key in one]
    return max(float((a - b).abs().max() / a.abs().max().clamp(min=0.1)) for a, b in pairs)


def compare(given: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Fit each method in turns with the other checkout's code and with this."""
    lanes = [
        subprocess.Popen(
            [sys.executable, __file__, "--lane"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(folder.resolve())},
        )
        for folder in (given.against, Path(__file__).parents[1])
    ]

    def ask(lane: subprocess.Popen[str], name: str) -> dict[str, Any]:
        assert lane.stdin
        assert lane.stdout
        print(name, *given.grid, given.dates, file=lane.stdin, flush=True)
        found: dict[str, Any] = json.loads(lane.stdout.readline())
        return found

    lines, found = [], {}
    for name in given.methods:
        rounds = [[ask(lane, name) for lane in lanes] for _ in range(given.rounds + 1)]
        before, after = rounds[0]
        score = abs(after["crps"] / before["crps"] - 1)
        ratios = [new["cpu_seconds"] / old["cpu_seconds"] for old, new in rounds[1:]]
        lines += [Line(f"{name}, difference of the CRPS, in millionths", 1e6 * score, 10, False)]
        lines += [Line(f"{name}, processor time over that of before", median(ratios), 1.1, False)]
        found[name] = {
            "largest_difference_of_coefficients": distance(before["state"], after["state"]),
            "cpu_seconds": [
                round(median(r[k]["cpu_seconds"] for r in rounds[1:]), 4) for k in (0, 1)
            ],
        }
        print(name, found[name], ratios, file=sys.stderr, flush=True)
    for lane in lanes:
        lane.communicate()
    rows, columns = given.grid
    return lines, {"grid": f"{rows}x{columns}", "dates": given.dates, "before_and_after": found}


def measure(given: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """The costs of all methods, and the growth of the peak."""
    if given.against:
        return compare(given)
    lines: list[Line] = []
    costs: dict[str, dict[str, Any]] = {name: dict(c) for name, c in in_turns(given).items()}
    few, many = given.dates // 4, given.dates
    for name in given.methods:
        if given.memory:
            peaks = [in_a_process(name, *given.grid, n)["peak_megabytes"] for n in (few, many)]
            what = f"{name}, growth of the peak from {few} to {many} dates, MB"
            lines.append(Line(what, peaks[1] - peaks[0], 16, False))
            costs[name]["peak_megabytes"] = peaks[1]
        if given.full:
            costs[name][f"full_grid_{FULL}_dates"] = in_a_process(name, ROWS, COLUMNS, FULL)
    rows, columns = given.grid
    about = {"grid": f"{rows}x{columns}", "dates": many, "members": MEMBERS, "features": FEATURES}
    busy = sum(c["wall_seconds"] for c in costs.values())
    share = sum(c["cpu_seconds"] for c in costs.values()) / max(busy, 1e-9)
    return lines, {**about, "cpu_seconds_by_wall_seconds": round(share, 2), "costs": costs}


def _grid(text: str) -> tuple[int, int]:
    rows, columns = map(int, text.split("x"))
    return rows, columns


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--grid", type=_grid, default=(ROWS, COLUMNS // EVERY))
    parser.add_argument("--dates", type=int, default=TRAINING)
    parser.add_argument("--memory", action="store_true", help="measure the peaks of memory too")
    parser.add_argument("--against", type=Path, help="folder of another version of this project")
    parser.add_argument("--full", action="store_true", help="and fit all points, at 60 dates")


if __name__ == "__main__":
    if "--lane" in sys.argv:
        answer_requests()
        sys.exit(0)
    if "--case" in sys.argv:
        print(json.dumps(case(sys.argv[-4], *map(int, sys.argv[-3:]))))
        sys.exit(0)
    sys.exit(
        run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, rounds=3, options=_options)
    )
