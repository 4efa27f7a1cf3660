import shutil
from types import SimpleNamespace

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from gribfiles import cube
from test_source import SEASONAL, seasonal

import ens10.export.netcdf
from ens10 import open_store, prepare
from ens10.errors import ArgumentError, DamagedFileError, FileError, UnknownNameError
from ens10.export import export
from ens10.export.netcdf import write_netcdf
from ens10.quantiles import ClimateOptions, write_climate
from ens10.store import consolidate, create_array, write_coordinates

PART = {"dates": ["2003"], "steps": [24, 48]}


@pytest.fixture(scope="module")
def part(store, tmp_path_factory):
    """Forecasts of 2003 as netCDF, and the same from the store."""
    path = export(store, tmp_path_factory.mktemp("part") / "a.nc", **PART)
    kinds = [open_store(store, kind) for kind in ("sfc", "pl")]
    whole = xr.merge(kinds, join="exact", compat="equals", combine_attrs="override")
    return path, whole.sel(time="2003", step=[24, 48]).load()


def test_xarray_reads_equal_values(part):
    path, want = part
    with xr.open_dataset(path) as got:
        xr.testing.assert_equal(got, want)
        assert got.valid_time.dims == ("time", "step")
        for name in want.data_vars:
            assert got[name].dtype == np.float32
            assert got[name].attrs["units"] == want[name].attrs["units"]


def test_the_file_is_cf(part):
    path, _ = part
    with netCDF4.Dataset(path) as file:
        assert file.Conventions == "CF-1.11"
        names = {name: getattr(v, "standard_name", "") for name, v in file.variables.items()}
        for name, standard in {
            "time": "forecast_reference_time",
            "valid_time": "time",
            "step": "forecast_period",
            "number": "realization",
            "level": "air_pressure",
            "latitude": "latitude",
            "longitude": "longitude",
            "t2m": "air_temperature",
            "z": "geopotential",
        }.items():
            assert names[name] == standard
        axes = {name: v.axis for name, v in file.variables.items() if hasattr(v, "axis")}
        assert axes == {"time": "T", "level": "Z", "latitude": "Y", "longitude": "X"}
        assert file["level"].positive == "down"
        units = {name: file[name].units for name in file.variables}
        assert units["latitude"] == "degrees_north"
        assert units["longitude"] == "degrees_east"
        assert units["level"] == "hPa"
        assert units["step"] == "h"
        start = netCDF4.num2date(file["time"][0], units["time"], file["time"].calendar)
        assert str(start)[:10] == "2003-01-04"
        for name in ("t2m", "z", "t", "sst", "u10"):
            field = file[name]
            assert field.coordinates == "valid_time"
            assert field.chunking()[-3:] == list(field.shape[-3:])
            assert set(field.chunking()[:-3]) == {1}
            assert set(field.dimensions) <= set(file.variables), "every dimension has coordinates"
            assert np.isnan(field._FillValue)


def test_prepare_makes_the_same_store_of_it(part, tmp_path):
    path, want = part
    prepare(path, tmp_path / "s")
    for kind in ("sfc", "pl"):
        got = open_store(tmp_path / "s", kind)
        xr.testing.assert_equal(got.load(), want[list(got.data_vars)])


@pytest.mark.parametrize("kind", ["truth", "statistics", "climate"])
def test_other_parts(store, tmp_path, kind):
    if kind == "climate":
        store = shutil.copytree(store, tmp_path / "s")
        write_climate(store, ClimateOptions(("t2m",), (48,), levels=3))
    path = export(store, tmp_path / "a.nc", kind=kind)
    want = open_store(store, kind).load()
    with xr.open_dataset(path) as got:
        for name in want.variables:
            np.testing.assert_array_equal(got[name].to_numpy(), want[name].to_numpy())
            assert got[name].dims == want[name].dims
        assert set(got.variables) == set(want.variables)


def test_a_selection(store, tmp_path):
    path = export(
        store, tmp_path / "a.nc", variables=["2t", "z"], levels=[850], members=2,
        steps=[0], dates=["2003-07-01:2004-01-31"], compression=4,
    )  # fmt: skip
    with xr.open_dataset(path) as got:
        assert list(got.data_vars) == ["t2m", "z"]
        sizes = ("time", "step", "number", "level")
        assert tuple(got.sizes[d] for d in sizes) == (3, 1, 2, 1)
        for name, kind in (("t2m", "sfc"), ("z", "pl")):
            whole = open_store(store, kind)[name]
            np.testing.assert_array_equal(got[name], whole.sel(got[name].coords.to_dataset()
                                          .drop_vars("valid_time").coords))  # fmt: skip
    with netCDF4.Dataset(path) as file:
        assert file["t2m"].filters()["zlib"]
    for asked, error in (
        ({"variables": ["t3m"]}, "did you mean"),
        ({"dates": ["1950"]}, "1950"),
        ({"members": [9]}, "members"),
        ({"steps": [36]}, "steps"),
        ({"levels": [10]}, "levels"),
    ):
        with pytest.raises(UnknownNameError, match=error):
            export(store, tmp_path / "b.nc", **asked)
    with pytest.raises(ArgumentError, match=r"mean_count.* of all dates"):
        export(store, tmp_path / "b.nc", kind="statistics", dates=["2003"])
    export(store, tmp_path / "b.nc", kind="statistics", dates=["2003"], variables=["ensemble_std"])
    with pytest.raises(ArgumentError, match="no number"):
        export(store, tmp_path / "c.nc", kind="truth", members=[1])
    with pytest.raises(ArgumentError, match="no levels"):
        export(store, tmp_path / "c.nc", kind="sfc", levels=[500])


def test_attributes_of_any_kind(tmp_path):
    odd = {"_FillValue": 9, "coordinates": "a b", "whole": True, "who": ["a", "b"], "none": None,
           "table": {"a": 1}, "levels": [1, 2], "share": 0.5}  # fmt: skip
    field = (("time", "latitude"), np.ones((1, 2), "f4"), odd)
    coordinates = {"time": np.array(["2016-01-01"], "M8[ns]"), "latitude": [1.0, 0.0]}
    write_netcdf(tmp_path / "a.nc", xr.Dataset({"a": field}, coordinates), 0, False)
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        assert np.isnan(file["a"]._FillValue)
        held = {name: file["a"].getncattr(name) for name in file["a"].ncattrs()}
    assert held["levels"].tolist() == [1, 2]
    assert {key: held[key] for key in ("whole", "who", "table", "share")} == {
        "whole": 1, "who": "a b", "table": "{'a': 1}", "share": 0.5,
    }  # fmt: skip
    assert not {"coordinates", "none"} & set(held)


def test_steps_in_months(tmp_path):
    (seasonal() + 280.0).to_netcdf(tmp_path / "a.nc")
    prepare(tmp_path / "a.nc", tmp_path / "s", names=SEASONAL)
    path = export(tmp_path / "s", tmp_path / "b.nc")
    want = open_store(tmp_path / "s", "sfc")
    with xr.open_dataset(path) as got:
        assert got.step.attrs["units"] == "months"
        xr.testing.assert_equal(got, want.load())
    with pytest.raises(ArgumentError, match="whole hours, not months"):
        export(tmp_path / "s", tmp_path / "b.grib")


def test_predictions(tmp_path):
    days = np.array(["2016-01-04", "2016-01-07"], "M8[ns]")
    field = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("f4")
    root = zarr.open_group(str(tmp_path / "p.zarr"), mode="w")
    root.attrs["forecast_kind"] = "normal"
    dims = ("time", "latitude", "longitude")
    for name in ("mu", "sigma", "truth"):
        array = create_array(root, name, field.shape, dims, attributes={"units": "K"})
        array[...] = field
    coordinates = xr.Dataset(
        coords={
            "time": days,
            "valid_time": ("time", days + np.timedelta64(2, "D")),
            "step": ((), 48, {"units": "h"}),
            "latitude": ("latitude", [1.0, 0.0, -1.0]),
            "longitude": ("longitude", [0.0, 1.0, 2.0, 3.0]),
        }
    )
    write_coordinates(root, coordinates, list(coordinates.coords))
    consolidate(tmp_path / "p.zarr")
    path = export(tmp_path / "p.zarr", tmp_path / "a.nc", variables=["mu", "sigma"])
    with xr.open_dataset(path) as got:
        np.testing.assert_array_equal(got.mu, field)
        assert got.attrs["forecast_kind"] == "normal"
        assert got.mu.attrs["units"] == "K"
        assert got.step.item() == 48
        np.testing.assert_array_equal(got.valid_time, coordinates.valid_time)
    with pytest.raises(ArgumentError, match="no predictions"):
        export(tmp_path / "p.zarr", tmp_path / "a.grib")
    with pytest.raises(ArgumentError, match="predictions only"):
        export(tmp_path / "p.zarr", tmp_path / "b.nc", kind="sfc")


def test_files_in_the_way(store, tmp_path, monkeypatch):
    path = tmp_path / "a.nc"
    path.write_text("mine")
    with pytest.raises(FileError, match=r"exists already.*--force"):
        export(store, path, **PART)
    whole, calls = xr.DataArray.isel, []

    def broken(self, *args, **kwargs):
        calls.append(self)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(ens10.export.netcdf.xr.DataArray, "isel", broken)
    with pytest.raises(KeyboardInterrupt):
        export(store, path, force=True, **PART)
    monkeypatch.undo()
    assert path.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["a.nc"]
    export(store, path, force=True, **PART)
    with xr.open_dataset(path) as got:
        assert got.sizes["step"] == 2
    with pytest.raises(FileError, match="is a folder"):
        export(store, (tmp_path / "d.nc").mkdir() or tmp_path / "d.nc", force=True)
    with pytest.raises(FileError, match="no such folder"):
        export(store, tmp_path / "no" / "a.nc")
    with pytest.raises(ArgumentError, match="does not say the format"):
        export(store, tmp_path / "a.hdf")
    with pytest.raises(FileError, match="no such store"):
        export(tmp_path / "none", tmp_path / "b.nc")
    with pytest.raises(ArgumentError, match="zlib"):
        export(store, tmp_path / "b.nc", compression=10)


@pytest.mark.parametrize("name", ["b.nc", "b.grib"])
def test_a_full_disk(store, tmp_path, monkeypatch, name):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=70_000))
    with pytest.raises(FileError, match=r"the disk has 0\.0 GB"):
        export(store, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_damage_is_found_and_leaves_no_file(write, tmp_path):
    store = prepare(write(cube(steps=(24,))), tmp_path / "s")
    chunk = store / "pl/z/c/1/0/0/0/0/0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:])
    with pytest.raises(DamagedFileError, match="checksum"):
        export(store, tmp_path / "a.nc")
    chunk.unlink()
    with pytest.raises(FileError, match="missing"):
        export(store, tmp_path / "a.nc")
    assert not list(tmp_path.glob("a.nc*"))
