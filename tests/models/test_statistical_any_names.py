"""Statistical methods of arrays under any names: coefficients, points, predictors, errors."""

import numpy as np
import pytest
import torch
import xarray as xr

from ens10 import metrics, open_store, prepare
from ens10.errors import ArgumentError, MissingDataError
from ens10.loader import Batches
from ens10.loader.tensors import as_tensors
from ens10.models import statistical
from ens10.models.statistical.place_regression import coordinates_of
from ens10.protocol import Protocol

GRID = {"latitude": [60.0, 20.0, -40.0], "longitude": [0.0, 90.0, 180.0, 270.0]}
DATES, MEMBERS, LEAD = 130, 6, np.timedelta64(48, "h")
RULES = Protocol(train=[2019], val=[2020], test=[2021])
WORDS = {"time": "init", "number": "realization", "latitude": "lat", "longitude": "lon"}


def world(points=GRID, variables=("t2m", "u10", "v10")):
    """Members of three variables, and the truth of the first, under the names of this package."""
    rng = np.random.default_rng(3)
    shape = tuple(map(len, points.values()))
    time = np.datetime64("2018-12-30", "ns") + np.arange(DATES) * np.timedelta64(7, "D")
    coords = {"time": time, "number": np.arange(MEMBERS), **points}
    dims = ("time", "number", *points)
    units = {"t2m": "K", "u10": "m s**-1", "v10": "m s**-1"}
    fields = {}
    for name in variables:
        weather = 5 * rng.normal(size=(DATES, 1, *shape)) + (280 if name == "t2m" else 0)
        values = weather + rng.normal(size=(DATES, MEMBERS, *shape))
        fields[name] = (dims, values.astype(np.float32), {"units": units[name]})
    forecast = xr.Dataset(fields, coords)
    error = 2 + 0.5 * forecast["u10"].mean("number") if "u10" in variables else 2
    truth = forecast["t2m"].mean("number") + error + rng.normal(size=(DATES, *shape))
    truth = truth.astype(np.float32).assign_coords(time=time + LEAD).assign_attrs(units="K")
    return forecast, truth.rename("t2m")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    forecast, truth = world()
    path = tmp_path_factory.mktemp("arrays") / "s.zarr"
    return prepare(forecast.assign_coords(step=48), path, truth=truth.to_dataset())


METHODS = {
    "EMOS": lambda: statistical.EMOS(local=True),
    "one EMOS": statistical.EMOS,
    "AnomalyEMOS": statistical.AnomalyEMOS,
    "MemberEMOS": statistical.MemberEMOS,
    "SeasonalEMOS": lambda: statistical.SeasonalEMOS(1, strength=30.0),
    "RidgeEMOS": lambda: statistical.RidgeEMOS(strength=30.0),
    "Advection": lambda: statistical.RidgeEMOS(strength=30.0, advection=True),
    "Neighbours": lambda: statistical.RidgeEMOS(strength=30.0, neighbours=True),
    "BoostedEMOS": statistical.BoostedEMOS,
    "RegionalRegression": statistical.RegionalRegression,
    "MemberByMember": statistical.MemberByMember,
    "IsotonicRegression": statistical.IsotonicRegression,
    "BiasMap": statistical.BiasMap,
    "Climatology": statistical.Climatology,
    "SeasonalClimatology": statistical.SeasonalClimatology,
    "AmountEMOS": statistical.AmountEMOS,
    "ECC": lambda: statistical.ECC(statistical.EMOS(local=True)),
    "SchaakeShuffle": lambda: statistical.SchaakeShuffle(statistical.EMOS(), members=3),
    "SlidingWindow": lambda: statistical.SlidingWindow(statistical.EMOS(), days=200),
    "Raw": statistical.Raw,
    "RawNormal": statistical.RawNormal,
}


def of_store(method, store):
    """The method, fitted to what the loader reads."""
    batches = Batches(
        store, "t2m", ["t2m", "u10", "v10"], "train", protocol=RULES, members=True,
        normalise=False, shuffle=False, batch_size=64,
    )  # fmt: skip
    for part in method.modules():
        if isinstance(part, statistical.Advection):
            part.place(batches.channels, "t2m", *GRID.values())
        if isinstance(part, statistical.AnomalyEMOS):
            part.place(coordinates_of(batches.samples.degrees, batches.samples.stations))
    for batch in batches:
        method.collect(as_tensors(batch))
    method.solve()
    return method


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long) if n == "AmountEMOS" else n for n in METHODS],
)
def test_coefficients_are_those_of_a_fit_through_a_store(name, store):
    stored = open_store(store, "sfc").isel(step=0).load()
    truth = open_store(store, "truth")["t2m"].isel(step=0).load()
    years = stored["valid_time"].dt.year.to_numpy() == 2019
    words = {**WORDS, "valid_time": "valid_time"}
    forecast = stored.isel(time=years).rename(words).transpose(..., "init")
    observed = truth.isel(time=years).rename(time="day", latitude="lat", longitude="lon")
    fitted = statistical.fit(
        METHODS[name](), forecast["t2m"], observed, predictors=forecast[["t2m", "u10", "v10"]],
        member_dim="realization",
    )  # fmt: skip
    expected = of_store(METHODS[name](), store).state_dict()
    ours = fitted.method.state_dict()
    assert ours.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(ours[key], value, rtol=0, atol=0, equal_nan=True)
    corrected = fitted(forecast["t2m"], forecast)
    assert {"init", "lat", "lon"} <= set(corrected.dims)
    assert corrected.attrs["forecast_kind"] in ("ensemble", *metrics.FAMILIES, "quantiles")


PLACES = {
    "one station": {},
    "stations": {"site": ["b", "a"]},
    "a grid": {"lat": GRID["latitude"], "lon": GRID["longitude"]},
}


@pytest.mark.parametrize("kind", PLACES)
def test_points_of_any_number_and_name(kind):
    forecast, truth = world(PLACES[kind], ["t2m"])
    members = forecast["t2m"].rename(time="init", number="realization").transpose()
    fitted = statistical.fit(
        statistical.EMOS(local=True), members, truth.assign_coords(time=forecast["time"].data),
        member_dim="realization",
    )  # fmt: skip
    corrected = fitted(members, quantiles=[0.9, 0.5])
    assert corrected["mu"].dims == ("init", *PLACES[kind])
    median = corrected["t2m_quantile"].sel(quantile_level=0.5)
    xr.testing.assert_allclose(median.drop_vars("quantile_level"), corrected["mu"], rtol=1e-6)
    upper = corrected["t2m_quantile"].sel(quantile_level=0.9, drop=True)
    normal = corrected["mu"] + 1.2815515655446004 * corrected["sigma"]
    xr.testing.assert_allclose(upper, normal, rtol=1e-5)
    for dim, labels in PLACES[kind].items():
        assert corrected[dim].to_numpy().tolist() == labels
    at = dict.fromkeys(PLACES[kind], 0)
    x, y = members.mean("realization").isel(at).to_numpy(), truth.isel(at).to_numpy()
    np.testing.assert_allclose(corrected["mu"].isel(at).mean(), y.mean(), atol=0.05)
    assert abs(float((y - x).mean()) - 2) < 0.3  # the bias, which the mean above has lost
    coupled = statistical.ECC(statistical.EMOS())
    drawn = statistical.fit(coupled, members, truth.assign_coords(time=forecast["time"].data),
                            member_dim="realization")(members)  # fmt: skip
    assert drawn["members"].dims == ("init", "realization", *PLACES[kind])
    assert drawn["realization"].equals(members["realization"])
    assert bool((drawn["members"].rank("realization") == members.rank("realization")).all())


def test_places_of_stations_keep_their_names():
    places = {"latitude": ("site", [50.0, 60.0]), "longitude": ("site", [8.0, 9.0])}
    forecast, truth = world(PLACES["stations"], ["t2m"])
    valid = {"valid_time": ("time", truth["time"].data)}
    members = forecast["t2m"].assign_coords(places | valid)
    corrected = statistical.fit(statistical.EMOS(), members, truth)(members)
    assert corrected["mu"].dims == ("time", "site")
    assert corrected["latitude"].to_numpy().tolist() == [50.0, 60.0]
    labels = members.drop_vars("site").assign_coords(station=("site", ["b", "a"]))
    observed = truth.rename(site="station")
    by_label = statistical.fit(statistical.EMOS(), labels, observed)(labels)
    assert by_label["mu"].dims == ("time", "site")
    assert by_label["site"].to_numpy().tolist() == ["b", "a"]
    np.testing.assert_array_equal(by_label["mu"], corrected["mu"])


def test_errors_in_one_line():
    forecast, truth = world()
    members = forecast["t2m"].rename(number="member")
    emos = statistical.EMOS()
    told = {"member_dim": "member"}
    with pytest.raises(ArgumentError, match=r"members: no dimension 'number', only .*member_dim"):
        statistical.fit(emos, members, truth)
    with pytest.raises(ArgumentError, match=r"members: no dimension 'date', only .*time_dim"):
        statistical.fit(emos, members, truth, time_dim="date", **told)
    with pytest.raises(ArgumentError, match="members: no dimension of dates"):
        statistical.fit(emos, members.drop_vars("time").rename(time="n"), truth, **told)
    later = truth.assign_coords(time=truth["time"] + np.timedelta64(9999, "D"))
    with pytest.raises(
        MissingDataError, match="truth: 130 parts are missing: 2018-12-30T00:00:00;"
    ):
        statistical.fit(emos, members, later, **told)
    with pytest.raises(ArgumentError, match="no date has truth: they are 2018-12-30T00:00:00 "):
        statistical.fit(emos, members, later, join="inner", **told)
    valid = truth.assign_coords(time=forecast["time"].data)
    with pytest.raises(ArgumentError, match="truth: no date has its value and that of all members"):
        statistical.fit(emos, members, valid * np.nan, **told)
    wind = statistical.RidgeEMOS(advection=True)
    with pytest.raises(ArgumentError, match=r"u10 and v10 not among them.*Add the wind"):
        statistical.fit(wind, members, valid, **told)
    ridge = statistical.RidgeEMOS(strength=30.0)
    inputs = forecast.rename(number="member")[["u10"]]
    with pytest.raises(MissingDataError, match="u10: 2 parts are missing: 2018-12-30T00:00:00;"):
        statistical.fit(ridge, members, valid, predictors=inputs[{"time": slice(2, None)}], **told)
    fitted = statistical.fit(ridge, members, valid, predictors=inputs, **told)
    with pytest.raises(MissingDataError, match="predictors: 1 part is missing: u10"):
        fitted(members)
    clash = members.isel(latitude=0, longitude=0).assign_coords(number=0)
    with pytest.raises(ArgumentError, match=r"members: .*number.*Rename or drop this coordinate"):
        statistical.fit(emos, clash, valid, **told)
