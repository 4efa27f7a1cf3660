"""Quantile scores, the CRPS of quantiles, and the quantile score's parts."""

import itertools

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.calibration import crps_quantiles, quantile_score

RNG = np.random.default_rng(0)
LEVELS = (0.1, 0.25, 0.5, 0.8)
Q, Y = np.sort(RNG.normal(size=(6, 4, 5)), axis=1), RNG.normal(size=(6, 5))
OPTIONS = {"levels": LEVELS, "quantile_dim": 1}


def test_quantile_scores_agree_with_scoringrules():
    scoringrules = pytest.importorskip("scoringrules")
    found = quantile_score(Q, Y, **OPTIONS)
    assert found.shape == Q.shape
    for i, level in enumerate(LEVELS):
        wanted = scoringrules.quantile_score(Y, Q[:, i], level)
        np.testing.assert_allclose(found[:, i], wanted, rtol=1e-13)


def test_quantile_scores_by_hand():
    found = quantile_score(np.array([1.0, 2.0]), 1.5, levels=(0.2, 0.9), quantile_dim=0)
    np.testing.assert_allclose(found, [0.2 * 0.5, 0.1 * 0.5])
    q = np.array([[3.0, 3.0], [4.0, 4.0]])
    found = quantile_score(q, np.array([1.0, 5.0]), levels=(0.2, 0.9), quantile_dim=0)
    np.testing.assert_allclose(found, [[1.6, 0.4], [0.3, 0.9]])


def test_means_over_all_but_the_quantiles():
    w = np.arange(1.0, 6)
    scores = quantile_score(Q, Y, **OPTIONS)
    wanted = np.average(scores, axis=(0, 2), weights=np.broadcast_to(w, scores.shape))
    np.testing.assert_allclose(quantile_score(Q, Y, **OPTIONS, dim="all", weights=w), wanted)
    np.testing.assert_allclose(quantile_score(Q, Y, **OPTIONS, dim=0), scores.mean(axis=0))
    x = xr.DataArray(Q, dims=("time", "quantile", "x"), coords={"quantile": list(LEVELS)})
    y = xr.DataArray(Y.copy(), dims=("time", "x"))
    found = quantile_score(x, y, levels=LEVELS, quantile_dim="quantile", dim="all")
    assert found.dims == ("quantile",)
    np.testing.assert_allclose(found, scores.mean(axis=(0, 2)))
    points = quantile_score(x, y.T, levels=LEVELS, quantile_dim="quantile")
    assert points.dims == x.dims
    y[1, 1] = np.nan
    found = quantile_score(x, y, levels=LEVELS, quantile_dim="quantile", dim="all", nan="omit")
    assert found.notnull().all()


@pytest.mark.parametrize("kind", ["torch", "dask", "xarray", "float32"])
@pytest.mark.parametrize("function", [quantile_score, crps_quantiles])
def test_in_every_library(kind, function):
    q, y, options = Q, Y, OPTIONS | ({"rule": "linear"} if function is crps_quantiles else {})
    wanted = function(q, y, **options)
    if kind == "torch":
        q, y = torch.tensor(q), torch.tensor(y)
    elif kind == "dask":
        q, y = da.from_array(q, chunks=(4, -1, 3)), da.from_array(y, chunks=2)
    elif kind == "xarray":
        q = xr.DataArray(q, dims=("a", "q", "b"), attrs={"units": "K"}).chunk(a=2)
        y = xr.DataArray(y, dims=("a", "b"), attrs={"units": "K"})
        options |= {"quantile_dim": "q"}
    else:
        q, y = q.astype(np.float32), y.astype(np.float32)
    found = function(q, y, **options)
    assert type(found) is type(q)
    assert dask.is_dask_collection(found) == (kind in ("dask", "xarray"))
    assert str(found.dtype).endswith("32" if kind == "float32" else "64")
    np.testing.assert_allclose(found, wanted, rtol=1e-4 if kind == "float32" else 1e-13)
    if kind == "xarray":
        assert found.attrs["units"] == "K"


def crps_by_integral(q, levels, y):
    """2 int QS_p(q(p), y) dp for the quantile function that is linear between the levels."""

    def score(p):
        x = np.interp(p, levels, q)
        return 2 * (p - (y < x)) * (y - x)

    kinks = [0, *levels, 1, *(np.interp(y, q, levels),)]
    ends = sorted(kinks)
    return sum(quad(score, a, b)[0] for a, b in itertools.pairwise(ends) if b > a)


@settings(max_examples=30, deadline=None)
@given(K=st.integers(1, 7), seed=st.integers(0, 999), where=st.sampled_from([-3.0, 0.0, 0.3, 4.0]))
def test_the_linear_rule_is_the_integral(K, seed, where):
    rng = np.random.default_rng(seed)
    q, levels = np.sort(rng.normal(size=K)), np.sort(rng.choice(np.arange(1, 99), K, False)) / 99
    found = crps_quantiles(q, np.float64(where), levels=levels, quantile_dim=0, rule="linear")
    assert float(found) == pytest.approx(crps_by_integral(q, levels, where), rel=1e-9)


def test_crossing_quantiles_have_the_integral_too():
    q, levels, y = np.array([1.0, -1.0, 0.5, 0.5]), np.array([0.2, 0.4, 0.7, 0.9]), 0.3

    def score(p):
        x = np.interp(p, levels, q)
        return 2 * (p - (y < x)) * (y - x)

    ends = [0, 0.2, 0.2 + 0.2 * 0.35, 0.4, 0.4 + 0.3 * 1.3 / 1.5, 0.7, 0.9, 1]
    wanted = sum(quad(score, a, b)[0] for a, b in itertools.pairwise(ends))
    found = crps_quantiles(q, y, levels=levels, quantile_dim=0, rule="linear")
    assert float(found) == pytest.approx(wanted, rel=1e-10)


@settings(max_examples=20, deadline=None)
@given(M=st.integers(1, 20), seed=st.integers(0, 999))
def test_the_mean_rule_is_the_plain_crps_of_the_quantiles(M, seed):
    rng = np.random.default_rng(seed)
    x, y = np.sort(np.round(rng.normal(size=(M, 30)), 1), axis=0), np.round(rng.normal(size=30), 1)
    wanted = abs(x - y).mean(axis=0) - abs(x[:, None] - x).mean(axis=(0, 1)) / 2
    levels = (np.arange(M) + 0.5) / M
    found = crps_quantiles(x, y, levels=levels, quantile_dim=0, rule="mean")
    np.testing.assert_allclose(found, wanted, atol=1e-13)
    twice = 2 * quantile_score(x, y, levels=levels, quantile_dim=0).mean(axis=0)
    np.testing.assert_allclose(found, twice, atol=1e-13)


def test_many_quantiles_of_a_normal_have_its_crps():
    properscoring = pytest.importorskip("properscoring")
    y, levels = np.linspace(-3, 3, 13), np.arange(1, 2000) / 2000
    q = np.repeat(norm.ppf(levels)[:, None], 13, axis=1)
    for rule in ("linear", "mean"):
        found = crps_quantiles(q, y, levels=levels, quantile_dim=0, rule=rule)
        np.testing.assert_allclose(found, properscoring.crps_gaussian(y, 0, 1), atol=2e-3)


def test_gradients():
    q, y = (torch.tensor(a, requires_grad=True) for a in (Q, Y))
    check = torch.autograd.gradcheck
    for rule in ("linear", "mean"):
        assert check(lambda a, b, r=rule: crps_quantiles(a, b, rule=r, **OPTIONS), (q, y))
        # apart from each other and from y: slopes of 1 / gap bend too fast for differences
        mixed = np.random.default_rng(3).permuted(np.arange(Q.size) % 7 - 3.0).reshape(Q.shape)
        crossing = torch.tensor(mixed, requires_grad=True)
        assert check(lambda a, b, r=rule: crps_quantiles(a, b, rule=r, **OPTIONS), (crossing, y))
        equal = torch.ones(4, 3, requires_grad=True)
        score = crps_quantiles(equal, torch.tensor([0.0, 1, 2]), rule=rule, **OPTIONS | {"quantile_dim": 0})  # noqa: E501  # fmt: skip
        score.sum().backward()
        assert bool(equal.grad.isfinite().all())
        holes = torch.tensor(Y).masked_fill(torch.tensor(Y) > 1, torch.nan)
        crps_quantiles(q, holes, rule=rule, **OPTIONS, dim="all", nan="omit").backward()
        assert bool(q.grad.isfinite().all())
    assert check(lambda a, b: quantile_score(a, b, **OPTIONS), (q, y))


@pytest.mark.parametrize("level", [5e4, 1e5])
def test_float32(level):
    rng = np.random.default_rng(1)
    q = np.sort(level + 20 * rng.normal(size=(9, 4000)), axis=0).astype(np.float32)
    y = (level + 20 * rng.normal(size=4000)).astype(np.float32)
    options = {"levels": np.arange(1, 10) / 10, "quantile_dim": 0}
    for rule in ("linear", "mean"):
        for kind in (np.asarray, torch.tensor):
            found = np.asarray(crps_quantiles(kind(q), kind(y), rule=rule, **options))
            wanted = crps_quantiles(q.astype(float), y.astype(float), rule=rule, **options)
            assert found.dtype == np.float32
            assert abs(found - wanted).max() < 1e-6 * wanted.mean()


def test_the_true_quantiles_win():
    y, levels = np.random.default_rng(2).normal(size=50_000), np.arange(1, 20) / 20
    q = norm.ppf(levels)[:, None]
    means = {}
    for mu, sigma in ((0, 1), (0, 0.85), (0, 1.15), (0.15, 1)):
        given = np.repeat(mu + sigma * q, y.size, axis=1)
        options = {"levels": levels, "quantile_dim": 0, "dim": "all"}
        means[mu, sigma] = [
            *(crps_quantiles(given, y, rule=r, **options) for r in ("linear", "mean")),
            quantile_score(given, y, **options).mean(),
        ]
    for i in range(3):
        assert min(means, key=lambda k: means[k][i]) == (0, 1)


def test_what_quantile_scores_refuse():
    for function in (quantile_score, lambda *a, **k: crps_quantiles(*a, **k, rule="mean")):
        for levels, told in (
            ((0.1, 0.8, 0.5, 0.9), "levels: they do not rise"),
            ((0.1, 0.1, 0.5, 0.9), "levels: they do not rise"),
            ((0.0, 0.1, 0.5, 0.9), "levels: 0 is not between 0 and 1"),
            ((10, 25, 50, 80), "levels: 10 is not between 0 and 1"),
            ((0.1, 0.2, np.nan, 0.9), "levels: nan is not between 0 and 1"),
            ((0.1, 0.5), "levels: 2 levels for 4 quantiles"),
            ((), "levels: expected one for each quantile"),
        ):
            with pytest.raises(ArgumentError, match=told):
                function(Q, Y, levels=levels, quantile_dim=1)
        for kind in (np.asarray, torch.tensor, da.asarray):
            with pytest.raises(ArgumentError, match="y: shapes that do not fit"):
                function(kind(Q), kind(Q), **OPTIONS)
        with pytest.raises(ArgumentError, match="number of one of the 3 axes of values, got 3"):
            function(Q, Y, levels=LEVELS, quantile_dim=3)
        x = xr.DataArray(Q, dims=("a", "q", "b"), coords={"q": [0.1, 0.25, 0.5, 0.9]})
        y = xr.DataArray(Y, dims=("a", "b"))
        with pytest.raises(ArgumentError, match=r"levels: .* but q has"):
            function(x, y, levels=LEVELS, quantile_dim="q")
        with pytest.raises(ArgumentError, match="y: has the dimension 'q'"):
            function(x.drop_vars("q"), x.drop_vars("q"), levels=LEVELS, quantile_dim="q")
    with pytest.raises(UnknownNameError, match="rule: 'liner' is not known; did you mean"):
        crps_quantiles(Q, Y, rule="liner", **OPTIONS)
