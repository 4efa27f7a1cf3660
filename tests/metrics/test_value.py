"""Relative economic value."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError
from ens10.metrics import merge_states
from ens10.metrics.events import event_sums, relative_economic_value, roc_curve


def case(seed=0, shape=(8, 40)):
    rng = np.random.default_rng(seed)
    p = rng.integers(0, 11, shape) / 10
    return (xr.DataArray(a, dims=("time", "x")) for a in (p, (rng.random(shape) < 0.8 * p) * 1.0))


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 999))
def test_beside_another_library(seed):
    scores = pytest.importorskip("scores.probability")
    p, o = case(seed)
    ratios, limits = [0.05, 0.2, 0.5, 0.9], list(np.arange(11) / 10)
    w = xr.DataArray(np.random.default_rng(seed).random(40), dims="x")
    options = {"cost_loss_ratios": ratios, "probability_thresholds": limits, "weights": w}
    got = relative_economic_value(
        event_sums(p, o, dim="all", members=10, weights=w), cost_loss=ratios
    )
    wanted = scores.relative_economic_value(p, o, **options)
    mine = got["value"].isel(threshold=slice(-1)).transpose("cost_loss", "threshold")
    theirs = wanted.transpose("cost_loss_ratio", "probability_threshold")
    np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
    best = scores.relative_economic_value(p, o, generate_maximum_rev=True, **options)
    # ours has "never", at which the value is 0, among the thresholds
    np.testing.assert_allclose(
        got["envelope"], np.maximum(best["maximum"], 0.0), rtol=1e-10, atol=1e-12
    )


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 999))
def test_the_envelope(seed):
    p, o = case(seed)
    sums = event_sums(p, o, dim="all", members=10)
    s, curve = float(o.mean()), roc_curve(sums)
    at_base = relative_economic_value(sums, cost_loss=s)["envelope"]
    best = float((curve["hit_rate"] - curve["false_alarm_rate"]).max())
    assert float(at_base[0]) == pytest.approx(best, rel=1e-10)
    every = relative_economic_value(sums)
    assert every.sizes["cost_loss"] == 99
    assert float(every["envelope"].min()) > -1e-12
    assert float(every["envelope"].max()) <= best + 1e-12


def test_is_the_saved_share_of_the_expense():
    p, o = case()
    a, s = 0.3, float(o.mean())
    got = relative_economic_value(event_sums(p, o, dim="all", members=10), cost_loss=a)["value"]
    for limit in (0.0, 0.3, 1.0):
        warned = p >= limit
        expense = float((warned * a + (~warned & (o == 1))).mean())
        wanted = (min(a, s) - expense) / (min(a, s) - a * s)
        assert float(got.sel(threshold=limit)[0]) == pytest.approx(wanted, rel=1e-12)


def test_perfect_useless_none():
    _, o = case()
    perfect = relative_economic_value(event_sums(o, o, dim="all", members=1))
    np.testing.assert_allclose(perfect["envelope"], 1.0, rtol=1e-12)
    useless = relative_economic_value(event_sums(0 * o, o, dim="all", members=1))
    np.testing.assert_allclose(useless["envelope"], 0.0, atol=1e-12)
    none = relative_economic_value(event_sums(o, 0 * o, dim="all", members=1))
    assert np.isnan(none["envelope"]).all()


def test_blocks_merge_and_stay_lazy():
    p, o = case()
    wanted = relative_economic_value(event_sums(p, o, dim="all", bins=10))
    parts = [event_sums(p[i : i + 2], o[i : i + 2], dim="all", bins=10) for i in range(0, 8, 2)]
    xr.testing.assert_allclose(relative_economic_value(merge_states(parts)), wanted, rtol=1e-13)
    lazy = relative_economic_value(event_sums(p.chunk(time=2), o, dim="time", bins=10))
    assert lazy["value"].chunks is not None
    assert lazy["envelope"].sizes == {"cost_loss": 99, "x": 40}


def test_refused():
    sums = event_sums(*case(), dim="all", bins=10)
    for ratios in (0.0, 1.0, [0.5, 1.5], [[0.5]]):
        with pytest.raises(ArgumentError, match="cost_loss: expected ratios between 0 and 1"):
            relative_economic_value(sums, cost_loss=ratios)
    with pytest.raises(ArgumentError, match="no sums of events"):
        relative_economic_value(xr.Dataset())
