"""Claim: batches come 3 times faster than through torch's DataLoader on the same store.

    python benchmarks/torch_loader.py [--data DIR] [--check] [--out FILE]

A sample is all members of 11 variables (114 MB as float32). The other way is a map-style
dataset that reads the same chunks with the same compiled reader into a new tensor, in a
DataLoader with 0, 1 and 2 workers, of which the best counts. Ours yields normalised members
with truth and weights, from one reader thread and a ring of buffers.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import LOADER, VARIABLES, Line, interleave, run, store
from torch.utils.data import DataLoader, Dataset

from ens10.loader import Batches
from ens10.store.chunks import open_reader

CODE = LOADER


class Members(Dataset[torch.Tensor]):
    """All members of one date as a tensor (member, variable, row, column).

    Args:
        path: of the store.
        index: dates.
    """

    def __init__(self, path: Path, index: Sequence[int]) -> None:
        self.path, self.index = path, list(index)
        self._readers: list[Any] = []

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, n: int) -> torch.Tensor:
        if not self._readers:  # in the worker
            self._readers = [open_reader(self.path, f"sfc/{name}") for name in VARIABLES]
        out = np.empty((10, len(VARIABLES), 361, 720), np.float32)
        for v, reader in enumerate(self._readers):
            reader.read_into((self.index[n], 0), out[:, v])
        return torch.from_numpy(out)


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratio of the best DataLoader's time for an epoch to ours."""
    torch.set_num_threads(1)
    path = store(options.data)
    common: dict[str, Any] = {"kind": "members", "shuffle": False, "threads": 1}
    batches = Batches(path, "t2m", list(VARIABLES), normalise=False, **common)
    normalised = Batches(path, "t2m", list(VARIABLES), **common)
    dataset = Members(path, batches.index.tolist())
    loaders = {
        f"DataLoader, {n} workers": DataLoader(dataset, num_workers=n, persistent_workers=n > 0)
        for n in (0, 1, 2)
    }
    for ours, theirs in zip(batches, loaders["DataLoader, 0 workers"], strict=True):
        np.testing.assert_array_equal(ours["features"][0][:, : len(VARIABLES)], theirs[0].numpy())
    subjects: dict[str, Callable[[], Any]] = {
        "ours": lambda: sum(1 for _ in batches),
        "ours, normalised": lambda: sum(1 for _ in normalised),
    }
    for name, loader in loaders.items():
        subjects[name] = lambda loader=loader: sum(1 for _ in loader)
    seconds = interleave(subjects, options.rounds)
    best = min(value for name, value in seconds.items() if "DataLoader" in name)
    each = {name: round(1e3 * value / len(dataset), 2) for name, value in seconds.items()}
    lines = [Line("best DataLoader, times as long as ours", best / seconds["ours"], 3)]
    return lines, {"milliseconds_a_sample": each}


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE, rounds=5))
