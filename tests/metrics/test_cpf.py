"""The crossing-point forecast, against earthkit-meteo and by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError
from ens10.metrics.extremes import cpf

LEVELS = np.linspace(0, 1, 101)
CALL = {"member_dim": 0, "quantile_dim": 0, "levels": LEVELS}


def case(seed=0, points=60, M=10, K=101, shift=0.0, decimals=None):
    rng = np.random.default_rng(seed)
    climate = np.sort(rng.normal(size=(K, points)), axis=0)
    members = rng.normal(size=(M, points)) * rng.uniform(0.2, 2, points) + shift
    if decimals is not None:
        climate, members = climate.round(decimals).clip(0), members.round(decimals).clip(0)
    return members, climate


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 999),
    M=st.integers(4, 30),
    K=st.sampled_from([5, 21, 101]),
    shift=st.sampled_from([-2.0, 0.0, 0.7, 1.5, 4.0]),
    decimals=st.sampled_from([None, 1]),
    option=st.sampled_from([{}, {"symmetric": True}, {"epsilon": 0.5}]),
)
def test_cpf_is_that_of_earthkit(seed, M, K, shift, decimals, option):
    oracle = pytest.importorskip("earthkit.meteo.extreme.array")
    members, climate = case(seed, 60, M, K, shift, decimals)
    got = cpf(members, climate, **option, **{**CALL, "levels": np.linspace(0, 1, K)})
    wanted = oracle.cpf(climate, members, **option)
    # it keeps float32: half a unit in the last place
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2**-24)


def test_toy_values():
    climate = LEVELS  # uniform from 0 to 1
    # upper members at levels .55, .65, .75, .85, .95: above the climate up to .75, then below
    members = np.array([0.1] * 5 + [0.6, 0.7, 0.74, 0.76, 0.78])
    assert cpf(members, climate, **CALL) == pytest.approx(0.75)
    # all of it above: the climate's cdf at the largest
    assert cpf(np.linspace(0.9, 0.98, 10), climate, **CALL) == pytest.approx(0.98)
    assert cpf(np.linspace(5, 6, 10), climate, **CALL) == 1
    assert cpf(np.linspace(-6, -5, 10), climate, **CALL) == 0
    assert cpf(np.linspace(-6, -5, 10), climate, symmetric=True, **CALL) == 0
    assert cpf(np.linspace(5, 6, 10), climate, epsilon=7, **CALL) == 0


def test_symmetric():
    members, climate = case(1, 300)
    got = cpf(members, climate, symmetric=True, **CALL)
    negated = cpf(-members, -climate[::-1], symmetric=True, **CALL)
    both = np.maximum(got, 1 - negated)[(got > 0.5) & (negated < 0.5)]
    np.testing.assert_allclose(both, got[(got > 0.5) & (negated < 0.5)])
    assert both.size > 50


def test_order_of_members_is_nothing():
    members, climate = case(2, 100)
    wanted = cpf(members, climate, **CALL)
    shuffled = np.random.default_rng(0).permuted(members, axis=0)
    np.testing.assert_array_equal(cpf(shuffled, climate, **CALL), wanted)


def test_missing_members():
    members, climate = case(3, 3)
    members[0, 1] = np.nan
    for option in ({}, {"symmetric": True}, {"epsilon": 9.0}):
        got = cpf(members, climate, **option, **CALL)
        np.testing.assert_array_equal(np.isnan(got), [False, True, False])


def test_float32():
    members, climate = ((5e4 + 30 * a).astype(np.float32) for a in case(4, 500))
    got = cpf(members, climate, **CALL)
    assert got.dtype == np.float32
    wanted = cpf(members.astype(float), climate.astype(float), **CALL)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-7)


def test_what_is_refused():
    members, climate = case(5)
    with pytest.raises(ArgumentError, match="members: 3 members have no upper half"):
        cpf(members[:3], climate, **CALL)
    with pytest.raises(ArgumentError, match="a CPF needs 3 or more quantiles at levels evenly"):
        cpf(members, climate, **{**CALL, "levels": LEVELS**2})
    with pytest.raises(ArgumentError, match="epsilon: it is not defined for a symmetric CPF"):
        cpf(members, climate, epsilon=0.1, symmetric=True, **CALL)
    with pytest.raises(ArgumentError, match="cpf has no gradient"):
        cpf(torch.tensor(members, requires_grad=True), torch.tensor(climate), **CALL)
