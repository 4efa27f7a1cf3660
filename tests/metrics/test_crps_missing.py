"""Weights of members, missing members, and means of the CRPS, against the definition."""

import dask.array as da
import numpy as np
import pytest
import scoringrules
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import crps_ensemble, crps_normal

ESTIMATORS = ("plain", "fair", "almost_fair")


def defined(x, y, w, estimator):
    """The score of one point from its definition, a double sum over members."""
    w = w / w.sum()
    pairs = sum(w[i] * w[j] * abs(x[i] - x[j]) for i in range(len(x)) for j in range(len(x)))
    off = 1 - (w**2).sum()
    a = {"plain": 1.0, "fair": 1 / off, "almost_fair": 0.95 / off + 0.05}[estimator]
    return (w * abs(x - y)).sum() - a / 2 * pairs


def case(seed=0, M=6, n=7):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(M, n)), rng.normal(size=n), rng.random((M, n)) + 0.01


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), M=st.integers(2, 20), estimator=st.sampled_from(ESTIMATORS))
def test_weighted_scores_are_as_defined(seed, M, estimator):
    x, y, w = case(seed, M)
    wanted = [defined(x[:, p], y[p], w[:, p], estimator) for p in range(7)]
    options = {"estimator": estimator, "member_dim": 0}
    got = crps_ensemble(x, y, member_weights=w, **options)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(crps_ensemble(x, y, member_weights=9 * w, **options), got)
    tensors = crps_ensemble(*map(torch.tensor, (x, y)), member_weights=torch.tensor(w), **options)
    np.testing.assert_allclose(tensors, wanted, rtol=1e-12, atol=1e-12)
    one = [defined(x[:, p], y[p], w[:, 0], estimator) for p in range(7)]
    np.testing.assert_allclose(crps_ensemble(x, y, member_weights=w[:, 0], **options), one)


def test_weighted_scores_equal_scoringrules():
    x, y, w = case(3, 9, 50)
    w = w / w.sum(axis=0)
    wanted = scoringrules.crps_ensemble(y, x, m_axis=0, ens_w=w, estimator="nrg")
    got = crps_ensemble(x, y, estimator="plain", member_dim=0, member_weights=w)
    assert np.abs(got - wanted).max() < 1e-12 * wanted.mean()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equal_weights_change_nothing(estimator):
    x, y, _ = case(1, 11, 40)
    options = {"estimator": estimator, "member_dim": 0}
    wanted = crps_ensemble(x, y, **options)
    for weights in (np.full(11, 3.0), [2] * 11, np.ones_like(x)):
        got = crps_ensemble(x, y, member_weights=weights, **options)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)
    double = crps_ensemble(np.repeat(x, 2, axis=0), y, estimator="plain", member_dim=0)
    halves = crps_ensemble(x, y, estimator="plain", member_dim=0, member_weights=np.ones(11))
    np.testing.assert_allclose(double, halves, rtol=1e-12)


def test_a_fair_weighted_score_estimates_the_normals_own():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(5, 200_000))
    got = crps_ensemble(x, 0.4, estimator="fair", member_dim=0, member_weights=[5, 1, 1, 2, 0.5])
    error = got.std() / got.size**0.5
    assert got.mean() == pytest.approx(float(crps_normal(0.0, 1.0, 0.4)), abs=4 * error)
    plain = crps_ensemble(x, 0.4, estimator="plain", member_dim=0, member_weights=[5, 1, 1, 2, 0.5])
    assert plain.mean() > got.mean() + 20 * error


def with_gaps(n=3000, M=12):
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(M, n)), rng.normal(size=n)
    x[rng.random((M, n)) < 0.3] = np.nan
    x[:, 0], x[1:, 1], y[2] = np.nan, np.nan, np.nan
    x[0, 1] = 1.0
    return x, y


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("n", [40, 3000])
def test_missing_members_are_left_out(estimator, n):
    x, y = with_gaps(n)
    options = {"estimator": estimator, "member_dim": 0}
    got = crps_ensemble(x, y, nan="skip-members", **options)
    assert np.flatnonzero(np.isnan(got[:3])).tolist() == (
        [0, 2] if estimator == "plain" else [0, 1, 2]
    )
    for p in range(3, 40):
        some = x[~np.isnan(x[:, p]), p]
        assert got[p] == pytest.approx(crps_ensemble(some, y[p], **options), abs=1e-13)
    made = crps_ensemble(*map(torch.tensor, (x, y)), nan="skip-members", **options)
    np.testing.assert_allclose(made, got, atol=1e-13)
    with_weights = crps_ensemble(x, y, nan="skip-members", member_weights=np.ones(12), **options)
    np.testing.assert_allclose(with_weights, got, atol=1e-13)
    gone = np.isnan(crps_ensemble(x, y, **options))
    np.testing.assert_array_equal(gone, np.isnan(x).any(axis=0) | np.isnan(y))


def test_means_leave_out_what_the_policy_says():
    x, y = with_gaps()
    options = {"estimator": "fair", "member_dim": 0, "dim": "all", "weights": np.arange(3000.0)}
    assert np.isnan(crps_ensemble(x, y, **options))
    points = crps_ensemble(x, y, estimator="fair", member_dim=0)
    there = ~np.isnan(points)
    wanted = np.average(points[there], weights=np.arange(3000.0)[there])
    assert crps_ensemble(x, y, nan="omit", **options) == pytest.approx(wanted, rel=1e-12)
    points = crps_ensemble(x, y, estimator="fair", member_dim=0, nan="skip-members")
    wanted = np.average(points[3:], weights=np.arange(3.0, 3000))
    assert crps_ensemble(x, y, nan="skip-members", **options) == pytest.approx(wanted, rel=1e-12)
    mu = np.array([0.0, np.nan])
    assert crps_normal(mu, 1.0, 0.0, dim=0, nan="omit") == pytest.approx(0.2336949772551)


@pytest.mark.parametrize("nan", ["omit", "skip-members"])
@pytest.mark.parametrize("n", [40, 3000])
def test_gradients_do_not_see_what_is_missing(nan, n):
    x, y = (torch.tensor(a, requires_grad=True) for a in with_gaps(n))
    mean = crps_ensemble(x, y, estimator="fair", member_dim=0, dim="all", nan=nan)
    mean.backward()
    for gradient, values in ((x.grad, x), (y.grad, y)):
        assert torch.isfinite(gradient).all()
        assert (gradient[values.isnan()] == 0).all()
    assert (x.grad != 0).any() or n == 40  # none of so few points is complete


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gradients_of_weighted_scores(estimator):
    x, y, w = (torch.tensor(a, requires_grad=True) for a in case(8))
    options = {"estimator": estimator, "member_dim": 0}
    score = lambda *a: crps_ensemble(a[0], a[1], member_weights=a[2], **options)  # noqa: E731
    assert torch.autograd.gradcheck(score, (x, y, w))
    with torch.no_grad():
        x[2, 3] = torch.nan
    assert torch.isfinite(
        torch.autograd.grad(
            crps_ensemble(x, y, nan="skip-members", member_weights=w, **options).sum(), w
        )[0]
    ).all()


def test_all_libraries_take_weights():
    x, y, w = case(9)
    options = {"estimator": "fair", "member_dim": "number"}
    wanted = crps_ensemble(x, y, estimator="fair", member_dim=0, member_weights=w[:, 0])
    members, observed = xr.DataArray(x, dims=("number", "p")), xr.DataArray(y, dims="p")
    labelled = xr.DataArray(w[:, 0], dims="number", attrs={"units": "1"})
    members.attrs["units"] = observed.attrs["units"] = "K"
    for weights in (labelled, w[:, 0], list(w[:, 0])):
        got = crps_ensemble(members, observed, member_weights=weights, **options)
        np.testing.assert_allclose(got, wanted, rtol=1e-14)
        assert got.attrs["units"] == "K"
        lazy = crps_ensemble(members.chunk(p=2), observed, member_weights=weights, **options)
        np.testing.assert_allclose(lazy, wanted, rtol=1e-14)
    lazy = da.from_array(x, chunks=(6, 2))
    for weights in (w[:, 0], da.from_array(w[:, 0])):
        got = crps_ensemble(lazy, y, estimator="fair", member_dim=0, member_weights=weights)
        assert isinstance(got, da.Array)
        np.testing.assert_allclose(got, wanted, rtol=1e-14)
    members, observed = torch.tensor(x.T.copy()), torch.tensor(y)
    got = crps_ensemble(
        members, observed, estimator="fair", member_dim=1, member_weights=list(w[:, 0])
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-14)


def test_no_weight_left():
    x, y, w = case(10)
    w[:, 0], w[1:, 1] = 0, 0
    for estimator, gone in (("plain", [0]), ("fair", [0, 1])):
        for make in (np.asarray, torch.tensor):
            got = crps_ensemble(
                make(x), make(y), estimator=estimator, member_dim=0, member_weights=make(w)
            )
            assert np.flatnonzero(np.isnan(np.asarray(got))).tolist() == gone
    w[2, 4] = np.nan
    got = crps_ensemble(x, y, estimator="plain", member_dim=0, member_weights=w)
    assert np.isnan(got[4])


def test_bad_weights_are_named():
    x, y, w = case(11)
    options = {"estimator": "plain", "member_dim": 0}
    for make in (np.asarray, torch.tensor):
        with pytest.raises(ArgumentError, match="member_weights: 1 are negative, the lowest is -1"):
            crps_ensemble(make(x), make(y), member_weights=make([1.0, 1, -1, 1, 1, 1]), **options)
    for weights in (np.ones(5), np.ones((7, 6)), np.ones((6, 1))):
        with pytest.raises(ArgumentError, match="one weight for each of the 6 members"):
            crps_ensemble(x, y, member_weights=weights, **options)
    members, observed = xr.DataArray(x, dims=("m", "p")), xr.DataArray(y, dims="p")
    options["member_dim"] = "m"
    for weights in (xr.DataArray(w, dims=("m", "q")), np.ones(7)):
        with pytest.raises(ArgumentError, match="member_weights: shape"):
            crps_ensemble(members, observed, member_weights=weights, **options)
    with pytest.raises(ArgumentError, match="Name their dimensions"):
        crps_ensemble(members, observed, member_weights=w, **options)
    with pytest.raises(UnknownNameError, match="did you mean 'skip-members'"):
        crps_ensemble(x, y, estimator="plain", member_dim=0, nan="skip_members")
    with pytest.raises(UnknownNameError, match="nan: 'skip-members' is not known"):
        crps_normal(x, 1.0, y, nan="skip-members")


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("library", ["numpy", "torch", "xarray", "dask", "lazy xarray"])
def test_a_member_without_a_weight_is_left_out(library, estimator):
    x, y, w = case(12)
    w[2, 1], w[[0, 4], 3], w[:, 5], x[1, 3] = np.nan, np.nan, np.nan, np.nan
    kept = [~np.isnan(w[:, p] + x[:, p]) for p in range(7)]
    wanted = [
        defined(x[k, p], y[p], w[k, p], estimator) if k.any() else np.nan
        for p, k in enumerate(kept)
    ]
    make = {
        "numpy": np.asarray,
        "torch": torch.tensor,
        "dask": lambda a: da.from_array(a, chunks=(*(6,) * (a.ndim - 1), 3)),
    }.get(library, lambda a: xr.DataArray(a, dims=("m", "p")[-a.ndim :]))
    arrays = [make(a) for a in (x, y, w)]
    if library == "lazy xarray":
        arrays = [a.chunk(p=3) for a in arrays]
    options = {"estimator": estimator, "member_dim": 0 if "xarray" not in library else "m"}

    def score(**more):
        return crps_ensemble(*arrays[:2], member_weights=arrays[2], **options, **more)

    np.testing.assert_allclose(score(nan="skip-members"), wanted, rtol=1e-12, atol=1e-13)
    mean = score(nan="skip-members", dim="all")
    assert float(mean) == pytest.approx(np.nanmean(wanted), rel=1e-12)
    assert np.flatnonzero(np.isnan(np.asarray(score()))).tolist() == [1, 3, 5]
    assert np.isnan(float(score(dim="all")))
    complete = np.delete(wanted, [1, 3, 5]).mean()
    assert float(score(nan="omit", dim="all")) == pytest.approx(complete, rel=1e-12)


@pytest.mark.parametrize("nan", ["omit", "skip-members"])
def test_gradients_do_not_see_members_without_a_weight(nan):
    x, y, w = case(13)
    w[2, 1], w[:, 3], x[1, 4], y[6] = np.nan, np.nan, np.nan, np.nan
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, y, w)]
    options = {"estimator": "fair", "member_dim": 0, "dim": "all", "nan": nan}
    crps_ensemble(*tensors[:2], member_weights=tensors[2], **options).backward()
    for tensor in tensors:
        assert torch.isfinite(tensor.grad).all()
        assert (tensor.grad[tensor.isnan()] == 0).all()
    assert (tensors[0].grad[:, 1] != 0).sum() == (5 if nan == "skip-members" else 0)


def test_a_shared_weight_that_is_missing_drops_its_member_everywhere():
    x, y, _ = case(14)
    shared = np.array([1.0, 2, np.nan, 3, 1, 1])
    options = {"estimator": "fair", "member_dim": 0}
    got = crps_ensemble(x, y, member_weights=shared, nan="skip-members", **options)
    rest = np.delete(x, 2, axis=0)
    wanted = crps_ensemble(rest, y, member_weights=np.delete(shared, 2), **options)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    for make in (np.asarray, torch.tensor):
        weights = make(np.where(shared == 3, -1, shared))
        with pytest.raises(ArgumentError, match="member_weights: 1 are negative, the lowest is -1"):
            crps_ensemble(make(x), make(y), member_weights=weights, nan="skip-members", **options)
