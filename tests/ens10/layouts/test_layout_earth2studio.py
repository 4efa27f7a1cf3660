"""Earth2Studio: arrays as its Zarr and netCDF backends write them, without attributes."""

import numpy as np
import pytest
import xarray as xr
import zarr
from layouttools import (
    FROM_GREENWICH,
    NORTH_TO_SOUTH,
    STARTS,
    assert_read,
    layouts_of,
    oriented,
    values,
)
from netCDF4 import Dataset, date2num

from ens10.source import open_source
from ens10.source.layouts import layout_of

LEADS = np.array([0, 6, 12])
DIMS = ["ensemble", "time", "lead_time", "lat", "lon"]
OURS = ["number", "time", "step", "latitude", "longitude"]
SHAPE = (4, 2, 3, 6, 8)
NAMES = {"t2m": "t2m", "u10m": "u10", "v10m": "v10", "z500": "z", "z850": "z", "u100": "u",
         "u850": "u"}  # fmt: skip
COORDS = {"ensemble": np.arange(4), "time": STARTS,
          "lead_time": LEADS.astype("timedelta64[h]").astype("timedelta64[ns]"),
          "lat": NORTH_TO_SOUTH, "lon": FROM_GREENWICH}  # fmt: skip
NATIVE_DATES = pytest.mark.filterwarnings(
    "ignore:The data type:zarr.errors.UnstableSpecificationWarning"
)


def write_zarr(path, fields):
    """Zarr 3 with dates and leads as they are in numpy; a chunk a member, time and lead."""
    root = zarr.group(zarr.storage.LocalStore(path))
    for dim, along in COORDS.items():
        array = root.create_array(dim, shape=along.shape, chunks=along.shape, dtype=along.dtype,
                                  dimension_names=[dim], fill_value=None)  # fmt: skip
        array[:] = along
    for name, field in fields.items():
        array = root.create_array(name, shape=SHAPE, chunks=(1, 1, 1, 6, 8), dtype="f4",
                                  dimension_names=DIMS, fill_value=None)  # fmt: skip
        array[:] = field


def write_netcdf(path, fields):
    """netCDF, times in hours since the year 1, leads as integers, contiguous variables."""
    with Dataset(path, "w", format="NETCDF4") as file:
        for dim, along in COORDS.items():
            file.createDimension(dim, along.size)
            if dim == "time":
                variable = file.createVariable(dim, "f8", (dim,))
                variable.units = "hours since 0001-01-01 00:00:00.0"
                variable.calendar = "proleptic_gregorian"
                days = along.astype("datetime64[s]").tolist()
                variable[:] = date2num(days, variable.units, variable.calendar)
            elif dim == "lead_time":
                variable = file.createVariable(dim, "i8", (dim,))
                variable.units, variable.calendar = "nanoseconds", "gregorian"
                variable.setncattr("dtype", "timedelta64[ns]")
                variable[:] = along.astype("i8")
            else:
                file.createVariable(dim, along.dtype, (dim,))[:] = along
        for name, field in fields.items():
            file.createVariable(name, "f4", DIMS)[:] = field


WRITERS = {"a.zarr": write_zarr, "a.nc": write_netcdf}


@NATIVE_DATES
@pytest.mark.parametrize("name", WRITERS)
def test_values(tmp_path, name):
    fields = {theirs: values(our, SHAPE, n) for n, (theirs, our) in enumerate(NAMES.items())}
    WRITERS[name](tmp_path / name, fields)
    one = {k: oriented(v, OURS, NORTH_TO_SOUTH, FROM_GREENWICH) for k, v in fields.items()}
    gap = np.full(one["z500"].shape, np.nan, "f4")
    want = {
        "t2m": one["t2m"], "u10": one["u10m"], "v10": one["v10m"],
        "z": np.stack([gap, one["z500"], one["z850"]], axis=2),
        "u": np.stack([one["u100"], gap, one["u850"]], axis=2),
    }  # fmt: skip
    got = assert_read(tmp_path / name, want, tmp_path, missing="nan")
    np.testing.assert_array_equal(got["level"], [100, 500, 850])
    np.testing.assert_array_equal(got["step"], LEADS)
    np.testing.assert_array_equal(got["time"], STARTS)


@NATIVE_DATES
def test_one_layout_matches(tmp_path):
    kinds = {"t2m": "t2m", "tp06": "tp", "z": "z", "u100m": "u10"}
    write_zarr(tmp_path / "a.zarr", {name: values(kind, SHAPE) for name, kind in kinds.items()})
    raw = xr.open_zarr(tmp_path / "a.zarr", consolidated=False)
    assert layouts_of(raw) == ["Earth2Studio"]
    assert layout_of(raw).convert(raw)["tp"].attrs["accumulation"] == "6 h"
    # The geopotential of the surface and the wind at 100 m are not on pressure levels.
    names = {"t2m", "tp", "surface_geopotential", "u100m"}
    assert set(open_source(tmp_path / "a.zarr").data_vars) == names
    assert "level" not in open_source(tmp_path / "a.zarr").dims


@NATIVE_DATES
def test_precipitation_since_the_start(tmp_path):
    rain = values("tp", SHAPE)
    rain[:, :, 0] = 0
    write_zarr(tmp_path / "a.zarr", {"tp06": rain})
    sums = np.cumsum(rain.astype("f8"), axis=2)
    want = oriented(sums, OURS, NORTH_TO_SOUTH, FROM_GREENWICH)
    np.testing.assert_allclose(open_source(tmp_path / "a.zarr")["tp"], want, rtol=1e-6)
