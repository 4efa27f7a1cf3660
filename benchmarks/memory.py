"""Claim: a loader's own memory is its ring, at 100 and 20,000 dates, and it opens in a second.

    python benchmarks/memory.py [--data DIR] [--check] [--out FILE]

Each case is a process of its own that opens a store, iterates over batches and reports its
anonymous memory (RssAnon), from which that of the same process before it opened the store is
taken. Long stores are sparse: their chunks are hard links to those of the short one.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import LOADER, VARIABLES, Line, run, store
from longstores import lengthened

from ens10.loader import Batches

CODE = LOADER

RING = 3
SAMPLES = 60
ALLOWANCE = 64.0
DAYS = 7300  # twenty years, so that there are years to split


def anonymous() -> float:
    """Anonymous memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def case(path: Path) -> dict[str, float]:
    """Seconds to open, and memory above that of the bare process, of one store."""
    warm = Batches(path, "t2m", list(VARIABLES), threads=1, ring=RING)  # imports, compiled code
    next(iter(warm))
    channels, statistics = len(warm.channels), warm.normaliser.mean.nbytes * 2 / 2**20
    del warm
    ctypes.CDLL(None).malloc_trim(0)  # what is freed would be used again, and count as nothing
    before = anonymous()
    start = time.perf_counter()
    batches = Batches(path, "t2m", list(VARIABLES), threads=1, ring=RING)
    opened = time.perf_counter() - start
    most = 0.0
    for n, batch in enumerate(batches):
        most = max(most, anonymous())
        size = sum(value.nbytes for value in batch.values() if isinstance(value, np.ndarray))
        if n == SAMPLES:
            break
    return {
        "seconds_to_open": opened,
        "megabytes": most - before,
        "batch_megabytes": size / 2**20,
        "statistics_megabytes": statistics,
        "channels": channels,
    }


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Memory and opening time at both lengths."""
    path = store(options.data)
    found = {}
    for dates in (100, 20_000):
        apart = max(1, DAYS // dates)
        long = lengthened(path, options.data / f"sparse-{dates}.zarr", dates, every=apart)
        command = [sys.executable, __file__, "--case", str(long)]
        found[dates] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    few, many = found[100], found[20_000]
    allowed = (RING + 2) * many["batch_megabytes"] + ALLOWANCE
    lines = [
        Line("anonymous memory at 20,000 dates, MB", many["megabytes"], allowed, False),
        Line("its growth from 100 dates on, MB", many["megabytes"] - few["megabytes"], 16, False),
        Line("opening 20,000 dates, seconds", many["seconds_to_open"], 1.0, False),
    ]
    return lines, {
        "cases": {str(k): {n: round(v, 3) for n, v in c.items()} for k, c in found.items()}
    }


if __name__ == "__main__":
    if "--case" in sys.argv:
        print(json.dumps(case(Path(sys.argv[-1]))))
        sys.exit(0)
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE, rounds=1))
