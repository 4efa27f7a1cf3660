"""Claim: reading a table of a million rows takes at most five times the memory of its file.

    python benchmarks/tables.py [--data DIR] [--check] [--out FILE]

A process of its own reads the table; its peak of resident memory, less that before, is compared
with the size of the file. The values are compared with those that were written.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import Line, run

from ens10.source import open_source

STATIONS, DATES, STEPS, MEMBERS = 100, 250, 4, 10


def write(path: Path) -> None:
    """A table of a million rows; the value is a function of the row."""
    axes = {
        "time": pd.date_range("2001-01-01T00", periods=DATES, freq="D").strftime("%Y-%m-%dT%H"),
        "step": np.arange(24, 24 * (STEPS + 1), 24),
        "number": np.arange(1, MEMBERS + 1),
        "station": [f"{6000 + n:05d}" for n in range(STATIONS)],
    }
    frame = pd.MultiIndex.from_product(axes.values(), names=axes).to_frame(index=False)
    place = frame["station"].astype(int) - 6000
    frame["t2m"] = np.arange(len(frame)) % 5000 / 100 + 260
    frame["lat"], frame["lon"] = 40 + place / 10, 5 + place / 10
    frame.to_csv(path, index=False)


def memory(name: str) -> int:
    """A line of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def case(path: Path) -> dict[str, float]:
    """Peak of memory while the table is read, in bytes above that before."""
    small = path.with_name("small.csv")
    small.write_text("station,time,step,t2m,lat,lon\na,2001-01-01,24,280.0,50,4\n")
    open_source(small)  # imports
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = memory("VmRSS")
    dataset = open_source(path)
    peak = memory("VmHWM") - before
    got = dataset["t2m"].transpose("time", "step", "number", ...).to_numpy().ravel()
    np.testing.assert_array_equal(got, np.arange(got.size) % 5000 / 100 + 260)
    return {"peak_bytes": peak, "file_bytes": path.stat().st_size, "rows": got.size}


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Peak of memory for each byte of the file."""
    options.data.mkdir(parents=True, exist_ok=True)
    path = options.data / "million.csv"
    if not path.exists():
        write(path)
    command = [sys.executable, __file__, "--case", str(path)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    ratio = found["peak_bytes"] / found["file_bytes"]
    return [Line("bytes of memory for each byte of the file", ratio, 5.0, False)], found


if __name__ == "__main__":
    if "--case" in sys.argv:
        print(json.dumps(case(Path(sys.argv[-1]))))
        sys.exit(0)
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, rounds=1))
