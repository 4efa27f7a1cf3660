"""Sums of events per probability, and the Brier score taken apart."""

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import merge_states
from ens10.metrics.events import brier_decomposition, brier_score, event_sums

TERMS = ("reliability", "resolution", "uncertainty", "within_bin_variance", "within_bin_covariance")
BINNINGS = [
    {"bins": 10},
    {"bins": 1},
    {"bins": [0, 0.05, 0.5, 1]},
    {"digits": 1},
    {"bins": "unique"},
]


def case(seed=0, shape=(6, 4, 50), members=None):
    rng = np.random.default_rng(seed)
    p = (
        rng.beta(0.5, 1.0, shape)
        if members is None
        else rng.integers(0, members + 1, shape) / members
    )
    return p, (rng.random(shape) < p**1.3).astype(float), rng.random(shape[-1]) + 0.1


def named(p, o, w=None):
    dims, coords = ("time", "step", "x"), {"time": np.arange(len(p))}
    x, y = (xr.DataArray(a, dims=dims, coords=coords) for a in (p, o))
    return (x, y) if w is None else (x, y, xr.DataArray(w, dims="x"))


def identity(terms):
    signs = (1, -1, 1, 1, -1)
    return sum(sign * terms[name] for sign, name in zip(signs, TERMS, strict=True))


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 999),
    binning=st.sampled_from(BINNINGS),
    corrected=st.booleans(),
    weighted=st.booleans(),
    n=st.integers(1, 60),
)
def test_the_terms_make_up_the_score(seed, binning, corrected, weighted, n):
    p, o, w = case(seed, (2, 3, n))
    w = w if weighted else None
    rounded = np.round(p, 1) if "digits" in binning else p
    wanted = brier_score(rounded, o, dim="all", weights=w)
    sums = event_sums(p, o, dim="all", weights=w, **binning)
    terms = brier_decomposition(sums, bias_corrected=corrected)
    assert float(terms["brier"]) == pytest.approx(wanted, rel=1e-12, abs=1e-15)
    assert float(identity(terms)) == pytest.approx(wanted, rel=1e-12, abs=1e-15)
    three = terms["reliability"] - terms["generalised_resolution"] + terms["uncertainty"]
    assert float(three) == pytest.approx(wanted, rel=1e-12, abs=1e-15)
    if not corrected:
        assert all(terms[name] >= 0 for name in TERMS[:3])


def test_the_terms_are_what_they_are_called():
    p, o, w = case()
    terms = brier_decomposition(event_sums(p, o, dim="all", bins=5, weights=w))
    p, o, w = p.ravel(), o.ravel(), np.broadcast_to(w, p.shape).ravel()
    index, base = np.minimum((p * 5).astype(int), 4), np.average(o, weights=w)
    groups = [(w[index == k], p[index == k], o[index == k]) for k in range(5)]
    share = [part.sum() / w.sum() for part, _, _ in groups]
    mean = [np.average(f, weights=v) for v, f, _ in groups]
    rate = [np.average(e, weights=v) for v, _, e in groups]
    wanted = {
        "reliability": sum(s * (f - r) ** 2 for s, f, r in zip(share, mean, rate, strict=True)),
        "resolution": sum(s * (r - base) ** 2 for s, r in zip(share, rate, strict=True)),
        "uncertainty": base * (1 - base),
        "within_bin_variance": sum(
            s * np.cov(f, aweights=v, ddof=0) for s, (v, f, _) in zip(share, groups, strict=True)
        ),
        "within_bin_covariance": sum(
            2 * s * np.cov(f, e, aweights=v, ddof=0)[0, 1]
            for s, (v, f, e) in zip(share, groups, strict=True)
        ),
    }
    for name, value in wanted.items():
        assert float(terms[name]) == pytest.approx(value, rel=1e-11), name


@pytest.mark.parametrize("binning", [{"members": 10}, {"digits": 2}, {"bins": "unique"}])
def test_nothing_differs_within_a_probability(binning):
    for dtype in (np.float32, np.float64):
        p, o, _ = case(1, members=10)
        sums = event_sums(p.astype(dtype), o, dim="all", **binning)
        terms = brier_decomposition(sums)
        for name in TERMS[3:]:
            assert abs(float(terms[name])) < 1e-15
        wanted = brier_score(p, o, dim="all")
        assert float(terms["brier"]) == pytest.approx(
            wanted, rel=1e-6 if dtype == np.float32 else 1e-12
        )


@pytest.mark.parametrize("weighted", [False, True])
def test_corrected_terms_are_right_on_average(weighted):
    # reliable forecasts: reliability 0, resolution and uncertainty those of the probabilities
    rng = np.random.default_rng(0)
    values, chance = np.array([0.1, 0.4, 0.9]), [0.3, 0.5, 0.2]
    p = rng.choice(values, (20000, 40), p=chance)
    w = rng.uniform(0.2, 2, 40) if weighted else None
    o = (rng.random(p.shape) < p).astype(float)
    sums = event_sums(p, o, dim=1, digits=1, weights=w)
    plain, corrected = (brier_decomposition(sums, bias_corrected=c).mean() for c in (False, True))
    base = values @ chance
    wanted = {
        "reliability": 0,
        "resolution": (values - base) ** 2 @ chance,
        "uncertainty": base * (1 - base),
    }
    for name, value in wanted.items():
        assert float(corrected[name]) == pytest.approx(value, abs=6e-4), name
        assert abs(float(plain[name]) - value) > 3e-3, name


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 99), binning=st.sampled_from(BINNINGS), cut=st.integers(1, 5))
def test_blocks_of_dates_merge(seed, binning, cut):
    x, y, w = named(*case(seed, (6, 2, 9)))
    dims = "all" if binning == {"bins": "unique"} else ("time", "x")
    whole = event_sums(x, y, dim=dims, weights=w, **binning)
    parts = [
        event_sums(x[part], y[part], dim=dims, weights=w, **binning)
        for part in (slice(cut), slice(cut, None))
    ]
    merged = merge_states(parts)
    xr.testing.assert_allclose(merged, whole, rtol=1e-13)
    assert merged.attrs == whole.attrs
    xr.testing.assert_allclose(
        brier_decomposition(merged), brier_decomposition(whole), rtol=1e-10, atol=1e-15
    )
    with pytest.raises(ArgumentError, match="different settings"):
        merge_states([parts[0], event_sums(x[cut:], y[cut:], dim=dims, weights=w, bins=7)])


@pytest.mark.parametrize("binning", BINNINGS)
def test_all_libraries(binning):
    p, o, w = case()
    wanted = event_sums(p, o, dim="all", weights=w, **binning)
    for kind in (torch.tensor, da.asarray):
        got = event_sums(kind(p), kind(o), dim="all", weights=kind(w), **binning)
        xr.testing.assert_allclose(got, wanted, rtol=1e-13)
    got = event_sums(*named(p, o > 0), dim="all", weights=named(p, o, w)[2], **binning)
    xr.testing.assert_allclose(got, wanted, rtol=1e-13)
    if binning != {"bins": "unique"}:
        some = event_sums(p, o, dim=(0, -1), weights=w, **binning)
        assert some.sizes["dim_1"] == 4
        xr.testing.assert_allclose(
            some.sum("dim_1").assign_coords(bin_upper=wanted.bin_upper), wanted, rtol=1e-13
        )


def test_lazy_until_computed():
    def broken(block):
        raise AssertionError("computed")

    p, o, w = case()
    lazy = da.from_array(p, chunks=(2, 4, 20)).map_blocks(broken, dtype=p.dtype, meta=p[:0])
    sums = event_sums(lazy, o, dim="all", bins=10)
    assert all(v.chunks is not None for v in sums.values())
    assert all(dask.is_dask_collection(v) for v in brier_decomposition(sums).values())
    x, y, weights = named(p, o, w)
    sums = event_sums(
        x.chunk(time=1, x=20), y.chunk(time=2), dim=("time", "x"), weights=weights, bins=10
    )
    assert sums["event"].chunks is not None
    wanted = event_sums(x, y, dim=("time", "x"), weights=weights, bins=10)
    xr.testing.assert_allclose(sums.compute(), wanted, rtol=1e-13)
    # what is kept of a block is its sums
    graph = event_sums(da.zeros((400, 50, 60), chunks=(10, 50, 60)), 0, dim="all", bins=10)[
        "count"
    ].data
    assert max(np.prod(c) for c in graph.chunks) <= 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [3, 7, 10, 11, 50, 100])
def test_shares_at_the_edges_of_bins(n, dtype):
    share = np.arange(n + 1, dtype=dtype) / dtype(n)
    got = event_sums(share, 0, dim="all", bins=n)["count"]
    np.testing.assert_array_equal(got, [*[1] * (n - 1), 2])
    got = event_sums(share, 0, dim="all", members=n)
    np.testing.assert_array_equal(got["count"], 1)
    np.testing.assert_allclose(got["probability"], np.arange(n + 1) / n, rtol=1e-15)


def test_missing():
    p, o, w = case()
    p[0, 0, 0] = o[0, 1, 1] = np.nan
    lost = np.isnan(p) | np.isnan(o)
    sums = event_sums(p, o, dim=(0, 2), bins=5, weights=w)
    terms = brier_decomposition(sums, bias_corrected=True)
    for term in terms.values():
        np.testing.assert_array_equal(np.isnan(term), [True, True, False, False])
    got = event_sums(p, o, dim="all", bins=5, weights=w, nan="omit")
    wide = np.broadcast_to(w, p.shape)
    wanted = event_sums(p[~lost], o[~lost], dim="all", bins=5, weights=wide[~lost])
    xr.testing.assert_allclose(got, wanted, rtol=1e-13)
    none = brier_decomposition(event_sums(p * np.nan, o, dim="all", bins=5, nan="omit"))
    assert all(np.isnan(term) for term in none.values())


def test_refused():
    p, o, _ = case()
    for binning, told in (
        ({}, "bins: expected one of bins, members and digits, got none"),
        ({"bins": 5, "members": 3}, "got bins and members"),
        ({"bins": 0}, "bins: expected a whole number from 1"),
        ({"digits": 9}, "digits: expected a whole number from 1 to 6"),
        ({"members": 0}, "members: expected a whole number"),
        ({"bins": [0.1, 1]}, "edges that rise from 0 to 1"),
        ({"bins": [0, 0.7, 0.6, 1]}, "edges that rise from 0 to 1"),
        ({"members": 10}, "members: some probabilities are not multiples of 1/10"),
    ):
        with pytest.raises(ArgumentError, match=told):
            event_sums(p, o, dim="all", **binning)
    with pytest.raises(UnknownNameError, match="'uniqe' is not known; did you mean 'unique'"):
        event_sums(p, o, dim="all", bins="uniqe")
    with pytest.raises(ArgumentError, match='"unique" needs dim="all"'):
        event_sums(p, o, dim=0, bins="unique")
    with pytest.raises(ArgumentError, match="all values are missing"):
        event_sums(p * np.nan, o, dim="all", bins="unique")
    with pytest.raises(UnknownNameError, match="nan: 'omitt'"):
        event_sums(p, o, dim="all", bins=5, nan="omitt")
    with pytest.raises(ArgumentError, match=r"probability: .* not between 0 and 1"):
        event_sums(100 * p, o, dim="all", bins=5)
    with pytest.raises(ArgumentError, match=r"event: .* neither 0 nor 1"):
        event_sums(p, o + 0.5, dim="all", bins=5)
    with pytest.raises(ArgumentError, match="dim: a table is a sum over dimensions"):
        event_sums(p, o, dim=None, bins=5)
    for weights in (np.ones(7), np.ones((2, 6, 4, 50))):
        with pytest.raises(ArgumentError, match="weights"):
            event_sums(p, o, dim="all", bins=5, weights=weights)
    x, y = named(p, o)
    with pytest.raises(ArgumentError, match=r"weights: dimensions \['z'\] that the points lack"):
        event_sums(x, y, dim="all", bins=5, weights=xr.DataArray(np.ones(3), dims="z"))
    with pytest.raises(ArgumentError, match="event: its time differs from that of probability"):
        event_sums(x, y.assign_coords(time=y.time + 1), dim="all", bins=5)
    with pytest.raises(ArgumentError, match="event: time is 5 long, and 6 in probability"):
        event_sums(x.drop_vars("time"), y.drop_vars("time")[1:], dim="all", bins=5)
    with pytest.raises(ArgumentError, match="sums: no sums of events, without count, event"):
        brier_decomposition(xr.Dataset())
