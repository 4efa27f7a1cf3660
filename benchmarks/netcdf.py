"""Claim: a sample is read 15 to 50 times faster than with xarray and dask from compressed netCDF.

    python benchmarks/netcdf.py [--data DIR] [--check] [--out FILE]

The other way opens one netCDF4 file (zlib level 4, shuffled, a chunk a field) lazily and
computes one date a sample, as most code does; each round takes the next date, since the HDF5
library keeps chunks that it has just unpacked. Ours yields ready batches: features with raw mean
and deviation, truth and weights, as they are stored (as the other way gives them) and, without a
target, normalised.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from common import LOADER, VARIABLES, Line, interleave, run, store

from ens10 import open_store
from ens10.loader import Batches, Patches

CODE = LOADER

DATES = 16  # more than the HDF5 library keeps
PATCH = 128


def files(data: Path, path: Path) -> tuple[Path, Path]:
    """Members and ensemble statistics of a few dates as compressed netCDF."""
    out = (data / "members.nc", data / "moments.nc")
    members = open_store(path, "sfc").isel(time=slice(DATES)).chunk(time=1)
    moments = open_store(path, "statistics")[["ensemble_mean", "ensemble_std"]]
    moments = moments.isel(time=slice(DATES)).drop_vars("channel").chunk(time=1)
    for dataset, file in zip((members, moments), out, strict=True):
        if file.exists():
            continue
        packed = {"zlib": True, "complevel": 4, "shuffle": True}
        encoding = {
            name: {**packed, "chunksizes": (1,) * (field.ndim - 2) + field.shape[-2:]}
            for name, field in dataset.data_vars.items()
        }
        for name in dataset.variables:
            dataset[name].encoding = {}
        dataset.to_netcdf(file, encoding=encoding)
    return out


def endless(batches: Batches) -> Iterator[Any]:
    """Batches of one epoch after another."""
    while True:
        yield from batches


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratios of their times to ours."""
    path = store(options.data)
    members_file, moments_file = files(options.data, path)
    members = xr.open_dataset(members_file, chunks={"time": 1}, decode_timedelta=False)
    moments = xr.open_dataset(moments_file, chunks={"time": 1}, decode_timedelta=False)
    dates = cycle(range(DATES))

    def theirs_members(t: int) -> Any:
        return members.isel(time=t, step=0)[list(VARIABLES)].compute(scheduler="synchronous")

    def theirs_moments(t: int) -> Any:
        return moments.isel(time=t, step=0).compute(scheduler="synchronous")

    def theirs_patch(t: int) -> Any:
        place = {"latitude": slice(100, 100 + PATCH), "longitude": slice(200, 200 + PATCH)}
        return moments.isel(time=t, step=0, **place).compute(scheduler="synchronous")

    common: dict[str, Any] = {"shuffle": False, "threads": 0}  # nothing is read ahead unseen
    patches = Patches((PATCH, PATCH))
    kinds = {
        name: Batches(path, "t2m", list(VARIABLES), kind=kind, normalise=normalise, **common)
        for name, kind, normalise in (
            ("field", "members", False),
            ("mean/std", "fields", False),
            ("patch", patches, False),
            ("field, normalised", "members", True),
            ("mean/std, normalised", "fields", True),
            ("patch, normalised", patches, True),
        )
    }
    check(kinds, theirs_members(0), theirs_moments(0))
    ours = {name: endless(batches) for name, batches in kinds.items()}
    subjects: dict[str, Callable[[], Any]] = {
        "netCDF field": lambda: theirs_members(next(dates)),
        "netCDF mean/std": lambda: theirs_moments(next(dates)),
        "netCDF patch": lambda: theirs_patch(next(dates)),
        **{name: (lambda name=name: next(ours[name])) for name in kinds},
    }
    seconds = interleave(subjects, options.rounds)
    targets = {"field": 15, "mean/std": 40, "patch": 50}
    lines = [
        Line(f"{name}, times as fast as netCDF", seconds[f"netCDF {name}"] / seconds[name], target)
        for name, target in targets.items()
    ]
    return lines, {"milliseconds": {k: round(1e3 * v, 3) for k, v in seconds.items()}}


def check(kinds: Mapping[str, Batches], members: Any, moments: Any) -> None:
    """The batches hold what the files hold, once it is normalised."""
    batches = kinds["mean/std, normalised"]
    want = np.concatenate([moments["ensemble_mean"].to_numpy(), moments["ensemble_std"].to_numpy()])
    masks = len(batches.normaliser.channels) - len(want)
    want = np.concatenate([want, np.zeros((masks, *want.shape[1:]), np.float32)])
    batches.normaliser.apply(want)
    batch = next(iter(batches))
    got = batch["features"][0][: len(want) - masks]
    np.testing.assert_allclose(got, want[: len(want) - masks], rtol=1e-5, atol=1e-5)
    raw = next(iter(kinds["mean/std"]))["features"][0]
    np.testing.assert_array_equal(raw[:11], moments["ensemble_mean"].to_numpy())
    field = next(iter(kinds["field, normalised"]))["features"][0]
    mean, scale = batches.normaliser.mean[8], batches.normaliser.scale[8]
    one = (members["t2m"].to_numpy()[2] - mean) / scale
    np.testing.assert_allclose(field[2, 8], one, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE))
