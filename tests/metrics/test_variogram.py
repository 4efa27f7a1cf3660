"""The variogram score, held to scoringrules and to what a proper score must do."""

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.multivariate import variogram_score

CALL = {"member_dim": 1, "variable_dim": 2}


def case(seed, shape=(5, 6, 4)):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape), rng.normal(size=shape[:1] + shape[2:])


def brute(x, y, order, fair, w=1.0):
    """Of (points, members, variables), in float64 and by definition."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    gaps = np.abs(x[..., :, None] - x[..., None, :]) ** order
    truth = np.abs(y[..., :, None] - y[..., None, :]) ** order
    value = (gaps.mean(axis=1) - truth) ** 2
    if fair:
        value = value - gaps.var(axis=1, ddof=1) / x.shape[1]
    return (w * value).sum((-1, -2))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.integers(2, 9), st.integers(1, 7), st.integers(1, 200),
       st.sampled_from([0.5, 1.0, 2.0, 0.7]), st.booleans())  # fmt: skip
def test_agrees_with_scoringrules(seed, M, D, N, order, weighted):
    sr = pytest.importorskip("scoringrules")
    x, y = case(seed, (N, M, D))
    w = np.random.default_rng(seed).random((D, D)) if weighted else None
    wide = None if w is None else np.broadcast_to(w, (N, D, D))
    size = sr.vs_ensemble(y, x, wide, p=order, estimator="nrg", backend="numpy").mean()
    for ours, theirs in (("plain", "nrg"), ("fair", "fair")):
        wanted = sr.vs_ensemble(y, x, wide, p=order, estimator=theirs, backend="numpy")
        np.testing.assert_allclose(brute(x, y, order, ours == "fair", 1 if w is None else w),
                                   wanted, rtol=0, atol=1e-12 * size)  # fmt: skip
        for tensors in (False, True):
            members, observed = torch.tensor(x, requires_grad=tensors), torch.tensor(y)
            given_ = (members, observed) if tensors or seed % 2 else (x, y)
            got = variogram_score(*given_, estimator=ours, order=order, pair_weights=w, **CALL)
            got = got.detach() if hasattr(got, "detach") else got
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12 * size)


@pytest.mark.parametrize("spread", [5.0, 60.0])
@pytest.mark.parametrize("center", [5e4, 1e5])
@pytest.mark.parametrize("fair", [False, True])
def test_float32(center, spread, fair):
    x, y = ((center + spread * a).astype(np.float32) for a in case(0, (400, 10, 6)))
    wanted = brute(x, y, 0.5, fair)
    for make in (np.asarray, torch.tensor, lambda a: torch.tensor(a, requires_grad=True)):
        got = variogram_score(make(x), make(y), estimator="fair" if fair else "plain", **CALL)
        got = got.detach().numpy() if hasattr(got, "detach") else got
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6 * wanted.max())
        assert abs(got.astype(np.float64).mean() - wanted.mean()) < 1e-6 * wanted.mean()


@pytest.mark.parametrize("axes", [(0, 1), (2, 0), (0, (3, 1)), (1, (0, 3))])
def test_all_libraries_agree(axes):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(3, 4, 5, 2))
    member, variables = axes
    several = (variables,) if isinstance(variables, int) else variables
    y = rng.normal(size=np.delete(x.shape, member))
    left = [i for i in range(4) if i not in {member, *several}]
    w = rng.random((np.prod([x.shape[i] for i in several]),) * 2)
    places = [*left, member, *several]
    ordered = np.transpose(x, places)
    truth = np.transpose(np.expand_dims(y, member), places)
    outer = [x.shape[i] for i in left]
    n = int(np.prod(outer))
    wanted = brute(ordered.reshape(n, x.shape[member], -1), truth.reshape(n, -1), 0.5, True, w)
    wanted = wanted.reshape(outer)
    call = {"estimator": "fair", "pair_weights": w}
    lazy = da.from_array(x, chunks=dict.fromkeys(left, 2))
    for members, observed in ((x, y), (torch.tensor(x), torch.tensor(y)), (lazy, y)):
        got = variogram_score(members, observed, member_dim=member, variable_dim=variables, **call)
        assert isinstance(got, type(members))
        np.testing.assert_allclose(got, wanted, atol=1e-12)
    dims = np.array(list("abcd"))
    got = variogram_score(
        xr.DataArray(x, dims=dims).chunk(),
        xr.DataArray(y, dims=np.delete(dims, member)),
        member_dim=str(dims[member]),
        variable_dim=[str(dims[i]) for i in several],
        **call,
    )
    assert got.chunks is not None
    np.testing.assert_allclose(got, wanted, atol=1e-12)


def test_labels():
    x, y = case(3)
    x = xr.DataArray(x, dims=("time", "number", "place"), attrs={"units": "K"})
    y = xr.DataArray(y, dims=("time", "place"), attrs={"units": "K"})
    call = {"member_dim": "number", "variable_dim": "place", "estimator": "plain"}
    got = variogram_score(x, y, **call)
    assert (got.name, got.attrs["units"], got.attrs["order"]) == ("variogram_score", "K", 0.5)
    assert "units" not in variogram_score(x, y, order=1, **call).attrs
    np.testing.assert_allclose(variogram_score(x, y, dim="time", **call), got.mean("time"))


@pytest.mark.parametrize("order", [0.5, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("estimator", ["plain", "fair"])
def test_gradients(estimator, order):
    x, y = (torch.tensor(a, requires_grad=True) for a in case(4, (2, 3, 4)))
    w = torch.rand(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def score(members, observed):
        return variogram_score(
            members, observed, estimator=estimator, order=order, pair_weights=w, **CALL
        )

    assert torch.autograd.gradcheck(score, (x, y))


@pytest.mark.parametrize("order", [0.05, 0.5, 1.0, 2.0])
def test_ties_have_finite_gradients(order):
    x = torch.tensor([[[1.0, 1.0, 3.0], [2.0, 2.0, 2.0 + 1e-30]]])
    x[0, 1, 0] = 1e-45
    x[0, 1, 1] = 0.0
    x.requires_grad_()
    y = torch.tensor([[0.5, 0.5, 1.0]], requires_grad=True)
    variogram_score(x, y, estimator="fair", order=order, **CALL).backward()
    assert x.grad.isfinite().all()
    assert y.grad.isfinite().all()
    same = torch.ones(1, 4, 3, requires_grad=True)
    variogram_score(same, y.detach(), estimator="plain", order=order, **CALL).backward()
    np.testing.assert_array_equal(same.grad, np.zeros((1, 4, 3)))


def test_a_common_bias_is_not_seen():
    x, y = case(5)
    wanted = variogram_score(x, y, estimator="plain", **CALL)
    np.testing.assert_allclose(
        variogram_score(x + 7.0, y, estimator="plain", **CALL), wanted, rtol=1e-11
    )


def test_fair_scores_do_not_depend_on_the_number_of_members():
    rng = np.random.default_rng(6)
    mix = rng.normal(size=(3, 3))
    x, y = rng.normal(size=(40000, 16, 3)) @ mix, rng.normal(size=(40000, 3)) @ mix
    means = {}
    for estimator in ("plain", "fair"):
        for M in (2, 16):
            score = variogram_score(x[:, :M], y, estimator=estimator, **CALL)
            means[estimator, M] = score.mean(), score.std() / 200
    (one, e1), (other, e2) = means["fair", 2], means["fair", 16]
    assert abs(one - other) < 4 * np.hypot(e1, e2)
    assert means["plain", 2][0] > 1.2 * means["plain", 16][0]


def test_the_truth_wins():
    rng = np.random.default_rng(7)
    y = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], size=30000)

    def mean(correlation, spread=1.0):
        cov = spread * np.array([[1, correlation], [correlation, 1]])
        members = rng.multivariate_normal([0, 0], cov, size=(30000, 20))
        return variogram_score(members, y, estimator="fair", **CALL).mean()

    true = mean(0.7)
    for hedged in (mean(0.2), mean(0.95), mean(0.7, 2.0), mean(0.7, 0.5)):
        assert true < hedged - 0.005


@pytest.mark.parametrize("make", [np.asarray, torch.tensor, da.asarray])
def test_missing_values(make):
    x, y = case(8)
    x[1, 2, 3], y[3, 0] = np.nan, np.nan
    for w in (None, np.zeros((4, 4))):
        got = variogram_score(make(x), make(y), estimator="plain", pair_weights=w, **CALL)
        wanted = [False, True, False, True, False]
        np.testing.assert_array_equal(np.isnan(np.asarray(got)), wanted)


X, Y = case(9)
REFUSED = {
    "an estimator": ({"estimator": "almost_fair"}, "'almost_fair' is not known"),
    "one member": (
        {"members": X[:, :1], "estimator": "fair"}, "fair estimator is undefined for 1 member",
    ),
    "an order of 0": ({"order": 0}, "order: expected a number above 0, got 0"),
    "weights of another shape": (
        {"pair_weights": np.ones((3, 3))}, r"pair_weights: shape \(3, 3\) does not broadcast to",
    ),
    "negative weights": ({"pair_weights": -np.ones((4, 4))}, "pair_weights: some are negative"),
    "fewer variables": ({"y": Y[:, :3]}, r"y: \(3,\) variables, and the members have \(4,\)"),
    "fewer points": ({"y": Y[:3]}, "y: shapes that do not fit"),
    "the members as variables": ({"variable_dim": 1}, "one or several axes beside 1"),
}  # fmt: skip


@pytest.mark.parametrize("which", REFUSED)
def test_what_is_refused(which):
    changes, words = REFUSED[which]
    error = UnknownNameError if which == "an estimator" else ArgumentError
    with pytest.raises(error, match=words):
        variogram_score(**{"members": X, "y": Y, **CALL, "estimator": "plain", **changes})
