"""dynamical.org: names, attributes, shards and order of its ECMWF IFS ENS forecast."""

import numpy as np
import pytest
import xarray as xr
from layouttools import NORTH_TO_SOUTH, STARTS, assert_read, layouts_of, oriented, values

from ens10.source import open_source, tidy
from ens10.source.layouts import layout_of
from ens10.source.names import Names

LONGITUDE = np.arange(-180.0, 180.0, 45.0)
HOURS = np.array([0, 3, 6])
DIMS = ["init_time", "lead_time", "ensemble_member", "latitude", "longitude"]
OURS = ["time", "step", "number", "latitude", "longitude"]
SHAPE = (2, 3, 4, NORTH_TO_SOUTH.size, LONGITUDE.size)
ATTRIBUTES = {
    "temperature_2m": {"short_name": "2t", "standard_name": "air_temperature",
                       "long_name": "2 metre temperature", "units": "degree_Celsius"},
    "wind_u_10m": {"short_name": "10u", "standard_name": "eastward_wind", "units": "m s-1",
                   "long_name": "10 metre U wind component"},
    "geopotential_height_500hpa": {"short_name": "gh", "standard_name": "geopotential_height",
                                   "long_name": "Geopotential height", "units": "m"},
    "geopotential_height_850hpa": {"short_name": "gh", "standard_name": "geopotential_height",
                                   "long_name": "Geopotential height", "units": "m"},
    "temperature_850hpa": {"short_name": "t", "standard_name": "air_temperature",
                           "long_name": "Temperature", "units": "degree_Celsius"},
    "precipitation_surface": {"short_name": "prate", "standard_name": "precipitation_flux",
                              "long_name": "Precipitation rate", "units": "kg m-2 s-1"},
}  # fmt: skip


def imitation(fields):
    leads = HOURS.astype("timedelta64[h]").astype("timedelta64[ns]")
    coords = {
        "init_time": ("init_time", STARTS, {"standard_name": "forecast_reference_time"}),
        "lead_time": ("lead_time", leads, {"standard_name": "forecast_period"}),
        "ensemble_member": ("ensemble_member", np.arange(4, dtype="i2"),
                            {"standard_name": "realization", "units": "1"}),
        "latitude": ("latitude", NORTH_TO_SOUTH, {"units": "degree_north", "axis": "Y"}),
        "longitude": ("longitude", LONGITUDE, {"units": "degree_east", "axis": "X"}),
        "valid_time": (("init_time", "lead_time"), np.add.outer(STARTS, leads),
                       {"standard_name": "time"}),
        "expected_forecast_length": ("init_time", np.full(2, leads[-1])),
        "spatial_ref": ((), 0, {"grid_mapping_name": "latitude_longitude"}),
    }  # fmt: skip
    variables = {
        name: (DIMS, field, {"step_type": "instant", **ATTRIBUTES[name]})
        for name, field in fields.items()
    }
    attribution = "ECMWF IFS ENS forecast data processed by dynamical.org from ECMWF Open Data."
    return xr.Dataset(variables, coords, {"attribution": attribution})


def write(path, fields):
    """Zarr 3, a shard of all leads and members, chunks of a few points."""
    parts = {"chunks": (1, 3, 4, 2, 2), "shards": (1, 3, 4, 6, 8)}
    encoding = dict.fromkeys(fields, parts) | {
        "init_time": {"units": "seconds since 1970-01-01", "dtype": "i8"},
        "lead_time": {"units": "seconds", "dtype": "f8"},
    }
    imitation(fields).to_zarr(path, zarr_format=3, encoding=encoding, consolidated=True)


@pytest.fixture
def fields():
    celsius = {"temperature_2m": "t2m", "temperature_850hpa": "t"}
    held = {name: values(ours, SHAPE) - np.float32(273.15) for name, ours in celsius.items()}
    heights = {f"geopotential_height_{hpa}hpa": values("z", SHAPE, hpa) for hpa in (500, 850)}
    return held | {"wind_u_10m": values("u10", SHAPE)} | {
        name: z / np.float32(9.80665) for name, z in heights.items()
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_values(tmp_path, fields):
    write(tmp_path / "a.zarr", fields)
    raw = xr.open_zarr(tmp_path / "a.zarr", decode_timedelta=True)
    ours = {n: oriented(raw[n], OURS, NORTH_TO_SOUTH, LONGITUDE).astype("f8") for n in fields}
    heights = [ours[f"geopotential_height_{hpa}hpa"] for hpa in (500, 850)]
    missing = np.full(heights[0].shape, np.nan)
    want = {
        "t2m": (ours["temperature_2m"] + 273.15).astype("f4"),
        "u10": ours["wind_u_10m"].astype("f4"),
        "z": (np.stack(heights, axis=2) * 9.80665).astype("f4"),
        "t": np.stack([missing, ours["temperature_850hpa"] + 273.15], axis=2).astype("f4"),
    }
    got = assert_read(tmp_path / "a.zarr", want, tmp_path, missing="nan")
    assert layouts_of(raw) == ["dynamical.org"]
    np.testing.assert_array_equal(got["step"], HOURS)
    np.testing.assert_array_equal(got["number"], np.arange(4))
    np.testing.assert_array_equal(got["level"], [500, 850])
    np.testing.assert_array_equal(got["valid_time"], raw["valid_time"])
    assert got["t"].attrs["levels_hpa"] == [850]
    assert (got["t2m"].units, got["z"].units) == ("K", "m2 s-2")


def test_fields_are_not_read(fields):
    """Names are converted on dask arrays whose computation would fail."""
    dataset = imitation(fields).chunk(init_time=1)
    for name in fields:
        dataset[name] = dataset[name].copy(data=dataset[name].data.map_blocks(_fail, dtype="f4"))
    assert set(tidy(dataset, Names(), "lazy").data_vars) == {"t2m", "u10", "z", "t"}


def _fail(block):
    raise AssertionError(f"{block.shape} are read")


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_rates_are_sums_since_the_start(tmp_path):
    rate = values("tp", SHAPE) / 1000
    rate[:, 0] = np.nan  # no precipitation before the start
    write(tmp_path / "a.zarr", {"precipitation_surface": rate})
    sums = np.cumsum(np.nan_to_num(rate.astype("f8")) * 3 * 3600 / 1000, axis=1)  # m
    got = open_source(tmp_path / "a.zarr")["tp"]
    want = oriented(sums, OURS, NORTH_TO_SOUTH, LONGITUDE)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert got.attrs["units"] == "m"


def test_the_window_of_rates():
    dataset = imitation({"precipitation_surface": values("tp", SHAPE)})
    assert layout_of(dataset).convert(dataset)["tp"].attrs["accumulation"] == "previous step"


def write_group(path):
    """A store whose variables on many levels are in the group pressure_level; returns them."""
    sizes = (*SHAPE, 2)
    upper = imitation({}).assign_coords(
        pressure_level=("pressure_level", [500, 850], {"units": "hPa", "positive": "down"})
    )
    dims = [*DIMS, "pressure_level"]
    heights = values("z", sizes) / np.float32(9.80665)
    attributes = {"units": "m", "standard_name": "geopotential_height"}
    upper["temperature"] = (dims, values("t", sizes), {"units": "K"})
    upper["geopotential_height"] = (dims, heights, attributes)
    surface = imitation({"temperature_2m": values("t2m", SHAPE)})
    surface.to_zarr(path, zarr_format=3, consolidated=False)
    upper.to_zarr(path, group="pressure_level", zarr_format=3, mode="a", consolidated=False)
    return upper


def test_a_group_of_pressure_levels(tmp_path):
    upper = write_group(tmp_path / "a.zarr")
    got = open_source(tmp_path / "a.zarr", Names(group="pressure_level"))
    assert set(got.data_vars) == {"z", "t"}
    want = oriented(upper["temperature"], [*OURS, "level"], NORTH_TO_SOUTH, LONGITUDE)
    np.testing.assert_array_equal(got["t"], want)
