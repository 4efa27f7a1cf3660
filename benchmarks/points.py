"""Claim: 200,000 shuffled points a second with 120 features, 100 times vectorised indexing.

    python benchmarks/points.py [--data DIR] [--check] [--out FILE]

A point has the 10 members of 11 variables. The other way picks as many random points of random
dates from the lazy store at once with xarray's vectorised `isel`, which is the fastest that
indexing gets. Ours loads whole dates and shuffles in memory; every point of an epoch comes
once.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from common import LOADER, VARIABLES, Line, interleave, run, store

from ens10 import open_store
from ens10.loader import Batches, Points

CODE = LOADER

PICKED = 512


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Points a second, and the ratio to vectorised indexing."""
    path = store(options.data)
    members = open_store(path, "sfc")[list(VARIABLES)].isel(step=0)
    points_of_members = Points(size=8192, features="members")
    batches = Batches(path, "t2m", list(VARIABLES), kind=points_of_members, batch_size=2, seed=1)
    rng = np.random.default_rng(0)
    first = next(iter(batches))
    features = int(np.prod(first["features"].shape[1:]))
    points = sum(len(batch["features"]) for batch in batches)

    def isel() -> xr.Dataset:
        place = {
            name: xr.DataArray(rng.integers(0, members.sizes[name], PICKED), dims="point")
            for name in ("time", "latitude", "longitude")
        }
        return members.isel(place).compute(scheduler="synchronous")

    subjects: dict[str, Callable[[], Any]] = {
        "ours": lambda: sum(1 for _ in batches),
        "isel": isel,
    }
    seconds = interleave(subjects, options.rounds)
    ours, theirs = points / seconds["ours"], PICKED / seconds["isel"]
    lines = [
        Line(f"points a second, {features} features", ours, 200_000),
        Line("times as many as vectorised isel", ours / theirs, 100),
    ]
    return lines, {"points_a_second": {"ours": round(ours), "isel": round(theirs)}}


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE, rounds=3))
