"""The shift of tails, against earthkit-meteo and by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError
from ens10.metrics.extremes import sot

LEVELS = np.linspace(0, 1, 101)
CALL = {"member_dim": 0, "quantile_dim": 0, "levels": LEVELS}


def case(seed=0, points=50, M=10, shift=0.0, decimals=None):
    rng = np.random.default_rng(seed)
    climate = np.sort(rng.normal(size=(101, points)), axis=0)
    members = rng.normal(size=(M, points)) + shift
    if decimals is not None:
        climate, members = climate.round(decimals).clip(0), members.round(decimals).clip(0)
    return members, climate


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    M=st.integers(2, 15),
    shift=st.sampled_from([-9.0, 0.0, 0.7, 9.0]),
    decimals=st.sampled_from([None, 1]),
    level=st.sampled_from([90, 10, 80, 5]),
    epsilon=st.sampled_from([None, 0.2, 1.0]),
)
def test_sot_is_that_of_earthkit(seed, M, shift, decimals, level, epsilon):
    oracle = pytest.importorskip("earthkit.meteo.extreme.array")
    members, climate = case(seed, 50, M, shift, decimals)
    got = sot(members, climate, level=level, epsilon=epsilon, **CALL)
    with np.errstate(all="ignore"):
        wanted = oracle.sot(climate, members, level, eps=epsilon or -1.0)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-11)
    assert np.nanmax(np.abs(got), initial=0) <= 10


def test_toy_values():
    climate = np.arange(101.0)  # Qc90 = 90, Qc99 = 99, Qc10 = 10, Qc1 = 1
    members = np.arange(11.0) * 10 + 4.5  # Qf90 = 94.5, Qf10 = 14.5
    assert sot(members, climate, level=90, **CALL) == pytest.approx(-4.5 / 9)
    assert sot(members, climate, level=10, **CALL) == pytest.approx((14.5 - 1) / (1 - 10))
    assert sot(members, climate, level=90, tail=95, **CALL) == pytest.approx(-0.5 / 5)
    own = climate[::10]
    assert sot(own, climate, level=90, **CALL) == pytest.approx(-1)
    assert sot(own, climate, level=10, **CALL) == pytest.approx(-1)
    assert sot(own + 500, climate, level=90, **CALL) == 10
    assert sot(own - 500, climate, level=90, **CALL) == -10
    assert sot(own - 500, climate, level=10, **CALL) == 10


def test_a_climate_without_a_tail_has_no_shift():
    flat = np.concatenate([np.zeros(90), np.ones(11)])
    assert np.isnan(sot(np.arange(5.0), flat, level=90, **CALL))
    assert np.isnan(sot(np.arange(5.0), flat, level=10, **CALL))


def test_missing_members():
    members, climate = case(1, 3)
    members[0, 1] = np.nan
    got = sot(members, climate, level=90, **CALL)
    np.testing.assert_array_equal(np.isnan(got), [False, True, False])
    mean = sot(members, climate, level=90, dim="all", nan="omit", **CALL)
    assert mean == pytest.approx(got[[0, 2]].mean())


@pytest.mark.parametrize(("base", "spread"), [(5e4, 5.0), (5e4, 60.0), (1e5, 500.0)])
def test_float32(base, spread):
    members, climate = ((base + spread * a).astype(np.float32) for a in case(2, 500, decimals=None))
    got = sot(members, climate, level=90, **CALL)
    assert got.dtype == np.float32
    wanted = sot(members.astype(float), climate.astype(float), level=90, **CALL)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


def test_what_is_refused():
    members, climate = case(3)
    for level, tail in ((50, None), (99, None), (90, 80), (10, 20), (0, None), (101, None)):
        with pytest.raises(ArgumentError, match=f"level: {level} with tail"):
            sot(members, climate, level=level, tail=tail, **CALL)
    with pytest.raises(ArgumentError, match=r"no quantile at level 0\.99"):
        sot(members, climate[::5], level=90, **{**CALL, "levels": LEVELS[::5]})
    with pytest.raises(ArgumentError, match="epsilon: 0 is not above 0"):
        sot(members, climate, level=90, epsilon=0, **CALL)
    x = torch.tensor(members, requires_grad=True)
    with pytest.raises(ArgumentError, match="sot has no gradient"):
        sot(x, torch.tensor(climate), level=90, **CALL)
