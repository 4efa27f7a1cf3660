"""CORP: isotonic recalibration, its terms and its band."""

import dask
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from ens10.errors import ArgumentError
from ens10.metrics import merge_states
from ens10.metrics.events import (
    brier_decomposition,
    brier_score,
    corp_decomposition,
    corp_diagram,
    event_sums,
)
from ens10.metrics.events.corp import isotonic

POOLED = [{"members": 10}, {"digits": 2}, {"bins": "unique"}]


def case(seed=0, shape=(6, 40), members=10):
    rng = np.random.default_rng(seed)
    p = rng.integers(0, members + 1, shape) / members
    return p, (rng.random(shape) < 0.2 + 0.5 * p**2).astype(float)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 9999), n=st.integers(1, 80), whole=st.booleans())
def test_isotonic_regression_beside_scipy(seed, n, whole):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, (2, n)) * 1.0 if whole else rng.normal(size=(2, n)).cumsum(-1)
    w = rng.integers(1, 4, (2, n)) * 1.0 if whole else rng.uniform(0.1, 5, (2, n))
    got = isotonic(w * y, w)
    for row in range(2):
        wanted = isotonic_regression(y[row], weights=w[row]).x
        np.testing.assert_allclose(got[row], wanted, rtol=0, atol=1e-12 * (1 + abs(y).max()))


def test_isotonic_regression_where_there_is_no_weight():
    total, w = np.array([0.0, 3, 0, 1, 9, 0]), np.array([0.0, 1, 0, 1, 1, 0])
    got = isotonic(total, w)
    np.testing.assert_array_equal(got, [np.nan, 2, 2, 2, 9, np.nan])
    assert np.isnan(isotonic(np.array([1, np.nan]), np.ones(2))).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), weighted=st.booleans(), pooled=st.sampled_from(POOLED))
def test_the_terms_make_up_the_score(seed, weighted, pooled):
    p, o = case(seed)
    w = np.random.default_rng(seed).random(40) + 0.1 if weighted else None
    sums = event_sums(p, o, dim="all", weights=w, **pooled)
    terms = corp_decomposition(sums)
    wide = np.broadcast_to(1.0 if w is None else w, p.shape).ravel()
    # by the definition, on the points: equal forecasts are pooled by the mean of their events
    _, index = np.unique(p.ravel(), return_inverse=True)
    weight = np.bincount(index, wide)
    rate = np.bincount(index, wide * o.ravel()) / weight
    fit = isotonic_regression(rate, weights=weight).x[index]
    raw, after, base = (
        np.average((f - o.ravel()) ** 2, weights=wide)
        for f in (p.ravel(), fit, np.average(o.ravel(), weights=wide))
    )
    wanted = {
        "brier": raw, "miscalibration": raw - after, "discrimination": base - after,
        "uncertainty": base,
    }  # fmt: skip
    for name, value in wanted.items():
        assert float(terms[name]) == pytest.approx(value, rel=1e-11, abs=1e-14), name
    total = terms["miscalibration"] - terms["discrimination"] + terms["uncertainty"]
    assert float(total) == pytest.approx(brier_score(p, o, dim="all", weights=w), rel=1e-12)
    assert terms["miscalibration"] > -1e-15
    assert terms["discrimination"] > -1e-15


def test_beside_another_library():
    scores = pytest.importorskip("scores.probability")
    rng = np.random.default_rng(1)
    p = rng.random(200).round(2)
    o = (rng.random(200) < p**2).astype(float)
    wanted = scores.isotonic_fit(p, o)
    got = corp_diagram(event_sums(p, o, dim="all", bins="unique"), seed=0, resamples=10)
    np.testing.assert_array_equal(
        got["forecast"],
        wanted["fcst_sorted"][np.sort(np.unique(wanted["fcst_sorted"], return_index=True)[1])],
    )
    fit = dict(zip(wanted["fcst_sorted"], wanted["regression_values"], strict=True))
    np.testing.assert_allclose(
        got["recalibrated"], [fit[v] for v in got["forecast"].values], rtol=1e-12
    )


def test_rising_frequencies_need_no_pooling():
    p = np.repeat([0.1, 0.5, 0.9], 4)
    o = np.array([0, 0, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1.0])
    sums = event_sums(p, o, dim="all", bins="unique")
    corp, murphy = corp_decomposition(sums), brier_decomposition(sums)
    assert float(corp["miscalibration"]) == pytest.approx(float(murphy["reliability"]), rel=1e-12)
    assert float(corp["discrimination"]) == pytest.approx(float(murphy["resolution"]), rel=1e-12)


def test_the_band_is_that_of_reliable_forecasts():
    rng = np.random.default_rng(4)
    p = rng.integers(0, 6, (150, 400)) / 5
    o = (rng.random(p.shape) < p).astype(float)
    sums = event_sums(p, o, dim=1, members=5)
    diagram = corp_diagram(sums, seed=1, level=0.9, resamples=300).isel(bin=slice(1, -1))
    fit = diagram["recalibrated"]
    inside = float(((fit >= diagram["band_lower"]) & (fit <= diagram["band_upper"])).mean())
    assert 0.87 < inside < 0.94
    wider = corp_diagram(sums.isel(dim_0=0), seed=1, independent=0.25)
    usual = corp_diagram(sums.isel(dim_0=0), seed=1)
    ratio = (wider["band_upper"] - wider["band_lower"]) / (
        usual["band_upper"] - usual["band_lower"]
    )
    assert float(ratio[1:-1].mean()) == pytest.approx(2, rel=0.2)


def test_the_band_beside_draws_of_points():
    # forecasts drawn anew, events drawn from them, the fit made again, point by point
    rng = np.random.default_rng(5)
    p = rng.integers(0, 8, 60) / 7
    got = corp_diagram(event_sums(p, p > 0.5, dim="all", members=7), seed=2, resamples=4000)
    values, fits = np.arange(8) / 7, []
    for _ in range(1500):
        drawn = np.sort(rng.choice(p, 60))
        fit = isotonic_regression((rng.random(60) < drawn) * 1.0).x
        kept, index = np.unique(drawn, return_inverse=True)
        rate = np.bincount(index, fit) / np.bincount(index)
        again = isotonic_regression(rate, weights=np.bincount(index) * 1.0).x
        fits.append(np.interp(values, kept, again))
    for name, tail in (("band_lower", 0.05), ("band_upper", 0.95)):
        np.testing.assert_allclose(got[name], np.quantile(fits, tail, axis=0), atol=0.12)


def test_libraries_blocks_and_seeds():
    p, o = case()
    whole = event_sums(p, o, dim="all", bins="unique")
    wanted = corp_diagram(whole, seed=3, resamples=50)
    tensors = event_sums(torch.tensor(p), torch.tensor(o), dim="all", bins="unique")
    xr.testing.assert_identical(corp_diagram(tensors, seed=3, resamples=50), wanted)
    x, y = (xr.DataArray(a, dims=("time", "x")) for a in (p, o))
    parts = [event_sums(x[i : i + 2], y[i : i + 2], dim="all", bins="unique") for i in (0, 2, 4)]
    xr.testing.assert_allclose(corp_diagram(merge_states(parts), seed=3, resamples=50), wanted)
    xr.testing.assert_allclose(corp_decomposition(merge_states(parts)), corp_decomposition(whole))
    other = corp_diagram(whole, seed=4, resamples=50)
    assert not other["band_lower"].equals(wanted["band_lower"])
    rows = event_sums(x, y, dim="x", members=10)
    lazy = event_sums(x.chunk(time=1), y, dim="x", members=10)
    for finish in (corp_decomposition, lambda s: corp_diagram(s, seed=3, resamples=50)):
        got = finish(lazy)
        assert all(dask.is_dask_collection(v) for k, v in got.items())
        xr.testing.assert_allclose(got.compute(), finish(rows))


def test_empty_and_missing():
    p, o = case()
    p[0], p[1, 0] = 0.3, np.nan
    sums = event_sums(p, o, dim=1, members=10)
    diagram, terms = corp_diagram(sums, seed=0, resamples=20), corp_decomposition(sums)
    for name in ("forecast", "recalibrated", "band_lower", "band_upper"):
        np.testing.assert_array_equal(diagram[name][0].notnull(), np.arange(11) == 3)
        assert diagram[name][1].isnull().all()
    for term in terms.values():
        np.testing.assert_array_equal(term.isnull(), [False, True, *[False] * 4])


def test_refused():
    p, o = case()
    binned = event_sums(p, o, dim="all", bins=10)
    for finish in (corp_decomposition, lambda s: corp_diagram(s, seed=0)):
        with pytest.raises(ArgumentError, match=r"bins \(edges 0, 0.1, .* hold different prob"):
            finish(binned)
    sums = event_sums(p, o, dim="all", members=10)
    with pytest.raises(ArgumentError, match="level: expected"):
        corp_diagram(sums, seed=0, level=1.0)
    with pytest.raises(ArgumentError, match="resamples: 100000000 draws of 11 probabilities take"):
        corp_diagram(sums, seed=0, resamples=10**8)
