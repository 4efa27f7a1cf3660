"""Claim: half the rows of a field cost half: no byte is read that is not wanted.

    python benchmarks/slab.py [--data DIR] [--check] [--out FILE]

A sample is the northern half (180 of 361 rows) of the members of 11 variables. The bound copies
the same rows from a memory-mapped float32 file into a kept buffer.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from common import VARIABLES, Line, interleave, run, store

from ens10 import open_store
from ens10.store.chunks import open_reader

CODE = ("store/chunks", "store/file_bytes", "packed16", "past_caches")

DATE, ROWS = 3, slice(90, 270)
_CODE_BYTES = 2


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratio of the bound's time to ours, and of the bytes read to those wanted."""
    path = store(options.data)
    fields = open_store(path, "sfc").isel(time=DATE, step=0)
    sample = np.stack([fields[name].to_numpy() for name in VARIABLES])
    sample.tofile(options.data / "slab.f32")
    mapped = np.memmap(options.data / "slab.f32", np.float32, "r", shape=sample.shape)
    kept, buffer = (np.empty_like(sample[:, :, ROWS]) for _ in range(2))
    readers = [open_reader(path, f"sfc/{name}") for name in VARIABLES]

    def bound() -> None:
        np.copyto(kept, mapped[:, :, ROWS])

    def ours() -> int:
        return sum(
            reader.read_into((DATE, 0), part, None, ROWS)
            for reader, part in zip(readers, buffer, strict=True)
        )

    count = ours()
    bound()
    np.testing.assert_array_equal(buffer, sample[:, :, ROWS])
    np.testing.assert_array_equal(buffer, kept)
    seconds = interleave({"bound": bound, "ours": ours}, options.rounds)
    lines = [
        Line("half the rows, share of the bound", seconds["bound"] / seconds["ours"], 0.75),
        Line("bytes read of those wanted", count / (buffer.size * _CODE_BYTES), 1.02, False),
    ]
    return lines, {"milliseconds": {k: round(1e3 * v, 3) for k, v in seconds.items()}}


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE))
