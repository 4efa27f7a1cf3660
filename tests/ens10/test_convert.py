import eccodes
import numpy as np
import pytest
import xarray as xr
from gribfiles import GRID, REAL, cube
from test_source import DIMENSIONS, SEASONAL, seasonal

from ens10 import open_store, prepare
from ens10.convert.work_units import ForecastUnit
from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError
from ens10.source import open_source
from ens10.source.names import Names

DAYS = (20160103, 20160107, 20160110)  # 48 h after the dates of `cube`


def analysis(days=DAYS):
    return [(name, level, day, 0, 0) for name, level in (("t2m", 0), ("z", 500)) for day in days]


def test_real_members_bit_for_bit(tmp_path):
    stored = open_store(prepare(REAL, tmp_path / "s"), "pl")
    lazy = open_source(REAL)
    with REAL.open("rb") as file:
        for _ in range(160):
            handle = eccodes.codes_grib_new_from_file(file)
            want = eccodes.codes_get_values(handle).astype("f4").reshape(61, 120)
            keys = ("shortName", "dataDate", "dataTime", "number", "level")
            name, day, hour, number, level = (eccodes.codes_get(handle, key) for key in keys)
            eccodes.codes_release(handle)
            start = np.datetime64(f"{day // 10000}-{day // 100 % 100:02d}-{day % 100:02d}")
            time = start + np.timedelta64(hour // 100, "h")
            place = {"time": time, "step": 0, "number": number, "level": level}
            np.testing.assert_array_equal(stored[name].sel(place), want)
            np.testing.assert_array_equal(lazy[name].sel(place), want)
    assert dict(stored.sizes) == {
        "time": 4, "step": 1, "level": 2, "number": 10, "latitude": 61, "longitude": 120,
    }  # fmt: skip


def test_folder_with_truth_and_gaps(write, tmp_path):
    fields = [f for f in cube() if f[2:] != (20160105, 24, 2)]
    source, truth = write(fields), write(analysis(), "truth.grib", data_type="an", members=0)
    with pytest.raises(MissingDataError, match="number 2"):
        prepare(source, tmp_path / "s", truth=truth)
    prepare(source, tmp_path / "nan", truth=truth, missing="nan")
    kept = open_store(tmp_path / "nan", "sfc")
    assert kept.t2m.sel(time="2016-01-05", step=24, number=2).isnull().all()
    statistics = open_store(tmp_path / "nan", "statistics")
    assert statistics.channel.to_numpy().tolist() == ["t2m", "z_500"]
    lost = statistics.ensemble_mean.isnull().all(("channel", "latitude", "longitude"))
    assert lost.to_numpy().tolist() == [[False] * 2, [True, False], [False] * 2]
    prepare(source, tmp_path / "skip", truth=truth, missing="skip")
    assert open_store(tmp_path / "skip", "truth").time.dt.day.to_numpy().tolist() == [1, 8]
    assert open_store(tmp_path / "skip", "pl").sizes["time"] == 2


def test_truth_that_lacks_dates_is_refused(write, tmp_path):
    source = write(cube())
    truth = write(analysis(DAYS[:2]), "truth.grib", data_type="an", members=0)
    with pytest.raises(MissingDataError, match=r"2016-01-10T00 \(step 48 h\)"):
        prepare(source, tmp_path / "s", truth=truth)
    assert not (tmp_path / "s").exists()


def test_seasonal_file_with_its_own_truth(tmp_path):
    file = tmp_path / "a.nc"
    theirs = seasonal() + 280.0
    theirs.t2m_fc.attrs = {
        "units": "K",
        "valid_range": np.array([0.0, 9.0], "f4"),
        "n": np.int64(3),
    }
    theirs.to_netcdf(file)
    prepare(file, tmp_path / "s", names=SEASONAL)
    want = open_source(file, SEASONAL)
    got = open_store(tmp_path / "s", "sfc")
    np.testing.assert_array_equal(got.t2m, want.t2m)
    np.testing.assert_array_equal(got.valid_time, want.valid_time)
    assert got.step.attrs["units"] == "months"
    assert got.t2m.attrs["n"] == 3
    truth = open_store(tmp_path / "s", "truth")
    np.testing.assert_array_equal(truth.t2m, theirs.t2m_era5[:, :, ::-1])
    np.testing.assert_array_equal(truth.valid_time, got.valid_time)


def test_names_of_the_forecasts_do_not_bind_truth_kept_apart(tmp_path):
    theirs = seasonal(init=("2000-02-01", "2001-11-01")) + 280.0
    theirs[["t2m_fc"]].to_netcdf(tmp_path / "a.nc")
    days = np.unique(
        open_source(
            tmp_path / "a.nc", Names({"t2m_fc": "t2m"}, {}, DIMENSIONS, "months", 1)
        ).valid_time
    )
    field = np.random.default_rng(0).normal(280, size=(days.size, 2, 3)).astype("f4")
    truth = xr.Dataset(
        {"t2m_era5": (("time", "lat", "lon"), field)},
        {"time": days, "lat": theirs.lat, "lon": theirs.lon},
    )
    truth.to_netcdf(tmp_path / "t.nc")
    prepare(tmp_path / "a.nc", tmp_path / "s", names=SEASONAL, truth=tmp_path / "t.nc")
    got = open_store(tmp_path / "s", "truth").t2m
    np.testing.assert_array_equal(got[0], truth.t2m_era5[:3, ::-1])


def test_lazy_dataset_without_members_or_steps(tmp_path):
    days = np.array(["2016-01-02", "2016-01-01"], "datetime64[ns]")
    field = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("f8")
    dataset = xr.Dataset(
        {"a": (("time", "latitude", "longitude"), field)},
        {"time": days, "latitude": [0.0, 1, 2], "longitude": [0.0, 90, 180, 270]},
    )
    prepare(dataset, tmp_path / "s", truth=dataset)
    got = open_store(tmp_path / "s", "sfc")
    np.testing.assert_array_equal(got.a[:, 0, 0], field[::-1, ::-1].astype("f4"))
    np.testing.assert_array_equal(open_store(tmp_path / "s", "truth").a[:, 0], got.a[:, 0, 0])
    assert not open_store(tmp_path / "s", "statistics").ensemble_std.any()
    with pytest.raises(ArgumentError, match="nothing along time"):
        prepare(dataset.isel(time=[]), tmp_path / "t")


def test_variables_that_lack_a_dimension_or_a_name(tmp_path):
    theirs = seasonal()
    theirs["orography"] = (("lat", "lon"), np.ones((2, 3)))
    names = Names(dimensions=DIMENSIONS, step_units="months", first_step=1)
    with pytest.raises(MissingDataError, match="time of orography"):
        prepare(theirs, tmp_path / "s", names=names)
    prepare(theirs, tmp_path / "s", names=names, variables=["t2m_fc"])
    with pytest.raises(UnknownNameError, match="did you mean 't2m_fc'"):
        prepare(theirs, tmp_path / "t", names=names, variables=["t2m_f"])


def test_short_names_choose_variables(write, tmp_path):
    prepare(write(cube()), tmp_path / "s", variables=["2t"])
    assert list(open_store(tmp_path / "s", "sfc").data_vars) == ["t2m"]


def test_existing_folders(write, tmp_path):
    source, store = write(cube()), tmp_path / "s"
    prepare(source, store)
    with pytest.raises(FileError, match=r"exists already.*variables: none given, now z.*--force"):
        prepare(source, store, variables=["z"])
    prepare(source, store, variables=["z"], force=True)
    with pytest.raises(MissingDataError, match="sfc"):
        open_store(store, "sfc")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("precious")
    for force in (False, True):
        with pytest.raises(FileError, match="exists"):
            prepare(source, tmp_path / "mine", force=force)
    (tmp_path / "t.partial").mkdir()
    (tmp_path / "t.partial/thesis.txt").write_text("precious")
    with pytest.raises(FileError, match=r"not a partial store.*holds thesis\.txt"):
        prepare(source, tmp_path / "t", force=True)
    assert (tmp_path / "mine/thesis.txt").read_text() == "precious"
    assert (tmp_path / "t.partial/thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("force", [False, True])
def test_an_interrupted_write_leaves_no_store_and_keeps_the_old(
    write, tmp_path, monkeypatch, force
):
    source, store = write(cube()), tmp_path / "s"
    if force:
        prepare(source, store, variables=["z"])
    real, calls = ForecastUnit.write, []

    def broken(unit, writer):
        calls.append(unit.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(unit, writer)

    monkeypatch.setattr(ForecastUnit, "write", broken)
    with pytest.raises(KeyboardInterrupt):
        prepare(source, store, force=force)
    assert store.exists() == force
    if force:
        assert list(open_store(store, "pl").data_vars) == ["z"]
    prepare(source, store, force=force)
    assert len(calls) == 6 + 1  # of six units, the one that was interrupted is begun again
    np.testing.assert_array_equal(open_store(store, "sfc").t2m, open_source(source).t2m)
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == ["s"]
    assert GRID.rows == open_store(store, "sfc").sizes["latitude"]


def test_levels_may_be_fractions_of_a_hectopascal(tmp_path):
    field = np.arange(48.0).reshape(1, 1, 2, 2, 3, 4)
    dims = ("time", "step", "level", "number", "latitude", "longitude")
    coordinates = {"time": np.array(["2016-01-01"], "M8[ns]"), "step": [0], "level": [0.5, 1.0]}
    grid = {"number": [1, 2], "latitude": [2.0, 1.0, 0.0], "longitude": [0.0, 90.0, 180.0, 270.0]}
    prepare(xr.Dataset({"z": (dims, field)}, {**coordinates, **grid}), tmp_path / "s")
    statistics = open_store(tmp_path / "s", "statistics")
    assert statistics.channel.to_numpy().tolist() == ["z_0.5", "z_1"]
    np.testing.assert_array_equal(statistics.ensemble_mean[0, 0], field[0, 0].mean(1))
