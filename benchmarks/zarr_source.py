"""Claim: `ens10 prepare` reads 15 million values a second of processor time from Zarr stores.

    python benchmarks/zarr_source.py [--check] [--out benchmarks/results/zarr_source.json]

The source has the layout of WeatherBench 2 (2m_temperature of 50 members on 121 x 240 points,
longitude before latitude, a chunk for each start date and lead time, Blosc as Zarr has it), on a
local disk. One process prepares it with its truth: members, ensemble means and deviations, sums for
statistics. Processor time of all threads is counted; a network adds the time of the transfer.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from common import Line, run

from ens10 import prepare

CODE = ("convert/moments", "convert/work_units", "convert/workers", "source")

DATES, MEMBERS, ROWS, COLUMNS = 40, 50, 121, 240


def write(folder: Path) -> None:
    """Write forecasts and truth, a store each."""
    rng = np.random.default_rng(0)
    places = {"longitude": np.arange(COLUMNS) * 1.5, "latitude": np.linspace(-90, 90, ROWS)}
    starts = pd.date_range("2018-01-01", periods=DATES, freq="12h")
    shape = (DATES, MEMBERS, 1, COLUMNS, ROWS)
    dims = ("time", "number", "prediction_timedelta", *places)
    lead = pd.to_timedelta([48], "h")
    values = rng.normal(280.0, 10.0, shape).astype("f4").round(2)
    ahead = xr.DataArray(values, {"time": starts, "prediction_timedelta": lead} | places, dims)
    truth = xr.DataArray(values[:, 0, 0], {"time": starts + lead[0]} | places, ("time", *places))
    for name, field in {"forecasts": ahead, "truth": truth}.items():
        chunks = dict.fromkeys(field.dims, -1) | {"time": 1}
        held = field.to_dataset(name="2m_temperature").chunk(chunks)
        held.to_zarr(folder / f"{name}.zarr", zarr_format=2, consolidated=True)


def measure(options: argparse.Namespace) -> tuple[list[Line], dict[str, Any]]:
    """Prepare the same store again and again."""
    times = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        for _ in range(options.rounds + 1):
            start = time.process_time()
            truth = folder / "truth.zarr"
            prepare(folder / "forecasts.zarr", folder / "s.zarr", truth=truth, force=True)
            times.append(time.process_time() - start)
    seconds = median(times[1:])
    rate = DATES * MEMBERS * ROWS * COLUMNS / seconds / 1e6
    lines = [Line("million values a second of processor time", round(rate, 1), 15.0)]
    return lines, {"processor seconds a date of 50 members": round(seconds / DATES, 4)}


if __name__ == "__main__":
    raise SystemExit(
        run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE, rounds=5)
    )
