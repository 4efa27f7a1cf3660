"""Threshold- and outcome-weighted CRPS of ensembles, held to scoringrules and definitions."""

import math

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.crps import crps_ensemble
from ens10.metrics.weighted import owcrps_ensemble, twcrps_ensemble

BOUNDS = [(-math.inf, math.inf), (0.2, math.inf), (-math.inf, 0.2), (-0.6, 0.9)]
MAKERS = [np.asarray, torch.tensor, da.asarray]
BOTH = [twcrps_ensemble, owcrps_ensemble]


def case(seed, n=30, M=8):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, M)), rng.normal(size=n)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.integers(2, 30), st.sampled_from(BOUNDS), st.integers(0, 1))
def test_agree_with_scoringrules(seed, M, bounds, kind):
    sr = pytest.importorskip("scoringrules")
    make = MAKERS[kind]
    x, y = case(seed, M=M)
    low, high = bounds
    call = {"member_dim": 1, "lower": low, "upper": high}
    for ours, theirs in (("plain", "nrg"), ("fair", "fair")):
        wanted = sr.twcrps_ensemble(y, x, low, high, estimator=theirs, backend="numpy")
        got = twcrps_ensemble(make(x), make(y), estimator=ours, **call)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)
    with np.errstate(invalid="ignore", divide="ignore"):
        wanted = sr.owcrps_ensemble(y, x, low, high, backend="numpy")
    got = owcrps_ensemble(make(x), make(y), estimator="plain", **call)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", MAKERS)
def test_functions_agree_with_scoringrules(make):
    sr = pytest.importorskip("scoringrules")
    x, y = case(1)

    def bump(z):
        return np.exp(-((z - 0.5) ** 2))

    def soft(z):
        return np.logaddexp(0, z)

    ours = [bump, soft]
    if make is torch.tensor:
        ours = [lambda z: (-((z - 0.5) ** 2)).exp(), torch.nn.functional.softplus]
    got = owcrps_ensemble(make(x), make(y), estimator="plain", member_dim=1, weight=ours[0])
    wanted = sr.owcrps_ensemble(y, x, w_func=bump, backend="numpy")
    np.testing.assert_allclose(got, wanted, atol=1e-13)
    got = twcrps_ensemble(make(x), make(y), estimator="plain", member_dim=1, chaining=ours[1])
    wanted = sr.twcrps_ensemble(y, x, v_func=soft, estimator="nrg", backend="numpy")
    np.testing.assert_allclose(got, wanted, atol=1e-13)


def test_threshold_weights_are_an_integral():
    x, y = case(2, 4)
    z = np.linspace(-6, 6, 240001)
    low, high = -0.6, 0.9
    inside = ((z >= low) & (z <= high)) * (z[1] - z[0])
    for members, observed in zip(x, y, strict=True):
        step = (members[:, None] <= z).mean(axis=0) - (observed <= z)
        got = twcrps_ensemble(
            members, observed, estimator="plain", member_dim=0, lower=low, upper=high
        )
        assert got == pytest.approx((step**2 * inside).sum(), abs=2e-4)


@pytest.mark.parametrize("estimator", ["plain", "fair", "almost_fair"])
@pytest.mark.parametrize("score", BOTH)
def test_without_thresholds_is_the_crps(score, estimator):
    x, y = case(3)
    got = score(x, y, estimator=estimator, member_dim=1, alpha=0.9)
    wanted = crps_ensemble(x, y, estimator=estimator, member_dim=1, alpha=0.9)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("estimator", ["plain", "fair", "almost_fair"])
def test_outcome_weights_leave_members_out(estimator):
    x, y = case(4, 60, 12)
    got = owcrps_ensemble(x, y, estimator=estimator, member_dim=1, lower=-0.5, upper=1.0)
    for members, observed, one in zip(x, y, got, strict=True):
        left = members[(members >= -0.5) & (members <= 1.0)]
        wanted = 0.0
        if -0.5 <= observed <= 1.0:
            wanted = crps_ensemble(left, observed, estimator=estimator, member_dim=0)
        assert one == pytest.approx(wanted, abs=1e-14)


@pytest.mark.parametrize("make", MAKERS)
def test_outcome_weights_without_members(make):
    x, y = np.array([[0.0, 1.0], [0.0, 5.0], [5.0, 7.0], [5.0, 6.0]]), np.array([5.0, 5, 8, 0])
    call = {"member_dim": 1, "lower": 4.0}
    got = np.asarray(owcrps_ensemble(make(x), make(y), estimator="plain", **call))
    np.testing.assert_array_equal(got, [np.nan, 0.0, 2 - 0.5, 0.0])
    got = np.asarray(owcrps_ensemble(make(x), make(y), estimator="fair", **call))
    np.testing.assert_array_equal(got, [np.nan, np.nan, 2 - 1.0, 0.0])
    mean = owcrps_ensemble(make(x), make(y), estimator="fair", dim=0, nan="omit", **call)
    np.testing.assert_allclose(mean, 0.5)


@pytest.mark.parametrize("score", BOTH)
def test_thresholds_of_each_point(score):
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(5, 9, 3, 4)), rng.normal(size=(5, 3, 4))
    low = rng.normal(size=(3, 4)) - 1
    call = {"estimator": "plain", "upper": 1.5}
    wanted = np.empty((5, 3, 4))
    for i, j in np.ndindex(3, 4):
        one = x[:, :, i, j], y[:, i, j]
        wanted[:, i, j] = score(*one, member_dim=1, lower=low[i, j], **call)
    for make in MAKERS:
        got = score(make(x), make(y), member_dim=1, lower=make(low), **call)
        np.testing.assert_allclose(got, wanted, atol=1e-14)
    dims = ("time", "number", "lat", "lon")
    members = xr.DataArray(x, dims=dims, attrs={"units": "K"}).chunk(time=2)
    truth = xr.DataArray(y, dims=("time", "lat", "lon"), attrs={"units": "K"})
    limit = xr.DataArray(low.T, dims=("lon", "lat"), attrs={"units": "K"})
    got = score(members, truth, member_dim="number", lower=limit, **call)
    assert got.attrs["units"] == "K"
    assert got.chunks is not None
    np.testing.assert_allclose(got.transpose("time", "lat", "lon"), wanted, atol=1e-14)
    with pytest.raises(ArgumentError, match="units differ"):
        score(members, truth, member_dim="number", lower=limit.assign_attrs(units="degC"), **call)


@pytest.mark.parametrize("spread", [5.0, 60.0])
@pytest.mark.parametrize("center", [5e4, 1e5])
@pytest.mark.parametrize("score", BOTH)
def test_float32(score, center, spread):
    x, y = ((center + spread * a).astype(np.float32) for a in case(6, 3000, 10))
    low = float(np.float32(center - spread / 2))
    for make in (np.asarray, torch.tensor):
        got = score(make(x), make(y), estimator="fair", member_dim=1, lower=low)
        doubles = x.astype(np.float64), y.astype(np.float64)
        wanted = score(*doubles, estimator="fair", member_dim=1, lower=low)
        got = np.asarray(got)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6 * np.nanmean(wanted[wanted > 0]))


@pytest.mark.parametrize("estimator", ["plain", "fair"])
def test_gradients(estimator):
    x, y = (torch.tensor(a, requires_grad=True) for a in case(7, 6, 7))
    call = {"estimator": estimator, "member_dim": 1, "lower": -0.5, "upper": 1.0}
    for score in BOTH:
        assert torch.autograd.gradcheck(
            lambda m, o, s=score: s(m, o, dim=0, nan="omit", **call), (x, y)
        )
    assert torch.autograd.gradcheck(
        lambda m, o: owcrps_ensemble(
            m, o, estimator="plain", member_dim=1, weight=lambda z: (-z * z).exp()
        ),
        (x, y),
    )


def test_points_without_members_have_no_gradient():
    x = torch.tensor([[0.0, 1.0], [5.0, 7.0]], requires_grad=True)
    score = owcrps_ensemble(
        x, torch.tensor([5.0, 8.0]), estimator="plain", member_dim=1, lower=4, dim=0, nan="omit"
    )
    score.backward()
    np.testing.assert_array_equal(x.grad[0], [0, 0])
    np.testing.assert_allclose(x.grad[1], [-0.5 + 0.25, -0.5 - 0.25])


@pytest.mark.parametrize("score", BOTH)
def test_fair_scores_do_not_depend_on_the_number_of_members(score):
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(60000, 24)), rng.normal(size=60000)
    fair, plain = [], []
    for M in (6, 24):
        for estimator, kept in (("fair", fair), ("plain", plain)):
            made = score(x[:, :M], y, estimator=estimator, member_dim=1, lower=0.3)
            kept.append((np.nanmean(made), np.nanstd(made) / np.sqrt(60000)))
    assert abs(fair[0][0] - fair[1][0]) < 4 * np.hypot(fair[0][1], fair[1][1])
    assert plain[0][0] > 1.03 * plain[1][0]


@pytest.mark.parametrize("score", BOTH)
def test_the_truth_wins(score):
    rng = np.random.default_rng(9)
    noise, y = rng.normal(size=(40000, 20)), rng.normal(size=40000)

    def mean(members):
        return np.nanmean(score(members, y, estimator="fair", member_dim=1, lower=0.3))

    for hedged in (0.7 * noise, 1.5 * noise, noise + 0.7):
        assert mean(noise) < mean(hedged) - 2e-4


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("score", BOTH)
def test_missing_values(score, make):
    x, y = case(10, 5)
    low = np.zeros(5)
    x[1, 2], y[2], low[3] = np.nan, np.nan, np.nan
    got = score(make(x), make(y), estimator="plain", member_dim=1, lower=make(low))
    np.testing.assert_array_equal(np.isnan(np.asarray(got)), [False, True, True, True, False])


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("score", BOTH)
@pytest.mark.parametrize("estimator", ["plain", "fair"])
def test_members_that_are_skipped(score, make, estimator):
    x, y = case(12, 6, 5)
    x[1, 2], x[2, :3], x[3, :4], x[4], y[5] = (np.nan,) * 5
    call = {"estimator": estimator, "member_dim": 1, "lower": -9.0, "nan": "skip-members"}
    got = np.asarray(score(make(x), make(y), **call))
    for i in range(4):
        there = x[i][~np.isnan(x[i])]
        if len(there) == 1 and estimator == "fair":
            assert np.isnan(got[i])
            continue
        wanted = crps_ensemble(there, y[i], estimator=estimator, member_dim=0)
        assert got[i] == pytest.approx(wanted, abs=1e-14)
    assert np.isnan(got[4:]).all()
    mean = score(make(x), make(y), dim=0, **call)
    np.testing.assert_allclose(mean, np.nanmean(got))


def test_what_is_refused():
    x, y = case(11)
    call = {"estimator": "plain", "member_dim": 1}
    for score in BOTH:
        with pytest.raises(ArgumentError, match="lower: 1 thresholds are above `upper`"):
            score(x, y, lower=1.0, upper=0.0, **call)
        with pytest.raises(UnknownNameError, match="estimator: 'fare' is not known"):
            score(x, y, estimator="fare", member_dim=1)
        with pytest.raises(ArgumentError, match="fair estimator is undefined for 1 member"):
            score(x[:, :1], y, estimator="fair", member_dim=1)
        with pytest.raises(ArgumentError, match="number of one of the 2 axes of members"):
            score(x, y, estimator="plain", member_dim=2)
        with pytest.raises(ArgumentError, match="y: shapes that do not fit"):
            score(x, x, **call)
    with pytest.raises(ArgumentError, match="lower: passed together with chaining"):
        twcrps_ensemble(x, y, lower=1.0, chaining=np.exp, **call)
    with pytest.raises(ArgumentError, match="upper: passed together with weight"):
        owcrps_ensemble(x, y, upper=np.ones(30), weight=np.exp, **call)
    with pytest.raises(ArgumentError, match="'fair' is not known for a weight function"):
        owcrps_ensemble(x, y, weight=np.exp, estimator="fair", member_dim=1)
    for make in (np.asarray, torch.tensor):
        with pytest.raises(ArgumentError, match="weight: returns negative weights"):
            owcrps_ensemble(make(x), make(y), weight=lambda z: z, **call)
