"""The Brier and the logarithmic score, of probabilities and of ensembles."""

import math
import operator

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.events import brier_ensemble, brier_score, logarithmic_score

DIMS = ("time", "number", "latitude")


def case(seed=0, shape=(6, 50), low=0.0):
    rng = np.random.default_rng(seed)
    p = rng.uniform(low, 1 - low, size=shape)
    return p, (rng.random(shape) < p).astype(float)


def ensemble(seed=0, shape=(4, 5, 6), dtype=np.float64):
    """Members and observations of whole numbers: many lie on a threshold."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(-3, 4, size=shape), rng.integers(-3, 4, size=(shape[0], shape[2]))
    return x.astype(dtype), y.astype(dtype)


def named(x, y):
    return xr.DataArray(x, dims=DIMS), xr.DataArray(y, dims=("time", "latitude"))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), shape=st.sampled_from([(1,), (7,), (3, 4)]))
def test_probabilities_beside_two_libraries(seed, shape):
    scores = pytest.importorskip("scores.probability")
    sr = pytest.importorskip("scoringrules")
    p, o = case(seed, shape)
    wanted = sr.brier_score(o, p, backend="numpy")
    tolerance = 1e-12 * wanted.mean()
    np.testing.assert_allclose(brier_score(p, o), wanted, rtol=0, atol=tolerance)
    x, e = xr.DataArray(p), xr.DataArray(o)
    np.testing.assert_allclose(brier_score(x, e, dim="all"), scores.brier_score(x, e), rtol=1e-12)
    wanted = sr.log_score(o, p, backend="numpy")
    got = logarithmic_score(p, o)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12 * wanted.mean())
    np.testing.assert_allclose(logarithmic_score(p, o, base=2), got / math.log(2), rtol=1e-12)


@pytest.mark.parametrize("score", [brier_score, logarithmic_score])
def test_all_libraries(score):
    p, o = case()
    wanted = score(p, o)
    np.testing.assert_allclose(score(torch.tensor(p), torch.tensor(o)), wanted, rtol=1e-14)
    np.testing.assert_allclose(score(torch.tensor(p), torch.tensor(o) > 0), wanted, rtol=1e-14)
    lazy = score(da.from_array(p, chunks=(2, 25)), da.from_array(o > 0, chunks=(3, 25)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy, wanted)
    got = score(xr.DataArray(p, dims=list("ab")).chunk(a=1), xr.DataArray(o > 0, dims=list("ab")))
    assert dask.is_dask_collection(got)
    assert got.attrs["units"] == "1"
    np.testing.assert_array_equal(got, wanted)
    assert score(p.astype(np.float32), o > 0).dtype == np.float32
    weights = np.arange(50.0)
    for kind in (np.asarray, torch.tensor, da.asarray):
        mean = score(kind(p), kind(o), dim="all", weights=kind(weights))
        np.testing.assert_allclose(mean, np.average(wanted.mean(0), weights=weights), rtol=1e-13)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 99),
    fair=st.booleans(),
    strict=st.booleans(),
    threshold=st.sampled_from([-3.0, 0.0, 0.5, 3.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_ensembles_beside_another_library(seed, fair, strict, threshold, dtype):
    scores = pytest.importorskip("scores.probability")
    x, y = ensemble(seed, dtype=dtype)
    options = {"estimator": "fair" if fair else "plain", "strict": strict}
    wanted = scores.brier_score_for_ensemble(
        *(a.astype(np.float64) for a in named(x, y)),
        "number",
        threshold,
        fair_correction=fair,
        event_threshold_operator=operator.gt if strict else operator.ge,
        preserve_dims="all",
    ).isel(threshold=0)
    atol = 1e-12 if dtype == np.float64 else 1e-7
    for kind in (np.asarray, torch.tensor, da.asarray):
        got = brier_ensemble(kind(x), kind(y), threshold=threshold, member_dim=1, **options)
        assert np.asarray(got).dtype == dtype
        np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)
    got = brier_ensemble(*named(x, y), threshold=threshold, member_dim="number", **options)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)


def test_many_thresholds_and_places():
    x, y = named(*ensemble())
    limits = xr.DataArray([-1.0, 0.0, 1.0], dims="threshold")
    of_places = xr.DataArray(np.arange(6) - 3.0, dims="latitude")
    options = {"estimator": "fair", "member_dim": "number"}
    got = brier_ensemble(x, y, threshold=limits, **options)
    for i, limit in enumerate(limits.values):
        wanted = brier_ensemble(x, y, threshold=limit, **options)
        np.testing.assert_array_equal(got.isel(threshold=i), wanted)
    got = brier_ensemble(x, y, threshold=of_places, **options)
    also = brier_ensemble(
        x.values, y.values, threshold=of_places.values, estimator="fair", member_dim=1
    )
    np.testing.assert_array_equal(got, also)
    for i, limit in enumerate(of_places.values):
        wanted = brier_ensemble(x, y, threshold=limit, **options)
        np.testing.assert_array_equal(got.isel(latitude=i), wanted.isel(latitude=i))


@settings(max_examples=30, deadline=None)
@given(q=st.floats(0.001, 1), o=st.sampled_from([0.0, 1.0]), members=st.integers(2, 12))
def test_the_fair_score_does_not_depend_on_the_number_of_members(q, o, members):
    # all ensembles of M members, each with its probability
    k = np.arange(members + 1)
    x = (np.arange(members)[:, None] < k).astype(float)
    options = {"threshold": 0.5, "member_dim": 0}
    chance = stats.binom.pmf(k, members, q)
    fair = brier_ensemble(x, np.full(members + 1, o), estimator="fair", **options)
    assert chance @ fair == pytest.approx((q - o) ** 2, abs=1e-13)
    plain = brier_ensemble(x, np.full(members + 1, o), estimator="plain", **options)
    assert chance @ plain == pytest.approx((q - o) ** 2 + q * (1 - q) / members, abs=1e-13)


@pytest.mark.parametrize("score", [brier_score, logarithmic_score])
def test_the_true_probability_wins(score):
    q, _ = case(3, (20000,), low=0.1)
    o = (np.random.default_rng(4).random(q.shape) < q).astype(float)
    truth = score(q, o, dim="all")
    for other in (0.8 * q, 0.5 * q + 0.25, np.clip(1.3 * q - 0.15, 0.05, 0.95)):
        assert score(other, o, dim="all") > truth


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, da.asarray])
def test_missing_members(kind):
    x, y = ensemble()
    x[0, 2, 0] = x[1, 1:, 1] = x[2, :, 2] = y[3, 3] = np.nan
    options = {"threshold": 0.0, "member_dim": 1}
    for estimator in ("plain", "fair"):
        got = brier_ensemble(kind(x), kind(y), estimator=estimator, **options)
        lost = np.isnan(x).any(1) | np.isnan(y)
        np.testing.assert_array_equal(np.isnan(np.asarray(got)), lost)
        skipping = {"estimator": estimator, "nan": "skip-members", **options}
        got = np.asarray(brier_ensemble(kind(x), kind(y), **skipping))
        four = np.delete(x[:1, :, :1], 2, axis=1)
        wanted = brier_ensemble(four, y[:1, :1], estimator=estimator, **options)
        np.testing.assert_allclose(got[:1, :1], wanted, rtol=1e-14)
        assert np.isnan(got[2, 2])
        assert np.isnan(got[3, 3])
        assert np.isnan(got[1, 1]) == (estimator == "fair")  # one member is left
        mean = brier_ensemble(kind(x), kind(y), dim="all", **skipping)
        np.testing.assert_allclose(mean, np.nanmean(got), rtol=1e-13)


def test_members_in_float32_far_from_0():
    rng = np.random.default_rng(0)
    for level in (5e4, 1e5):
        x, y = rng.normal(level, 30, (10, 900)), rng.normal(level, 30, 900)
        x, y = x.astype(np.float32), y.astype(np.float32)
        options = {"threshold": level + 12.5, "estimator": "fair", "member_dim": 0}
        wide = brier_ensemble(x.astype(np.float64), y.astype(np.float64), **options)
        got = brier_ensemble(x, y, **options)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wide, rtol=0, atol=1e-6 * abs(wide.mean()))


def test_gradients():
    p, o = case(1, (12,), low=0.01)
    tensor, event = torch.tensor(p, requires_grad=True), torch.tensor(o)
    for score in (brier_score, logarithmic_score):
        assert torch.autograd.gradcheck(lambda q, s=score: s(q, event, dim="all"), tensor)
    # where it costs nothing to be certain, and beside missing events
    p = torch.tensor([0.0, 1.0, 0.5, 0.25], requires_grad=True)
    event = torch.tensor([0.0, 1.0, torch.nan, 1.0])
    for score, wanted in (
        (brier_score, [0, 0, 0, -0.5]),
        (logarithmic_score, [1 / 3, -1 / 3, 0, -4 / 3]),
    ):
        (grad,) = torch.autograd.grad(score(p, event, dim=0, nan="omit"), p)
        np.testing.assert_allclose(grad, wanted, rtol=1e-6)


def test_what_was_impossible_happens():
    p, o = np.array([0.0, 1.0, 0.0, 1.0]), np.array([1, 0, 0, 1])
    np.testing.assert_array_equal(logarithmic_score(p, o), [np.inf, np.inf, 0, 0])
    np.testing.assert_array_equal(
        logarithmic_score(torch.tensor(p), torch.tensor(o)), [np.inf, np.inf, 0, 0]
    )
    got = logarithmic_score(p, o, clip=0.05)
    np.testing.assert_allclose(got, [-math.log(0.05)] * 2 + [-math.log(0.95)] * 2, rtol=1e-14)
    tensors = torch.tensor(p, requires_grad=True), torch.tensor(o)
    clipped = logarithmic_score(*tensors, clip=0.05)
    np.testing.assert_allclose(clipped.detach(), got, rtol=1e-14)
    assert torch.isfinite(torch.autograd.grad(clipped.sum(), tensors[0])[0]).all()


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, da.asarray, xr.DataArray])
def test_what_is_no_probability_and_no_event(kind):
    for score in (brier_score, logarithmic_score):
        with pytest.raises(
            ArgumentError, match=r"probability: 2 values .* between 0 and 1, from -0.5 to 1.5"
        ):
            np.asarray(score(kind([0.5, -0.5, 1.5]), kind([0.0, 1.0, 1.0])))
        with pytest.raises(ArgumentError, match="event: 1 values are neither 0 nor 1, such as 273"):
            np.asarray(score(kind([0.5, 0.5]), kind([0.0, 273.0])))
    assert brier_score(2.0, 1, check=False) == 1.0


def test_refused():
    x, y = ensemble()
    options = {"threshold": 0.0, "member_dim": 1}
    with pytest.raises(UnknownNameError, match=r"'almost_fair' is not known.*Known: plain, fair"):
        brier_ensemble(x, y, estimator="almost_fair", **options)
    with pytest.raises(ArgumentError, match="fair estimator is undefined for 1 member"):
        brier_ensemble(x[:, :1], y, estimator="fair", **options)
    with pytest.raises(ArgumentError, match="y: shapes that do not fit"):
        brier_ensemble(x, x, estimator="fair", **options)
    with pytest.raises(UnknownNameError, match="nan: 'skip' is not known"):
        brier_ensemble(x, y, estimator="fair", nan="skip", **options)
    with pytest.raises(UnknownNameError, match="nan: 'skip-members' is not known"):
        brier_score(*case(), nan="skip-members")
    a, b = named(x, y)
    with pytest.raises(ArgumentError, match="units differ"):
        brier_ensemble(
            a.assign_attrs(units="K"), b.assign_attrs(units="degC"),
            threshold=0.0, estimator="plain", member_dim="number",
        )  # fmt: skip
    with pytest.raises(ArgumentError, match="y: has the dimension 'number'"):
        brier_ensemble(a, a, threshold=0.0, estimator="plain", member_dim="number")
    with pytest.raises(ArgumentError, match=r"clip: expected a probability below 0\.5"):
        logarithmic_score(0.5, 1, clip=0.5)
    with pytest.raises(ArgumentError, match="base: expected a number above 1"):
        logarithmic_score(0.5, 1, base=1.0)


def test_estimators_are_refused_before_anything_lazy_is_built():
    one, y = da.zeros((1, 3)), da.zeros(3)
    with pytest.raises(ArgumentError, match="the fair estimator is undefined for 1 member"):
        brier_ensemble(one, y, threshold=0.5, estimator="fair", member_dim=0)
    with pytest.raises(UnknownNameError, match="estimator: 'farr' is not known"):
        brier_ensemble(one, y, threshold=0.5, estimator="farr", member_dim=0)
    with pytest.raises(ArgumentError, match="one of the 2 axes of members, got 5"):
        brier_ensemble(one, y, threshold=0.5, estimator="fair", member_dim=5)
