"""Claim: members of a packed16 store are read at the speed of a memory copy.

    python benchmarks/members.py [--data DIR] [--check] [--out FILE]

A sample is one date: 11 variables x 10 members x 361 x 720 as float32. The bound copies the
same float32 values from a memory-mapped file into a kept buffer. Files are warm, one thread
unless stated; with several threads each reads every n-th variable.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from common import VARIABLES, Line, interleave, mapped_copy, run, store

from ens10 import open_store
from ens10.store.chunks import open_reader

CODE = ("store/chunks", "store/file_bytes", "packed16", "past_caches")

DATE = 3


def reading(path: Path, buffer: npt.NDArray[np.float32], threads: int) -> Callable[[], None]:
    """A function that reads all members of one date into the buffer."""
    readers = [open_reader(path, f"sfc/{name}") for name in VARIABLES]

    def part(n: int) -> None:
        for v in range(n, len(readers), threads):
            readers[v].read_into((DATE, 0), buffer[v])

    if threads == 1:
        return lambda: part(0)
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(part, range(threads))) and None


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratios of the bound's time to ours."""
    packed, lz4 = (store(options.data, codec=codec) for codec in ("none", "lz4"))
    fields = open_store(packed, "sfc").isel(time=DATE, step=0)
    sample = np.stack([fields[name].to_numpy() for name in VARIABLES])
    _, kept, bound = mapped_copy(sample, options.data / "members.f32")
    subjects: dict[str, Callable[[], Any]] = {"bound": bound}
    for name, path, threads in (
        ("packed16", packed, 1),
        ("packed16, 2 threads", packed, 2),
        ("lz4", lz4, 1),
        ("lz4, 2 threads", lz4, 2),
    ):
        buffer = np.empty_like(sample)
        subjects[name] = reading(path, buffer, threads)
        subjects[name]()
        np.testing.assert_array_equal(buffer, sample)
    np.testing.assert_array_equal(kept, sample)
    seconds = interleave(subjects, options.rounds)
    targets = {"packed16": 0.9, "lz4": 0.30, "lz4, 2 threads": 0.50}
    lines = [
        Line(f"members, {name}, warm, share of the bound", seconds["bound"] / seconds[name], target)
        for name, target in targets.items()
    ]
    sizes = {p.name: sum(f.stat().st_size for f in (p / "sfc").rglob("*")) for p in (packed, lz4)}
    return lines, {
        "milliseconds": {name: round(1e3 * value, 3) for name, value in seconds.items()},
        "bound_gigabytes_per_second": round(sample.nbytes / seconds["bound"] / 1e9, 2),
        "bytes_of_forecasts": sizes,
    }


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE))
