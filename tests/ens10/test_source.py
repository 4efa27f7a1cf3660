import random

import numpy as np
import pytest
import xarray as xr
from gribfiles import REAL, cube, values_of

from ens10.catalog import VARIABLES
from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError
from ens10.grib import Encoder, LatLonGrid
from ens10.source import open_source
from ens10.source.layout import tidy
from ens10.source.names import Names

DIMENSIONS = {
    "member": "number",
    "init": "time",
    "lead": "step",
    "lat": "latitude",
    "lon": "longitude",
}
SEASONAL = Names({"t2m_fc": "t2m"}, {"t2m_era5": "t2m"}, DIMENSIONS, "months", 1)


def seasonal(init=("2015-12-31", "2016-01-31"), lat=(40.0, 50.0), lon=(350.0, 0.0, 10.0)):
    rng = np.random.default_rng(1)
    shape = (4, len(init), 3, len(lat), len(lon))
    return xr.Dataset(
        {
            "t2m_fc": (
                ("member", "init", "lead", "lat", "lon"),
                rng.normal(size=shape).astype("f4"),
            ),
            "t2m_era5": (("init", "lead", "lat", "lon"), rng.normal(size=shape[1:]).astype("f4")),
        },
        {
            "init": np.array(init, "datetime64[ns]"),
            "lead": [1, 2, 3],
            "lat": list(lat),
            "lon": list(lon),
        },
    )


@pytest.mark.parametrize("seed", range(3))
def test_order_and_files_do_not_matter(write, seed):
    fields = cube(names=(("t2m", 0), ("z", 500), ("z", 850), ("t", 850)))
    want = open_source(write(fields)).load()
    random.Random(seed).shuffle(fields)
    for n in range(3):
        write(fields[n::3], f"split/{n}.grib")
    got = open_source(write([], "split/notes.txt").parent)
    xr.testing.assert_identical(got.compute(scheduler="synchronous"), want)


def test_fields_stand_where_their_keys_say(write):
    dataset = open_source(write(cube()))
    for field in cube():
        name, level, date, step, number = field
        place = {"time": np.datetime64(f"{date}"[:4] + "-" + f"{date}"[4:6] + "-" + f"{date}"[6:])}
        place |= {"step": step, "number": number} | ({"level": level} if level else {})
        got = dataset[name].sel(place)
        np.testing.assert_allclose(got, values_of(field), atol=1e-3)
        assert got.valid_time == place["time"] + np.timedelta64(step, "h")
    assert dataset.z.attrs["levels_hpa"] == [500]


@pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)
def test_cfgrib_reads_the_same(tmp_path):
    theirs = xr.open_dataset(REAL, engine="cfgrib", backend_kwargs={"indexpath": ""})
    ours = open_source(REAL)
    turned = theirs.rename(isobaricInhPa="level").sel(level=[500, 850])
    for name in ("z", "t"):
        want = turned[name].transpose("time", "level", "number", "latitude", "longitude")
        np.testing.assert_array_equal(ours[name].isel(step=0), want)
    for name in ("time", "number", "latitude", "longitude"):
        np.testing.assert_array_equal(ours[name], theirs[name])
    theirs.to_netcdf(tmp_path / "cfgrib.nc")
    again = open_source(tmp_path / "cfgrib.nc", Names(dimensions={"isobaricInhPa": "level"}))
    np.testing.assert_array_equal(again.z.sel(level=[500, 850]), ours.z)
    np.testing.assert_array_equal(again.valid_time, ours.valid_time)
    np.testing.assert_array_equal(again.step, ours.step)


def without(drop):
    return [field for field in cube() if not drop(field)]


GAPS = [
    (lambda f: f[2:] == (20160105, 24, 2), "time 2016-01-05T00 step 24 h number 2: all fields"),
    (lambda f: f[2:4] == (20160105, 24), "time 2016-01-05T00 step 24 h: all members"),
    (
        lambda f: f == ("z", 500, 20160105, 48, 3),
        "time 2016-01-05T00 step 48 h number 3: z 500 hPa",
    ),
    (lambda f: f[0] == "t2m" and f[2:4] == (20160105, 48), "step 48 h: all members of t2m"),
]


@pytest.mark.parametrize(("drop", "line"), GAPS)
def test_gaps_are_listed_filled_or_skipped(write, drop, line):
    path = write(without(drop))
    with pytest.raises(MissingDataError, match=r"a\.grib: 1 part is missing") as caught:
        open_source(path)
    assert line in str(caught.value)
    filled = open_source(path, missing="nan").compute(scheduler="synchronous")
    gone = sum(
        np.isnan(filled[name]).all(("latitude", "longitude")).sum().item() for name in filled
    )
    assert gone == len(cube()) - len(without(drop))
    skipped = open_source(path, missing="skip")
    assert skipped.time.dt.day.to_numpy().tolist() == [1, 8]
    assert not skipped.t2m.isnull().any()


def test_all_gaps_are_listed_even_if_no_date_is_left(write):
    path = write(without(lambda f: f[0] == "z" and f[4] == 1))
    with pytest.raises(MissingDataError) as caught:
        open_source(path, missing="skip")
    assert len(caught.value.missing) == 6
    assert all("number 1: z 500 hPa" in line for line in caught.value.missing)


def test_a_field_twice_and_two_grids(write, tmp_path):
    first = write(cube(), "two/a.grib")
    write(cube()[:1], "two/b.grib")
    with pytest.raises(
        FileError, match=r"b\.grib: .*byte 0 holds t2m .*a second time, after .*a\.grib at byte 0"
    ):
        open_source(first.parent)
    other = Encoder(LatLonGrid(3, 4, 20.0, 0.0, 0.0, 10.0))
    message = other.message(np.ones((3, 4)), VARIABLES["t2m"], date=20170101, step=24, number=1)
    (first.parent / "b.grib").write_bytes(message)
    with pytest.raises(FileError, match=r"b\.grib: the message at byte 0 lies on the grid 3 x 4"):
        open_source(first.parent)


UNREADABLE = {
    "e": (lambda path: path.write_bytes(b""), "is empty"),
    "t": (lambda path: path.write_bytes(b"text, text"), "neither a GRIB"),
    "none": (lambda path: None, "no such file"),
    "empty": (lambda path: path.mkdir(), "holds no files"),
    "torn.nc": (lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\nrubbish"), r"torn\.nc"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_opened(tmp_path, name):
    make, words = UNREADABLE[name]
    make(tmp_path / name)
    with pytest.raises(FileError, match=words):
        open_source(tmp_path / name)


def test_netcdf_by_names(tmp_path):
    seasonal().to_netcdf(tmp_path / "a.nc")
    got = open_source(tmp_path / "a.nc", SEASONAL)
    assert got.t2m.dims == ("time", "step", "number", "latitude", "longitude")
    assert list(got.data_vars) == ["t2m"]
    np.testing.assert_array_equal(got.latitude, [50, 40])
    np.testing.assert_array_equal(got.longitude, [-10, 0, 10])
    np.testing.assert_array_equal(got.number, [1, 2, 3, 4])
    want = seasonal().t2m_fc.transpose("init", "lead", "member", "lat", "lon")[..., ::-1, :]
    np.testing.assert_array_equal(got.t2m, want)
    # Months are of the calendar: 31 January + 1 month is 29 February in a leap year.
    assert got.valid_time.dt.strftime("%F").to_numpy().tolist() == [
        ["2015-12-31", "2016-01-31", "2016-02-29"],
        ["2016-01-31", "2016-02-29", "2016-03-31"],
    ]
    assert got.step.attrs["units"] == "months"


def test_truth_variables_are_no_forecasts_though_all_are_taken(tmp_path):
    seasonal().to_netcdf(tmp_path / "a.nc")
    names = Names({}, {"t2m_era5": "t2m"}, DIMENSIONS, "months", 1)
    assert list(open_source(tmp_path / "a.nc", names).data_vars) == ["t2m_fc"]


WRONG = {
    "a variable that is not there": (
        seasonal(), Names({"2m_temp": "t2m"}, {}, DIMENSIONS),
        MissingDataError, "2m_temp.*t2m_fc",
    ),
    "dimensions without a meaning": (
        seasonal(), Names(dimensions={"init": "time"}),
        ArgumentError, "mean nothing here: member, lead",
    ),
    "no names of the grid": (
        seasonal().rename(lat="y", lon="x"), None, MissingDataError, "latitude; longitude",
    ),
    "an unknown meaning": (
        seasonal(), Names(dimensions={**DIMENSIONS, "lat": "latitud"}),
        UnknownNameError, "did you mean 'latitude'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", WRONG)
def test_wrong_names(tmp_path, which):
    data, names, error, words = WRONG[which]
    data.to_netcdf(tmp_path / "a.nc")
    with pytest.raises(error, match=words):
        open_source(tmp_path / "a.nc", names)


@pytest.mark.parametrize(
    ("lon", "want"),
    [
        ([-180, -90, 0, 90], [0, 90, 180, 270]),
        ([350, 355, 0, 5], [-10, -5, 0, 5]),
        ([10, 5, 0], [0, 5, 10]),
        ([-120, -110, -90], [240, 250, 270]),
        ([0.5, 180.5], [0.5, 180.5]),
    ],
)
def test_longitudes_of_netcdf_run_eastward(lon, want):
    field = np.array([np.sin(np.deg2rad(lon))])
    dataset = xr.Dataset(
        {"a": (("latitude", "longitude"), field)},
        {
            "latitude": [0.0],
            "longitude": np.array(lon, float),
            "time": np.datetime64("2000-01-01", "ns"),
        },
    )
    got = tidy(dataset, Names(), "x")
    np.testing.assert_array_equal(got.longitude, want)
    np.testing.assert_allclose(got.a[0, 0], np.sin(np.deg2rad(want)), atol=1e-12)


def test_netcdf_files_that_leave_a_hole(tmp_path):
    whole = seasonal()
    whole.isel(init=[0]).to_netcdf(tmp_path / "a.nc")
    whole.isel(init=[1]).to_netcdf(tmp_path / "b.nc")
    np.testing.assert_array_equal(
        open_source(tmp_path, SEASONAL).t2m.sel(latitude=40),
        whole.t2m_fc.transpose("init", "lead", "member", "lat", "lon").sel(lat=40),
    )
    whole.isel(init=[1], lead=[0, 1]).to_netcdf(tmp_path / "b.nc")
    with pytest.raises(MissingDataError, match=r"t2m: time .* step 3, all members"):
        open_source(tmp_path, SEASONAL)
    holed = (
        open_source(tmp_path, SEASONAL, missing="nan")
        .t2m.isnull()
        .all(("number", "latitude", "longitude"))
    )
    assert holed.to_numpy().tolist() == [[False] * 3, [False, False, True]]


def test_a_date_twice():
    with pytest.raises(FileError, match="time holds 2016"):
        tidy(seasonal(init=("2016-01-01", "2016-01-01")), SEASONAL, "x")
