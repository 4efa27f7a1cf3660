"""Claim: the memory of a statistical fit does not grow with the dates; what fits cost at 361 x 720.

    python benchmarks/statistical.py [--check] [--out FILE]

Each case is a process of its own that fits one method, as its YAML has it, to numbers made up on
the way, five dates at a time. CPU seconds are those of `collect` and `solve` in all threads (two of
dask, one of BLAS), without those of making the numbers. The peak is that of resident memory above
the process with torch and one batch in it. The full grid is fitted at 60 dates. A set of 1784
dates, as many as protocol `clean` trains on in ENS-10 (and, for the growth of memory, a quarter of
them), is fitted on every 48th column, and the seconds multiplied by 48: they go with the number of
points, but for what a method does once for all points at a fixed number of samples (common
coefficients, strength), which then is counted 48 times.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from common import Line, run
from dask import config

from ens10.models import statistical
from ens10.models.statistical.base import StatisticalMethod

ROWS, COLUMNS, MEMBERS, BATCH = 361, 720, 10, 5
FULL, TRAINING, EVERY = 60, 1784, 48
YEARS = 18  # 1998 to 2015
METHODS = {
    "climatology": ("Climatology", {}),
    "bias_map": ("BiasMap", {"harmonics": 1}),
    "emos_global": ("EMOS", {"local": False}),
    "emos_local": ("EMOS", {"local": True}),
    "emos_seasonal": ("SeasonalEMOS", {"harmonics": 1}),
    "emos_logistic": ("SeasonalEMOS", {"harmonics": 1, "family": "logistic"}),
    "member_by_member": ("MemberByMember", {}),
    "isotonic": ("IsotonicRegression", {}),
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
        latitude = torch.linspace(90, -90, rows).deg2rad()
        self.weights = latitude.cos().clamp(min=1e-6)[:, None].expand(BATCH, *self.shape).clone()

    def batch(self, first: int) -> dict[str, torch.Tensor]:
        """An annual cycle, an error of the ensemble that follows it, and too small a spread."""
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
        return {
            "members": self.members,
            "raw_mean": self.mean,
            "raw_std": self.std,
            "target": self.truth,
            "weights": self.weights,
            "dates": 883612800 + (days * 86400).long(),
        }


def made(name: str) -> StatisticalMethod:
    """The method of that name."""
    kind, options = METHODS[name]
    method: StatisticalMethod = getattr(statistical, kind)(**options)
    return method


def fitted(name: str, world: World) -> float:
    """CPU seconds of collecting and solving."""
    method, spent = made(name), 0.0
    for first in range(0, world.dates, BATCH):
        batch = world.batch(first)
        start = time.process_time()
        method.collect(batch)
        spent += time.process_time() - start
    start = time.process_time()
    method.solve()
    return spent + time.process_time() - start


def resident(field: str) -> float:
    """A line of this process's status in MB: VmRSS, or VmHWM, the highest so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def case(name: str, columns: int, dates: int) -> dict[str, float]:
    """Cost of one fit."""
    torch.set_num_threads(1)
    with config.set(num_workers=2):
        fitted(name, World(8, 10, rows=6))  # imports, compiled code
        world = World(columns, dates)
        world.batch(0)
        Path("/proc/self/clear_refs").write_text("5")  # the highest so far is what it is now
        before = resident("VmRSS")
        seconds = fitted(name, world)
    return {"cpu_seconds": seconds, "peak_megabytes": resident("VmHWM") - before}


def in_a_process(name: str, columns: int, dates: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--case", name, str(columns), str(dates)]
    told = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, env={**os.environ, **ONE_THREAD}
    )
    found: dict[str, float] = json.loads(told.stdout)
    return found


def measure(given: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Growth of the peak, and the costs of all methods."""
    lines, costs = [], {}
    for name in given.methods:
        full = in_a_process(name, COLUMNS, FULL)
        few, many = (
            in_a_process(name, COLUMNS // EVERY, dates) for dates in (TRAINING // 4, TRAINING)
        )
        growth = many["peak_megabytes"] - few["peak_megabytes"]
        lines.append(
            Line(
                f"{name}, growth of the peak from {TRAINING // 4} to {TRAINING} dates, MB",
                growth,
                16,
                False,
            )
        )
        costs[name] = {
            f"cpu_seconds_{FULL}_dates": round(full["cpu_seconds"], 1),
            f"peak_megabytes_{FULL}_dates": round(full["peak_megabytes"]),
            f"cpu_seconds_{TRAINING}_dates_extrapolated": round(EVERY * many["cpu_seconds"]),
            "every_48th_column": {
                f"cpu_seconds_{TRAINING}_dates": round(many["cpu_seconds"], 1),
                f"peak_megabytes_{TRAINING}_dates": round(many["peak_megabytes"], 1),
                f"peak_megabytes_{TRAINING // 4}_dates": round(few["peak_megabytes"], 1),
            },
        }
        print(name, costs[name], file=sys.stderr, flush=True)
    return lines, {"grid": f"{ROWS}x{COLUMNS}", "members": MEMBERS, "costs": costs}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))


if __name__ == "__main__":
    if "--case" in sys.argv:
        print(json.dumps(case(sys.argv[-3], int(sys.argv[-2]), int(sys.argv[-1]))))
        sys.exit(0)
    sys.exit(
        run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, rounds=1, options=_options)
    )
