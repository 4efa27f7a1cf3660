"""Claim: a sample of ensemble means and deviations is read at the speed of a memory copy.

    python benchmarks/moments.py [--data DIR] [--check] [--out FILE]

A sample is one date: 11 means and 11 deviations of 361 x 720 points. The bound copies the same
float32 values from a memory-mapped file into a kept buffer. Beside it, without a target: whole
batches (means, deviations, normalisation, truth, raw mean and deviation, weights) of `Batches`,
with 0 to 2 threads.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from common import LOADER, VARIABLES, Line, interleave, mapped_copy, run, store

from ens10 import open_store
from ens10.loader import Batches
from ens10.store.chunks import open_reader

CODE = (*LOADER, "past_caches")

DATE = 3


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratio of the bound's time to ours."""
    path = store(options.data)
    statistics = open_store(path, "statistics").isel(time=DATE, step=0)
    moments = ("ensemble_mean", "ensemble_std")
    sample = np.stack([statistics[name].to_numpy() for name in moments])
    _, kept, bound = mapped_copy(sample, options.data / "moments.f32")
    readers = [open_reader(path, f"statistics/{name}") for name in moments]
    buffer = np.empty_like(sample)

    def ours() -> None:
        for reader, part in zip(readers, buffer, strict=True):
            reader.read_into((DATE, 0), part)

    ours()
    np.testing.assert_array_equal(buffer, sample)
    np.testing.assert_array_equal(kept, sample)
    subjects: dict[str, Callable[[], Any]] = {"bound": bound, "ours": ours}
    for threads in (0, 1, 2):
        batches = Batches(path, "t2m", list(VARIABLES), "train", shuffle=False, threads=threads)
        subjects[f"epoch of batches, {threads} threads"] = lambda b=batches: [None for _ in b]
        dates = len(batches)
    seconds = interleave(subjects, options.rounds)
    lines = [Line("mean/std sample, share of the bound", seconds["bound"] / seconds["ours"], 0.9)]
    per_sample = {k: v / (dates if "epoch" in k else 1) for k, v in seconds.items()}
    return lines, {
        "milliseconds_a_sample": {k: round(1e3 * v, 3) for k, v in per_sample.items()},
        "bound_gigabytes_per_second": round(sample.nbytes / seconds["bound"] / 1e9, 2),
    }


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE))
