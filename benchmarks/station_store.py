"""Claim: a store of one station takes few files and megabytes, and the loader reads it no slower.

    python benchmarks/station_store.py [--data DIR] [--check] [--out FILE]

3,617 start dates with 51 members, prepared twice: dates share chunks, and, as for large grids, one
chunk for each date. An epoch reads all dates in the order of the training, one date a batch, with
mean and deviation or with the members as features. Times are of the processor; files are in the
system's cache.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import xarray as xr
from common import LOADER, Line, interleave, run

from ens10 import prepare
from ens10.loader import Batches
from ens10.protocol import Protocol

CODE = LOADER

DATES, MEMBERS, LEAD = 3617, 51, 48
RULES = Protocol(train=list(range(2014, 2022)), val=[2022], test=[2023])


def _station() -> tuple[xr.Dataset, xr.Dataset]:
    """Members and truth, without files."""
    rng = np.random.default_rng(0)
    time = (np.datetime64("2014-01-01") + np.arange(DATES)).astype("M8[ns]")
    truth = (280 + rng.normal(0, 5, (DATES, 1))).astype(np.float32)
    members = truth[:, None] + rng.normal(1, 1.5, (DATES, MEMBERS, 1)).astype(np.float32)
    place = {"station": ["a"], "lat": ("station", [50.0]), "lon": ("station", [8.0])}
    units = {"units": "K"}
    forecast = xr.Dataset({"t2m": (("time", "number", "station"), members, units)}, place)
    forecast = forecast.assign_coords(time=time, step=LEAD, number=np.arange(MEMBERS))
    valid = time + np.timedelta64(LEAD, "h")
    observed = xr.Dataset({"t2m": (("time", "station"), truth, units)}, {"time": valid, **place})
    return forecast, observed


def _stores(folder: Path) -> dict[str, Path]:
    """The two stores, made if they are not there."""
    paths = {name: folder / f"station-{name}.zarr" for name in ("shared", "single")}
    folder.mkdir(parents=True, exist_ok=True)
    forecast, truth = _station()
    if not paths["shared"].exists():
        prepare(forecast, paths["shared"], truth=truth)
    if not paths["single"].exists():
        with mock.patch("ens10.convert.preparation.dates_of_chunk", return_value=1):
            prepare(forecast, paths["single"], truth=truth)
    return paths


def _epoch(store: Path, features: str) -> Callable[[], list[Mapping[str, Any]]]:
    kind = "fields" if features == "moments" else "members"
    batches = Batches(store, "t2m", ["t2m"], "train", kind=kind, protocol=RULES, threads=1)

    def read() -> list[Mapping[str, Any]]:
        return [{k: v.copy() for k, v in batch.items()} for batch in batches]

    read()
    return read


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Files, megabytes, and the time of an epoch by that of one chunk for each date."""
    stores, lines, details = _stores(options.data), [], {}
    sizes = {}
    for name, path in stores.items():
        files = [file for file in path.rglob("*") if file.is_file()]
        blocks = sum(file.lstat().st_blocks for file in path.rglob("*"))
        sizes[name] = {"files": len(files), "megabytes on disk": round(512 * blocks / 1e6, 2)}
    lines.append(Line("files", sizes["shared"]["files"], 40, False))
    lines.append(Line("megabytes on disk", sizes["shared"]["megabytes on disk"], 15, False))
    for features in ("moments", "members"):
        epochs = {name: _epoch(path, features) for name, path in stores.items()}
        for one, other in zip(*(read() for read in epochs.values()), strict=True):
            for key in one:  # sums of float64 in another order: the statistics differ in a last bit
                np.testing.assert_allclose(one[key], other[key], rtol=2e-6, atol=2e-6)
        seconds = interleave(epochs, options.rounds, time.process_time)
        lines.append(
            Line(f"{features}: by single", seconds["shared"] / seconds["single"], 1, False)
        )
        details[features] = {k: round(v, 4) for k, v in seconds.items()}
    return lines, {"stores": sizes, "processor seconds of an epoch": details}


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE))
