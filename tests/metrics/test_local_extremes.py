"""Scores above quantiles of the climate of each place and month, against numpy and integrals."""

import numpy as np
import pandas as pd
import properscoring as ps
import pytest
import xarray as xr
from scipy.integrate import quad
from scipy.stats import norm

from ens10.errors import ArgumentError, MissingDataError
from ens10.metrics import monthly_quantiles, score_states, verify
from ens10.metrics.distributions import Normal
from ens10.metrics.scores.pairs import Pair
from ens10.metrics.scores.registry import METRICS

LEVEL = 0.95
NAMES = [f"brier_local_{LEVEL}", f"twcrps_local_{LEVEL}"]


@pytest.fixture(scope="module")
def world():
    """Forecasts of members and a normal for 24 dates of 2003, and truth of 2001 to 2003."""
    rng = np.random.default_rng(3)
    times = pd.date_range("2001-01-10", "2003-12-31", freq="15D")
    places = {"latitude": [60.0, 0.0], "longitude": [0.0, 120.0, 240.0]}
    shape = (len(times), 2, 3)
    season = 10 * np.cos(2 * np.pi * times.day_of_year.to_numpy() / 365)[:, None, None]
    truth = xr.DataArray(
        280 + season + rng.normal(size=shape) * [[1.0, 2.0, 4.0]],
        coords={"time": times, **places},
        attrs={"units": "K"},
    )
    scored = truth.sel(time="2003")
    mu = scored + rng.normal(size=scored.shape)
    members = mu.expand_dims(number=np.arange(1, 8), axis=1) + rng.normal(size=(1, 7, 1, 1))
    ensemble = xr.Dataset({"members": members}, attrs={"forecast_kind": "ensemble"})
    normal = xr.Dataset(
        {"mu": mu, "sigma": xr.full_like(mu, 1.5)}, attrs={"forecast_kind": "normal"}
    )
    return ensemble, normal, scored, truth


def thresholds_of(world, dates):
    months = [dates[dates["time"].dt.month == m] for m in range(1, 13)]
    quantiles = np.stack([np.quantile(one.to_numpy(), LEVEL, axis=0) for one in months])
    return quantiles[world[2]["time"].dt.month.to_numpy() - 1]


def weighted(values, world):
    """The mean over dates and points, rows weighted by the areas of their cells."""
    from ens10.grid import area_weights

    rows = area_weights(world[2]["latitude"].to_numpy(), "cell")
    weights = np.broadcast_to(rows[:, None], values.shape)
    return (values * weights).sum() / weights.sum()


def test_scores_of_members_and_normals_at_the_threshold_of_each_place(world):
    ensemble, normal, truth, past = world
    thresholds = monthly_quantiles(past, [0.9, LEVEL], without_years=[2003])
    t = thresholds_of(world, past.sel(time=slice("2001", "2002")))
    found = verify(ensemble, truth, NAMES, thresholds=thresholds)
    x, y = (
        ensemble["members"].transpose("time", "latitude", "longitude", "number"),
        truth.to_numpy(),
    )
    brier = ((x.to_numpy() > t[..., None]).mean(-1) - (y > t)) ** 2
    assert float(found[NAMES[0]]) == pytest.approx(weighted(brier, world), rel=1e-12)
    clipped = ps.crps_ensemble(np.maximum(y, t), np.maximum(x.to_numpy(), t[..., None]))
    assert float(found[NAMES[1]]) == pytest.approx(weighted(clipped, world), rel=1e-10)
    assert found[NAMES[1]].attrs["units"] == "K"
    assert "0.95 quantile of the place and month" in found[NAMES[1]].attrs["long_name"]

    found = verify(normal, truth, NAMES, thresholds=thresholds, reference=ensemble)
    mu = normal["mu"].to_numpy()
    probability = norm.sf(t, mu, 1.5)
    assert float(found[NAMES[0]]) == pytest.approx(
        weighted((probability - (y > t)) ** 2, world), rel=1e-9
    )
    integrals = np.empty(y.shape)
    for place in np.ndindex(y.shape):
        low, middle, high = t[place], max(t[place], y[place]), max(t[place], y[place]) + 40
        upper = quad(lambda z, p=place: (norm.cdf(z, mu[p], 1.5) - 1) ** 2, middle, high, limit=200)
        lower = quad(lambda z, p=place: norm.cdf(z, mu[p], 1.5) ** 2, low, middle, limit=200)
        integrals[place] = lower[0] + upper[0]
    assert float(found[NAMES[1]]) == pytest.approx(weighted(integrals, world), rel=1e-6)
    assert "brier_local_skill_0.95" in found


def test_monthly_quantiles_are_those_of_numpy(world):
    past = world[3]
    found = monthly_quantiles(past, [0.5, LEVEL], without_years=[2002])
    kept = past[past["time"].dt.year != 2002]
    expected = kept.groupby("time.month").quantile([0.5, LEVEL], dim="time")
    np.testing.assert_allclose(
        found.transpose("month", "latitude", "longitude", "quantile_level"),
        expected.transpose("month", "latitude", "longitude", "quantile"),
        rtol=1e-12,
    )
    assert found.attrs["units"] == "K"
    with pytest.raises(MissingDataError, match="other years"):
        monthly_quantiles(past, [0.5], without_years=[2001, 2002, 2003])


def test_a_point_without_a_threshold_does_not_count(world):
    _, normal, truth, past = world
    thresholds = monthly_quantiles(past, [LEVEL], without_years=[2003])
    gap = thresholds.copy()
    gap[:, 1, 2] = np.nan
    states = score_states(normal, truth, NAMES, thresholds=gap)
    assert int(states["brier_local_0.95_count"].sum()) == truth.size * 5 // 6
    assert int(states["twcrps_local_0.95_count"].sum()) == truth.size * 5 // 6


def test_no_threshold_makes_every_pair_missing():
    pair = Pair(Normal(np.zeros((1, 2)), np.ones((1, 2))), np.zeros((1, 2)))
    assert np.isnan(pair.threshold(0.9)).all()
    assert np.isnan(pair.climatology).all()


def test_what_does_not_fit_is_refused(world):
    _, normal, truth, past = world
    thresholds = monthly_quantiles(past, [0.9])
    for given, error, message in (
        (None, ArgumentError, r"brier_local_0.95 needs quantiles.*--climatology STORE"),
        (thresholds, MissingDataError, "quantile_level 0.95"),
        (thresholds.drop_vars("quantile_level"), ArgumentError, "over quantile_level"),
        (thresholds.assign_attrs(units="degC"), MissingDataError, "quantile_level 0.95"),
    ):
        with pytest.raises(error, match=message):
            verify(normal, truth, NAMES, thresholds=given)
    with pytest.raises(ArgumentError, match="in degC, the truth in K"):
        verify(normal, truth, ["brier_local_0.9"], thresholds=thresholds.assign_attrs(units="degC"))
    with pytest.raises(ArgumentError, match="probability between 0 and 1"):
        verify(normal, truth, ["brier_local_95"], thresholds=thresholds)
    assert METRICS["brier_local"].number == "level"
