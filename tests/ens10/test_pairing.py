import numpy as np
import pytest
import xarray as xr
from gribfiles import GRID, cube

from ens10.catalog import HINDCAST_YEARS, month_days
from ens10.errors import ArgumentError, MissingDataError
from ens10.layout import tidy
from ens10.names import Names
from ens10.pairing import on_grid, pair_truth
from ens10.source import open_source

LAT, LON = np.array([10.0, 5.0, 0.0]), np.arange(0, 360, 45.0)


def forecasts(starts, steps=(0, 24, 48), lat=LAT, lon=LON):
    starts = np.array(starts, "datetime64[ns]")
    field = np.zeros((starts.size, len(steps), 1, len(lat), len(lon)), "f4")
    dims = ("time", "step", "number", "latitude", "longitude")
    coordinates = {"time": starts, "step": list(steps), "number": [1], "latitude": lat}
    return tidy(xr.Dataset({"t2m": (dims, field)}, {**coordinates, "longitude": lon}), Names(), "f")


def truth(days, lat=LAT, lon=LON):
    """Day of the epoch + latitude / 100 + longitude on the circle / 10000."""
    days = np.array(days, "datetime64[ns]")
    number = days.astype("datetime64[D]").astype(float)
    field = number[:, None, None] + np.asarray(lat)[:, None] / 100 + (np.asarray(lon) % 360) / 1e4
    coordinates = {"time": days, "latitude": lat, "longitude": lon}
    return xr.Dataset({"t2m": (("time", "latitude", "longitude"), field)}, coordinates)


def check(paired):
    for j in range(paired.sizes["step"]):
        part = paired.isel(step=j)
        want = truth(part.valid_time.to_numpy(), part.latitude, part.longitude.to_numpy()).t2m
        np.testing.assert_allclose(part.t2m, want, atol=1.5e-3)


def test_truth_stands_on_the_valid_date_and_coinciding_steps_are_left_out():
    # 31 December + 48 h, 1 January + 24 h and 2 January + 0 h are one valid date.
    starts = ["2015-12-28", "2015-12-31", "2016-01-01", "2016-01-04"]
    valid = np.array(starts, "datetime64[D]") + 2
    paired = pair_truth(forecasts(starts), truth(valid))
    assert paired.step.to_numpy().tolist() == [48]
    assert paired.sizes["time"] == 4
    check(paired)


def test_the_calendar_of_ens10_is_paired_at_48_hours_alone():
    days = [f"{y}-{d[:2]}-{d[2:]}" for y in HINDCAST_YEARS for d in month_days()]
    valid = np.array(days, "datetime64[D]") + 2
    one = {"lat": [0.0], "lon": [0.0]}
    held = truth(valid[valid < np.datetime64("2018-01-01")], **one)
    with pytest.raises(MissingDataError, match=r"1 part is missing: 2018-01-02T00 \(step 48 h\)"):
        pair_truth(forecasts(days, **one), held)
    paired = pair_truth(forecasts(days, **one), held, "skip")
    assert dict(paired.sizes) == {"time": 2099, "step": 1, "latitude": 1, "longitude": 1}
    check(paired)


def test_dates_without_truth_are_listed_skipped_or_filled():
    starts = np.array(["2016-01-04", "2016-01-07", "2016-01-11", "2016-01-14"], "datetime64[D]")
    some = truth((starts + 2)[[0, 1, 3]])
    with pytest.raises(MissingDataError) as caught:
        pair_truth(forecasts(starts), some)
    assert caught.value.missing == ["2016-01-13T00 (step 48 h)"]
    skipped = pair_truth(forecasts(starts), some, "skip")
    assert skipped.time.dt.day.to_numpy().tolist() == [4, 7, 14]
    check(skipped)
    filled = pair_truth(forecasts(starts), some, "nan").t2m.isnull()
    assert filled.all(("latitude", "longitude")).to_numpy()[:, 0].tolist() == [0, 0, 1, 0]
    with pytest.raises(MissingDataError, match="12 parts"):
        pair_truth(forecasts(starts), truth(["1990-01-01"]), "nan")
    few = pair_truth(forecasts(starts), truth((starts + 2)[:1]), "nan")  # one of four
    there = few.t2m.notnull().all(("latitude", "longitude"))
    assert there.to_numpy()[:, 0].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("origin", [0, -180, 180])
@pytest.mark.parametrize("theirs", [0, -180])
def test_finer_truth_and_other_origins_of_longitude(origin, theirs):
    fine = truth(["2016-01-06"], np.arange(90, -91, -2.5), np.arange(0, 360, 22.5) + theirs)
    check(pair_truth(forecasts(["2016-01-04"]), fine))
    picked = on_grid(fine, xr.Dataset(coords={"latitude": LAT, "longitude": LON + origin}))
    want = truth(["2016-01-06"], LAT, LON + origin).t2m
    np.testing.assert_allclose(picked.t2m, want, atol=1e-9)


def test_another_grid_and_members_are_refused():
    days = ["2016-01-06"]
    with pytest.raises(ArgumentError, match=r"its longitudes .* do not contain"):
        pair_truth(forecasts(["2016-01-04"]), truth(days, lon=LON + 1))
    with pytest.raises(ArgumentError, match=r"its latitudes .* do not contain"):
        pair_truth(forecasts(["2016-01-04"]), truth(days, lat=LAT[:2]))
    with pytest.raises(ArgumentError, match="2 members"):
        pair_truth(forecasts(["2016-01-04"]), truth(days).expand_dims(number=[1, 2]))


def test_truth_by_start_and_step_takes_its_own_place():
    starts = ["2016-01-01", "2016-01-02"]
    field = np.arange(4.0).reshape(2, 2)[:, :, None, None] + np.zeros((1, 1, 3, 8))
    held = forecasts(starts, (24, 48)).isel(number=0, drop=True)
    held["t2m"] = (("time", "step", "latitude", "longitude"), field)
    paired = pair_truth(forecasts(starts, (24, 48)), held)
    np.testing.assert_array_equal(paired.t2m, field)  # 1 January + 48 h is 2 January + 24 h


@pytest.mark.parametrize("kind", ["grib", "nc", "zarr"])
def test_truth_of_any_kind_of_file(write, tmp_path, kind):
    ahead = open_source(write(cube(members=1)))
    fields = [("t2m", 0, day, 0, 0) for day in (20160103, 20160107, 20160110)]
    path = write(fields, "truth.grib", data_type="an", members=0)
    want = open_source(path).load()
    flat = want.isel(step=0, number=0, drop=True)
    if kind == "nc":
        path = tmp_path / "t.nc"
        flat.to_netcdf(path)
    elif kind == "zarr":
        path = tmp_path / "t.zarr"
        flat.to_zarr(path, consolidated=False)
    paired = pair_truth(ahead, open_source(path))
    assert paired.step.to_numpy().tolist() == [48]
    assert paired.sizes["latitude"] == GRID.rows
    np.testing.assert_array_equal(paired.t2m[:, 0], want.t2m[:, 0, 0])
