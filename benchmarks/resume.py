"""Claim: kill -9 costs one unit a worker, a second run nothing, and verify runs at 1 GB/s.

    python benchmarks/resume.py [--data DIR] [--check] [--out FILE]

A unit is one date and step (57 MB of GRIB). The process is killed with SIGKILL half-way, once
with one worker and once with two; units redone are those that the killed run had begun and the
next one did again.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import Line, run, store, world

from ens10 import prepare, verify

CODE = ("convert/work_units", "convert/workers", "convert/verification", "convert/preparation")

DATES = 16


def command(source: Path, out: Path, workers: int) -> list[str]:
    """A process that prepares the world."""
    code = (
        "from ens10 import prepare\n"
        "if __name__ == '__main__':\n"
        f"    prepare({str(source)!r}, {str(out)!r}, truth={str(source / 'truth')!r},"
        f" workers={workers})\n"
    )
    script = out.with_suffix(".py")
    script.write_text(code)
    return [sys.executable, str(script)]


def units(out: Path) -> set[str]:
    """Units of a store in the making that are done."""
    folder = out.with_name(out.name + ".partial") / "units"
    return {path.name for path in folder.glob("*.json")} if folder.exists() else set()


def killed(source: Path, out: Path, workers: int) -> int:
    """Units that a killed run had begun and not finished."""
    for path in (out, out.with_name(out.name + ".partial")):
        shutil.rmtree(path, ignore_errors=True)
    process = subprocess.Popen(command(source, out, workers), start_new_session=True)
    while len(units(out)) < DATES // 2 and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1.0)  # workers end by themselves
    partial = out.with_name(out.name + ".partial")
    files = (partial / "store").glob("sfc/*/c/*/*/0/0/0")
    begun = {tuple(map(int, path.parts[-5:-3])) for path in files}
    done = {tuple(map(int, name.split("-")[1:])) for name in forecasts(out)}
    if not done <= begun:
        raise SystemExit(f"units without files: {done - begun}")
    return len(begun - done)


def forecasts(out: Path) -> set[str]:
    """Units of forecasts among those that are done, by date and step."""
    return {name.removesuffix(".json") for name in units(out) if name.startswith("forecast-")}


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Units redone, share of a second run, speed of verify."""
    source, whole = world(options.data, DATES), store(options.data, DATES)
    out = options.data / "resumed.zarr"
    redone = {}
    for workers in (1, 2):
        redone[workers] = killed(source, out, workers)
        subprocess.run(command(source, out, workers), check=True)
        compare(out, whole)
    shutil.rmtree(out)
    start = time.perf_counter()
    prepare(source, out, truth=source / "truth", workers=1)
    first = time.perf_counter() - start
    start = time.perf_counter()
    prepare(source, out, truth=source / "truth", workers=1)
    again = time.perf_counter() - start
    found = verify(out, source=source, sample=0)
    start = time.perf_counter()
    verify(out, source=source, sample=0)
    seconds = time.perf_counter() - start
    lines = [
        Line("units redone after kill -9, one worker", redone[1], 1, False),
        Line("units redone after kill -9, two workers", redone[2], 2, False),
        Line("second run, share of the first", again / first, 0.05, False),
        Line("verify, GB/s", found.bytes / seconds / 1e9, 1.0),
    ]
    return lines, {"seconds": {"prepare": round(first, 2), "again": round(again, 4)}}


def compare(one: Path, other: Path) -> None:
    """Both stores hold the same files with the same bytes."""
    names = [
        sorted(str(p.relative_to(s)) for p in s.rglob("*") if p.is_file()) for s in (one, other)
    ]
    if names[0] != names[1]:
        raise SystemExit(f"{one} and {other} hold different files")
    for name in names[0]:
        if (one / name).read_bytes() != (other / name).read_bytes():
            raise SystemExit(f"{name} differs between {one} and {other}")


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE, rounds=1))
