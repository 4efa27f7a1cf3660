"""Claim: with cold files, training waits at most 10 % of a step that is twice the read time.

    python benchmarks/cold.py [--data DIR] [--check] [--out FILE]

The store's files are dropped from the page cache before each epoch. The step is a wait of twice
the time that a cold read of a sample takes (measured first); the stall is what `next` adds to
it.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from common import LOADER, VARIABLES, Line, run, store

from ens10.loader import Batches

CODE = LOADER


def drop(path: Path) -> None:
    """Drops a store's files from the page cache, once they are on the disk."""
    for file in path.rglob("*"):
        if file.is_file():
            handle = os.open(file, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def waits(batches: Batches, step: float) -> list[float]:
    """Seconds spent in `next` for each batch of an epoch but the first, with a step between."""
    found, source = [], iter(batches)
    while True:
        start = time.perf_counter()
        try:
            next(source)
        except StopIteration:
            return found[1:]
        found.append(time.perf_counter() - start)
        time.sleep(step)


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Share of the step's time spent waiting."""
    path = store(options.data)
    common: dict[str, Any] = {"kind": "members", "shuffle": True}
    alone = Batches(path, "t2m", list(VARIABLES), threads=0, **common)
    ours = Batches(path, "t2m", list(VARIABLES), threads=1, **common)
    reads, stalls = [], []
    for _ in range(options.rounds):
        drop(path)
        reads.append(median(waits(alone, 0.0)))
        step = 2 * median(reads)
        drop(path)
        found = waits(ours, step)
        stalls.append(sum(found) / (len(found) * step))
    lines = [Line("stall, share of the step", median(stalls), 0.10, False)]
    return lines, {
        "milliseconds": {
            "cold read of a sample": round(1e3 * median(reads), 1),
            "step": round(2e3 * median(reads), 1),
        }
    }


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE, rounds=3))
