"""Probabilities of exceeding a threshold, of members and of normals."""

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.events import (
    exceedance_event,
    exceedance_probability,
    exceedance_probability_normal,
)

KINDS = [
    np.asarray,
    torch.tensor,
    da.asarray,
    lambda a: xr.DataArray(a, dims=list("abc")[: a.ndim]),
]
X = np.array([[1.0, 2.0, 2.0, 5.0], [1.0, np.nan, 3.0, 4.0], [np.nan] * 4])


def axis(array):
    return array.dims[1] if isinstance(array, xr.DataArray) else 1


@pytest.mark.parametrize("kind", KINDS)
def test_shares(kind):
    x = kind(X)
    for strict, wanted in ((True, [0.25, np.nan, np.nan]), (False, [0.75, np.nan, np.nan])):
        got = exceedance_probability(x, 2.0, member_dim=axis(x), strict=strict)
        np.testing.assert_array_equal(got, wanted)
    got = exceedance_probability(x, 2.0, member_dim=axis(x), nan="skip-members")
    np.testing.assert_array_equal(got, [0.25, np.float64(2) / 3, np.nan])
    got = exceedance_probability(
        x, kind(np.array([4.0, 2.0, 0.0])), member_dim=axis(x), nan="skip-members"
    )
    np.testing.assert_array_equal(got, [0.25, np.float64(2) / 3, np.nan])


@pytest.mark.parametrize("kind", KINDS)
def test_events(kind):
    y = kind(np.array([1.0, 2.0, 3.0, np.nan]))
    np.testing.assert_array_equal(exceedance_event(y, 2.0), [0, 0, 1, np.nan])
    np.testing.assert_array_equal(exceedance_event(y, 2.0, strict=False), [0, 1, 1, np.nan])
    np.testing.assert_array_equal(exceedance_event(y, np.nan), [np.nan] * 4)


def test_equal_shares_are_equal_bits_and_kept_in_their_dtype():
    x = np.random.default_rng(0).normal(size=(7, 500)).astype(np.float32)
    got = exceedance_probability(x, 0.3, member_dim=0)
    assert got.dtype == np.float32
    assert set(got) <= {np.float32(k) / np.float32(7) for k in range(8)}
    labelled = xr.DataArray(x, dims=("number", "x"), attrs={"units": "K"})
    got = exceedance_probability(labelled, xr.DataArray([0.0, 1.0], dims="t"), member_dim="number")
    assert got.attrs["units"] == "1"
    assert got.sizes == {"x": 500, "t": 2}


@settings(max_examples=30, deadline=None)
@given(
    mu=st.floats(-50, 50), sigma=st.floats(0.01, 20), z=st.floats(-30, 30),
)  # fmt: skip
def test_normals(mu, sigma, z):
    t = mu + sigma * z
    wanted = stats.norm.sf(t, mu, sigma)
    for kind in KINDS:
        a, b = (kind(np.array([v])) for v in (mu, sigma))
        got = exceedance_probability_normal(a, b, t)
        np.testing.assert_allclose(
            got, [wanted], rtol=1e-10 * (1 + abs(mu) / sigma / 50), atol=1e-300
        )


def test_normals_without_spread_and_their_gradients():
    mu = np.array([1.0, 0.0, -1.0])
    for kind in KINDS:
        got = exceedance_probability_normal(kind(mu), 0.0, 0.0)
        np.testing.assert_array_equal(got, [1.0, 0.5, 0.0])
    free = [torch.tensor(a, requires_grad=True) for a in (mu, np.array([0.5, 2.0, 1.0]))]
    t = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(exceedance_probability_normal, (*free, t))
    still = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    total = exceedance_probability_normal(free[0], still, 0.0).sum()
    for grad in torch.autograd.grad(total, (free[0], still)):
        np.testing.assert_array_equal(grad, [0, 0, 0])


def test_refused():
    with pytest.raises(UnknownNameError, match="nan: 'omit' is not known"):
        exceedance_probability(X, 2.0, member_dim=1, nan="omit")
    with pytest.raises(ArgumentError, match="threshold: shapes that do not fit"):
        exceedance_probability(X, np.zeros(4), member_dim=1)
    with pytest.raises(ArgumentError, match="sigma: 1 of 1 values are not 0 or more"):
        exceedance_probability_normal(0.0, -1.0, 0.0)
    x = xr.DataArray(X, dims=list("ab"), attrs={"units": "K"})
    limit = xr.DataArray(2.0, attrs={"units": "degC"})
    for call in (
        lambda: exceedance_probability(x, limit, member_dim="b"),
        lambda: exceedance_event(x, limit),
        lambda: exceedance_probability_normal(x, 1.0, limit),
    ):
        with pytest.raises(ArgumentError, match=r"units differ: .* in K, threshold in degC"):
            call()
