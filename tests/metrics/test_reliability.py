"""Reliability diagrams and their bands of consistency."""

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import merge_states
from ens10.metrics.events import event_sums, reliability_diagram

BANDS = [{"band": "binomial"}, {"band": "resampling", "seed": 3, "resamples": 400}]


def case(seed=0, shape=(6, 60), members=10):
    rng = np.random.default_rng(seed)
    p = rng.integers(0, members + 1, shape) / members
    return p, (rng.random(shape) < p).astype(float)


def test_the_points():
    p, o = case()
    w = np.random.default_rng(1).random(60)
    diagram = reliability_diagram(event_sums(p, o, dim="all", bins=4, weights=w))
    wide = np.broadcast_to(w, p.shape)
    for k in range(4):
        there = (p >= k / 4) & ((p < (k + 1) / 4) | (k == 3))
        row = diagram.isel(bin=k)
        assert row["count"] == there.sum()
        assert float(row["share"]) == pytest.approx(wide[there].sum() / wide.sum(), rel=1e-12)
        for name, values in (("forecast_mean", p), ("observed_frequency", o)):
            wanted = np.average(values[there], weights=wide[there])
            assert float(row[name]) == pytest.approx(wanted, rel=1e-12)
    assert diagram["observed_frequency"].attrs == {"long_name": "observed frequency", "units": "1"}


def test_bands_of_the_binomial_distribution():
    p, o = case()
    sums = event_sums(p, o, dim="all", members=10)
    diagram = reliability_diagram(sums, level=0.8)
    for k, (n, q) in enumerate(zip(sums["count"].values, np.arange(11) / 10, strict=True)):
        low, high = stats.binom(n, q).interval(0.8)
        assert float(diagram["band_lower"][k]) == pytest.approx(low / n, rel=1e-12)
        assert float(diagram["band_upper"][k]) == pytest.approx(high / n, rel=1e-12)


def test_bands_of_resampling_are_those_of_broecker_and_smith():
    rng = np.random.default_rng(2)
    p = rng.beta(1, 2, 300)
    sums = event_sums(p, np.zeros(300), dim="all", bins=5)
    got = reliability_diagram(sums, band="resampling", seed=1, resamples=20000)
    index, rates = np.minimum((p * 5).astype(int), 4), np.full((4000, 5), np.nan)
    for row in rates:  # as they do: forecasts drawn anew, events drawn from them
        drawn = rng.integers(0, 300, 300)
        events = rng.random(300) < p[drawn]
        n = np.bincount(index[drawn], minlength=5)
        row[:] = np.bincount(index[drawn], events, 5) / np.where(n, n, np.nan)
    for name, tail in (("band_lower", 0.05), ("band_upper", 0.95)):
        wanted = np.nanquantile(rates, tail, axis=0)
        np.testing.assert_allclose(got[name], wanted, atol=0.03)
        exact = reliability_diagram(sums)[name]
        np.testing.assert_allclose(got[name], exact, atol=0.06)


@pytest.mark.parametrize("options", BANDS)
def test_reliable_forecasts_lie_in_the_band(options):
    rng = np.random.default_rng(4)
    p = rng.integers(0, 6, (150, 400)) / 5
    o = (rng.random(p.shape) < p).astype(float)
    diagram = reliability_diagram(event_sums(p, o, dim=1, members=5), level=0.9, **options)
    inner = diagram.isel(bin=slice(1, -1))  # those at 0 and 1 are certain
    rate = inner["observed_frequency"]
    inside = float(((rate >= inner["band_lower"]) & (rate <= inner["band_upper"])).mean())
    assert 0.87 < inside < 0.96
    wrong = reliability_diagram(event_sums(0.5 * p + 0.25, o, dim="all", bins=6), **options)
    row = wrong.isel(bin=1)
    assert row["observed_frequency"] < row["band_lower"]


def test_dependent_points_and_weights_widen_the_band():
    p, o = case(shape=(4000,))
    width = {}
    for name, sums, options in (
        ("all", event_sums(p, o, dim="all", members=10), {}),
        ("some", event_sums(p, o, dim="all", members=10), {"independent": 0.25}),
        ("uneven", event_sums(p, o, dim="all", members=10, weights=np.arange(4000) < 1000), {}),
        ("scaled", event_sums(p, o, dim="all", members=10, weights=np.full(4000, 7.0)), {}),
    ):
        for band in BANDS:
            diagram = reliability_diagram(sums, **band, **options)
            found = float((diagram["band_upper"] - diagram["band_lower"])[5])
            width[name, band["band"]] = found
    for kind in ("binomial", "resampling"):
        for name in ("some", "uneven"):
            assert width[name, kind] / width["all", kind] == pytest.approx(2, rel=0.2)
        assert width["scaled", kind] == pytest.approx(width["all", kind], rel=0.1)


@pytest.mark.parametrize("options", BANDS)
def test_libraries_blocks_and_seeds(options):
    p, o = case()
    wanted = reliability_diagram(event_sums(p, o, dim="all", members=10), **options)
    got = reliability_diagram(
        event_sums(torch.tensor(p), torch.tensor(o), dim="all", members=10), **options
    )
    xr.testing.assert_identical(got, wanted)
    x, y = (xr.DataArray(a, dims=("time", "x")) for a in (p, o))
    parts = [event_sums(x[i : i + 2], y[i : i + 2], dim="all", members=10) for i in (0, 2, 4)]
    xr.testing.assert_allclose(reliability_diagram(merge_states(parts), **options), wanted)
    rows = reliability_diagram(event_sums(x, y, dim="x", members=10), **options)
    lazy = reliability_diagram(event_sums(x.chunk(time=1), y, dim="x", members=10), **options)
    assert all(dask.is_dask_collection(v) for v in lazy.values())
    xr.testing.assert_allclose(lazy.compute(), rows)
    if "seed" in options:
        other = reliability_diagram(
            event_sums(p, o, dim="all", members=10), **{**options, "seed": 4}
        )
        assert not other["band_lower"].equals(wanted["band_lower"])


@pytest.mark.parametrize("options", BANDS)
def test_empty_bins_and_missing_points(options):
    p, o = case()
    p[0], p[1, 0] = 0.25, np.nan
    diagram = reliability_diagram(event_sums(p, o, dim=1, bins=4), **options)
    assert diagram["observed_frequency"][0].notnull().values.tolist() == [False, True, False, False]
    for name in ("forecast_mean", "band_lower", "band_upper"):
        np.testing.assert_array_equal(diagram[name][0].notnull(), [False, True, False, False])
        assert diagram[name][1].isnull().all()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"band": "binomal"}, UnknownNameError, "band: 'binomal' is not known; did you mean"),
        ({"band": "resampling"}, ArgumentError, "seed: resampling needs one"),
        ({"level": 90}, ArgumentError, "level: expected a number between 0 and 1"),
        ({"independent": 0}, ArgumentError, "independent: expected a number above 0"),
        ({"resamples": 0}, ArgumentError, "resamples: expected one or more"),
    ],
)
def test_refused(options, error, words):
    sums = event_sums(*case(), dim="all", bins=4)
    with pytest.raises(error, match=words):
        reliability_diagram(sums, **options)


def test_sums_of_something_else():
    sums = event_sums(*case(), dim="all", bins=4)
    with pytest.raises(ArgumentError, match="no sums of events"):
        reliability_diagram(sums.drop_vars("weight_square"))


@pytest.mark.parametrize("kind", [np.asarray, da.asarray])
def test_sums_of_no_points(kind):
    none = kind(np.zeros((0, 3)))
    got = event_sums(none, none, dim="all", bins=4)
    assert all(float(part.sum()) == 0 for part in got.values())
