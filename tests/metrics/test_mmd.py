"""The maximum mean discrepancy against scoringrules, the definition and normal distributions."""

import dask.array as da
import numpy as np
import pytest
import scoringrules
import torch
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics import mmd_score

RNG = np.random.default_rng(7)
N, M, K = 6, 5, 3
X, Y = RNG.normal(size=(N, M, K)), RNG.normal(size=(N, K))
AXES = {"member_dim": 1, "variable_dim": 2}
EXAMPLES = {"mmd_score": ({"members": X, "y": Y}, {**AXES, "estimator": "plain", "bandwidth": 2.0})}


def defined(x, y, h, fair):
    """k(y, y) - 2 E k(X, y) + E k(X, X') by loops over members."""

    def k(u, v):
        return np.exp(-(((u - v) / h) ** 2).sum() / 2)

    pairs = [k(a, b) for i, a in enumerate(x) for j, b in enumerate(x) if not (fair and i == j)]
    return 1 - 2 * np.mean([k(a, y) for a in x]) + np.mean(pairs)


@pytest.mark.parametrize("make", [np.asarray, torch.tensor, da.asarray])
@pytest.mark.parametrize(("estimator", "theirs"), [("plain", "nrg"), ("fair", "fair")])
def test_equals_scoringrules_and_the_definition(make, estimator, theirs):
    got = mmd_score(make(X), make(Y), estimator=estimator, bandwidth=1.0, **AXES)
    assert type(got) is type(make(X))
    wanted = scoringrules.gksmv_ensemble(Y, X, m_axis=-2, v_axis=-1, estimator=theirs)
    np.testing.assert_allclose(np.asarray(got), 2 * wanted, rtol=1e-12)
    wide = mmd_score(make(X), make(Y), estimator=estimator, bandwidth=2.5, **AXES)
    slow = [defined(x, y, 2.5, estimator == "fair") for x, y in zip(X, Y, strict=True)]
    np.testing.assert_allclose(np.asarray(wide), slow, rtol=1e-12)


def test_fair_is_unbiased_for_normal_distributions():
    """X ~ N(0, s^2): E k(X, y) = h / r exp(-y^2 / (2 r^2)) with r^2 = h^2 + s^2."""
    s, h, y, n = 1.5, 2.0, 1.0, 40_000
    x = RNG.normal(scale=s, size=(n, 3, 1))
    got = mmd_score(x, np.full((n, 1), y), estimator="fair", bandwidth=h, **AXES)
    r2 = h**2 + s**2
    with_y = h / np.sqrt(r2) * np.exp(-(y**2) / (2 * r2))
    wanted = 1 - 2 * with_y + h / np.sqrt(h**2 + 2 * s**2)
    assert abs(got.mean() - wanted) < 4 * got.std() / np.sqrt(n)


def test_wide_bandwidths_keep_their_digits():
    """For h far above all distances it is the squared error of the mean over h^2."""
    got = mmd_score(X, Y, estimator="plain", bandwidth=1e6, **AXES)
    np.testing.assert_allclose(got * 1e12, ((X.mean(1) - Y) ** 2).sum(-1), rtol=1e-9)


@pytest.mark.parametrize("estimator", ["plain", "fair", "almost_fair"])
def test_gradients(estimator):
    x, y = torch.tensor(X, requires_grad=True), torch.tensor(Y, requires_grad=True)
    w = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    options = {"estimator": estimator, "bandwidth": 1.5, "variable_weights": w, **AXES}
    assert torch.autograd.gradcheck(lambda a, b: mmd_score(a, b, **options), (x, y))
    mmd_score(torch.zeros_like(x).requires_grad_(), torch.zeros_like(y), **options).sum().backward()


def test_labels_weights_and_gaps():
    x = xr.DataArray(X, dims=("time", "number", "channel"), attrs={"units": "K"})
    y = xr.DataArray(Y, dims=("time", "channel"), attrs={"units": "K"})
    call = {"member_dim": "number", "variable_dim": "channel", "bandwidth": 1.0}
    w = np.array([4.0, 1.0, 0.25])
    got = mmd_score(x.chunk(time=2), y, estimator="fair", variable_weights=w, **call)
    assert got.chunks is not None
    assert (got.name, got.attrs["units"], got.attrs["estimator"]) == ("mmd", "1", "fair")
    root = np.sqrt(w)
    np.testing.assert_allclose(
        got, mmd_score(X * root, Y * root, estimator="fair", bandwidth=1.0, **AXES), rtol=1e-12
    )
    gap = x.where(x["time"] != 2)
    mean = mmd_score(gap, y, estimator="plain", dim="time", nan="omit", **call)
    rest = mmd_score(
        np.delete(X, 2, 0), np.delete(Y, 2, 0), estimator="plain", bandwidth=1.0, **AXES
    )
    assert float(mean) == pytest.approx(rest.mean(), rel=1e-12)


KELVIN = xr.DataArray(X, dims=("x", "number", "channel"), attrs={"units": "K"})
METRES = xr.DataArray(Y, dims=("x", "channel"), attrs={"units": "m"})
NAMES = {"member_dim": "number", "variable_dim": "channel"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bandwidth": 0.0}, "bandwidth: expected a number above 0, got 0.0"),
        ({"bandwidth": np.nan}, "bandwidth: expected a number above 0"),
        ({"variable_dim": 1}, "variable_dim"),
        ({"estimator": "fair", "members": X[:, :1]}, "fair"),
        ({"members": KELVIN[0], "y": METRES[0], **NAMES}, "units differ"),
    ],
)
def test_refusals(changes, message):
    call = {"members": X, "y": Y, "estimator": "plain", "bandwidth": 1.0, **AXES} | changes
    with pytest.raises(ArgumentError, match=message):
        mmd_score(**call)
