"""A small world of forecasts and truth."""

import contextlib
import sys

import numpy as np
import pytest
import xarray as xr

# With numba, scoringrules compiles 60 functions while it is imported: seconds in each process.
with pytest.MonkeyPatch.context() as _patch, contextlib.suppress(ImportError):
    _patch.setitem(sys.modules, "numba", None)
    import scoringrules  # noqa: F401

N, M, H, W = 30, 5, 6, 8
FIELD = ("time", "latitude", "longitude")
LAG = np.timedelta64(48, "h")


@pytest.fixture(scope="session")
def world():
    """An ensemble, a normal made of it, and the truth of the same dates, with a gap."""
    rng = np.random.default_rng(0)
    time = np.datetime64("2001-11-01", "ns") + np.arange(N) * np.timedelta64(7, "D")
    grid = {"latitude": np.linspace(90, -60, H), "longitude": np.arange(W) * 45.0}
    coords = {"time": time, "valid_time": ("time", time + LAG), "step": LAG, **grid}
    signal = 280 + 5 * rng.normal(size=(N, 1, H, W))
    members = signal + rng.normal(size=(N, M, H, W))
    y = signal[:, 0] + 1.3 * rng.normal(size=(N, H, W))
    y[4, 2:4] = np.nan
    units = {"units": "K"}
    ensemble = xr.Dataset(
        {"members": (("time", "number", *FIELD[1:]), members, units)},
        coords,
        {"forecast_kind": "ensemble"},
    )
    spread = 1.2 * members.std(axis=1, ddof=1)
    normal = xr.Dataset(
        {"mu": (FIELD, members.mean(axis=1), units), "sigma": (FIELD, spread, units)},
        coords,
        {"forecast_kind": "normal"},
    )
    truth = xr.DataArray(y, dims=FIELD, coords={"time": time + LAG, **grid}, attrs=units)
    return ensemble, normal, truth
