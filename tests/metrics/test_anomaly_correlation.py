"""Anomaly correlation: Pearson's correlation of centred anomalies, and float64 numpy."""

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from scipy.stats import pearsonr

from ens10.errors import ArgumentError, MissingDataError
from ens10.grid import area_weights
from ens10.metrics import (
    anomaly_correlation,
    monthly_climatology,
    score_states,
    summarise,
    verify,
)


def correlation(f, o, w):
    """Of anomalies, in float64, missing points left out."""
    there = ~np.isnan(f + o)
    f, o, w = (np.broadcast_to(a, there.shape)[there].astype(np.float64) for a in (f, o, w))
    return (w * f * o).sum() / np.sqrt((w * f * f).sum() * (w * o * o).sum())


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, xr.DataArray])
def test_centred_anomalies_have_pearsons_correlation(kind):
    rng = np.random.default_rng(0)
    o = rng.normal(size=200)
    f = 0.6 * o + rng.normal(size=200)
    o, f = o - o.mean(), f - f.mean()
    climatology = 280 + 10 * rng.normal(size=200)
    got = anomaly_correlation(*(kind(a) for a in (climatology + f, climatology + o, climatology)))
    assert float(got) == pytest.approx(pearsonr(f, o).statistic, rel=1e-10)


def test_weights_and_missing_points():
    rng = np.random.default_rng(1)
    f, o, c = 280 + rng.normal(size=(3, 40))
    o[3], c[7] = np.nan, np.nan
    w = rng.random(40)
    got = anomaly_correlation(f, o, c, weights=w, nan="omit")
    assert float(got) == pytest.approx(correlation(f - c, o - c, w), rel=1e-12)
    assert np.isnan(anomaly_correlation(f, o, c))


def climatology_like(truth, **coords):
    rng = np.random.default_rng(5)
    grid = {name: truth[name] for name in ("latitude", "longitude")}
    shape = [len(v) for v in (*coords.values(), *grid.values())]
    values = 280 + rng.normal(size=shape)
    return xr.DataArray(values, coords={**coords, **grid}, dims=(*coords, *grid), attrs=truth.attrs)


def expected_acc(f, truth, c):
    rows = area_weights(truth["latitude"].to_numpy())[:, None]
    return correlation(f - c, truth.to_numpy() - c, rows)


@pytest.mark.parametrize("period", ["month", "dayofyear", "time", None])
def test_verify_picks_the_climatology_of_the_valid_date(period, world):
    ensemble, normal, truth = world
    valid = truth["time"].dt
    labels = {
        "month": ({"month": np.arange(1, 13)}, valid.month.to_numpy() - 1),
        "dayofyear": ({"dayofyear": np.arange(1, 366)}, valid.dayofyear.to_numpy() - 1),
        "time": ({"time": ensemble["time"][::-1]}, np.arange(30)[::-1]),
        None: ({}, ...),
    }
    coords, places = labels[period]
    climatology = climatology_like(truth, **coords)
    scores = verify(
        ensemble, truth, ["acc", "rmse"], climatology=climatology, reference=normal, by=["year"]
    )
    assert set(scores["year"].to_numpy()) == {2001, 2002}
    scores = verify(ensemble, truth, ["acc"], climatology=climatology)
    f = ensemble["members"].mean("number").to_numpy()
    assert float(scores["acc"]) == pytest.approx(
        expected_acc(f, truth, climatology.to_numpy()[places]), rel=1e-10
    )
    assert float(scores["acc_lower"]) < float(scores["acc"]) < float(scores["acc_upper"])
    assert scores["acc"].attrs["units"] == "1"


def test_steps_and_levels_have_their_own(world):
    _, normal, truth = world
    steps = np.array([24.0, 48.0])
    wide = normal.drop_vars(["step", "valid_time"]).expand_dims(step=steps, level=[500.0, 850.0])
    wide = wide.assign_coords(step=("step", steps, {"units": "hours"})).assign_attrs(normal.attrs)
    observed = truth.expand_dims(level=[500.0, 850.0]).assign_coords(time=normal["time"])
    moments = normal["time"].to_numpy()[:, None] + np.array([24, 48], "timedelta64[h]")
    observed = xr.concat([observed, observed + 1], "step").assign_coords(
        step=steps, valid_time=(("time", "step"), moments)
    )
    climatology = climatology_like(truth, level=[850.0, 500.0], month=np.arange(1, 13))
    states = score_states(wide, observed, ["acc"], climatology=climatology)
    got = summarise(states, by=["step", "level"])["acc"]
    months = pd.DatetimeIndex(moments[:, 1]).month - 1
    c = climatology.sel(level=500.0).to_numpy()[months]
    one = expected_acc(normal["mu"].to_numpy(), truth.copy(data=truth.to_numpy() + 1), c)
    assert float(got.sel(step=48.0, level=500.0)) == pytest.approx(one, rel=1e-10)
    by_step = climatology_like(truth, step=steps[::-1])
    got = summarise(score_states(wide, observed, ["acc"], climatology=by_step), by=["step"])["acc"]
    c = by_step.sel(step=48.0).to_numpy()
    one = expected_acc(normal["mu"].to_numpy(), truth.copy(data=truth.to_numpy() + 1), c)
    assert float(got.sel(step=48.0)) == pytest.approx(one, rel=1e-10)


def test_the_leap_day_has_the_climatology_of_its_neighbour(world):
    _, normal, truth = world
    leap = np.datetime64("2004-12-31", "ns") + np.arange(30) * np.timedelta64(1461, "D")
    normal = normal.drop_vars(["valid_time", "step"]).assign_coords(time=leap)
    truth = truth.assign_coords(time=leap)
    climatology = climatology_like(truth, dayofyear=np.arange(1, 366))
    got = verify(normal, truth, ["acc"], climatology=climatology, method="student")["acc"]
    days = truth["time"].dt.dayofyear.to_numpy()
    assert (days == 366).sum() > 20
    c = climatology.to_numpy()[np.minimum(days, 365) - 1]
    expected = expected_acc(normal["mu"].to_numpy(), truth, c)
    assert float(got) == pytest.approx(expected, rel=1e-10)


REFUSED = {
    "none": (lambda monthly: None, ArgumentError, "Pass climatology"),
    "11 months": (
        lambda monthly: monthly.isel(month=slice(0, 11)), MissingDataError, "climatology.*12",
    ),
    "fewer rows": (
        lambda monthly: monthly.isel(latitude=slice(1, None)), MissingDataError, "latitude",
    ),
    "other units": (
        lambda monthly: monthly.assign_attrs(units="degC"),
        ArgumentError, "in degC, the truth in K",
    ),
    "seasons": (
        lambda monthly: monthly.rename(month="season"), ArgumentError, "any of step, level",
    ),
    "no labels": (lambda monthly: monthly.to_numpy(), ArgumentError, "expected a DataArray"),
}  # fmt: skip


@pytest.mark.parametrize("which", REFUSED)
def test_what_does_not_fit_is_refused(world, which):
    change, error, words = REFUSED[which]
    ensemble, _, truth = world
    climatology = change(climatology_like(truth, month=np.arange(1, 13)))
    with pytest.raises(error, match=words):
        verify(ensemble, truth, ["acc"], climatology=climatology)


def test_monthly_means_leave_years_out(world):
    truth = world[2]
    got = monthly_climatology(truth, without_years=[2001])
    kept = truth[truth["time"].dt.year != 2001]
    expected = kept.groupby("time.month").mean("time", skipna=True)
    np.testing.assert_allclose(got.transpose(*expected.dims), expected, rtol=1e-12)
    assert got.attrs["units"] == "K"
    with pytest.raises(MissingDataError, match="other years"):
        monthly_climatology(truth, without_years=[2001, 2002])
