"""The ranked probability score."""

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.events import brier_ensemble, rps, rps_ensemble

LIMITS = [-1.0, 0.0, 1.5]


def case(seed=0, categories=4, shape=(5, 6)):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(categories), shape), rng.integers(0, categories, shape)


def ensemble(seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(-6, 7, (4, 5, 6)) / 2, rng.integers(-6, 7, (4, 6)) / 2
    return x.astype(dtype), y.astype(dtype)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), categories=st.integers(2, 6), axis=st.integers(-3, 2))
def test_beside_another_library(seed, categories, axis):
    sr = pytest.importorskip("scoringrules")
    p, category = case(seed, categories)
    wanted = sr.rps_score(category + 1, p, backend="numpy")
    atol = 1e-12 * wanted.mean()
    moved = np.moveaxis(p, -1, axis)
    for kind in (np.asarray, torch.tensor, da.asarray):
        got = rps(kind(moved), kind(category), category_dim=axis)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)
    labels = xr.DataArray(p, dims=list("abk")), xr.DataArray(category, dims=list("ab"))
    got = rps(*labels, category_dim="k", normalised=True)
    np.testing.assert_allclose(got * (categories - 1), wanted, rtol=0, atol=atol)
    low = rps(p.astype(np.float32), category.astype(np.float32), category_dim=-1)
    np.testing.assert_allclose(low, wanted, rtol=0, atol=1e-6 * wanted.mean())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), fair=st.booleans(), strict=st.booleans())
def test_is_the_sum_of_brier_scores(seed, fair, strict):
    x, y = ensemble(seed)
    options = {"member_dim": 1, "estimator": "fair" if fair else "plain", "strict": strict}
    wanted = sum(brier_ensemble(x, y, threshold=t, **options) for t in LIMITS)
    for kind in (np.asarray, torch.tensor, da.asarray):
        got = rps_ensemble(kind(x), kind(y), thresholds=LIMITS, **options)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13)
    a, b = xr.DataArray(x, dims=list("tmx")), xr.DataArray(y, dims=list("tx"))
    got = rps_ensemble(a, b, thresholds=LIMITS, normalised=True, **{**options, "member_dim": "m"})
    np.testing.assert_allclose(3 * got, wanted, rtol=0, atol=1e-13)


def test_of_an_ensemble_is_that_of_its_shares():
    x, y = ensemble()
    place = np.digitize(x, LIMITS, right=True)  # on a threshold is below it
    shares = np.stack([(place == k).mean(axis=1) for k in range(4)])
    wanted = rps(shares, np.digitize(y, LIMITS, right=True), category_dim=0)
    got = rps_ensemble(x, y, thresholds=LIMITS, estimator="plain", member_dim=1)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13)


def test_thresholds_of_each_place():
    x, y = ensemble()
    limits = np.sort(np.random.default_rng(1).normal(size=(3, 6)), axis=0)
    options = {"estimator": "fair"}
    got = rps_ensemble(x, y, thresholds=limits, member_dim=1, **options)
    for i in range(6):
        wanted = rps_ensemble(
            x[..., i], y[:, i], thresholds=list(limits[:, i]), member_dim=1, **options
        )
        np.testing.assert_allclose(got[:, i], wanted, rtol=0, atol=1e-13)
    also = rps_ensemble(x, y, thresholds=limits.T, threshold_dim=-1, member_dim=1, **options)
    np.testing.assert_array_equal(also, got)
    tensors = (torch.tensor(a) for a in (x, y))
    also = rps_ensemble(*tensors, thresholds=torch.tensor(limits), member_dim=1, **options)
    np.testing.assert_allclose(also, got, rtol=0, atol=1e-13)
    a, b = xr.DataArray(x, dims=list("tmx")), xr.DataArray(y, dims=list("tx"))
    named = xr.DataArray(limits.T, dims=("x", "tercile"))
    lazy = rps_ensemble(
        a.chunk(t=1), b, thresholds=named, threshold_dim="tercile", member_dim="m", **options
    )
    assert lazy.chunks is not None
    np.testing.assert_allclose(lazy, got, rtol=0, atol=1e-13)


def test_a_list_of_thresholds_does_not_widen():
    x, y = ensemble(dtype=np.float32)
    options = {"thresholds": LIMITS, "estimator": "plain", "member_dim": 1}
    assert rps_ensemble(x, y, **options).dtype == np.float32
    assert rps_ensemble(torch.tensor(x), torch.tensor(y), **options).dtype == torch.float32
    assert rps_ensemble(da.asarray(x), da.asarray(y), **options).dtype == np.float32


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_missing(kind):
    p, category = case()
    category = category.astype(float)
    wanted = rps(p, category, category_dim=-1)
    p[0, 0, 3] = category[1, 1] = np.nan
    got = np.asarray(rps(kind(p), kind(category), category_dim=-1))
    lost = np.zeros((5, 6), bool)
    lost[0, 0] = lost[1, 1] = True
    np.testing.assert_array_equal(np.isnan(got), lost)
    mean = rps(kind(p), kind(category), category_dim=-1, dim="all", nan="omit")
    np.testing.assert_allclose(mean, wanted[~lost].mean(), rtol=1e-13)
    x, y = ensemble()
    short = rps_ensemble(kind(x[:, 1:]), kind(y), thresholds=LIMITS, estimator="fair", member_dim=1)
    x[:, 0] = np.nan
    options = {"thresholds": LIMITS, "estimator": "fair", "member_dim": 1, "nan": "skip-members"}
    np.testing.assert_allclose(rps_ensemble(kind(x), kind(y), **options), short, rtol=1e-13)


def test_gradients():
    p, category = case(shape=(3,))
    free = torch.tensor(p, requires_grad=True)
    observed = torch.tensor(category)

    def score(q):
        return rps(q, observed, category_dim=-1, check=False)

    assert torch.autograd.gradcheck(score, free)
    gone = torch.tensor([0.0, torch.nan, 1.0])
    mean = rps(free, gone, category_dim=-1, dim="all", nan="omit")
    assert torch.isfinite(torch.autograd.grad(mean, free)[0]).all()


def test_the_true_probabilities_win():
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(4), 20000)
    category = (rng.random(20000)[:, None] > p.cumsum(-1)[:, :-1]).sum(-1)
    truth = rps(p, category, category_dim=-1, dim="all")
    for other in (0.8 * p + 0.05, np.roll(p, 1, -1), p**2 / (p**2).sum(-1, keepdims=True)):
        assert rps(other, category, category_dim=-1, dim="all") > truth


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p, category: (p * 0.9, category), "sums over the categories are not 1"),
        (lambda p, category: (p * 100, category), "probabilities: .* not between 0 and 1"),
        (lambda p, category: (p, category + 1), "category: .* are not one of 0 to 3"),
        (lambda p, category: (p, category - 0.5), "category: .* are not one of 0 to 3"),
        (lambda p, category: (p, category - 1), "category: .* are not one of 0 to 3"),
        (lambda p, category: (p[..., :1], category), "probabilities: 1 categories"),
    ],
    ids=["sums", "per cent", "one more", "a half", "one less", "one category"],
)
def test_no_probabilities_or_categories(kind, change, words):
    p, category = change(*case())
    with pytest.raises(ArgumentError, match=words):
        rps(kind(p), kind(category), category_dim=-1)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"thresholds": [1.0, 0.0]}, ArgumentError, "thresholds: they do not rise"),
        ({"thresholds": []}, ArgumentError, "thresholds: an axis that is summed"),
        (
            {"estimator": "faire"},
            UnknownNameError,
            "estimator: 'faire' is not known; did you mean 'fair'",
        ),
    ],
)
def test_thresholds_and_estimators_that_are_refused(kind, changes, error, words):
    call = {"thresholds": LIMITS, "estimator": "fair", "member_dim": 1} | changes
    x, y = ensemble()
    with pytest.raises(error, match=words):
        rps_ensemble(kind(x), kind(y), **call)


def test_libraries_that_do_not_mix():
    with pytest.raises(ArgumentError, match="arrays of several libraries"):
        rps_ensemble(
            np.zeros((2, 3)), torch.zeros(3), thresholds=[0.5], estimator="plain", member_dim=0
        )


def test_thresholds_are_not_cut_to_whole_numbers():
    members, y = np.array([[0, 1], [1, 2], [0, 0]]), np.array([1, 0])
    options = {"thresholds": [-0.5, 0.5], "estimator": "fair", "member_dim": 0}
    wanted = rps_ensemble(members.astype(float), y.astype(float), **options)
    for kind in (np.asarray, torch.tensor, da.asarray):
        np.testing.assert_allclose(rps_ensemble(kind(members), kind(y), **options), wanted, 1e-6)
