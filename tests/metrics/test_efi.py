"""The extreme forecast index: against its integral, earthkit-meteo and the authors' saturation."""

from itertools import pairwise

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from ens10.metrics.extremes import efi

LEVELS = np.linspace(0, 1, 101)
AXES = {"member_dim": 0, "quantile_dim": 0}
CASES = {"exact": LEVELS, "ecmwf": LEVELS, "ens10-paper": LEVELS[::5]}


def case(seed=0, points=40, M=10, K=101, shift=0.0, decimals=None):
    rng = np.random.default_rng(seed)
    climate = np.sort(rng.normal(size=(K, points)), axis=0)
    members = rng.normal(size=(M, points)) * rng.uniform(0.2, 2, points) + shift
    if decimals is not None:  # ties, and a dry climate
        climate, members = climate.round(decimals).clip(0), members.round(decimals).clip(0)
    return members, climate


def cdf(x, q, p):
    """The share of the climate below x, linear between its quantiles."""
    j = (q < x).sum()
    if j in (0, q.size):
        return p[max(j - 1, 0)]
    return p[j - 1] + (x - q[j - 1]) / (q[j] - q[j - 1]) * (p[j] - p[j - 1])


def integral(members, q, p):
    """2/pi of the integral of (p - F) / sqrt(p (1 - p)): by scipy, between the steps of F."""
    steps = np.sort([cdf(x, q, p) for x in members])
    edges, total = [0, *steps, 1], 0.0
    for share, (a, b) in enumerate(pairwise(edges)):
        F = share / members.size
        # p = sin(t)**2 takes the poles away
        ends = np.arcsin(np.sqrt([a, b]))
        total += quad(lambda t, F=F: 2 * (np.sin(t) ** 2 - F), *ends)[0]
    return 2 / np.pi * total


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 999),
    M=st.integers(2, 12),
    K=st.integers(2, 30),
    shift=st.sampled_from([-5.0, 0.0, 0.7, 5.0]),
    decimals=st.sampled_from([None, 1]),
)
def test_exact_is_the_integral(seed, M, K, shift, decimals):
    members, climate = case(seed, 3, M, K, shift, decimals)
    p = np.linspace(0, 1, K) ** 1.3
    got = efi(members, climate, levels=p, **AXES)
    wanted = [integral(members[:, n], climate[:, n], p) for n in range(3)]
    np.testing.assert_allclose(got, wanted, atol=1e-12)
    tensor = efi(torch.tensor(members), torch.tensor(climate), levels=p, **AXES)
    np.testing.assert_allclose(tensor, wanted, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    M=st.integers(2, 12),
    points=st.integers(1, 200),
    shift=st.sampled_from([-9.0, 0.0, 0.7, 9.0]),
    decimals=st.sampled_from([None, 1, 0]),
    epsilon=st.sampled_from([None, 1e-3, 0.3, 2.0]),
)
def test_ecmwf_is_that_of_earthkit(seed, M, points, shift, decimals, epsilon):
    oracle = pytest.importorskip("earthkit.meteo.extreme.array")
    members, climate = case(seed, points, M, 101, shift, decimals)
    got = efi(members, climate, method="ecmwf", levels=LEVELS, epsilon=epsilon, **AXES)
    wanted = oracle.efi(climate, members, eps=epsilon or -0.1)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


def plain_paper(members, q):
    """The authors' index of one point, as the paper's code describes it."""
    p = np.linspace(0, 1, 21)
    own = np.quantile(members, p)
    index = 0.0
    for k in range(1, 20):
        reached = np.flatnonzero(own >= q[k])
        F = p[reached[0]] if reached.size else 1.0
        index += (p[k] - F) / np.sqrt(p[k] * (1 - p[k])) * 0.05
    return 2 / np.pi * index


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), M=st.integers(2, 12), shift=st.sampled_from([-1.0, 0.0, 0.5]))
def test_paper_is_the_sum_over_19_levels(seed, M, shift):
    members, climate = case(seed, 20, M, 21, shift)
    got = efi(members, climate, method="ens10-paper", levels=CASES["ens10-paper"], **AXES)
    wanted = [plain_paper(members[:, n], climate[:, n]) for n in range(20)]
    np.testing.assert_allclose(got, wanted, atol=1e-12)


def test_paper_counts_a_quantile_that_is_equal_as_reached():
    p = LEVELS[::5][1:-1]
    F = np.where(np.arange(1, 20) <= 5, 0.0, 1.0)  # five levels of the climate are at most 5
    wanted = 2 / np.pi * 0.05 * ((p - F) / np.sqrt(p * (1 - p))).sum()
    got = efi(np.full(4, 5.0), np.arange(21.0), method="ens10-paper", levels=LEVELS[::5], **AXES)
    assert got == pytest.approx(wanted, abs=1e-14)


@pytest.mark.parametrize(
    ("method", "most"), [("exact", 1.0), ("ecmwf", 1.0), ("ens10-paper", 0.7913716912277595)]
)
def test_saturation(method, most):
    levels = CASES[method]
    climate = np.linspace(0, 1, levels.size)
    for shift, sign in ((-2.0, -1), (2.0, 1)):
        members = np.linspace(0, 1, 10) + shift
        got = efi(members, climate, method=method, levels=levels, **AXES)
        assert got == pytest.approx(sign * most, abs=1e-12)


def test_toy_values():
    # two members at the median and at the upper quartile: arcsin sqrt(1/2), arcsin sqrt(3/4)
    members, climate, p = np.array([1.0, 2.0]), np.array([0.0, 1.0, 3.0]), [0, 0.5, 1]
    wanted = 4 / (np.pi * 2) * (np.pi / 4 + np.pi / 3) - 1
    assert efi(members, climate, levels=p, **AXES) == pytest.approx(wanted, abs=1e-15)
    # in a climate that is dry in 60 of 100 cases a dry forecast lies below all of it
    dry = np.concatenate([np.zeros(61), np.arange(1, 41)])
    for method in ("exact", "ecmwf"):
        assert efi(np.zeros(5), dry, method=method, levels=LEVELS, **AXES) == pytest.approx(-1)


def test_members_of_the_climate_have_no_index_on_average():
    rng = np.random.default_rng(3)
    members, climate = rng.random((10, 20000)), np.tile(LEVELS[:, None], 20000)
    for method, bias in (("exact", 0.0), ("ecmwf", 0.0), ("ens10-paper", -0.032)):
        q = climate[:: 100 // (CASES[method].size - 1)]
        got = efi(members, q, method=method, levels=CASES[method], dim="all", **AXES)
        assert got == pytest.approx(bias, abs=0.008), method


def test_operational_and_exact_meet_in_a_fine_climate():
    members, climate = case(1, 500, 10, 101)
    apart = efi(members, climate, levels=LEVELS, **AXES) - efi(
        members, climate, method="ecmwf", levels=LEVELS, **AXES
    )
    assert 1e-6 < np.abs(apart).max() < 0.02


@pytest.mark.parametrize("method", CASES)
@pytest.mark.parametrize("offset", [(0.0, 1.0), (5e4, 30.0), (1e5, 500.0)])
def test_float32(method, offset):
    levels = CASES[method]
    members, climate = case(2, 3000, 10, levels.size)
    members, climate = ((offset[0] + offset[1] * a).astype(np.float32) for a in (members, climate))
    climate.sort(axis=0)
    call = {"method": method, "levels": levels, **AXES}
    got = efi(members, climate, **call)
    assert got.dtype == np.float32
    wanted = efi(members.astype(float), climate.astype(float), **call)
    if method == "ens10-paper":  # quantiles of the members are rounded before they are compared
        assert (np.abs(got - wanted) > 1e-6).mean() < 0.02
        return
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-7)
    tensor = efi(torch.tensor(members), torch.tensor(climate), **call)
    np.testing.assert_allclose(tensor, wanted, rtol=0, atol=1e-6)


def test_gradients():
    members, climate = (torch.tensor(a) for a in case(4, 6, 5, 11))
    members.requires_grad_()

    def index(x):
        return efi(x, climate, levels=np.linspace(0, 1, 11), **AXES)

    inside = (members > climate[0]) & (members < climate[-1])
    assert inside.any()
    assert torch.autograd.gradcheck(index, (members,), eps=1e-7, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_at_the_ends(dtype):
    climate = torch.linspace(0, 1, 5, dtype=dtype)
    near = torch.tensor([1e-30, 1 - 1e-7], dtype=dtype)
    ends = torch.tensor([0.0, 1.0, -1.0, 2.0, torch.inf], dtype=dtype)
    members = torch.cat([ends, near]).requires_grad_()
    efi(members, climate, levels=np.linspace(0, 1, 5), **AXES).backward()
    assert torch.isfinite(members.grad).all()
    assert (members.grad >= 0).all()
    np.testing.assert_array_equal(members.grad[[0, 2, 3, 4]], 0.0)
    assert (members.grad[5:] > 0).all()


def test_a_field_of_many_dates_shares_a_climate():
    rng = np.random.default_rng(5)
    members = rng.normal(size=(3, 10, 20, 40)).astype(np.float32)
    climate = np.sort(rng.normal(size=(101, 20, 40)).astype(np.float32), axis=0)
    for method in ("exact", "ecmwf"):
        call = {"method": method, "levels": LEVELS, "quantile_dim": 0}
        got = efi(members, climate, member_dim=1, **call)
        for n in range(3):
            np.testing.assert_array_equal(got[n], efi(members[n], climate, member_dim=0, **call))


def test_labels():
    members, climate = case(6, 8, 5, 21)
    x = xr.DataArray(members, dims=("number", "latitude"), attrs={"units": "K"})
    q = xr.DataArray(
        climate, dims=("quantile", "latitude"), coords={"quantile": LEVELS[::5]}, attrs=x.attrs
    )
    got = efi(x, q, method="ens10-paper", member_dim="number", quantile_dim="quantile")
    assert got.name == "efi"
    assert got.attrs == {
        "long_name": "extreme forecast index",
        "method": "ens10-paper",
        "units": "1",
    }
    wanted = efi(members, climate, method="ens10-paper", levels=LEVELS[::5], **AXES)
    np.testing.assert_array_equal(got, wanted)
