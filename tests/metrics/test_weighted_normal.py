"""The threshold-weighted CRPS of normals, held to integration and to its limits."""

import math
from itertools import pairwise

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr

from ens10.errors import ArgumentError
from ens10.metrics import crps_normal
from ens10.metrics.weighted import twcrps_ensemble, twcrps_normal

THRESHOLDS = [(-math.inf, math.inf), (0.3, math.inf), (-math.inf, 0.3), (-0.5, 1.2), (4.0, 5.0)]


def integrated(mu, sigma, y, lower, upper):
    """The definition, over as much of the line as there is mass."""

    def gap(z):
        return (ndtr((z - mu) / sigma) - (y <= z)) ** 2

    a = max(lower, min(mu, y) - 40 * sigma - abs(y - mu))
    b = min(upper, max(mu, y) + 40 * sigma + abs(y - mu))
    points = sorted({min(max(p, a), b) for p in (y, mu, mu - 3 * sigma, mu + 3 * sigma)})
    edges = [a, *points, b]
    return sum(quad(gap, p, q, epsabs=1e-14)[0] for p, q in pairwise(edges))


@settings(max_examples=40, deadline=None)
@given(st.floats(-3, 3), st.floats(0.1, 5), st.floats(-6, 6), st.sampled_from(THRESHOLDS))
def test_agrees_with_integration(mu, sigma, y, bounds):
    lower, upper = bounds
    got = twcrps_normal(mu, sigma, y, lower=lower, upper=upper)
    wanted = integrated(mu, sigma, y, *bounds) if lower < upper else 0.0
    assert got == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("bounds", THRESHOLDS)
def test_is_the_score_of_many_members(bounds):
    quantiles = torch.special.ndtri((torch.arange(20000, dtype=torch.float64) + 0.5) / 20000)
    y = torch.linspace(-2, 6, 9, dtype=torch.float64)
    lower, upper = bounds
    members = 0.4 + 1.3 * quantiles[:, None].expand(-1, 9)
    many = twcrps_ensemble(members, y, estimator="plain", member_dim=0, lower=lower, upper=upper)
    got = twcrps_normal(0.4, 1.3, y, lower=lower, upper=upper)
    np.testing.assert_allclose(got, many, atol=1e-4)


def test_without_thresholds_is_the_crps():
    rng = np.random.default_rng(0)
    mu, sigma, y = rng.normal(size=50), rng.random(50), 4 * rng.normal(size=50)
    sigma[:3], y[1] = 0.0, mu[1]
    np.testing.assert_allclose(
        twcrps_normal(mu, sigma, y), crps_normal(mu, sigma, y), rtol=0, atol=1e-14
    )


def test_thresholds_divide_the_crps():
    rng = np.random.default_rng(1)
    mu, sigma, y = rng.normal(size=50), rng.random(50), 2 * rng.normal(size=50)
    cut = rng.normal(size=50)
    parts = twcrps_normal(mu, sigma, y, upper=cut) + twcrps_normal(mu, sigma, y, lower=cut)
    np.testing.assert_allclose(parts, crps_normal(mu, sigma, y), atol=1e-14)


def test_a_point_forecast():
    mu, y = np.array([0.0, 1.0, 5.0, 0.0, 2.0]), np.array([2.0, 1.0, 0.0, -1.0, 1.5])
    got = twcrps_normal(mu, 0.0, y, lower=0.5, upper=1.8)
    np.testing.assert_array_equal(got, np.abs(mu.clip(0.5, 1.8) - y.clip(0.5, 1.8)))


@pytest.mark.parametrize("bounds", THRESHOLDS)
@pytest.mark.parametrize("spread", [5.0, 60.0])
@pytest.mark.parametrize("center", [5e4, 1e5])
def test_float32(bounds, spread, center):
    rng = np.random.default_rng(2)
    n = 20000
    mu, y = (center + spread * rng.normal(size=(2, n))).astype(np.float32)
    sigma = (spread * rng.random(n)).astype(np.float32)
    lower, upper = (np.float32(center + spread * b) for b in bounds)
    got = twcrps_normal(mu, sigma, y, lower=lower, upper=upper)
    doubles = (a.astype(np.float64) for a in (mu, sigma, y))
    wanted = twcrps_normal(*doubles, lower=float(lower), upper=float(upper))
    assert got.dtype == np.float32
    scale = max(wanted.mean(), 0.1 * crps_normal(mu, sigma, y).mean())
    np.testing.assert_allclose(got, wanted, rtol=0, atol=5e-6 * scale)
    assert abs(got.astype(np.float64).mean() - wanted.mean()) < 1e-6 * scale
    tensors = twcrps_normal(*map(torch.tensor, (mu, sigma, y)), lower=lower, upper=upper)
    np.testing.assert_allclose(tensors, wanted, rtol=0, atol=5e-6 * scale)


@pytest.mark.parametrize("bounds", THRESHOLDS)
def test_gradients(bounds):
    rng = np.random.default_rng(3)
    tensors = [torch.tensor(a, requires_grad=True) for a in rng.normal(size=(3, 12))]
    lower, upper = bounds

    def score(mu, s, y):
        return twcrps_normal(mu, s.abs(), y, lower=lower, upper=upper)

    assert torch.autograd.gradcheck(score, tensors)


def test_gradients_of_thresholds():
    rng = np.random.default_rng(4)
    lower, upper, y = (torch.tensor(a, requires_grad=True) for a in rng.uniform(-2, 2, (3, 12)))

    def score(low, up, observed):
        return twcrps_normal(0.1, 0.8, observed, lower=low, upper=up + 4)

    assert torch.autograd.gradcheck(score, (lower, upper, y))


@pytest.mark.parametrize("bounds", THRESHOLDS)
def test_gradients_are_finite_without_spread(bounds):
    lower, upper = bounds
    values = torch.tensor([-1.0, 0.3, 0.5, 4.5, 1e4])
    mu, y = (t.reshape(-1).clone().requires_grad_() for t in torch.meshgrid(
        values, values, indexing="ij"))  # fmt: skip
    sigma = torch.zeros_like(mu, requires_grad=True)
    twcrps_normal(mu, sigma, y, lower=lower, upper=upper).sum().backward()
    for tensor in (mu, sigma, y):
        assert tensor.grad.isfinite().all()
    small = torch.full_like(mu, 1e-30, requires_grad=True)
    twcrps_normal(mu.detach(), small, y.detach(), lower=lower, upper=upper).sum().backward()
    np.testing.assert_allclose(sigma.grad, small.grad, atol=1e-6)


def test_all_libraries_agree():
    rng = np.random.default_rng(5)
    mu, sigma, y = rng.normal(size=(6, 4)), rng.random((6, 4)), rng.normal(size=(6, 4))
    lower = rng.normal(size=4)
    wanted = twcrps_normal(mu, sigma, y, lower=lower, upper=9.0)
    lazy = [da.from_array(a, chunks=2) for a in (mu, sigma, y, lower)]
    tensors = [torch.tensor(a) for a in (mu, sigma, y, lower)]
    for one in (lazy, tensors):
        got = twcrps_normal(*one[:3], lower=one[3], upper=9.0)
        assert type(got) is type(one[0])
        np.testing.assert_allclose(got, wanted, atol=1e-14)
    named = [xr.DataArray(a, dims=("time", "x"), attrs={"units": "K"}) for a in (mu, sigma, y)]
    threshold = xr.DataArray(lower, dims="x", attrs={"units": "K"})
    got = twcrps_normal(*named, lower=threshold.chunk(), upper=9.0)
    assert got.chunks is not None
    assert got.attrs == {"units": "K", "long_name": "threshold-weighted CRPS"}
    np.testing.assert_allclose(got, wanted, atol=1e-14)
    mean = twcrps_normal(*named, lower=threshold, upper=9.0, dim="time")
    np.testing.assert_allclose(mean, wanted.mean(axis=0))


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="lower: 1 thresholds are above `upper`"):
        twcrps_normal(0.0, 1.0, 0.0, lower=1.0, upper=0.0)
    for make in (np.asarray, torch.tensor):
        with pytest.raises(ArgumentError, match="lower: 2 thresholds are above `upper`"):
            twcrps_normal(make([0.0]), 1.0, 0.0, lower=make([1.0, 2.0, 0.0]), upper=0.5)
    late = twcrps_normal(0.0, 1.0, 0.0, lower=da.ones(3, chunks=3), upper=da.zeros(3, chunks=3))
    with pytest.raises(ArgumentError, match="lower: 3 thresholds are above `upper`"):
        late.compute()
    with pytest.raises(ArgumentError, match="sigma: 1 of 1 values are not 0 or more"):
        twcrps_normal(0.0, -1.0, 0.0)
    assert math.isnan(twcrps_normal(0.0, 1.0, math.nan))
    assert math.isnan(twcrps_normal(0.0, 1.0, 0.0, lower=math.nan))
    assert math.isnan(twcrps_normal(math.nan, 1.0, 0.0, upper=-3.0))
