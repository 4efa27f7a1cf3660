"""Claim: a sample costs a hundredth of the ENS-10 authors' item access, at any number of dates.

    python benchmarks/published.py [--data DIR] [--check] [--out FILE]

Their loader (github spcl/ens10, baselines/loader.py, U-Net) keeps means, deviations and truth
in netCDF files opened with ten dates a dask chunk; an item computes its date from the first
two, copies each variable into a tensor, and computes the whole truth to take one date of it.
This does the same calls on files of the same content, uncompressed. Ours yields ready batches
under the same (`paper`) protocol.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import torch
import xarray as xr
from common import DATES, LOADER, VARIABLES, Line, interleave, run, store
from longstores import lengthened

from ens10 import open_store
from ens10.loader import Batches

CODE = LOADER

MANY = 400
_FACTORS = {"mean": 1.0, "std": np.float32(0.9**0.5)}  # the paper's deviation is that with n = 10


def files(data: Path, path: Path, normaliser: Any) -> dict[str, Path]:
    """Normalised means and deviations, and the truth, in the authors' layout."""
    out = {name: data / f"published_{name}.nc" for name in ("mean", "std", "truth")}
    statistics = open_store(path, "statistics").isel(step=0)
    for n, moment in enumerate(("mean", "std")):
        values = statistics[f"ensemble_{moment}"].to_numpy() * _FACTORS[moment]
        part = slice(n * len(VARIABLES), (n + 1) * len(VARIABLES))
        values = np.nan_to_num((values - normaliser.mean[part]) / normaliser.scale[part])
        fields = {name: (("time", "lat", "lon"), values[:, c]) for c, name in enumerate(VARIABLES)}
        _write(xr.Dataset(fields, {"time": statistics["time"].to_numpy()}), out[moment])
    truth = open_store(path, "truth").isel(step=0)["t2m"]
    held = xr.Dataset({"T2M": (("time", "lat", "lon"), truth.to_numpy())})
    _write(held.assign_coords(time=truth["time"].to_numpy()), out["truth"])
    return out


def _write(dataset: xr.Dataset, path: Path) -> None:
    """A netCDF file with a chunk a field and no end to its dates, as cdo writes it."""
    encoding = {name: {"chunksizes": (1, 361, 720)} for name in dataset.data_vars}
    dataset.to_netcdf(path, unlimited_dims=["time"], encoding=encoding)


def item_access(out: Mapping[str, Path]) -> Callable[[int], tuple[Any, Any]]:
    """One item as the authors' grid dataset makes it."""
    netCDF4.set_chunk_cache(size=0)  # it holds these few dates, and none of 1889
    means, deviations, truth = (xr.open_dataset(p, chunks={"time": 10}) for p in out.values())

    def item(t: int) -> tuple[Any, Any]:
        inputs = torch.zeros((2 * len(VARIABLES), 361, 720))
        mean, deviation = means.isel(time=t).compute(), deviations.isel(time=t).compute()
        for k, name in enumerate(VARIABLES):
            inputs[2 * k] = torch.as_tensor(mean[name].to_numpy())
            inputs[2 * k + 1] = torch.as_tensor(deviation[name].to_numpy())
        return inputs, torch.from_numpy(truth["T2M"].compute().to_numpy()[t])

    return item


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratio of their time to ours, and of ours at many dates to few."""
    path = store(options.data)
    many = lengthened(path, options.data / f"sparse-{MANY}.zarr", MANY)
    few, long = (
        Batches(p, "t2m", list(VARIABLES), protocol="paper", shuffle=False) for p in (path, many)
    )
    item = item_access(files(options.data, path, few.normaliser))
    batch = next(iter(few))
    inputs, truth = item(int(few.index[0]))
    order = [*range(0, 22, 2), *range(1, 22, 2)]
    np.testing.assert_allclose(batch["features"][0], inputs.numpy()[order], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(batch["target"][0], truth.numpy())
    dates, length = cycle(few.index.tolist()), {"few": len(few), "many": len(long)}
    subjects: dict[str, Callable[[], Any]] = {
        "published, one item": lambda: item(next(dates)),
        "few": lambda: [None for _ in few],
        "many": lambda: [None for _ in long],
    }
    seconds = interleave(subjects, options.rounds)
    each = {name: seconds[name] / length[name] for name in length}
    lines = [
        Line(f"published item access at {DATES} dates, times as long as ours",
             seconds["published, one item"] / each["few"], 100),
        Line(f"a sample at {MANY} dates, of one at {DATES}",
             each["many"] / each["few"], 1.25, at_least=False),
    ]  # fmt: skip
    sample = {"published": seconds["published, one item"], **each}
    return lines, {"milliseconds_a_sample": {k: round(1e3 * v, 3) for k, v in sample.items()}}


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE, rounds=5))
