"""Arrays of any library as DataArrays that fit each other."""

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._tables import as_labelled, names_of

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(4, 3, 5)), RNG.normal(size=(4, 5))


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, da.asarray])
def test_arrays(kind):
    found = as_labelled({"members": kind(X), "y": kind(Y)}, {"members": {"number": 1}})
    assert found["members"].dims == ("number", "dim_0", "dim_1")
    assert found["y"].dims == ("dim_0", "dim_1")
    np.testing.assert_array_equal(found["members"], np.moveaxis(X, 1, 0))
    np.testing.assert_array_equal(found["y"], Y)
    loops = {"y": found["y"]}
    assert names_of(loops, "all", kind(Y)) == ["dim_0", "dim_1"]
    assert names_of(loops, -1, kind(Y)) == ["dim_1"]
    assert names_of(loops, (0,), kind(Y)) == ["dim_0"]
    with pytest.raises(ArgumentError, match="one of the 2 axes of scores, got 2"):
        names_of(loops, 2, kind(Y))


def test_lazy_arrays_stay_lazy():
    found = as_labelled({"p": da.asarray(Y), "y": da.ones(5)})
    assert found["y"].dims == ("dim_0", "dim_1")
    assert found["y"].chunks is not None


def test_data_arrays_keep_their_names():
    x = xr.DataArray(X, dims=("time", "member", "x"))
    y = xr.DataArray(Y, dims=("time", "x"))
    found = as_labelled({"members": x, "y": y, "t": 0.5}, {"members": {"number": "member"}})
    assert found["members"].dims == ("time", "number", "x")
    assert found["t"].dims == ()
    loops = {"y": found["y"]}
    assert names_of(loops, "x", y) == ["x"]
    assert names_of(loops, "all", y) == ["time", "x"]
    with pytest.raises(ArgumentError, match="no dimension 'z', only"):
        names_of(loops, "z", y)
    with pytest.raises(ArgumentError, match="dim: a table is a sum over dimensions"):
        names_of(loops, None, y)


def test_a_number_and_fewer_axes():
    found = as_labelled({"p": Y, "y": Y[0], "threshold": 0.5})
    np.testing.assert_array_equal(found["y"], np.broadcast_to(Y[0], Y.shape))
    assert found["threshold"].dims == ()


def test_what_does_not_fit():
    with pytest.raises(ArgumentError, match="y: shapes that do not fit each other"):
        as_labelled({"members": X, "y": X}, {"members": {"number": 1}})
    x = xr.DataArray(X, dims=("time", "number", "x"))
    with pytest.raises(ArgumentError, match="y: has the dimension 'number' of the forecast"):
        as_labelled({"members": x, "y": x}, {"members": {"number": "number"}})
