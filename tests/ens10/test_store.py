import warnings

import numpy as np
import pytest
import xarray as xr
import zarr
from gribfiles import cube

from ens10 import open_store, prepare
from ens10.errors import FileError, MissingDataError, UnknownNameError
from ens10.source import open_source
from ens10.store import forecasts, store_kinds


@pytest.fixture
def store(write, tmp_path):
    return prepare(write(cube()), tmp_path / "s")


def test_any_reader_of_zarr_sees_the_same(store, write):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in store_kinds(store):
            plain = xr.open_zarr(store, group=kind)
            xr.testing.assert_identical(plain, open_store(store, kind))
    want = open_source(write(cube(), "again.grib"))
    for kind, name in (("sfc", "t2m"), ("pl", "z")):
        plain = xr.open_zarr(store, group=kind)
        np.testing.assert_array_equal(plain[name], want[name])
        for coordinate in plain[name].coords:
            np.testing.assert_array_equal(plain[coordinate], want[coordinate])
            assert plain[coordinate].dtype.kind == want[coordinate].dtype.kind
        assert plain.latitude.attrs["units"] == "degrees_north"
        assert plain.step.attrs["units"] == "h"
        assert "valid_time" in plain.coords
    assert plain.z.attrs["units"] == "m2 s-2"
    assert plain.z.data.chunksize == (1, 1, 1, 3, 5, 8)


def test_lz4_equals_none(store, write, tmp_path):
    packed = prepare(write(cube()), tmp_path / "p", codec="lz4")
    for kind in store_kinds(store):
        xr.testing.assert_identical(open_store(packed, kind), open_store(store, kind))
    assert "lz4" in str(zarr.open_group(packed, mode="r")["sfc/t2m"].metadata)


def test_forecasts_are_surface_and_levels_together(store):
    both = forecasts(store)
    assert set(both.data_vars) == {"t2m", "z"}
    assert both.sizes["time"] == 3


NO_STORES = {
    "nothing": (lambda path: None, "no such store"),
    "a folder": (lambda path: path.mkdir(), "not a store"),
    "a file": (lambda path: path.write_text("x"), "not a store"),
    "another Zarr group": (lambda path: zarr.open_group(path, mode="w"), "not a store of ens10"),
}


@pytest.mark.parametrize("which", NO_STORES)
def test_what_is_no_store(tmp_path, which):
    make, words = NO_STORES[which]
    make(tmp_path / "s")
    with pytest.raises(FileError, match=words):
        open_store(tmp_path / "s", "sfc")


def of_format_99(store):
    zarr.open_group(store, mode="a").attrs["ens10_format"] = 99
    return open_store(store, "sfc")


UNOPENED = {
    "an unknown kind": (
        lambda store: open_store(store, "sfcc"), UnknownNameError, "did you mean 'sfc'",
    ),
    "no truth": (lambda store: open_store(store, "truth"), MissingDataError, "truth .*--truth"),
    "a format to come": (of_format_99, FileError, "format 99.*Update"),
    "as a source": (open_source, FileError, "prepared already"),
}  # fmt: skip


@pytest.mark.parametrize("which", UNOPENED)
def test_stores_that_are_not_opened(store, which):
    use, error, words = UNOPENED[which]
    with pytest.raises(error, match=words):
        use(store)
