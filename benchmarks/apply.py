"""Claim: correcting a date takes hardly longer than reading it and running the network on it.

    python benchmarks/apply.py [--data DIR] [--check] [--out FILE]

A synthetic date of 361 x 720 points, 11 variables of 10 members in one GRIB file. Applying is
`ens10.experiments.forecasts.apply.apply` with the shipped U-Net, from the files to corrected
netCDF: opening, checks, ensemble moments, normalisation, network, writing; in the line of one date
reading the model counts too. The bound is opening and decoding the
same fields (`open_source`, one date computed) and the network alone on features in memory. What is
written is first compared with the network's own output. Memory is the peak of a process that
applies to all dates, beside one that applies to a single date.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from common import Line, interleave, run, store, world

from ens10.cli import main
from ens10.experiments.demo import config_path
from ens10.experiments.forecasts.apply import apply
from ens10.experiments.forecasts.load import load_model
from ens10.source import open_source

CODE = ("experiments/forecasts", "source", "grib", "models/networks/unet")

DATES = 5
CLAIM = "correcting a date takes hardly longer than reading it and running the network on it"
_PEAK = """
import sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from ens10.experiments.forecasts.apply import apply
from ens10.source import open_source
run, source, out, dates = *map(Path, sys.argv[1:4]), int(sys.argv[4])
apply([run], open_source(source).isel(time=slice(dates)), out)
print(getrusage(RUSAGE_SELF).ru_maxrss / 1024)
"""


def trained(data: Path) -> Path:
    """A run of the U-Net after one step, which costs in use what a trained one does."""
    folder = data / "apply-unet"
    if not (folder / "checkpoints" / "best.ckpt").exists():
        limits = ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1"]
        limits += ["--trainer.limit_val_batches", "1", "--data.batch_size", "1", "--quiet"]
        command = ["fit", "--config", str(config_path("unet")), "--run", str(folder), *limits]
        if main([*command, "--data.store", str(store(data, DATES))]):
            sys.exit("the network could not be trained")
    return folder


def peak(network: Path, source: Path, folder: Path, dates: int) -> float:
    """Peak memory in MB of a process that applies to this number of dates."""
    arguments = [str(network), str(source), str(folder / f"{dates}.nc"), str(dates)]
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, *arguments], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def measure(given: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Time of a date, and memory of one and of all dates."""
    source, network = world(given.data, DATES), trained(given.data)
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "out.nc"
        model = load_model(network)
        one = open_source(source).isel(time=[0])
        corrections = model.corrections(one)
        batch = corrections.batch(0)
        expected = model.distribution(batch).mean.numpy()
        apply([network], one, out)
        if not np.array_equal(xr.open_dataset(out)["mu"], expected):
            sys.exit("what was written is not what the network gives")

        def read() -> None:
            open_source(source).isel(time=[0]).compute(scheduler="synchronous")

        def applied(dates: int) -> None:
            apply([network], open_source(source).isel(time=slice(dates)), out, force=True)

        subjects = {
            "read": read,
            "network": lambda: model.distribution(batch),
            "apply": lambda: applied(1),
            "apply_all": lambda: applied(DATES),
        }
        times = interleave(subjects, given.rounds)
        few, many = (peak(network, source, Path(place), dates) for dates in (1, DATES))
    bound = times["read"] + times["network"]
    every = times["apply_all"] / (DATES * bound)
    lines = [
        Line("time of a date, of reading and network alone", times["apply"] / bound, 1.5, False),
        Line(f"time of {DATES} dates, of reading and network alone", every, 1.5, False),
        Line(f"peak memory of {DATES} dates, of one date", many / few, 1.1, False),
    ]
    seconds = {f"{name}_s": round(value, 3) for name, value in times.items()}
    memory = {"peak_mb_one_date": round(few), f"peak_mb_{DATES}_dates": round(many)}
    return lines, {**seconds, **memory, "threads": torch.get_num_threads()}


if __name__ == "__main__":
    sys.exit(run(CLAIM, measure, code=CODE, rounds=3))
