"""Precipitation of ERA5, sums of one hour, as truth of forecasts that are sums since the start."""

import numpy as np
import pytest
import xarray as xr
import zarr

from ens10.convert import prepare
from ens10.errors import ArgumentError, MissingDataError
from ens10.identity import SINCE_START
from ens10.source import open_source
from ens10.source.layout import tidy
from ens10.source.names import Names
from ens10.source.pairing import pair_truth
from ens10.store import open_store

LAT, LON = np.array([10.0, 0.0, -10.0]), np.arange(0, 360, 90.0)
STARTS = ["2001-01-01", "2001-01-04"]
FIRST, HOURS = np.datetime64("2000-12-30T00", "h"), 24 * 9


def forecasts(steps=(0, 24, 48), starts=STARTS):
    starts = np.array(starts, "datetime64[ns]")
    field = np.zeros((starts.size, len(steps), 2, LAT.size, LON.size), "f4")
    dims = ("time", "step", "number", "latitude", "longitude")
    variables = {"tp": (dims, field, {"units": "m"}), "t2m": (dims, field + 280, {"units": "K"})}
    coordinates = {"time": starts, "step": list(steps), "number": [1, 2], "latitude": LAT}
    return tidy(xr.Dataset(variables, {**coordinates, "longitude": LON}), Names(), "f")


def hourly():
    """Hourly sums in m, with the negative rounding of packed files."""
    rain = np.random.default_rng(0).gamma(0.2, 1e-3, (HOURS, LAT.size, LON.size))
    rain[rain < 1e-6] = -1e-9
    return FIRST + np.arange(HOURS), rain.astype("f4")


def total(start, step):
    times, rain = hourly()
    start = np.datetime64(start, "h")
    inside = (times > start) & (times <= start + step)
    return np.maximum(rain[inside].astype("f8"), 0).sum(0)


def arco(path, lacking=()):
    """The layout of ARCO-ERA5: Zarr, a chunk an hour, long names, hours since 1900."""
    times, rain = hourly()
    keep = ~np.isin(times, np.array(lacking, "datetime64[h]"))
    root = zarr.open_group(path, mode="w", zarr_format=2)

    def put(name, data, dims, **attributes):
        chunks = (1, *data.shape[1:]) if data.ndim == 3 else data.shape
        fill = np.nan if data.dtype.kind == "f" else 0
        array = root.create_array(
            name, shape=data.shape, dtype=data.dtype, chunks=chunks, fill_value=fill
        )
        array[...] = data
        array.attrs.update({**attributes, "_ARRAY_DIMENSIONS": list(dims)})

    since = (times[keep] - np.datetime64("1900-01-01", "h")).astype("i8")
    put("time", since, ("time",), units="hours since 1900-01-01")
    put("latitude", LAT.astype("f4"), ("latitude",), units="degrees_north")
    put("longitude", LON.astype("f4"), ("longitude",), units="degrees_east")
    grid = ("time", "latitude", "longitude")
    put("total_precipitation", rain[keep], grid, units="m", long_name="Total precipitation")
    put("2m_temperature", rain[keep] + 280, grid, units="K")
    return path


def cds(path, units="m"):
    """The netCDF of the Climate Data Store: valid_time, number and expver as coordinates."""
    times, rain = hourly()
    dims = ("valid_time", "latitude", "longitude")
    attributes = {"units": units, "GRIB_stepType": "accum", "long_name": "Total precipitation"}
    rain = rain * (1000 if units == "mm" else 1)
    coordinates = {"valid_time": times.astype("datetime64[ns]"), "latitude": LAT, "longitude": LON}
    coordinates |= {"number": 0, "expver": ("valid_time", ["0001"] * HOURS)}
    xr.Dataset({"tp": (dims, rain, attributes)}, coordinates).to_netcdf(path)
    return path


@pytest.mark.parametrize("layout", ["arco", "cds", "cds in mm"])
def test_hours_up_to_the_valid_time_are_added_up(layout, tmp_path):
    path = tmp_path / ("era5.zarr" if layout == "arco" else "era5.nc")
    path = arco(path) if layout == "arco" else cds(path, "mm" if "mm" in layout else "m")
    held = open_source(path, optional_dimensions=True)
    paired = pair_truth(forecasts(), held, variables=["tp"])
    assert paired["step"].to_numpy().tolist() == [0, 24, 48]
    assert paired["tp"].attrs["units"] == "m"
    for i, start in enumerate(STARTS):
        for j, step in enumerate((0, 24, 48)):
            np.testing.assert_allclose(paired["tp"][i, j], total(start, step), rtol=1e-5, atol=1e-9)
    assert (paired["tp"][:, 0] == 0).all()


def test_other_variables_of_the_same_store_are_those_of_the_valid_time(tmp_path):
    held = open_source(arco(tmp_path / "era5.zarr"), optional_dimensions=True)
    paired = pair_truth(forecasts((48,)), held)
    times, rain = hourly()
    place = int(np.flatnonzero(times == np.datetime64("2001-01-03T00", "h"))[0])
    np.testing.assert_allclose(paired["t2m"][0, 0], rain[place] + 280, rtol=1e-6)
    np.testing.assert_allclose(paired["tp"][0, 0], total("2001-01-01", 48), rtol=1e-5, atol=1e-9)


def test_a_missing_hour_is_one_error_or_a_gap(tmp_path):
    held = open_source(arco(tmp_path / "era5.zarr", ["2001-01-02T07"]), optional_dimensions=True)
    with pytest.raises(
        MissingDataError, match="step 48 h: no tp after 2001-01-02T06:00"
    ) as caught:
        pair_truth(forecasts((48,)), held)
    assert caught.value.missing == ["2001-01-03T00 (step 48 h: no tp after 2001-01-02T06:00)"]
    assert pair_truth(forecasts((48,)), held, "skip").sizes["time"] == 1
    gap = pair_truth(forecasts((48,)), held, "nan")["tp"]
    assert bool(gap[0].isnull().all())
    assert bool(gap[1].notnull().all())


def test_daily_precipitation_of_unknown_period_is_refused():
    times, rain = hourly()
    coordinates = {"time": times[::24].astype("datetime64[ns]"), "latitude": LAT, "longitude": LON}
    daily = xr.Dataset({"tp": (("time", "latitude", "longitude"), rain[::24])}, coordinates)
    daily["tp"].attrs["units"] = "m"
    with pytest.raises(ArgumentError, match="sum of one hour"):
        pair_truth(forecasts((48,)), daily)
    daily["tp"].attrs["accumulation"] = SINCE_START
    paired = pair_truth(forecasts((48,)), daily)
    np.testing.assert_array_equal(paired["tp"][0, 0], rain[::24][4])


def test_prepare_stores_the_sums(tmp_path):
    ahead = forecasts()
    prepare(ahead, tmp_path / "store.zarr", truth=arco(tmp_path / "era5.zarr"))
    stored = open_store(tmp_path / "store.zarr", "truth")["tp"].sel(step=48)
    np.testing.assert_allclose(stored[1], total("2001-01-04", 48), rtol=1e-5, atol=1e-9)
