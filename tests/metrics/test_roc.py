"""The relative operating characteristic, and contingency tables."""

import dask
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ens10.errors import ArgumentError
from ens10.metrics import merge_states
from ens10.metrics.events import contingency_tables, event_sums, roc_curve


def case(seed=0, shape=(8, 40), members=10):
    rng = np.random.default_rng(seed)
    p = rng.integers(0, members + 1, shape) / members
    return p, (rng.random(shape) < 0.2 + 0.6 * p).astype(float)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 999), members=st.integers(1, 20))
def test_the_area_is_that_of_mann_and_whitney(seed, members):
    p, o = case(seed, members=members)
    with_event, without = p[o == 1], p[o == 0]
    u = stats.mannwhitneyu(with_event, without).statistic
    wanted = u / with_event.size / without.size
    for binning in ({"members": members}, {"bins": "unique"}, {"digits": 3}):
        q = p if binning != {"digits": 3} else p.round(3)
        curve = roc_curve(event_sums(q, o, dim="all", **binning))
        assert float(curve["area"]) == pytest.approx(wanted, rel=1e-12)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 999))
def test_beside_another_library(seed):
    scores = pytest.importorskip("scores.probability")
    p, o = (xr.DataArray(a, dims=("time", "x")) for a in case(seed))
    w = xr.DataArray(np.random.default_rng(seed).random(40), dims="x")
    wanted = scores.roc_curve_data(p, o, np.arange(11) / 10, weights=w.broadcast_like(p))
    got = roc_curve(event_sums(p, o, dim="all", members=10, weights=w))
    for mine, theirs in (("hit_rate", "POD"), ("false_alarm_rate", "POFD"), ("area", "AUC")):
        np.testing.assert_allclose(got[mine], wanted[theirs], rtol=1e-12, atol=1e-14)


def test_tables_count_every_threshold():
    p, o = case()
    tables = contingency_tables(event_sums(p, o, dim=1, members=10))
    np.testing.assert_allclose(tables["threshold"], [*np.arange(11) / 10, np.inf])
    for k, limit in enumerate(tables["threshold"].values):
        warned, happened = p >= limit, o == 1
        wanted = {
            "hits": warned & happened,
            "misses": ~warned & happened,
            "false_alarms": warned & ~happened,
            "correct_negatives": ~warned & ~happened,
        }
        for name, where in wanted.items():
            np.testing.assert_array_equal(tables[name].isel(threshold=k), where.sum(1), name)


def test_yes_or_no():
    p = np.array([1, 1, 0, 0, 0, 1.0])
    o = np.array([1, 0, 1, 0, 0, 1.0])
    table = contingency_tables(event_sums(p, o, dim="all", members=1)).sel(threshold=1.0)
    assert {k: float(v) for k, v in table.items()} == {
        "hits": 2, "misses": 1, "false_alarms": 1, "correct_negatives": 2,
    }  # fmt: skip


def test_the_best_the_worst_and_none():
    o = np.array([1.0, 0, 1, 0])
    for p, area in ((o, 1.0), (1 - o, 0.0), (np.full(4, 0.5), 0.5)):
        curve = roc_curve(event_sums(p, o, dim="all", members=2))
        assert float(curve["area"]) == area
        assert float(curve["hit_rate"][0]) == float(curve["false_alarm_rate"][0]) == 1
        assert float(curve["hit_rate"][-1]) == float(curve["false_alarm_rate"][-1]) == 0
    for none in (np.ones(4), np.zeros(4)):
        assert np.isnan(roc_curve(event_sums(o, none, dim="all", members=2))["area"])


def test_blocks_merge_and_stay_lazy():
    p, o = (xr.DataArray(a, dims=("time", "x")) for a in case())
    wanted = roc_curve(event_sums(p, o, dim="all", bins="unique"))
    parts = [
        event_sums(p[i : i + 2], o[i : i + 2], dim="all", bins="unique") for i in range(0, 8, 2)
    ]
    xr.testing.assert_allclose(roc_curve(merge_states(parts)), wanted, rtol=1e-13)
    lazy = roc_curve(event_sums(p.chunk(time=2), o.chunk(time=2), dim="time", members=10))
    assert all(dask.is_dask_collection(v) for v in lazy.values())
    assert lazy["area"].sizes == {"x": 40}
    xr.testing.assert_allclose(lazy.compute(), roc_curve(event_sums(p, o, dim="time", members=10)))
    p, o = p.where(p.x > 0), o
    area = roc_curve(event_sums(p, o, dim="time", members=10))["area"]
    assert np.isnan(area[0])
    with pytest.raises(ArgumentError, match="no sums of events"):
        roc_curve(xr.Dataset({"event": 1.0}))
