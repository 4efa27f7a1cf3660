"""The netCDF files that truth is kept in: CF, one field of one hour a chunk, lossless."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import dask
import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.catalog import VARIABLES
from ens10.download.choice import Choice
from ens10.durable import whole_path
from ens10.errors import FileError
from ens10.machine_errors import writing_netcdf

Grid = Mapping[str, npt.NDArray[Any]]  # latitude and longitude
_COORDINATES = {
    "time": {"standard_name": "time", "long_name": "valid time"},
    "level": {
        "standard_name": "air_pressure", "long_name": "pressure", "units": "hPa", "positive": "down"
    },
    "latitude": {"standard_name": "latitude", "units": "degrees_north"},
    "longitude": {"standard_name": "longitude", "units": "degrees_east"},
}  # fmt: skip


def hours_of(path: Path, grid: Grid, choice: Choice) -> set[datetime] | None:
    """The hours of a file, None if its fields or grid are others than those wanted.

    Raises:
        FileError: it cannot be read.
    """
    try:
        with xr.open_dataset(path, engine="netcdf4") as held:
            same = set(held.data_vars) == set(choice.variables) and all(
                np.array_equal(held[d], points) for d, points in grid.items()
            )
            if choice.upper:
                same = same and held["level"].to_numpy().tolist() == list(choice.levels)
            times = held["time"].to_numpy().astype("datetime64[s]").tolist()
    except (OSError, ValueError, KeyError) as error:
        raise FileError(path, f"no netCDF file that can be read ({error})", "Remove it") from error
    return set(times) if same else None


def merge(target: Path, parts: Sequence[Path], choice: Choice, source: str) -> None:
    """One file of the parts, and of what the year's file already had, in the order of time."""
    paths = [*parts, target] if target.exists() else parts
    opened = [xr.open_dataset(path, engine="netcdf4", chunks={"time": 1}) for path in paths]
    try:
        whole = xr.concat(
            opened, "time", data_vars="all", coords="minimal", compat="override", join="exact"
        )
        with dask.config.set(scheduler="synchronous"):  # as netCDF bears no threads
            write(whole.sortby("time")[list(choice.variables)], target, source)
    finally:
        for dataset in opened:
            dataset.close()


def write(dataset: xr.Dataset, path: Path, source: str) -> None:
    """Writes a CF netCDF file so that it is there whole or not at all."""
    described = dataset.assign_coords({d: dataset[d] for d in dataset.dims})
    described.attrs = {
        "Conventions": "CF-1.8",
        "title": "ERA5 reanalysis at the valid hours of ENS-10",
        "source": source,
    }
    for coordinate, attributes in _COORDINATES.items():
        if coordinate in described.coords:
            described[coordinate].attrs = dict(attributes)
    encoding = {}
    for name, field in described.data_vars.items():
        field.attrs = dict(VARIABLES[str(name)].attributes)
        field.encoding = {}
        one = [1 if d in ("time", "level") else field.sizes[d] for d in field.dims]
        encoding[name] = {
            "zlib": True, "complevel": 1, "shuffle": True, "chunksizes": one, "dtype": "float32",
        }  # fmt: skip
    described["time"].encoding = {"units": "hours since 1900-01-01", "dtype": "int32"}
    with whole_path(path) as aside, writing_netcdf(path):
        described.to_netcdf(aside, engine="netcdf4", encoding=encoding, unlimited_dims=["time"])
