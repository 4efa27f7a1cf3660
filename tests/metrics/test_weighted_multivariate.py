"""Threshold- and outcome-weighted energy and variogram scores, against scoringrules."""

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics import energy_score, owcrps_ensemble, twcrps_ensemble, variogram_score

sr = pytest.importorskip("scoringrules")
RNG = np.random.default_rng(2)
N, M, D = 6, 5, 3
X, Y = RNG.normal(size=(N, M, D)), RNG.normal(size=(N, D))
PLAIN = {"estimator": "plain", "member_dim": 1, "variable_dim": 2}


def clip(x):
    return x.clip(min=0.2)


def share_above(x):
    """A weight of vectors: between 0 and 1, and 0 for some."""
    return (x > 0.2).mean(-1)


def tail(x):
    return 1 / (1 + np.exp(-x.sum(axis=-1)))


def test_threshold_weighted_scores():
    for ours, theirs in (("plain", "nrg"), ("fair", "fair")):
        options = PLAIN | {"estimator": ours, "chaining": clip}
        wanted = sr.twes_ensemble(Y, X, clip, estimator=theirs, backend="numpy")
        np.testing.assert_allclose(energy_score(X, Y, **options), wanted, rtol=1e-12)
        wanted = sr.twvs_ensemble(Y, X, clip, estimator=theirs, p=0.7, backend="numpy")
        np.testing.assert_allclose(variogram_score(X, Y, **options, order=0.7), wanted, rtol=1e-11)


@pytest.mark.parametrize("weight", [tail, share_above])
def test_outcome_weighted_scores(weight):
    of_one = lambda v: weight(np.asarray(v))  # noqa: E731
    wanted = sr.owes_ensemble(Y, X, of_one, backend="numpy")
    np.testing.assert_allclose(energy_score(X, Y, **PLAIN, weight=weight), wanted, rtol=1e-12)
    for order in (0.5, 1.0):
        wanted = sr.owvs_ensemble(Y, X, of_one, p=order, backend="numpy")
        got = variogram_score(X, Y, **PLAIN, weight=weight, order=order)
        np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-14)


def test_weights_of_variables_and_pairs():
    w = np.array([1.0, 2.0, 0.5])
    got = energy_score(X, Y, **PLAIN, weight=tail, variable_weights=w)
    wanted = sr.owes_ensemble(Y * w**0.5, X * w**0.5, lambda v: tail(v / w**0.5), backend="numpy")
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    pairs = RNG.uniform(size=(D, D))
    pairs += pairs.T
    got = variogram_score(X, Y, **PLAIN, weight=tail, pair_weights=pairs)
    everywhere = np.broadcast_to(pairs, (N, D, D))
    wanted = sr.owvs_ensemble(Y, X, tail, everywhere, backend="numpy")
    np.testing.assert_allclose(got, wanted, rtol=1e-11)


def test_of_one_variable_they_are_the_weighted_crps():
    x, y = X[..., :1], Y[..., :1]
    got = energy_score(x, y, **PLAIN, chaining=clip)
    wanted = twcrps_ensemble(x[..., 0], y[..., 0], estimator="plain", member_dim=1, lower=0.2)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    got = energy_score(x, y, **PLAIN, weight=tail)
    weight = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    wanted = owcrps_ensemble(x[..., 0], y[..., 0], estimator="plain", member_dim=1, weight=weight)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    same = lambda v: np.ones(v.shape[:-1])  # noqa: E731
    for function in (energy_score, variogram_score):
        equal = function(X, Y, **PLAIN, weight=same)
        np.testing.assert_allclose(equal, function(X, Y, **PLAIN), rtol=1e-12)


def test_where_no_member_has_weight_and_where_values_are_missing():
    far = lambda v: (v > 50).any(-1) * 1.0  # noqa: E731
    for function in (energy_score, variogram_score):
        assert np.isnan(function(X, Y, **PLAIN, weight=far)).all()
        x = X.copy()
        x[2, 1, 0] = np.nan
        got = function(x, Y, **PLAIN, weight=share_above)
        np.testing.assert_array_equal(np.isnan(got), np.arange(N) == 2)


@pytest.mark.parametrize("function", [energy_score, variogram_score])
def test_in_every_library(function):
    wanted = function(X, Y, **PLAIN, weight=tail)
    first = {"estimator": "plain", "member_dim": 2, "variable_dim": 0}
    moved, of_first = X.transpose(2, 0, 1), lambda v: 1 / (1 + np.exp(-v.sum(axis=0)))
    np.testing.assert_allclose(function(moved, Y.T, **first, weight=of_first), wanted, rtol=1e-12)
    x, y = (da.from_array(a, chunks=(2, *a.shape[1:])) for a in (X, Y))
    np.testing.assert_allclose(function(x, y, **PLAIN, weight=tail).compute(), wanted, rtol=1e-12)
    named = [xr.DataArray(X, dims=("n", "m", "v")), xr.DataArray(Y, dims=("n", "v"))]
    options = {"estimator": "plain", "member_dim": "m", "variable_dim": "v"}
    by_name = lambda v: 1 / (1 + np.exp(-v.sum("v")))  # noqa: E731
    np.testing.assert_allclose(function(*named, **options, weight=by_name), wanted, rtol=1e-12)
    tensors = [torch.tensor(a) for a in (X, Y)]
    of_tensor = lambda v: v.sum(-1).sigmoid()  # noqa: E731
    np.testing.assert_allclose(function(*tensors, **PLAIN, weight=of_tensor), wanted, rtol=1e-12)
    with pytest.raises(ArgumentError, match="has no gradient"):
        function(tensors[0].requires_grad_(), tensors[1], **PLAIN, weight=of_tensor)
    call = lambda x: function(x, tensors[1], **PLAIN, chaining=torch.tanh)  # noqa: E731
    if function is energy_score:
        assert torch.autograd.gradcheck(call, tensors[0])


def test_what_they_refuse():
    for function in (energy_score, variogram_score):
        with pytest.raises(ArgumentError, match="estimator: 'fair' is not known"):
            function(X, Y, **PLAIN | {"estimator": "fair"}, weight=tail)
        with pytest.raises(ArgumentError, match="weight: returns negative weights"):
            function(X, Y, **PLAIN, weight=lambda v: -tail(v))
        with pytest.raises(ArgumentError, match="weight: returns 3 axes for members, not 2"):
            function(X, Y, **PLAIN, weight=np.abs)
        with pytest.raises(ArgumentError, match="chaining: changes the shape"):
            function(X, Y, **PLAIN, chaining=tail)
