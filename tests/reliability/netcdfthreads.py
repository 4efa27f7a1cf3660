"""Threads that read netCDF files while others forget files; ends with a line.

xarray before 2026.1 closes a forgotten file without the lock of the netCDF library, which bears one
thread at a time: the process ends with SIGSEGV or an error of HDF5. Files are opened one at a time,
and not while others are read, as this package does.
"""

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import xarray as xr

READS, THREADS = 60, 3


def write(folder: Path) -> np.ndarray:
    """Write files of the same fields, shape (8, 30, 40)."""
    fields = np.random.default_rng(0).random((8, 30, 40))
    dataset = xr.Dataset({"t2m": (("time", "latitude", "longitude"), fields)})
    coding = {"t2m": {"zlib": True, "chunksizes": (1, 30, 40)}}
    for k in range(2 * THREADS):
        dataset.to_netcdf(folder / f"{k}.nc", engine="netcdf4", encoding=coding)
    return fields


class Threads:
    """What readers and those that forget share."""

    def __init__(self, fields: np.ndarray) -> None:
        self.fields = fields
        self.opening, self.ended = threading.Lock(), threading.Event()

    def read(self, path: Path) -> None:
        """Read a file again and again."""
        with self.opening:
            source = xr.open_dataset(path, engine="netcdf4", chunks={"time": 1})
        for _ in range(READS):
            with self.opening:
                values = source["t2m"].compute(scheduler="synchronous").to_numpy()
            np.testing.assert_array_equal(values, self.fields)

    def forget(self, path: Path) -> None:
        """Open a file and leave it to the garbage collector, until the readers have ended."""
        while not self.ended.is_set():
            with self.opening:
                cycle = [xr.open_dataset(path, engine="netcdf4", chunks={})]
            cycle.append(cycle)
            del cycle
            gc.collect()


def main(folder: Path) -> None:
    """Write files into a folder, read some of them, and forget others meanwhile."""
    threads = Threads(write(folder))
    paths = sorted(folder.glob("*.nc"))
    with ThreadPoolExecutor(2 * THREADS) as pool:
        others = [pool.submit(threads.forget, path) for path in paths[THREADS:]]
        readers = [pool.submit(threads.read, path) for path in paths[:THREADS]]
        try:
            for reader in readers:
                reader.result()
        finally:
            threads.ended.set()
        for other in others:
            other.result()
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
