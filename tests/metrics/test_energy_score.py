"""The energy score, held to scoringrules, to float64 and to what a proper score must do."""

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import RechunkWarning
from ens10.metrics.crps import crps_ensemble
from ens10.metrics.multivariate import energy_score

ESTIMATORS = ["plain", "fair", "almost_fair"]


def case(seed, shape=(4, 6, 3), axis=1, center=0.0, spread=1.0):
    """Members, their truth, both drawn from one law."""
    rng = np.random.default_rng(seed)
    x = center + spread * rng.normal(size=shape)
    return x, center + spread * rng.normal(size=shape[:axis] + shape[axis + 1 :])


def brute(x, y, factor, w=1.0):
    """Of (points, members, variables), in float64 and by definition."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    M = x.shape[1]
    away = np.sqrt((w * (x - y[:, None]) ** 2).sum(-1)).mean(-1)
    gaps = np.sqrt((w * (x[:, :, None] - x[:, None]) ** 2).sum(-1)).sum((-1, -2)) / 2
    return away - factor * gaps / M**2


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.integers(2, 12), st.sampled_from([1, 2, 5, 63, 64, 700]),
       st.integers(1, 300))  # fmt: skip
def test_agrees_with_scoringrules(seed, M, D, N):
    sr = pytest.importorskip("scoringrules")
    x, y = case(seed, (min(N, 1 + 9000 // (M * D)), M, D))
    size = sr.es_ensemble(y, x, estimator="nrg", backend="numpy").mean()
    for ours, theirs in (("plain", "nrg"), ("fair", "fair")):
        wanted = sr.es_ensemble(y, x, estimator=theirs, backend="numpy")
        for make in (np.asarray, torch.tensor):
            got = energy_score(make(x), make(y), estimator=ours, member_dim=1, variable_dim=2)
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12 * size)


@pytest.mark.parametrize("spread", [5.0, 60.0])
@pytest.mark.parametrize("center", [5e4, 1e5])
@pytest.mark.parametrize("shape", [(500, 10, 4), (2, 10, 60000), (3, 20, 900)])
def test_float32(spread, center, shape):
    x, y = (a.astype(np.float32) for a in case(0, shape, center=center, spread=spread))
    wanted = brute(x, y, shape[1] / (shape[1] - 1))
    for make in (np.asarray, torch.tensor, lambda a: torch.tensor(a, requires_grad=True)):
        got = energy_score(make(x), make(y), estimator="fair", member_dim=1, variable_dim=2)
        got = got.detach().numpy() if hasattr(got, "detach") else got
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6 * wanted.mean())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_one_variable_is_the_crps(estimator):
    x, y = case(1, (40, 7, 1))
    got = energy_score(x, y, estimator=estimator, member_dim=1, variable_dim=2)
    wanted = crps_ensemble(x[..., 0], y[..., 0], estimator=estimator, member_dim=1)
    np.testing.assert_allclose(got, wanted, atol=1e-14)


@pytest.mark.parametrize(
    "axes", [(0, 1), (1, 0), (2, 0), (0, 3), (-1, 1), (2, (0, 3)), (1, (3, 0))]
)
def test_axes_are_counted_in_the_members(axes):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(3, 4, 5, 6))
    member, variables = axes
    several = (variables,) if isinstance(variables, int) else variables
    y = rng.normal(size=np.delete(x.shape, member))
    left = [i for i in range(4) if i not in {member % 4, *several}]
    ordered = np.moveaxis(x, [*left, member], range(len(left) + 1))
    one = np.expand_dims(y, member)
    truth = np.moveaxis(one, [*left, member], range(len(left) + 1))
    points, M = int(np.prod([x.shape[i] for i in left])), x.shape[member]
    wanted = brute(ordered.reshape(points, M, -1), truth.reshape(points, -1), 1.0)
    wanted = wanted.reshape([x.shape[i] for i in left])
    lazy = da.from_array(x, chunks=dict.fromkeys(left, 2))
    for members, observed in ((x, y), (torch.tensor(x), torch.tensor(y)), (lazy, y)):
        got = energy_score(
            members, observed, estimator="plain", member_dim=member, variable_dim=variables
        )
        np.testing.assert_allclose(got, wanted, atol=1e-13)
    dims = np.array(list("abcd"))
    labelled = xr.DataArray(x, dims=dims), xr.DataArray(y, dims=np.delete(dims, member))
    names = [str(dims[i]) for i in several]
    got = energy_score(
        labelled[0].chunk({str(dims[left[0]]): 1}),
        labelled[1].transpose(..., names[0]),
        estimator="plain",
        member_dim=str(dims[member]),
        variable_dim=names,
    )
    assert got.chunks is not None
    np.testing.assert_allclose(got, wanted, atol=1e-13)


def test_observations_that_broadcast():
    x, _ = case(3, (4, 6, 3))
    for part in (np.arange(3.0), np.arange(3.0)[None]):
        got = energy_score(x, part, estimator="fair", member_dim=1, variable_dim=2)
        wanted = energy_score(
            x, np.tile(np.arange(3.0), (4, 1)), estimator="fair", member_dim=1, variable_dim=2
        )
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
def test_weights_of_variables(make):
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(5, 8, 3, 4)), rng.normal(size=(5, 3, 4))
    w = np.array([0.0, 1.0, 2.5])
    wanted = brute(x.reshape(5, 8, 12), y.reshape(5, 12), 8 / 7, np.repeat(w, 4))
    call = {"estimator": "fair", "member_dim": 1}
    for weights in (w[:, None], make(w[:, None])):
        got = energy_score(make(x), make(y), variable_dim=(2, 3), variable_weights=weights, **call)
        np.testing.assert_allclose(got, wanted, atol=1e-13)
    got = energy_score(make(x), make(y), variable_dim=(3, 2), variable_weights=w, **call)
    np.testing.assert_allclose(got, wanted, atol=1e-13)


def test_labels():
    x, y = case(5, (4, 6, 3))
    at = {"channel": [850, 500, 250]}
    x = xr.DataArray(x, dims=("time", "number", "channel"), coords=at, attrs={"units": "K"})
    y = xr.DataArray(y, dims=("time", "channel"), coords=at, attrs={"units": "K"})
    call = {"estimator": "fair", "member_dim": "number", "variable_dim": "channel"}
    got = energy_score(x, y, **call)
    assert (got.name, got.attrs["units"], got.attrs["estimator"]) == ("energy_score", "K", "fair")
    w = xr.DataArray([1.0, 2.0, 3.0], dims="channel", coords=at)
    weighted = energy_score(x, y, variable_weights=w, **call)
    assert "units" not in weighted.attrs
    by_position = energy_score(x, y, variable_weights=w.to_numpy(), **call)
    np.testing.assert_array_equal(weighted, by_position)
    np.testing.assert_allclose(energy_score(x, y, dim="time", **call), got.mean("time"))
    with pytest.raises(ArgumentError, match="variable_weights: its channel differs from"):
        energy_score(x, y, variable_weights=w.assign_coords(channel=[850, 500, 200]), **call)
    with pytest.raises(ArgumentError, match=r"dimensions \['time'\] are not variable dimensions"):
        energy_score(x, y, variable_weights=y, **call)
    with pytest.raises(ArgumentError, match="y's dimension: y has no dimension 'channel'"):
        energy_score(x, y.isel(channel=0), **call)
    with pytest.raises(ArgumentError, match="y: its channel differs from that of members"):
        energy_score(x, y.assign_coords(channel=[850, 500, 200]), **call)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gradients(estimator):
    x, y = (torch.tensor(a, requires_grad=True) for a in case(6, (3, 5, 4, 2)[:3]))
    w = torch.tensor([1.0, 0.5, 2.0, 0.0], dtype=torch.float64)

    def score(members, observed):
        return energy_score(
            members, observed, estimator=estimator, member_dim=1, variable_dim=2,
            variable_weights=w, weights=torch.tensor([1.0, 2.0, 4.0]), dim=0,
        )  # fmt: skip

    assert torch.autograd.gradcheck(score, (x, y))


def test_members_that_coincide_have_finite_gradients():
    x = torch.zeros(5, 3, requires_grad=True)
    energy_score(x, torch.zeros(3), estimator="fair", member_dim=0, variable_dim=1).backward()
    np.testing.assert_array_equal(x.grad, np.zeros((5, 3)))
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]], requires_grad=True)
    energy_score(x, torch.zeros(2), estimator="plain", member_dim=0, variable_dim=1).backward()
    away = np.array([1.0, -2.0]) / np.sqrt(5)
    wanted = np.array([[1 / 3, 0], [1 / 3, 0], [0, 1 / 3]]) - [away / 9, away / 9, -2 * away / 9]
    np.testing.assert_allclose(x.grad, wanted, atol=1e-7)


def test_fair_scores_do_not_depend_on_the_number_of_members():
    rng = np.random.default_rng(7)
    mix = rng.normal(size=(3, 3))
    x, y = rng.normal(size=(40000, 16, 3)) @ mix, rng.normal(size=(40000, 3)) @ mix
    means = {}
    for estimator in ("plain", "fair"):
        for M in (2, 4, 16):
            score = energy_score(x[:, :M], y, estimator=estimator, member_dim=1, variable_dim=2)
            means[estimator, M] = score.mean(), score.std() / 200
    for M in (2, 4):
        (one, e1), (other, e2) = means["fair", M], means["fair", 16]
        assert abs(one - other) < 4 * np.hypot(e1, e2)
    assert means["plain", 2][0] > 1.2 * means["plain", 16][0]


def test_the_truth_wins():
    rng = np.random.default_rng(8)
    root = np.linalg.cholesky([[1.0, 0.8], [0.8, 1.0]])
    y = rng.normal(size=(30000, 2)) @ root.T
    noise = rng.normal(size=(30000, 20, 2))

    def mean(members):
        return energy_score(members, y, estimator="fair", member_dim=1, variable_dim=1 + 1).mean()

    true = mean(noise @ root.T)
    for hedged in (noise, 0.7 * noise @ root.T, 1.4 * noise @ root.T, noise @ root.T + 0.3):
        assert true < mean(hedged) - 0.003


@pytest.mark.parametrize("make", [np.asarray, torch.tensor, da.asarray])
def test_missing_values(make):
    x, y = case(9, (5, 6, 70))
    x[1, 2, 3], y[3, 0] = np.nan, np.nan
    call = {"estimator": "fair", "member_dim": 1, "variable_dim": 2}
    got = np.asarray(energy_score(make(x), make(y), **call))
    np.testing.assert_array_equal(np.isnan(got), [False, True, False, True, False])
    mean = energy_score(make(x), make(y), dim=0, nan="omit", **call)
    np.testing.assert_allclose(mean, np.nanmean(got))


def test_joining_chunks_of_variables_is_said():
    x, y = case(12, (4, 6, 8))
    wanted = energy_score(x, y, estimator="fair", member_dim=1, variable_dim=2)
    lazy = da.from_array(x, chunks=(2, -1, 4)), da.from_array(y, chunks=(2, -1))
    with pytest.warns(RechunkWarning, match="energy_score needs all of an axis of members"):
        got = energy_score(*lazy, estimator="fair", member_dim=1, variable_dim=2)
    np.testing.assert_array_equal(got, wanted)


def test_infinite_members_give_no_finite_score():
    x, y = case(10, (1, 4, 100))
    x[0, 1, 5] = np.inf
    assert not np.isfinite(energy_score(x, y, estimator="fair", member_dim=1, variable_dim=2)).any()


def refused(match, x=None, y=None, error=ArgumentError, **changes):
    members, observed = case(11)
    call = {"estimator": "fair", "member_dim": 1, "variable_dim": 2, **changes}
    with pytest.raises(error, match=match):
        energy_score(members if x is None else x, observed if y is None else y, **call)


def test_what_is_refused():
    x, y = case(11)
    refused("did you mean 'fair'", estimator="fairer", error=UnknownNameError)
    refused("fair estimator is undefined for 1 member", x=x[:, :1])
    refused("expected one or several axes beside 1", variable_dim=())
    refused("expected one or several axes beside 1", variable_dim=(1, 2))
    refused("one axis is named twice", variable_dim=-2)
    refused("number of one of the 3 axes of members, got 3", variable_dim=3)
    refused(r"y: \(2,\) variables, and the members have \(3,\)", y=y[:, :2])
    refused("does not have the variables of members", y=np.float64(1.0))
    refused("does not have the variables of members", y=x)
    refused("shapes that do not fit each other", y=y[:3])
    refused(r"shape \(4,\) does not broadcast to the variables'", variable_weights=np.ones(4))
    refused("variable_weights: some are negative or NaN", variable_weights=-1.0)
    refused("several libraries", y=torch.tensor(y))
    refused("weights: it applies to a mean", weights=np.ones(4))
    refused("nan: 'skip' is not known", nan="skip", dim=0, error=UnknownNameError)
