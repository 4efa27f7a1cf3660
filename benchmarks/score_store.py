"""Claim: scoring a store of members takes hardly longer than reading it, in constant memory.

    python benchmarks/score_store.py [--data DIR] [--check] [--out FILE]

20 dates of 10 members on 361 x 720 points, float32, one date in a chunk, as a Zarr store with
zarr's own compression and as one without. Reading is every chunk through xarray into numpy, by
`xr.open_zarr`, from files in the page cache; scoring is `ens10 score` from opening the store to the
written files (CRPS, fair CRPS, RMSE, spread/error, histograms, maps, bootstrap). A sample is first
compared with properscoring and float64 numpy. Scoring reads ahead in a second thread: where other
work takes the cores, its time is that of both together, which the processor times tell.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from common import Line, interleave, run

CODE = (
    "experiments/scoring", "metrics/_kernels_numpy", "metrics/_ensemble_loops",
    "metrics/_few_member_loops", "metrics/_sorting_networks",
)  # fmt: skip

DATES, MEMBERS, GRID = 20, 10, (361, 720)
MORE = 60  # dates of the longer store, for memory
_PEAK = """
import resource, sys
from ens10.experiments.scoring.score import score_forecast
def peak(path):
    score_forecast(path, out=sys.argv[3])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
few = [peak(sys.argv[1]) for _ in range(4)][-1]
print(few, peak(sys.argv[2]))
"""


def make(path: Path, dates: int, compressed: bool) -> Path:
    """A store of members and truth."""
    if path.exists():
        return path
    partial = path.with_suffix(".partial")
    rng = np.random.default_rng(0)
    coordinates = {
        "time": np.datetime64("2001-01-01", "ns") + np.arange(dates) * np.timedelta64(3, "D"),
        "latitude": np.linspace(90, -90, GRID[0]),
        "longitude": np.arange(GRID[1]) * 360 / GRID[1],
        "number": np.arange(1, MEMBERS + 1),
    }
    kind = {"forecast_kind": "ensemble"}
    xr.Dataset(coords=coordinates, attrs=kind).to_zarr(partial, mode="w", consolidated=False)
    root = zarr.open_group(str(partial), mode="r+", use_consolidated=False)
    arrays = {}
    for name, dims in (("members", ("time", "number")), ("truth", ("time",))):
        shape = (dates, MEMBERS, *GRID) if name == "members" else (dates, *GRID)
        arrays[name] = root.create_array(
            name,
            shape=shape,
            chunks=(1, *shape[1:]),
            dtype="float32",
            dimension_names=(*dims, "latitude", "longitude"),
            attributes={"units": "K"},
            **({} if compressed else {"compressors": None}),
        )
    for date in range(dates):
        signal = 280 + 5 * rng.normal(size=GRID)
        arrays["members"][date] = (signal + rng.normal(size=(MEMBERS, *GRID))).astype(np.float32)
        arrays["truth"][date] = (signal + rng.normal(size=GRID)).astype(np.float32)
    partial.rename(path)
    return path


def read(path: Path) -> None:
    """All of a store into numpy arrays, date by date."""
    dataset = xr.open_zarr(path, consolidated=False, chunks={})
    for date in range(dataset.sizes["time"]):
        for name in ("members", "truth"):
            dataset[name][date].to_numpy()


def check(path: Path, out: Path) -> float:
    """The largest relative difference of a date's means from properscoring and numpy."""
    import properscoring

    from ens10.experiments.scoring.score import score_forecast

    states = score_forecast(path, weights="none", out=out).states
    dataset = xr.open_zarr(path, consolidated=False).isel(time=3)
    x, y = (dataset[name].to_numpy().astype(np.float64) for name in ("members", "truth"))
    wanted = {
        "crps": properscoring.crps_ensemble(y, x, axis=0).mean(),
        "error2": ((x.mean(axis=0) - y) ** 2).mean(),
        "variance": x.var(axis=0, ddof=1).mean(),
    }
    found = {k: float(states[f"{k}_sum"][3] / states[f"{k}_weight"][3]) for k in wanted}
    return max(abs(found[k] / wanted[k] - 1) for k in wanted)


def processor_seconds(task: Any) -> float:
    """Processor time of all threads of this process."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    task()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratios of the times, and peaks of memory."""
    from ens10.experiments.scoring.score import score_forecast

    options.data.mkdir(parents=True, exist_ok=True)
    lines, details = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name, compressed in (("compressed", True), ("uncompressed", False)):
            path = make(options.data / f"forecast-{DATES}-{name}.zarr", DATES, compressed)
            difference = check(path, Path(folder))
            if difference > 1e-6:
                sys.exit(f"{name}: differs from properscoring and numpy by {difference:.2g}")
            subjects = {
                "read": lambda path=path: read(path),
                "score": lambda path=path: score_forecast(path, out=folder),
            }
            seconds = interleave(subjects, options.rounds)
            ratio = seconds["score"] / seconds["read"]
            lines.append(Line(f"{name}: time of scoring over reading", ratio, 1.5, at_least=False))
            details[name] = {
                "seconds": {k: round(v, 3) for k, v in seconds.items()},
                "processor_seconds": {
                    k: round(processor_seconds(v), 3) for k, v in subjects.items()
                },
                "largest_difference": float(f"{difference:.2g}"),
            }
        longer = make(options.data / f"forecast-{MORE}-compressed.zarr", MORE, True)
        shorter = options.data / f"forecast-{DATES}-compressed.zarr"
        made = subprocess.run(
            [sys.executable, "-c", _PEAK, str(shorter), str(longer), folder],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        few, many = map(float, made.stdout.split())
        what = f"growth of the peak memory from {DATES} to {MORE} dates, as a share of the data's"
        size = 4 * (MEMBERS + 1) * GRID[0] * GRID[1] * (MORE - DATES) / 2**20
        lines.append(Line(what, (many - few) / size, 0.1, at_least=False))
        details["peak_mebibytes"] = {f"{DATES} dates": round(few), f"{MORE} dates": round(many)}
    return lines, {**details, "measured_at": time.strftime("%Y-%m-%d")}


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE, rounds=9))
