"""Forecasts and truth in the layout of WeatherBench 2, without a mapping of names."""

import numpy as np
import pytest
import zarr
from batchtools import whole

from ens10 import open_store
from ens10.cli import main
from ens10.loader import Batches
from ens10.protocol import Protocol
from ens10.source import open_source
from ens10.store import forecasts

LAT, LON, LEVELS = np.arange(-90.0, 91.0, 45.0), np.arange(0.0, 360.0, 60.0), (500, 850)
LEADS, MEMBERS = np.array([24, 48]), 3
STARTS = np.array(["2016-01-04", "2017-01-04", "2018-01-04", "2019-01-04"], "datetime64[h]")
SURFACE = {"2m_temperature": ("t2m", "K", 280.0), "10m_u_component_of_wind": ("u10", "m s**-1", 5),
           "mean_sea_level_pressure": ("msl", "Pa", 1e5)}  # fmt: skip
UPPER = {"geopotential": ("z", "m**2 s**-2", 5e4), "temperature": ("t", "K", 250.0)}
OURS = {theirs: ours for theirs, (ours, *_) in (SURFACE | UPPER).items()}


def put(root, name, values, dims, chunks=None, **attributes):
    values = np.asarray(values)
    array = root.create_array(
        name, shape=values.shape, dtype=values.dtype, chunks=chunks or values.shape, fill_value=None
    )
    array[...] = values
    array.attrs.update(attributes | {"_ARRAY_DIMENSIONS": list(dims)})


def write_layout(path, axes, units):
    """A Zarr store of format 2, a chunk a date; returns its arrays (theirs to values)."""
    root = zarr.open_group(path, mode="w", zarr_format=2)
    for name, (values, attributes) in axes.items():
        put(root, name, values, [name], **attributes)
    rng = np.random.default_rng(len(axes))
    held = {}
    for name, (_, unit, base) in (SURFACE | UPPER).items():
        dims = [dim for dim in axes if name in UPPER or dim != "level"]
        shape = [len(axes[dim][0]) for dim in dims]
        held[name] = (base * (1 + 0.01 * rng.normal(size=shape))).astype("f4")
        put(root, name, held[name], dims, (1, *shape[1:]), **({"units": unit} if units else {}))
    zarr.consolidate_metadata(path, zarr_format=2)
    return held


def times(dates):
    hours = (dates - np.datetime64("1900-01-01", "h")).astype("i8")
    return hours, {"units": "hours since 1900-01-01", "calendar": "proleptic_gregorian"}


PLACES = {"longitude": (LON, {}), "latitude": (LAT, {})}


def write_forecasts(path, lead_units, units=True):
    scale = {"hours": 1, "nanoseconds": 3_600_000_000_000}[lead_units]
    axes = {"time": times(STARTS), "number": (np.arange(MEMBERS), {}),
            "prediction_timedelta": (LEADS * scale, {"units": lead_units}),
            "level": (np.array(LEVELS), {})}  # fmt: skip
    return write_layout(path, axes | PLACES, units)


def write_era5(path, units=True):
    """Every six hours of the valid dates, longitude before latitude, as the forecasts."""
    days = np.unique(np.add.outer(STARTS, LEADS))
    hours = np.add.outer(days, np.arange(0, 24, 6)).ravel()
    axes = {"time": times(hours), "level": (np.array(LEVELS), {})} | PLACES
    held = write_layout(path, axes, units)
    root = zarr.open_group(path, mode="a", zarr_format=2)
    for name in ("land_sea_mask", "geopotential_at_surface"):
        put(root, name, np.ones((LON.size, LAT.size), "f4"), list(PLACES))
    zarr.consolidate_metadata(path, zarr_format=2)
    return held, hours


def ours(values, dims):
    """An array of theirs in our order of dimensions, rows north to south."""
    order = ("time", "prediction_timedelta", "level", "number", "latitude", "longitude")
    wanted = [dims.index(dim) for dim in order if dim in dims]
    return values.transpose(wanted)[..., ::-1, :]


FORECAST_DIMS = ["time", "number", "prediction_timedelta", "level", "longitude", "latitude"]


@pytest.fixture(
    scope="module",
    params=[("hours", True), pytest.param(("nanoseconds", False), marks=pytest.mark.slow)],
    ids=str,
)
def prepared(request, tmp_path_factory):
    """Numbers written (forecasts, truth by valid date), and the store made of them."""
    folder = tmp_path_factory.mktemp("wb2")
    ahead = write_forecasts(folder / "ifs_ens.zarr", *request.param)
    era5, hours = write_era5(folder / "era5.zarr", request.param[1])
    words = ["prepare", folder / "ifs_ens.zarr", folder / "s.zarr", "--truth", folder / "era5.zarr"]
    assert main([str(word) for word in words]) == 0
    at = np.searchsorted(hours, np.add.outer(STARTS, LEADS))
    want = {
        OURS[name]: ours(values, [d for d in FORECAST_DIMS if name in UPPER or d != "level"])
        for name, values in ahead.items()
    }
    truth = {}
    for name, values in era5.items():
        dims = ["time", *(["level"] if name in UPPER else []), "longitude", "latitude"]
        truth[OURS[name]] = ours(values, dims)[at]
    return folder / "s.zarr", want, truth


def test_from_their_layout_to_a_store(prepared):
    store, want, truth = prepared
    got, held = forecasts(store), open_store(store, "truth")
    assert set(got.data_vars) == set(held.data_vars) == set(want)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])
        np.testing.assert_array_equal(held[name], truth[name])
    assert (got.t2m.units, got.z.units, got.u10.units, got.msl.units) == (
        "K", "m2 s-2", "m s-1", "Pa",
    )  # fmt: skip
    np.testing.assert_array_equal(got.step, LEADS)
    np.testing.assert_array_equal(got.latitude, LAT[::-1])


def test_from_their_layout_to_batches(prepared):
    store, want, truth = prepared
    rules = Protocol(test=[2018, 2019], val=[2017], weighting="none")
    options = {"protocol": rules, "members": True, "normalise": False}
    got = whole(Batches(store, "z500@48", ["z500", "u10@24"], "test", **options))
    np.testing.assert_array_equal(got["target"], truth["z"][2:, 1, 0])
    np.testing.assert_array_equal(got["members"], want["z"][2:, 1, 0])
    mean = want["u10"][2:, 0].mean(axis=1, dtype=float)
    np.testing.assert_allclose(got["features"][:, 1], mean, rtol=1e-5)


def test_their_leads_are_hours(tmp_path):
    write_forecasts(tmp_path / "a.zarr", "nanoseconds")
    got = open_source(tmp_path / "a.zarr")
    assert (got.step.to_numpy().tolist(), got.step.units) == ([24, 48], "h")
    valid = got.valid_time.to_numpy().astype("datetime64[h]")
    np.testing.assert_array_equal(valid, np.add.outer(STARTS, LEADS))
