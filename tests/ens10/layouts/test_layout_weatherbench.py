"""WeatherBench 2 with members along `realization`, as in its ensembles of neural models."""

import numpy as np
import xarray as xr
from layouttools import FROM_GREENWICH, STARTS, assert_read, layouts_of, oriented, values

import ens10
from ens10.source import open_source
from ens10.source.layouts import layout_of

LATITUDE = np.arange(-75.0, 76.0, 30.0)
LEADS = np.array([6, 12, 18])
DIMS = ["time", "realization", "prediction_timedelta", "longitude", "latitude"]
UPPER = [*DIMS[:3], "level", *DIMS[3:]]
OURS = {"realization": "number", "prediction_timedelta": "step"}
SIZES = {"time": 2, "realization": 4, "prediction_timedelta": 3, "level": 2, "longitude": 8,
         "latitude": 6}  # fmt: skip
NAMES = {"2m_temperature": "t2m", "10m_u_component_of_wind": "u10", "geopotential": "z",
         "temperature": "t"}  # fmt: skip


def write(path, fields):
    """Zarr 2, a chunk a start and lead; the leads in nanoseconds, no units of fields."""
    coords = {"time": STARTS, "realization": np.arange(4), "level": [500, 850],
              "prediction_timedelta": LEADS.astype("timedelta64[h]").astype("timedelta64[ns]"),
              "longitude": FROM_GREENWICH, "latitude": LATITUDE}  # fmt: skip
    dataset = xr.Dataset(
        {k: (UPPER if v.ndim == 6 else DIMS, v) for k, v in fields.items()}, coords
    )
    chunks = dict.fromkeys(dataset.dims, -1) | {"time": 1, "prediction_timedelta": 1}
    dataset.chunk(chunks).to_zarr(path, zarr_format=2, consolidated=True)


def shape(dims):
    return [SIZES[dim] for dim in dims]


def ours(array, dims):
    return oriented(array, [OURS.get(dim, dim) for dim in dims], LATITUDE, FROM_GREENWICH)


def test_values(tmp_path):
    dims = {name: UPPER if our in "zt" else DIMS for name, our in NAMES.items()}
    write(tmp_path / "a.zarr", {k: values(NAMES[k], shape(d)) for k, d in dims.items()})
    raw = xr.open_zarr(tmp_path / "a.zarr", decode_timedelta=True)
    want = {our: ours(raw[name], dims[name]) for name, our in NAMES.items()}
    got = assert_read(tmp_path / "a.zarr", want, tmp_path)
    assert layouts_of(raw) == ["WeatherBench 2"]
    np.testing.assert_array_equal(got["step"], LEADS)
    np.testing.assert_array_equal(got["number"], np.arange(4))
    np.testing.assert_array_equal(got["level"], [500, 850])


def test_the_window_of_precipitation(tmp_path):
    write(tmp_path / "a.zarr", {"total_precipitation_6hr": values("tp", shape(DIMS))})
    raw = xr.open_zarr(tmp_path / "a.zarr", decode_timedelta=True)
    assert layout_of(raw).convert(raw)["tp"].attrs["accumulation"] == "6 h"


def test_precipitation_since_the_start(tmp_path):
    rain = values("tp", shape(DIMS))
    write(tmp_path / "a.zarr", {"total_precipitation_6hr": rain})
    want = ours(np.cumsum(rain.astype("f8"), axis=2), DIMS)
    np.testing.assert_allclose(open_source(tmp_path / "a.zarr")["tp"], want, rtol=1e-6)


def test_truth_of_the_same_layout(tmp_path):
    write(tmp_path / "a.zarr", {"2m_temperature": values("t2m", shape(DIMS))})
    valid = np.unique(np.add.outer(STARTS, LEADS.astype("timedelta64[h]")))
    field = values("t2m", (valid.size, 8, 6), seed=1)
    era5 = xr.Dataset(
        {"2m_temperature": (["time", "longitude", "latitude"], field)},
        {"time": valid, "longitude": FROM_GREENWICH, "latitude": LATITUDE},
    )
    era5.to_zarr(tmp_path / "era5.zarr", zarr_format=2)
    store = ens10.prepare(tmp_path / "a.zarr", tmp_path / "s.zarr", truth=tmp_path / "era5.zarr")
    at = np.searchsorted(valid, np.add.outer(STARTS, LEADS.astype("timedelta64[h]")))
    want = field.transpose(0, 2, 1)[at][..., ::-1, :]
    np.testing.assert_array_equal(ens10.open_store(store, "truth")["t2m"], want)


def test_precipitation_of_the_truth(tmp_path):
    """Sums of six hours become sums since the start, in forecasts and in ERA5."""
    rain = values("tp", shape(DIMS))
    write(tmp_path / "a.zarr", {"total_precipitation_6hr": rain})
    leads = LEADS.astype("timedelta64[h]")
    times = np.unique(np.add.outer(STARTS, leads))
    field = values("tp", (times.size, 8, 6), seed=1)
    era5 = xr.Dataset(
        {"total_precipitation_6hr": (["time", "longitude", "latitude"], field)},
        {"time": times, "longitude": FROM_GREENWICH, "latitude": LATITUDE},
    )
    era5.to_zarr(tmp_path / "era5.zarr", zarr_format=2)
    store = ens10.prepare(tmp_path / "a.zarr", tmp_path / "s.zarr", truth=tmp_path / "era5.zarr")
    at = np.searchsorted(times, np.add.outer(STARTS, leads))
    sums = np.cumsum(field.astype("f8")[at], axis=1).transpose(0, 1, 3, 2)[..., ::-1, :]
    np.testing.assert_allclose(ens10.open_store(store, "truth")["tp"], sums, rtol=1e-6)
    want = ours(np.cumsum(rain.astype("f8"), axis=2), DIMS)
    np.testing.assert_allclose(ens10.open_store(store, "sfc")["tp"], want, rtol=1e-5)
