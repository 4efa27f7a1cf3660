"""Claim: a million samples later a loader holds the memory, threads and open files of the start.

    python benchmarks/soak.py [--data DIR] [--samples N] [--check] [--out FILE]

One loader iterates over epochs of a small store, shuffled, until it has given so many samples.
Anonymous memory (RssAnon), threads and open files are read twenty times on the way; the first
tenth is the loader's own growth and does not count. The second case opens a sparse store of
20,000 dates, 1,000 variables and 1,000 members, in which most chunks are links to the same
file, and reads a batch of it.
"""

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from common import Line, run
from longstores import lengthened

from ens10 import open_store, prepare
from ens10.loader import Batches
from ens10.store import consolidate
from ens10.synthetic import World

READINGS = 20
DATES, VARIABLES, MEMBERS = 20_000, 1_000, 1_000


def held() -> dict[str, float]:
    """Memory in MB, threads and open files of this process."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "megabytes": int(lines["RssAnon"].split()[0]) / 1024,
        "threads": int(lines["Threads"]),
        "files": len(list(Path("/proc/self/fd").iterdir())),
    }


def small_store(folder: Path, *, members: int, variables: Sequence[str], grid: str) -> Path:
    """A store of eight years of a tiny world; made if it is not there."""
    path = folder / f"soak-{grid}-{members}-{len(variables)}.zarr"
    if not path.exists():
        with tempfile.TemporaryDirectory() as scratch:
            world = Path(scratch) / "world"
            years = range(2000, 2008)
            made = World(grid, years, 1, variables, seed=0, members=members, steps=(48,))
            made.write(world)
            prepare(world, path, truth=world / "truth", workers=1)
    return path


def soak(folder: Path, samples: int) -> list[dict[str, float]]:
    """Readings of a loader on its way to so many samples."""
    store = small_store(folder, members=5, variables=("t2m", "u10"), grid="8x16")
    long = lengthened(store, folder / "soak-1000.zarr", 1000, every=2)
    batches = Batches(long, "t2m", ["t2m", "u10"], batch_size=16, shuffle=True, threads=2)
    readings, given = list[dict[str, float]](), 0
    while given < samples:
        for batch in batches:
            given += len(batch["target"])
            if given * READINGS >= (len(readings) + 1) * samples:
                readings.append({"samples": given, **held()})
            if given >= samples:
                break
    return readings


def wide_store(folder: Path) -> Path:
    """A sparse store of many dates, variables and members."""
    path = folder / "soak-wide.zarr"
    if path.exists():
        return path
    few = folder / "soak-members.zarr"
    shutil.rmtree(few, ignore_errors=True)
    shutil.copytree(small_store(folder, members=4, variables=("t2m", "u10"), grid="4x8"), few)
    add_members(few, MEMBERS)
    copy = folder / "soak-wide.partial"
    shutil.rmtree(copy, ignore_errors=True)
    long = lengthened(few, folder / "soak-long.zarr", DATES, every=1)
    shutil.copytree(long, copy, symlinks=True, ignore=shutil.ignore_patterns("c"))
    for array in long.rglob("c"):
        (copy / array.relative_to(long)).symlink_to(array.resolve())
    for kind in ("sfc", "statistics"):
        for array in sorted((copy / kind).glob("*t2m*")):
            for n in range(VARIABLES - 1):
                name = array.name.replace("t2m", f"v{n:03d}")
                (copy / kind / name).mkdir()
                shutil.copy(array / "zarr.json", copy / kind / name)
                (copy / kind / name / "c").symlink_to((array / "c").resolve())
    consolidate(copy)
    return copy.rename(path)


def add_members(store: Path, count: int) -> None:
    """Repeat the members of a store, of which GRIB files hold 254 at most."""
    group = zarr.open_group(str(store / "sfc"), mode="r+", use_consolidated=False)
    for name, array in list(group.arrays()):
        dims = array.metadata.dimension_names or ()
        if "number" not in dims:
            continue
        axis = dims.index("number")
        times = [count // array.shape[axis] if n == axis else 1 for n in range(array.ndim)]
        values = np.arange(count) if name == "number" else np.tile(array[...], times)
        chunks = [count if n == axis else size for n, size in enumerate(array.chunks)]
        shutil.rmtree(store / "sfc" / name)
        group.create_array(
            name, data=values.astype(array.dtype), chunks=tuple(chunks), compressors=None,
            dimension_names=dims, attributes=dict(array.attrs), fill_value=array.fill_value,
        )  # fmt: skip


def wide(folder: Path) -> dict[str, float]:
    """Seconds of processor time to open the wide store and to read a batch."""
    store = wide_store(folder)
    begin = time.process_time()
    opened = open_store(store, "sfc")
    seconds = {"open_store": time.process_time() - begin}
    sizes = {"dates": opened.sizes["time"], "members": opened.sizes["number"]}
    sizes["variables"] = len(opened.data_vars)
    begin = time.process_time()
    batches = Batches(store, "t2m", ["t2m", "u10"], batch_size=4, threads=1)
    seconds["loader"] = time.process_time() - begin
    begin = time.process_time()
    batch = next(iter(batches))
    seconds["batch"] = time.process_time() - begin
    return {
        **sizes,
        **{f"seconds_{k}": v for k, v in seconds.items()},
        "batch": len(batch["target"]),
    }


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Both cases."""
    options.data.mkdir(parents=True, exist_ok=True)
    readings = soak(options.data, options.samples)
    settled = readings[READINGS // 10 :]
    memory = [reading["megabytes"] for reading in settled]
    lines = [
        Line("samples", readings[-1]["samples"], options.samples, True),
        Line("growth of memory after the first tenth, MB", memory[-1] - memory[0], 16, False),
        Line("more threads", settled[-1]["threads"] - settled[0]["threads"], 0, False),
        Line("more open files", settled[-1]["files"] - settled[0]["files"], 0, False),
    ]
    found = wide(options.data)
    lines += [
        Line(name, found[name], size, True)
        for name, size in (("dates", DATES), ("variables", VARIABLES), ("members", MEMBERS))
    ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return lines, {"readings": readings, "wide": found, "peak_megabytes": peak}


def add_samples(parser: argparse.ArgumentParser) -> None:
    """The number of samples."""
    parser.add_argument("--samples", type=int, default=1_000_000)


if __name__ == "__main__":
    claim = __doc__.splitlines()[0].removeprefix("Claim: ")
    sys.exit(run(claim, measure, rounds=1, options=add_samples))
