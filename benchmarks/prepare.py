"""Claim: `ens10 prepare` is 10 times faster than cfgrib to Zarr and 3 times ecCodes to Zarr.

    python benchmarks/prepare.py [--data DIR] [--check] [--out FILE]

All three turn the same GRIB file (11 variables x 10 members of 361 x 720 points, 16-bit simple
packing) into a Zarr store, in one process. Ours also writes ensemble means and deviations,
their sums, checksums and a manifest, and syncs every file to the disk; the others write the
values alone, with Zarr's own defaults.
"""

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import eccodes
import numpy as np
import xarray as xr
import zarr
from common import VARIABLES, Line, interleave, run, world

from ens10 import open_store, prepare

DATES = 2
NAMES = {"2t": "t2m", "10u": "u10", "10v": "v10"}


def with_ens10(source: Path, out: Path) -> None:
    """Our conversion, in this process."""
    prepare(source, out, workers=1, force=True)


def with_cfgrib(source: Path, out: Path) -> None:
    """What xarray's documentation does: open with cfgrib, write with `to_zarr`."""
    shutil.rmtree(out, ignore_errors=True)
    dataset = xr.open_dataset(
        source, engine="cfgrib", chunks={"time": 1}, backend_kwargs={"indexpath": ""},
        decode_timedelta=True,
    )  # fmt: skip
    dataset.to_zarr(out, zarr_format=3, consolidated=False)


def with_eccodes(source: Path, out: Path) -> None:
    """A loop over messages, each decoded by ecCodes and written as the member of a chunk."""
    shutil.rmtree(out, ignore_errors=True)
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


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratios of the others' times to ours."""
    folder = world(options.data, DATES)
    source = next(folder.glob("output.sfc.*"))
    outs = {name: options.data / f"prepared-{name}.zarr" for name in ("ens10", "cfgrib", "eccodes")}
    converters = {"ens10": with_ens10, "cfgrib": with_cfgrib, "eccodes": with_eccodes}
    for name, convert in converters.items():
        convert(source, outs[name])
    ours = open_store(outs["ens10"], "sfc")
    for name in VARIABLES:
        want = ours[name].isel(step=0).to_numpy()
        for other in ("cfgrib", "eccodes"):
            theirs = zarr.open_group(str(outs[other]), mode="r")[name]
            got = np.asarray(theirs[...]).reshape(-1, *want.shape[1:])  # type: ignore[index]
            if got.shape[0] != want.shape[0]:
                got = got.reshape(10, DATES, 361, 720).swapaxes(0, 1)
            elif other == "cfgrib":
                got = np.asarray(theirs[...]).swapaxes(0, 1).reshape(want.shape)  # type: ignore[index]
            np.testing.assert_array_equal(got, want, err_msg=f"{other} {name}")
    subjects = {n: (lambda n=n: converters[n](source, outs[n])) for n in converters}
    seconds = interleave(subjects, options.rounds)
    lines = [
        Line("cfgrib to Zarr, times as long as ours", seconds["cfgrib"] / seconds["ens10"], 10),
        Line("ecCodes to Zarr, times as long as ours", seconds["eccodes"] / seconds["ens10"], 3),
    ]
    return lines, {
        "dates": DATES,
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
    }


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, rounds=3))
