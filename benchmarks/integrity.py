"""Claim: checking predictions against their manifest takes a few per cent of the time of scoring.

    python benchmarks/integrity.py [--data DIR] [--check] [--out FILE]

20 dates of 10 members on 361 x 720 points, float32, one date in a chunk, as a Zarr store with
zarr's own compression and as one without; each once as it is and once with a manifest, as
`ens10 predict` writes it. `ens10 score` of both, from opening the store to the written files, from
files in the page cache, in turns; the scores are compared first and must be the same, bit by bit.
Processor times tell more than those by the clock where other work takes the cores. Then opening a
store of many small files, with and without a manifest.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import zarr
from common import Line, interleave, run
from score_store import DATES, make, processor_seconds

MANY = 2000  # dates of the store of small files


def with_manifest(path: Path, to: Path) -> Path:
    """A copy of a store with its manifest."""
    from ens10.store.manifest import record_files
    from ens10.store.opening import FORMAT_ATTRIBUTE, PREDICTIONS_FORMAT, PREDICTIONS_PLAN

    if not to.exists():
        partial = shutil.copytree(path, to.with_suffix(".partial"))
        zarr.open_group(str(partial), mode="r+", use_consolidated=False).attrs[FORMAT_ATTRIBUTE] = (
            PREDICTIONS_FORMAT
        )
        record_files(partial, PREDICTIONS_PLAN)
        partial.rename(to)
    return to


def small_files(path: Path) -> Path:
    """A store of many chunks of a few bytes."""
    import xarray as xr

    if not path.exists():
        coordinates = {
            "time": np.datetime64("2001-01-01", "ns") + np.arange(MANY) * np.timedelta64(1, "D"),
            "latitude": np.linspace(60, -60, 4),
            "longitude": np.arange(4) * 90.0,
        }
        field = xr.DataArray(
            np.random.default_rng(0).normal(size=(MANY, 4, 4)).astype(np.float32),
            coordinates,
            ("time", "latitude", "longitude"),
        )
        kind = {"forecast_kind": "normal"}
        dataset = xr.Dataset({"mu": field, "sigma": field + 9, "truth": field}, attrs=kind)
        partial = path.with_suffix(".partial")
        encoding = {name: {"chunks": (1, 4, 4)} for name in dataset.data_vars}
        dataset.to_zarr(partial, mode="w", consolidated=False, encoding=encoding)
        partial.rename(path)
    return path


def timed(
    subjects: Mapping[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds of each subject by the clock, and of the processor."""
    spent: dict[str, list[float]] = {name: [] for name in subjects}
    noted = {
        name: lambda name=name, task=task: spent[name].append(processor_seconds(task))
        for name, task in subjects.items()
    }
    return interleave(noted, rounds), {name: median(held[1:]) for name, held in spent.items()}


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratios of the times of scoring, and the time of opening by the file."""
    from ens10.experiments.runs.reading import open_forecast
    from ens10.experiments.scoring.score import score_forecast

    options.data.mkdir(parents=True, exist_ok=True)
    lines, details = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name, compressed in (("compressed", True), ("uncompressed", False)):
            plain = make(options.data / f"forecast-{DATES}-{name}.zarr", DATES, compressed)
            checked = with_manifest(plain, options.data / f"recorded-{DATES}-{name}.zarr")
            states = [score_forecast(path, out=folder).states for path in (plain, checked)]
            if not states[0].equals(states[1]):
                sys.exit(f"{name}: the scores differ")
            subjects = {
                "without": lambda path=plain: score_forecast(path, out=folder),
                "with": lambda path=checked: score_forecast(path, out=folder),
            }
            seconds, spent = timed(subjects, options.rounds)
            for which, held in (("time", seconds), ("processor time", spent)):
                what = f"{name}: {which} of scoring with checksums over that without"
                ratio = held["with"] / held["without"]
                lines.append(Line(what, ratio, 1.1, at_least=False))
            details[name] = {
                "seconds": {k: round(v, 3) for k, v in seconds.items()},
                "processor_seconds": {k: round(v, 3) for k, v in spent.items()},
            }
        small = small_files(options.data / f"small-{MANY}.zarr")
        recorded = with_manifest(small, options.data / f"recorded-small-{MANY}.zarr")
        subjects = {
            "without": lambda: open_forecast(small),
            "with": lambda: open_forecast(recorded),
        }
        seconds, _ = timed(subjects, options.rounds)
        each = (seconds["with"] - seconds["without"]) / (3 * MANY) * 1e6
        what = f"opening {3 * MANY} files: microseconds a file for its name and size"
        lines.append(Line(what, each, 200, at_least=False))
        details["opening"] = {"seconds": {k: round(v, 4) for k, v in seconds.items()}}
    return lines, {**details, "measured_at": time.strftime("%Y-%m-%d")}


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, rounds=7))
