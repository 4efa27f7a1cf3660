"""Folders of GRIB and netCDF files against the same fields in one GRIB file."""

import itertools
import random
import shutil

import numpy as np
import pytest
import xarray as xr
from gribfiles import cube

from ens10.errors import FileError, MissingDataError
from ens10.source import open_source
from ens10.source.names import Names

NAMES = (("t2m", 0), ("z", 500), ("t", 850))
DATES = (20160101, 20160105, 20160108)


@pytest.fixture
def whole(write):
    """All fields from one GRIB file."""
    return open_source(write(cube(NAMES), "whole/a.grib")).load()


def as_file(path, dataset):
    for field in dataset.data_vars.values():
        field.attrs.pop("levels_hpa", None)
    path.parent.mkdir(exist_ok=True)
    dataset.drop_vars("valid_time").to_netcdf(path)


def own(dataset, name):
    """One variable on its own levels."""
    field = dataset[[name]]
    return field.sel(level=field[name].attrs["levels_hpa"]) if "level" in field.dims else field


def check(folder, whole, **options):
    got = open_source(folder, **options)
    assert all(field.chunks for field in got.data_vars.values())
    for name in whole.data_vars:
        np.testing.assert_array_equal(got[name].transpose(*whole[name].dims), whole[name])
        assert got[name].attrs.get("levels_hpa") == whole[name].attrs.get("levels_hpa")
        assert got[name].dims == whole[name].dims
    for name in whole.coords:
        np.testing.assert_array_equal(got[name], whole[name])


def test_variables_in_grib_and_others_in_netcdf(write, tmp_path, whole):
    write(cube(NAMES[:2]), "mix/a.grib")
    as_file(tmp_path / "mix/b.nc", own(whole, "t"))
    check(tmp_path / "mix", whole)


def test_dates_of_the_same_variables_in_grib_and_in_netcdf(write, tmp_path, whole):
    fields = [field for field in cube(NAMES) if field[2] != DATES[1]]
    write(fields[::2], "mix/a.grib")
    write(fields[1::2], "mix/b.grib")
    for name in whole.data_vars:
        as_file(tmp_path / f"mix/{name}.nc", own(whole, name).isel(time=[1]))
    check(tmp_path / "mix", whole)


@pytest.mark.parametrize("seed", range(2))
def test_any_cut_into_netcdf_files_of_any_orientation(tmp_path, whole, seed):
    rng = random.Random(seed)
    cells = itertools.product(("t2m", "z"), range(3), range(2), ([0, 2], [1]))
    for n, (name, time, step, members) in enumerate(cells):
        part = own(whole, name).isel(time=[time], step=[step], number=members)
        if rng.random() < 0.5:
            part = part.isel(latitude=slice(None, None, -1))
        if rng.random() < 0.5:
            part = part.assign_coords(longitude=(part.longitude + 180) % 360 - 180)
            part = part.sortby("longitude")
        if rng.random() < 0.5:
            part = part.astype("f8").isel(time=0)  # a scalar time
        if rng.random() < 0.3:
            part = part.rename(latitude="lat", longitude="lon", number="member")
        as_file(tmp_path / f"cut/{n}.nc", part)
    want = whole[["t2m", "z"]].sel(level=[500])
    want["z"].attrs.pop("levels_hpa")
    check(tmp_path / "cut", want, names=Names(dimensions={"member": "number"}))


def test_one_file_reversed_and_another_not(tmp_path, whole):
    for n, part in enumerate((whole[["t2m"]], whole[["t2m"]].isel(latitude=slice(None, None, -1)))):
        as_file(tmp_path / f"two/{n}.nc", part.isel(time=[n]))
    check(tmp_path / "two", whole[["t2m"]].isel(time=[0, 1]))


@pytest.mark.parametrize(
    ("change", "words"), [(0.0, "with the same values"), (0.5, "with values up to 0.5 apart")]
)
def test_a_field_twice(write, tmp_path, whole, change, words):
    write(cube(NAMES), "mix/a.grib")
    twice = own(whole, "z").isel(time=[2], step=[1], number=[0])
    as_file(tmp_path / "mix/b.nc", (twice + change).assign_coords(twice.coords))
    where = r"b\.nc: holds z of time 2016-01-08T00, step 48, level 500, number 1 a second time"
    with pytest.raises(FileError, match=rf"{where}, after .*a\.grib, {words}"):
        open_source(tmp_path / "mix")


def test_gaps_between_files(write, tmp_path, whole):
    write(cube(NAMES[:1]), "mix/a.grib")
    as_file(tmp_path / "mix/b.nc", own(whole, "z").isel(time=[0, 2]))
    words = r"2 parts are missing: z: time 2016-01-05T00 step 24 level 500, all members; z: "
    with pytest.raises(MissingDataError, match=words):
        open_source(tmp_path / "mix")
    skipped = open_source(tmp_path / "mix", missing="skip")
    np.testing.assert_array_equal(skipped.t2m, whole.t2m.isel(time=[0, 2]))
    filled = open_source(tmp_path / "mix", missing="nan")
    gone = filled.z.isnull().all(("number", "latitude", "longitude", "step", "level"))
    assert gone.to_numpy().tolist() == [False, True, False]
    np.testing.assert_array_equal(filled.t2m, whole.t2m)


def test_a_hole_within_a_variable(tmp_path, whole):
    part = own(whole, "t2m")
    as_file(tmp_path / "two/a.nc", part.isel(time=[0]))
    as_file(tmp_path / "two/b.nc", part.isel(time=[1], number=[0, 1]))
    words = r"2 parts are missing: t2m: time 2016-01-05T00 step 24, number 3; t2m: .* step 48"
    with pytest.raises(MissingDataError, match=words):
        open_source(tmp_path / "two")
    skipped = open_source(tmp_path / "two", missing="skip").t2m
    np.testing.assert_array_equal(skipped, whole.t2m.isel(time=[0]))
    filled = open_source(tmp_path / "two", missing="nan").t2m
    assert filled.isnull().sum() == filled.isel(time=1, number=2).size
    np.testing.assert_array_equal(filled[1, :, :2], whole.t2m[1, :, :2])


def test_coordinates_that_are_rounded_otherwise(write, tmp_path, whole):
    write(cube(NAMES[:1]), "mix/a.grib")
    z = own(whole, "z")
    near = {dim: (z[dim] + 1e-5).astype("f4") for dim in ("latitude", "longitude")}
    as_file(tmp_path / "mix/b.nc", z.assign_coords(near))
    got = open_source(tmp_path / "mix")
    np.testing.assert_array_equal(got.z, z.z)
    np.testing.assert_array_equal(got.longitude, whole.longitude)


def test_grids_and_names_that_differ(write, tmp_path, whole):
    write(cube(NAMES), "mix/a.grib")
    other = own(whole, "t2m").assign_coords(latitude=whole.latitude + 1)
    as_file(tmp_path / "mix/b.nc", other)
    with pytest.raises(FileError, match=r"b\.nc: its latitudes \(61 to 41, 5\) are not those of"):
        open_source(tmp_path / "mix")
    shutil.rmtree(tmp_path / "mix")
    write(cube(NAMES[1:]), "mix/a.grib")
    as_file(tmp_path / "mix/b.nc", own(whole, "t2m").rename(t2m="mine"))
    with pytest.raises(MissingDataError, match=r"yours. It holds .*mine"):
        open_source(tmp_path / "mix", Names({"yours": "t2m"}))
    got = open_source(tmp_path / "mix", Names({"mine": "t2m", "z": "z"}))
    assert sorted(got.data_vars) == ["t2m", "z"]
    xr.testing.assert_equal(got.t2m.load(), whole.t2m)
