"""Dates of stations and small grids share chunks: layout, reading, damage, resuming."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
import zarr
from storetools import contents

import ens10
from ens10 import open_store, prepare
from ens10.convert import preparation, verify, work_units
from ens10.convert.sources import DatasetForecasts
from ens10.errors import DamagedFileError, FileError
from ens10.experiments.runs.provenance import checksum
from ens10.inspection import inspect_path
from ens10.loader import Batches
from ens10.protocol import Protocol
from ens10.stations import as_row
from ens10.store.manifest import read_plan

DATES, MEMBERS, SHARED = 50, 4, 20  # dates; 20 of them share a chunk, so that the last is cut
RULES = Protocol(train=[2015, 2016], val=[2017], test=[2018])
PLACES = {"lat": [10.0, 20.0, 30.0], "lon": [7.0, -5.0, 6.0], "altitude": [100.0, 0.0, 2000.0]}


def station_data():
    """Surface and pressure levels, two lead times; gaps in members, truth of one date missing."""
    rng = np.random.default_rng(2)
    time = np.datetime64("2015-01-01", "ns") + 27 * np.arange(DATES) * np.timedelta64(1, "D")
    coords = {
        "time": time, "step": [24, 48], "level": [500.0, 850.0], "number": np.arange(MEMBERS),
        "station": ["a", "b", "c"], **{k: ("station", v) for k, v in PLACES.items()},
    }  # fmt: skip
    shape = (DATES, 2, MEMBERS, 3)
    surface = rng.normal(280, 5, shape).astype(np.float32)
    surface[3, 1, 2, 0] = np.nan
    upper = rng.normal(260, 5, (DATES, 2, 2, MEMBERS, 3)).astype(np.float32)
    dims = ("time", "step", "number", "station")
    forecast = xr.Dataset(
        {"t2m": (dims, surface), "t": (("time", "step", "level", *dims[2:]), upper)}
    )
    forecast = forecast.assign_coords(coords)
    for name in forecast:
        forecast[name].attrs["units"] = "K"
    truth = forecast.isel(number=0, drop=True) + 1
    truth["t2m"][5] = np.nan
    return forecast, truth


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The files, a store whose dates share chunks, and one with a chunk for each date."""
    folder = tmp_path_factory.mktemp("shared")
    forecast, truth = station_data()
    forecast.to_netcdf(folder / "forecast.nc")
    truth.to_netcdf(folder / "truth.nc")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "_SHARED_BYTES", SHARED * 4 * MEMBERS * 3)
        build(folder, folder / "s.zarr")
        patch.setattr(preparation, "dates_of_chunk", lambda *_: 1)
        build(folder, folder / "single.zarr")
    return folder


def flip(path, bit=100):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def build(folder, path, **options):
    return prepare(folder / "forecast.nc", path, truth=folder / "truth.nc", **options)


@pytest.fixture
def copy(world, tmp_path):
    """A copy of the store beside its sources."""
    shutil.copytree(world / "s.zarr", tmp_path / "s.zarr")
    for name in ("forecast.nc", "truth.nc"):
        (tmp_path / name).symlink_to(world / name)
    return tmp_path / "s.zarr"


def test_the_layout_and_its_values(world):
    store, (forecast, truth) = world / "s.zarr", station_data()
    chunks = sorted(
        path for path in contents(store) if path.startswith(("sfc/t2m/c", "truth/t2m/c"))
    )
    assert chunks == [
        *(f"sfc/t2m/c/{n}/{step}/0/0/0" for n in range(3) for step in range(2)),
        *(f"truth/t2m/c/{n}/{step}/0/0" for n in range(3) for step in range(2)),
    ]
    assert len(contents(store)) < len(contents(world / "single.zarr")) / 8
    raw = (store / "sfc/t2m/c/1/0/0/0/0").read_bytes()
    values = np.frombuffer(raw, "<f4").reshape(SHARED, MEMBERS, 3)
    np.testing.assert_array_equal(values, forecast["t2m"][20:40, 0].to_numpy())
    group = zarr.open_group(store, mode="r")  # as others read it
    by_level = forecast["t"].transpose("time", "step", "level", ...).to_numpy()
    np.testing.assert_array_equal(group["pl/t"][:][..., 0, :], by_level)
    np.testing.assert_array_equal(group["truth/t2m"][:][:, :, 0], truth["t2m"].to_numpy())
    assert read_plan(store)["options"]["chunk_dates"] == SHARED


@pytest.mark.parametrize("kind", ["sfc", "pl", "truth", "statistics"])
def test_each_part_is_that_of_a_store_of_single_dates(world, kind):
    ours, theirs = (open_store(world / name, kind).load() for name in ("s.zarr", "single.zarr"))
    if kind == "statistics":
        theirs = theirs[["ensemble_mean", "ensemble_std"]].drop_attrs()
        ours = ours.sel(channel=theirs["channel"].to_numpy())
    assert set(ours.coords) == set(theirs.coords)
    xr.testing.assert_equal(ours, theirs.reset_coords(drop=True).assign_coords(theirs.coords))
    assert [ours[name].dims for name in ours] == [theirs[name].dims for name in ours]


@pytest.mark.parametrize("kind", ["fields", "members"])
def test_the_loader_reads_the_same(world, kind):
    options = {"kind": kind, "protocol": RULES, "members": True, "extras": ["altitude"]}
    inputs = ["t2m", "t_500", "t2m@24"]
    ours, theirs = (
        Batches(world / name, "t2m@48", inputs, "train", **options)
        for name in ("s.zarr", "single.zarr")
    )
    assert ours.left_out.tolist() == theirs.left_out.tolist() == [5]
    count = 0
    for one, other in zip(ours, theirs, strict=True):
        count += 1
        for key in one:  # sums over dates are added in another order
            np.testing.assert_allclose(one[key], other[key], rtol=3e-6, atol=3e-6)
        for key in ("raw_mean", "raw_std", "target", "members", "weights"):
            np.testing.assert_array_equal(one[key], other[key])
    assert count == 26


def test_inspect_verify_and_export(world, tmp_path):
    ours, theirs = (inspect_path(world / name) for name in ("s.zarr", "single.zarr"))
    for one, other in zip(ours, theirs, strict=True):  # which name the files of empty fields
        assert one.missing == other.missing
        assert replace(one, status="") == replace(other, status="")
    found = verify(world / "s.zarr")
    assert found.ok
    ens10.export(world / "s.zarr", to=tmp_path / "t.nc", variables=["t2m"])
    with xr.open_dataset(tmp_path / "t.nc", decode_timedelta=False) as file:
        np.testing.assert_array_equal(file["t2m"], station_data()[0]["t2m"])


@pytest.mark.parametrize("name", ["sfc/t2m/c/1/1/0/0/0", "truth/t2m/c/0/1/0/0"])
def test_damage_is_one_line_and_mended(world, copy, name):
    flip(copy / name, 8 * 40 + 3)
    path = str(copy / name)
    with pytest.raises(DamagedFileError, match=f"{name}.*checksum in the manifest"):
        list(Batches(copy, "t2m@48", ["t2m"], "train", protocol=RULES, members=True))
    with pytest.raises(DamagedFileError, match=f"{name}.*checksum in the manifest"):
        open_store(copy, name.partition("/")[0])["t2m"].load()
    status = " ".join(row.status for row in inspect_path(copy))
    assert f"1 file damaged: {path} at byte 0" in status
    assert [path for path, _ in verify(copy).damaged] == [name]
    assert verify(copy, repair=True).repaired == [name]
    assert contents(copy) == contents(world / "s.zarr")
    (copy / name).unlink()
    with pytest.raises(FileError, match=f"{name}.*the chunk is missing"):
        open_store(copy, name.partition("/")[0])["t2m"].load()
    assert verify(copy, repair=True).repaired == [name]
    assert contents(copy) == contents(world / "s.zarr")


def test_metadata_are_mended_and_swapped_chunks_found(world, copy):
    for name in ("sfc/t2m/zarr.json", "truth/t2m/zarr.json", "sfc/lat/c/0"):
        (copy / name).unlink()
    assert len(verify(copy, repair=True).repaired) == 3
    assert contents(copy) == contents(world / "s.zarr")
    one, other = copy / "sfc/t2m/c/0/1/0/0/0", copy / "sfc/t2m/c/1/1/0/0/0"
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)
    with pytest.raises(DamagedFileError, match="checksum in the manifest"):
        list(Batches(copy, "t2m@48", ["t2m"], "train", protocol=RULES))
    with pytest.raises(DamagedFileError, match="checksum in the manifest"):
        open_store(copy, "sfc")["t2m"].load()
    assert len(verify(copy).damaged) == 2


def test_an_interrupted_run_resumes_with_its_own_chunks(world, tmp_path, capsys):
    done, real = [], work_units.PlainUnit.write

    def stops(unit, writer):
        if unit.name == "forecast-000002":
            raise KeyboardInterrupt
        real(unit, writer)

    def counted(unit, writer):
        done.append(unit.name)
        real(unit, writer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "_SHARED_BYTES", SHARED * 4 * MEMBERS * 3)
        patch.setattr(work_units.PlainUnit, "write", stops)
        with pytest.raises(KeyboardInterrupt):
            build(world, tmp_path / "s.zarr")
        (row,) = inspect_path(tmp_path / "s.zarr.partial")
        assert "2 of 3 units of forecast, 0 of 3 units of truth are there" in row.status
        patch.setattr(preparation, "_SHARED_BYTES", 1 << 20)  # as of another version
        patch.setattr(work_units.PlainUnit, "write", counted)
        build(world, tmp_path / "s.zarr", progress=True)
    assert done == ["forecast-000002", *(f"truth-{n:06d}" for n in range(3))]
    assert "resuming: 2 of 6 units are there" in capsys.readouterr().err
    assert contents(tmp_path / "s.zarr") == contents(world / "s.zarr")


def test_a_store_of_single_dates_is_complete_and_mended_as_it_is(world, tmp_path):
    shutil.copytree(world / "single.zarr", tmp_path / "s.zarr")
    before = contents(tmp_path / "s.zarr")
    build(world, tmp_path / "s.zarr")
    name = "sfc/t2m/c/7/0/0/0/0"
    flip(tmp_path / "s.zarr" / name)
    repaired = verify(tmp_path / "s.zarr", repair=True, source=world / "forecast.nc",
                      truth=world / "truth.nc").repaired  # fmt: skip
    assert repaired == [name]
    assert contents(tmp_path / "s.zarr") == before


def test_which_stores_share_chunks(world):
    def dates(data, codec="none"):
        return preparation.dates_of_chunk(DatasetForecasts(data, "data"), codec)

    row = as_row(station_data()[0])
    assert dates(row) == DATES
    assert dates(row, "lz4") == 1
    grid = row.drop_vars(["station", "lat", "lon", "altitude"])
    assert dates(grid) == DATES
    assert dates(grid.isel(longitude=[0] * 17)) == 1
    many = row.isel(longitude=[0] * 1024)
    assert (dates(many), dates(row.isel(longitude=[0] * 1025))) == (DATES, 1)


def test_impossible_values_name_the_date_and_changed_data_the_checksum(world, tmp_path):
    forecast, truth = station_data()
    forecast["t2m"][7, 0, 1, 2] = 5000.0
    with pytest.raises(FileError, match=r"the dataset: 2015-07-09T00.*5000"):
        prepare(forecast, tmp_path / "s.zarr", truth=truth)
    forecast["t2m"][7, 0, 1, 2] = 281.0
    stores = [
        prepare(data, tmp_path / name, truth=truth)
        for name, data in (("a.zarr", forecast), ("b.zarr", station_data()[0]))
    ]
    assert checksum(stores[0]) != checksum(stores[1])


def test_a_station_of_ten_years_is_few_and_small_files(tmp_path):
    """One chunk a date made 14,613 files and 274 MB of these 3,617 dates."""
    time = np.datetime64("2010-01-01", "ns") + np.arange(3617) * np.timedelta64(1, "D")
    values = np.random.default_rng(0).normal(280, 5, (3617, 51, 1)).astype("f4")
    places = {name: ("station", values[:1]) for name, values in PLACES.items()}
    coords = {"time": time, "step": 24, "station": ["a"], **places}
    data = xr.Dataset({"t2m": (("time", "number", "station"), values, {"units": "K"})}, coords)
    truth = data.isel(number=0, drop=True).drop_vars(["step", "lat", "lon"])
    truth = truth.assign_coords(time=time + np.timedelta64(24, "h"))
    store = prepare(data, tmp_path / "s.zarr", truth=truth)
    sizes = [path.stat().st_size for path in store.rglob("*") if path.is_file()]
    assert len(sizes) < 40
    assert sum(sizes) < 15e6
    np.testing.assert_array_equal(open_store(store, "sfc")["t2m"][:, 0, :, 0], values[:, :, 0])
