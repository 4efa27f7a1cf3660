"""Claim: `ens10 prepare` is 8 times faster than cfgrib to Zarr and 3 times ecCodes to Zarr.

    python benchmarks/prepare.py [--data DIR] [--check] [--out FILE]

All turn the same GRIB file (8 start dates of one year, for all cores 32; 11 variables x 10 members
of 361 x 720 points, 16-bit simple packing) into a Zarr store, each in a process of its own that
has converted a file of one date before the clock starts, so that imports do not count. Ours also
writes ensemble means and deviations, their sums, checksums and a manifest, and syncs every file to
the disk; the others write the values alone, with Zarr's own defaults. One worker of ours is
compared with cfgrib in one thread (with dask, and as its documentation has it, without; the faster
counts) and with ecCodes; a worker for each core, forked by a process that the first conversion
started, with cfgrib and dask's threads.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import eccodes
import numpy as np
import xarray as xr
import zarr
from common import VARIABLES, Line, run, world

from ens10 import open_store, prepare

CODE = (
    "convert/moments", "convert/work_units", "convert/workers", "convert/preparation", "grib",
    "packed16",
)  # fmt: skip

DATES = 8
MANY = 32  # with which the start of worker processes counts less
NAMES = {"2t": "t2m", "10u": "u10", "10v": "v10"}
NO_INDEX = {"indexpath": ""}  # no index file is left from an earlier round


def with_ens10(workers: int | None) -> Callable[[Path, Path], None]:
    """Our conversion, in this process or in workers."""

    def convert(source: Path, out: Path) -> None:
        prepare(source, out, workers=workers or os.cpu_count() or 1)

    return convert


def with_cfgrib(scheduler: str) -> Callable[[Path, Path], None]:
    """What xarray's documentation does for large files: open in chunks, write with `to_zarr`."""

    def convert(source: Path, out: Path) -> None:
        import dask

        dataset = xr.open_dataset(
            source, engine="cfgrib", chunks={"time": 1}, backend_kwargs=NO_INDEX,
            decode_timedelta=True,
        )  # fmt: skip
        with dask.config.set(scheduler=scheduler):
            dataset.to_zarr(out, zarr_format=3, consolidated=False)

    return convert


def with_cfgrib_in_memory(source: Path, out: Path) -> None:
    """What xarray's documentation does for small files."""
    dataset = xr.open_dataset(
        source, engine="cfgrib", backend_kwargs=NO_INDEX, decode_timedelta=True
    )
    dataset.to_zarr(out, zarr_format=3, consolidated=False)


def with_eccodes(source: Path, out: Path) -> None:
    """A loop over messages, each decoded by ecCodes and written as the member of a chunk."""
    group = zarr.open_group(str(out), mode="w")
    shape, chunk = (DATES, 10, 361, 720), (1, 10, 361, 720)
    arrays = {
        name: group.create_array(name, shape=shape, chunks=chunk, dtype="f4") for name in VARIABLES
    }
    members: dict[tuple[str, int], dict[int, Any]] = {}
    dates: dict[int, int] = {}
    with source.open("rb") as file:
        while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
            short = eccodes.codes_get(handle, "shortName")
            date = dates.setdefault(eccodes.codes_get(handle, "dataDate"), len(dates))
            eccodes.codes_set(handle, "missingValue", 9999)
            values = eccodes.codes_get_values(handle).astype(np.float32).reshape(361, 720)
            values[values == 9999] = np.nan
            number = eccodes.codes_get(handle, "number")
            eccodes.codes_release(handle)
            key = (NAMES.get(short, short), date)
            members.setdefault(key, {})[number] = values
            if len(members[key]) == 10:
                held = members.pop(key)
                arrays[key[0]][date] = np.stack([held[n] for n in sorted(held)])


CONVERTERS: dict[str, Callable[[Path, Path], None]] = {
    "ens10": with_ens10(1),
    "ens10, all cores": with_ens10(None),
    "eccodes": with_eccodes,
    "cfgrib, threads": with_cfgrib("threads"),
    "cfgrib, one thread": with_cfgrib("synchronous"),
    "cfgrib, no dask": with_cfgrib_in_memory,
}

ONE_THREAD = ("ens10", "eccodes", "cfgrib, one thread", "cfgrib, no dask")
ALL_CORES = ("ens10, all cores", "cfgrib, threads")


def one_file(data: Path, dates: int) -> Path:
    """The world's messages in one file, since cfgrib opens one."""
    files = sorted(world(data, dates, one_year=True).glob("output.sfc.*"))
    path = data / f"world-{dates}-of-1998.grib"
    if not path.exists():
        partial = path.with_suffix(".partial")
        with partial.open("wb") as whole:
            for file in files:
                whole.write(file.read_bytes())
        partial.rename(path)
    return path


def seconds(name: str, source: Path, out: Path) -> float:
    """Seconds of one conversion in a process of its own."""
    shutil.rmtree(out, ignore_errors=True)
    given = [sys.executable, __file__, "--convert", name, str(source), str(out)]
    one = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    done = subprocess.run(given, env={**os.environ, **one}, check=True, capture_output=True)
    return float(done.stdout)


def convert(name: str, source: Path, out: Path) -> None:
    """What the process of `seconds` does."""
    first = source.with_name(f"{out.stem}-first.zarr")
    shutil.rmtree(first, ignore_errors=True)
    CONVERTERS[name](one_file(source.parent, 1), first)  # imports and loads compiled code
    start = time.perf_counter()
    CONVERTERS[name](source, out)
    print(time.perf_counter() - start)


def check_equal(ours: Path, others: Mapping[str, Path], dates: int) -> None:
    """All stores hold the same values at the same dates and members."""
    fields = open_store(ours, "sfc")
    for name in VARIABLES:
        for date in range(dates):
            want = fields[name].isel(step=0, time=date).to_numpy()
            for other, path in others.items():
                held: Any = zarr.open_group(str(path), mode="r")[name]
                part = held[date] if other == "eccodes" else held[:, date]
                np.testing.assert_array_equal(part, want, err_msg=f"{other} {name}")


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratios of the others' times to ours."""
    medians: dict[str, float] = {}
    for dates, subjects in ((DATES, ONE_THREAD), (MANY, ALL_CORES)):
        source = one_file(options.data, dates)
        outs = {
            name: options.data / f"prepared-{name.replace(', ', '-').replace(' ', '-')}.zarr"
            for name in subjects
        }
        one_file(options.data, 1)
        times: dict[str, list[float]] = {name: [seconds(name, source, outs[name])] for name in outs}
        others = {name: out for name, out in outs.items() if not name.startswith("ens10")}
        check_equal(outs[next(iter(outs))], others, dates)
        for _ in range(options.rounds):
            for name, out in outs.items():
                times[name].append(seconds(name, source, out))
        medians |= {name: median(found[1:]) / dates for name, found in times.items()}
    one_thread = min(medians["cfgrib, one thread"], medians["cfgrib, no dask"])
    ratios = {
        "cfgrib to Zarr, one thread each": (one_thread / medians["ens10"], 8),
        "cfgrib to Zarr, all cores": (medians["cfgrib, threads"] / medians["ens10, all cores"], 8),
        "ecCodes to Zarr, one thread each": (medians["eccodes"] / medians["ens10"], 3),
    }
    lines = [
        Line(f"{subject}: time to ours", value, goal) for subject, (value, goal) in ratios.items()
    ]
    return lines, {
        "dates": {"one thread": DATES, "all cores": MANY},
        "seconds a date": {name: round(value, 3) for name, value in medians.items()},
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--convert"]:
        convert(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
        sys.exit()
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE, rounds=3))
