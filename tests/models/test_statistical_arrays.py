"""Statistical methods fitted to DataArrays and applied to them."""

import dask.array
import numpy as np
import pytest
import torch
import xarray as xr
from docblocks import python

from ens10 import metrics
from ens10.errors import ArgumentError, MissingDataError
from ens10.grid import area_weights
from ens10.metrics.verification.alignment import LeftOutWarning
from ens10.models import statistical

GRID = {"latitude": [60.0, 20.0, -40.0], "longitude": [0.0, 90.0, 180.0, 270.0]}


def world(dates=150, grid=GRID, seed=0, step=48):
    """Members with a bias of their own at each point, and their truth at the valid times."""
    rng = np.random.default_rng(seed)
    shape = tuple(len(v) for v in grid.values())
    time = np.datetime64("2019-01-01", "ns") + np.arange(dates) * np.timedelta64(5, "D")
    weather = 280 + 5 * rng.normal(size=(dates, 1, *shape))
    members = weather + rng.normal(size=(dates, 6, *shape))
    bias = 3 * np.random.default_rng(9).normal(size=shape)
    truth = members.mean(1) + bias + 1.5 * rng.normal(size=(dates, *shape))
    lead = np.timedelta64(step, "h")
    units = {"units": "K"}
    coords = {"time": time, "number": np.arange(6), **grid}
    forecast = xr.DataArray(members, coords, ("time", "number", *grid), attrs=units)
    forecast = forecast.assign_coords(step=lead, valid_time=("time", time + lead))
    coords = {"time": time + lead, **grid}
    return forecast, xr.DataArray(truth, coords, ("time", *grid), attrs=units), bias


def by_hand(method, members, truth):
    """The method fitted to one batch of everything."""
    x = members.transpose("time", "number", ...).to_numpy().astype(np.float32)
    y = truth.to_numpy()
    area = area_weights(np.array(GRID["latitude"]))[:, None] * np.ones(y.shape)
    mean, std = x.mean(1, np.float64), x.std(1, np.float64, ddof=1)
    arrays = {"raw_mean": mean, "raw_std": std, "members": x, "target": y,
              "weights": area, "features": np.zeros((len(y), 1, *y.shape[1:]))}  # fmt: skip
    batch = {k: torch.from_numpy(v.astype(np.float32)) for k, v in arrays.items()}
    seconds = members["valid_time"].to_numpy().astype("M8[s]").astype(np.int64)
    batch["dates"] = torch.from_numpy(seconds)
    method.collect(batch)
    method.solve()
    return method, batch


METHODS = {
    "emos": statistical.EMOS,
    "local": lambda: statistical.EMOS(local=True, criterion="likelihood"),
    "members": statistical.MemberEMOS,
    "seasonal": lambda: statistical.SeasonalEMOS(1, strength=30.0),
    "ridge": lambda: statistical.RidgeEMOS(strength=30.0),
    "ensemble": statistical.MemberByMember,
    "coupled": lambda: statistical.ECC(statistical.EMOS(local=True)),
}


@pytest.mark.parametrize("name", METHODS)
def test_it_is_the_fit_to_a_batch_of_all_dates(name):
    members, truth, _ = world()
    fitted = statistical.fit(METHODS[name](), members, truth)
    expected, batch = by_hand(METHODS[name](), members, truth)
    for key, value in expected.state_dict().items():
        torch.testing.assert_close(fitted.method.state_dict()[key], value, rtol=1e-6, atol=1e-6)
    forecast = fitted(members)
    assert forecast.attrs["forecast_kind"] == expected(batch).kind
    for key, values in expected(batch).variables().items():
        np.testing.assert_allclose(forecast[key], values, rtol=2e-6)
    xr.testing.assert_equal(forecast["valid_time"], members["valid_time"])
    assert forecast["step"] == members["step"]


def test_new_dates_are_better_than_the_raw_ensemble_and_can_be_verified():
    training, truth, _ = world()
    method = statistical.EMOS(local=True)
    fitted = statistical.fit(method, training, truth)
    assert not bool(method.solved)  # it was copied
    members, later, bias = world(seed=1)
    forecast = fitted(members)
    assert forecast["mu"].attrs["units"] == "K"
    correction = (forecast["mu"] - members.mean("number")).mean("time")
    np.testing.assert_allclose(correction, bias, atol=5 * 1.5 / np.sqrt(150))
    raw = xr.Dataset({"members": members}, attrs={"forecast_kind": "ensemble"})
    ours, theirs = (metrics.verify(f, later, ["crps"])["crps"] for f in (forecast, raw))
    assert float(ours) < 0.6 * float(theirs)


def test_stations_in_any_order_of_dimensions():
    members, truth, _ = world(grid={"station": ["b", "a", "c"]})
    members = members.assign_coords(altitude=("station", [3.0, 700.0, 12.0]))
    fitted = statistical.fit(statistical.EMOS(local=True), members.transpose(), truth)
    forecast = fitted(members.isel(time=slice(3)))
    assert forecast["mu"].dims == ("time", "station")
    assert forecast["station"].to_numpy().tolist() == ["b", "a", "c"]
    np.testing.assert_array_equal(forecast["altitude"], members["altitude"])
    single = statistical.fit(
        statistical.EMOS(), members.sel(station=["a"]), truth.sel(station=["a"])
    )
    at_a = single(members.sel(station=["a"]).isel(time=slice(3)))
    np.testing.assert_allclose(at_a["mu"][:, 0], forecast["mu"].sel(station="a"), atol=1e-3)
    with pytest.raises(ArgumentError, match="members: it has a, and the forecast has b, a, c"):
        fitted(members.sel(station=["a"]))


def test_lazy_arrays_gaps_and_more_truth(monkeypatch):
    monkeypatch.setattr("ens10.models.statistical.fit_arrays._DATES", 40)
    members, truth, _ = world()
    members[7, 2, 0, 0], truth[9, 1, 1] = np.nan, np.nan
    lazy = members.copy(data=dask.array.from_array(members.to_numpy(), chunks=(30, -1, -1, -1)))
    days = np.timedelta64(900, "D")
    more = xr.concat([truth.assign_coords(time=truth["time"] + days), truth[::-1]], "time")
    ours = statistical.fit(statistical.EMOS(local=True), lazy, more)(lazy)
    keep = np.ones(truth.shape, bool)
    keep[7, 0, 0] = False
    whole = statistical.fit(statistical.EMOS(local=True), members, truth.where(keep))(members)
    xr.testing.assert_allclose(ours, whole)
    assert np.isnan(ours["mu"][7, 0, 0])
    assert int(np.isnan(ours["mu"]).sum()) == 1


def test_dates_without_truth_are_refused_or_left_out():
    members, truth, _ = world(60)
    with pytest.raises(MissingDataError, match="2019-01-03"):
        statistical.fit(statistical.EMOS(), members, truth[1:])
    with pytest.warns(LeftOutWarning, match="1 of 60 dates"):
        fewer = statistical.fit(statistical.EMOS(), members, truth[1:], join="inner")
    same = statistical.fit(statistical.EMOS(), members[1:], truth)
    assert torch.equal(fewer.method.c, same.method.c)


def test_the_example_of_the_page_runs():
    members, truth, _ = world(60)
    names = {"members": members, "truth": truth, "new_members": members[:3]}
    (block,) = python("docs/cards_statistical.md")
    exec(block, names)
    assert set(names["forecast"]) == {"mu", "sigma"}
    assert names["forecast"].sizes["time"] == 3


def test_bad_input():
    members, truth, _ = world(30)
    method = statistical.EMOS(local=True)
    with pytest.raises(ArgumentError, match=r"members: dimensions .* Select one lead time"):
        statistical.fit(method, members.expand_dims(level=[500.0]), truth)
    with pytest.raises(ArgumentError, match="a single member has no spread"):
        statistical.fit(method, members[:, :1], truth)
    with pytest.raises(ArgumentError, match="units differ"):
        statistical.fit(method, members, truth.assign_attrs(units="degC"))
    with pytest.raises(MissingDataError, match="latitude 60"):
        statistical.fit(method, members, truth[:, 1:])
    with pytest.raises(MissingDataError, match="latitude -40"):
        statistical.fit(method, members, truth)(members[:, :, :2])
