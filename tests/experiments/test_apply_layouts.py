"""Trained models on forecasts in the layouts of producers, on trees and on groups of stores."""

import numpy as np
import pytest
import realruns
import xarray as xr

import ens10
from ens10.errors import ArgumentError, FileError
from ens10.experiments.forecasts.apply import apply
from ens10.source import open_source

PRODUCER = {"time": "init_time", "step": "lead_time", "number": "ensemble_member",
            "t2m": "temperature_2m"}  # fmt: skip


@pytest.fixture(scope="module")
def forecast(world):
    """One day of the calendar in every year."""
    whole = open_source(world.folder / "output.sfc.20180402")[["t2m"]].load()
    return whole.drop_encoding().drop_attrs(deep=False)


@pytest.fixture(scope="module")
def model(runs):
    return ens10.load_model(runs["emos_local"])


def test_names_of_a_producer(model, forecast):
    theirs = forecast.rename(PRODUCER)
    xr.testing.assert_identical(model(theirs), model(forecast))


def test_trees(model, forecast):
    want = model(forecast)
    one = xr.DataTree.from_dict({"/surface": forecast})
    both = xr.DataTree.from_dict({"/surface": forecast, "/other": forecast + 1.0})
    xr.testing.assert_identical(model(one), want)
    xr.testing.assert_identical(model(both, group="surface"), want)
    with pytest.raises(ArgumentError, match="several groups hold fields"):
        model(both)


def test_a_group_of_a_store(runs, model, forecast, tmp_path):
    theirs = forecast.rename(PRODUCER)
    theirs.to_zarr(tmp_path / "raw.zarr", group="surface", consolidated=False)
    words = ["apply", runs["emos_local"], tmp_path / "raw.zarr", "--out", tmp_path / "out.nc"]
    realruns.command(*words, "--group", "surface")
    got = xr.open_dataset(tmp_path / "out.nc")
    want = model(forecast)
    np.testing.assert_array_equal(got["mu"], want["mu"])
    np.testing.assert_array_equal(got["sigma"], want["sigma"])
    with pytest.raises(FileError, match="Choose one of its groups with --group: surface"):
        apply([runs["emos_local"]], tmp_path / "raw.zarr", tmp_path / "no.nc")


def test_a_store_of_zarr_format_2(runs, model, forecast, tmp_path):
    forecast.to_zarr(tmp_path / "raw.zarr", zarr_format=2)
    out = apply([runs["emos_local"]], tmp_path / "raw.zarr", tmp_path / "out.nc")
    np.testing.assert_array_equal(xr.open_dataset(out)["mu"], model(forecast)["mu"])
