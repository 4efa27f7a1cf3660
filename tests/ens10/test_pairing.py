import numpy as np
import pytest
import xarray as xr
import zarr
from gribfiles import GRID, cube

from ens10.catalog import HINDCAST_YEARS, month_days
from ens10.errors import ArgumentError, MissingDataError
from ens10.protocol import protocol_of
from ens10.source import open_source
from ens10.source.layout import tidy
from ens10.source.names import Names
from ens10.source.pairing import on_grid, pair_truth
from ens10.splits import split_dates

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


CALENDAR = [f"{y}-{d[:2]}-{d[2:]}" for y in HINDCAST_YEARS for d in month_days()]
ONE = {"lat": [0.0], "lon": [0.0]}


def test_the_pairs_of_the_paper():
    """2100 starts; truth of the forecasts' years; the protocol's split by valid date."""
    starts = np.array(CALENDAR, "datetime64[D]")
    assert starts.size == 2100
    ahead = forecasts(CALENDAR, **ONE)
    held = truth(np.arange("1998-01-01", "2018-01-01", dtype="datetime64[D]"), **ONE)
    with pytest.raises(MissingDataError) as caught:
        pair_truth(ahead, held)
    # The last start, 31 December 2017, is valid after the truth's end: the one that falls out.
    assert caught.value.missing == ["2018-01-01T00 (step 24 h)", "2018-01-02T00 (step 48 h)"]
    paired = pair_truth(ahead, held, "skip")
    assert paired.sizes["time"] == 2099
    left = paired.time.to_numpy().astype("datetime64[D]")
    assert np.setdiff1d(starts, left).astype(str).tolist() == ["2017-12-31"]
    check(paired.sel(step=[48]))
    valid = paired.valid_time.sel(step=48).to_numpy()
    splits = split_dates(protocol_of("paper"), paired.time.to_numpy(), valid)
    assert splits.years == {
        "train": list(range(1998, 2016)),
        "val": [2016, 2017],
        "test": [2016, 2017],
    }
    assert {name: index.size for name, index in splits.index.items()} == {
        "train": 1889,
        "val": 210,
        "test": 210,
    }
    assert splits.outside.size == 0
    # 31 December 2015 is a start of the training years and valid in 2016: it counts as test.
    first = paired.time.to_numpy()[splits.index["test"][0]]
    assert str(first)[:10] == "2015-12-31"
    assert np.sum(left < np.datetime64("2016-01-01")) == 1890


def test_the_calendar_of_ens10_is_paired_at_48_hours_alone():
    """Where truth exists at the valid dates of 48 h, and at those of others by coincidence."""
    valid = np.array(CALENDAR, "datetime64[D]") + 2
    held = truth(valid[valid < np.datetime64("2018-01-01")], **ONE)
    with pytest.raises(MissingDataError, match=r"1 part is missing: 2018-01-02T00 \(step 48 h\)"):
        pair_truth(forecasts(CALENDAR, **ONE), held)
    paired = pair_truth(forecasts(CALENDAR, **ONE), held, "skip")
    assert dict(paired.sizes) == {"time": 2099, "step": 1, "latitude": 1, "longitude": 1}
    check(paired)


def test_hourly_truth_of_twenty_years_costs_the_dates_wanted_alone(tmp_path):
    hours = np.arange("1998-01-01T00", "2018-01-01T00", dtype="datetime64[h]")
    assert hours.size == 175_320
    group = zarr.open_group(tmp_path / "hourly.zarr", mode="w", zarr_format=2)
    axes = {"time": hours.astype(int), "latitude": [0.0, 2.0], "longitude": [0.0]}
    for name, values in axes.items():
        axis = group.create_array(name, shape=(len(values),), dtype="f8", fill_value=np.nan)
        axis[:] = np.array(values, "f8")
        axis.attrs["_ARRAY_DIMENSIONS"] = [name]
    group["time"].attrs["units"] = "hours since 1970-01-01"
    shape = (hours.size, 2, 1)
    field = group.create_array("2m_temperature", shape=shape, chunks=(1, 2, 1), dtype="f4")
    field.attrs.update({"_ARRAY_DIMENSIONS": list(axes), "units": "K"})
    wanted = hours.searchsorted(np.datetime64("2003-05-23T00"))
    field[int(wanted)] = 280.0
    ahead = forecasts(CALENDAR, steps=(48,), **ONE)
    whole = open_source(tmp_path / "hourly.zarr", optional_dimensions=True)
    got = pair_truth(ahead, whole, "skip").t2m
    assert got.chunks[0] == (1,) * 2099
    assert len(got.__dask_graph__()) < 10 * 2099
    day = got.sel(time="2003-05-21").to_numpy()
    assert (day.shape, day.item()) == ((1, 1, 1), 280.0)


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


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        (truth(["2016-01-06"], lon=LON + 1), "its longitudes .* do not contain"),
        (truth(["2016-01-06"], lat=LAT[:2]), "its latitudes .* do not contain"),
        (truth(["2016-01-06"]).expand_dims(number=[1, 2]), "2 members"),
    ],
    ids=["longitudes", "latitudes", "members"],
)
def test_another_grid_and_members_are_refused(observed, words):
    with pytest.raises(ArgumentError, match=words):
        pair_truth(forecasts(["2016-01-04"]), observed)


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
