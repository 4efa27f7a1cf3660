"""Truth of every common source, by no mapping of names, against the numbers written into it."""

import dask
import numpy as np
import pytest
import truthfiles
import xarray as xr
from gribfiles import GRID, cube
from truthfiles import LAT, LEVELS, LON, value

from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.source import open_source
from ens10.source.names import Names
from ens10.source.pairing import pair_truth

NAMES = (("t2m", 0), ("z", 500), ("z", 850), ("t", 500), ("t", 850))
VALID = ("2016-01-03T00", "2016-01-07T00", "2016-01-10T00")  # of 48 h


@pytest.fixture
def forecasts(write):
    return open_source(write(cube(NAMES, steps=(48,), members=2)))


def opened(path, names=None):
    return open_source(path, names, optional_dimensions=True)


def check(paired, names=("t2m", "z", "t"), rtol=1e-6):
    assert sorted(paired.data_vars) == sorted(names)
    assert {field.dtype for field in paired.data_vars.values()} == {np.dtype("f4")}
    np.testing.assert_array_equal(paired.step, [48])
    for name in names:
        field = paired[name].isel(step=0)
        if "level" in field.dims:
            np.testing.assert_array_equal(field.level, [500, 850])
            want = np.stack([value(name, VALID, level) for level in (500, 850)], axis=1)
        else:
            want = value(name, VALID)
        np.testing.assert_allclose(field, want[..., ::2, ::2], rtol=rtol)
    np.testing.assert_array_equal(paired.latitude, GRID.latitude())
    np.testing.assert_array_equal(paired.longitude, GRID.longitude())


def test_the_new_cds(tmp_path, forecasts):
    check(pair_truth(forecasts, opened(truthfiles.new_cds(tmp_path / "cds", VALID))))


def test_the_old_cds(tmp_path, forecasts):
    truthfiles.old_cds(tmp_path / "a.nc", VALID, ("t2m",))
    check(pair_truth(forecasts, opened(tmp_path / "a.nc")), ["t2m"], rtol=3e-5)
    truthfiles.old_cds(tmp_path / "b.nc", VALID, ("z", "t"))
    check(pair_truth(forecasts, opened(tmp_path / "b.nc")), ["z", "t"], rtol=3e-5)


def test_weatherbench(tmp_path, forecasts):
    check(pair_truth(forecasts, opened(truthfiles.weatherbench(tmp_path / "w.zarr", VALID))))


def test_arco_era5_is_read_at_the_hours_and_variables_wanted_alone(tmp_path, forecasts):
    path = truthfiles.arco(tmp_path / "arco.zarr", "2016-01-01T00", 400, VALID)
    whole = opened(path)
    paired = pair_truth(forecasts, whole)
    check(paired)
    assert paired.t2m.chunks[0] == (1, 1, 1)
    with pytest.raises(FileError, match="7 bytes instead of"):  # the rubbish is there
        whole.t2m.isel(time=1).load()


UNPAIRED = {
    "the unfilled end of ARCO-ERA5": (
        [("t2m", 0, 20161230, 48, 1)], "t2m", ("2016-12-20T00", 24 * 30, []),
        lambda truth: truth, MissingDataError, "2017-01-01T00",
    ),
    "levels that differ": (
        cube(NAMES, steps=(48,), members=2), "z", ("2016-01-01T00", 400, VALID),
        lambda truth: truth[["z"]].sel(level=[300]),
        ArgumentError, r"its levels \(300 hPa, .*arco.zarr\) are none",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", UNPAIRED)
def test_truth_of_arco_era5_that_does_not_fit(write, tmp_path, which):
    fields, name, times, part, error, words = UNPAIRED[which]
    forecasts = open_source(write(fields))[[name]]
    truth = part(opened(truthfiles.arco(tmp_path / "arco.zarr", *times)))
    with pytest.raises(error, match=words):
        pair_truth(forecasts, truth)


@pytest.mark.filterwarnings("ignore")
def test_netcdf_that_cfgrib_wrote(write, tmp_path, forecasts):
    fields = [(n, level, int(v[:10].replace("-", "")), 0, 0) for v in VALID for n, level in NAMES]
    path = write(fields, "truth.grib", data_type="an", members=0)
    want = pair_truth(forecasts, opened(path))
    for short, name, level in (("2t", "t2m", "surface"), ("z", "z", "isobaricInhPa")):
        options = {"indexpath": "", "filter_by_keys": {"shortName": short}}
        theirs = xr.open_dataset(path, engine="cfgrib", backend_kwargs=options)
        assert {"step", "valid_time", level} <= set(theirs.coords)
        one = theirs.isel(isobaricInhPa=1) if name == "z" else theirs.isel(time=0)
        for n, (dataset, missing) in enumerate(((theirs, "error"), (one, "skip"))):
            dataset.to_netcdf(tmp_path / f"{name}{n}.nc")
            got = pair_truth(forecasts, opened(tmp_path / f"{name}{n}.nc"), missing)
            expected = want[[name]].sel(time=got.time)
            expected = expected.sel(level=got.level) if name == "z" else expected
            np.testing.assert_array_equal(got[name], expected[name])
            assert got[name].size


def test_single_levels_hold_a_geopotential_that_is_the_grounds(tmp_path, forecasts):
    path = truthfiles.old_cds(tmp_path / "a.nc", VALID, ("t2m",))
    whole = xr.open_dataset(path).load()
    whole["z"] = whole.t2m.assign_attrs(GRIB_paramId=129, units="m2 s-2")
    whole.to_netcdf(tmp_path / "b.nc")
    with pytest.raises(ArgumentError, match=r"z has levels in the forecasts alone .*b\.nc"):
        pair_truth(forecasts, opened(tmp_path / "b.nc"))
    whole["z"].attrs["GRIB_typeOfLevel"] = "surface"
    whole.to_netcdf(tmp_path / "c.nc")
    check(pair_truth(forecasts, opened(tmp_path / "c.nc")), ["t2m"], rtol=3e-5)


def test_a_mapping_wins_over_what_is_recognised(tmp_path, forecasts):
    path = truthfiles.old_cds(tmp_path / "a.nc", VALID, ("t2m",))
    whole = xr.open_dataset(path).load()
    whole["mine"] = whole.t2m + 1.0
    whole.to_netcdf(tmp_path / "b.nc")
    got = pair_truth(forecasts, opened(tmp_path / "b.nc", Names({"mine": "t2m"})))
    np.testing.assert_allclose(got.t2m[:, 0], value("t2m", VALID)[:, ::2, ::2] + 1.0, rtol=3e-5)


def test_units_are_converted_and_said_so_or_refused(tmp_path, forecasts):
    path = truthfiles.old_cds(tmp_path / "a.nc", VALID, ("t2m",))
    kelvin = xr.open_dataset(path).load()
    want = pair_truth(forecasts, opened(path)).t2m
    celsius = (kelvin - 273.15).assign_coords(kelvin.coords)
    celsius["t2m"].attrs["units"] = "degC"
    celsius.to_netcdf(tmp_path / "c.nc")
    got = pair_truth(forecasts, opened(tmp_path / "c.nc")).t2m
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert (got.units, got.converted_from, got.dtype) == ("K", "degC", np.float32)
    celsius["t2m"].attrs["units"] = "furlong"
    celsius.to_netcdf(tmp_path / "f.nc")
    with pytest.raises(FileError, match=r"f\.nc: t2m has the units 'furlong'.* in 'K'"):
        pair_truth(forecasts, opened(tmp_path / "f.nc"))


def test_variables_asked_for_are_taken_though_the_forecasts_lack_them(tmp_path, forecasts):
    path = truthfiles.arco(tmp_path / "arco.zarr", "2016-01-01T00", 400, VALID)
    paired = pair_truth(forecasts, opened(path), variables=["t2m", "u_10m"])
    assert sorted(paired.data_vars) == ["t2m", "u_10m"]
    np.testing.assert_allclose(paired.u_10m[:, 0], value("u10", VALID)[:, ::2, ::2], rtol=1e-6)
    with pytest.raises(MissingDataError, match=r"1 part is missing: sst\. The truth holds"):
        pair_truth(forecasts, opened(path), variables=["sst"])
    with pytest.raises(MissingDataError, match="truth of any of t2m"):
        pair_truth(forecasts[["t2m"]], opened(path)[["z"]])


def test_a_quarter_of_a_degree_from_minus_180_and_from_the_south(tmp_path):
    """The real grids: 361 x 720 among 721 x 1440."""
    lat, lon = np.arange(-90, 90.1, 0.25), np.arange(-180, 180, 0.25)
    data = value("t2m", VALID, lat=lat, lon=lon).astype("f4")
    coordinates = {"time": np.array(VALID, "datetime64[ns]"), "latitude": lat, "longitude": lon}
    fine = xr.Dataset({"t2m": (("time", "latitude", "longitude"), data)}, coordinates)
    fine.to_netcdf(tmp_path / "fine.nc")
    half = {"latitude": np.linspace(90, -90, 361), "longitude": np.arange(720) / 2}
    starts = coordinates["time"] - np.timedelta64(48, "h")
    dims = ("time", "step", "latitude", "longitude")
    ahead = xr.Dataset(
        {"t2m": (dims, dask.array.zeros((3, 1, 361, 720), "f4"))},
        {"time": starts, "step": [48], "valid_time": (("time", "step"), starts[:, None]), **half},
    )
    ahead["valid_time"] += np.timedelta64(48, "h")
    for chunks in (None, {"time": 1}):
        held = fine if chunks is None else opened(tmp_path / "fine.nc")
        if chunks is None:
            held = opened_in_memory(held)
        got = pair_truth(ahead, held).t2m[:, 0]
        want = value("t2m", VALID, lat=half["latitude"], lon=half["longitude"])
        np.testing.assert_allclose(got, want, rtol=1e-6)


def opened_in_memory(dataset):
    from ens10.source.layout import tidy

    return tidy(dataset, Names(), "memory", optional_dimensions=True)


def test_levels_and_grid_of_the_files_are_as_meant():
    assert np.array_equal(LAT[::2], GRID.latitude())
    assert np.array_equal(LON[::2], GRID.longitude())
    assert 300 in LEVELS
