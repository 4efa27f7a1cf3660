"""Many tests: false discovery rates against scipy, Holm's method by hand, and by simulation."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.ndimage import gaussian_filter

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.uncertainty import benjamini_hochberg, holm


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(0, 1) | st.just(np.nan) | st.sampled_from([0.01, 0.02, 0.05]), min_size=1,
             max_size=40),
    st.sampled_from([0.01, 0.05, 0.2]),
)  # fmt: skip
def test_is_scipys(values, rate):
    p = np.array(values)
    there = ~np.isnan(p)
    for dependence, method in (("none", "bh"), ("any", "by")):
        got = benjamini_hochberg(p, rate=rate, dependence=dependence)
        wanted = np.full(p.shape, np.nan)
        if there.any():
            wanted[there] = stats.false_discovery_control(p[there], method=method)
        np.testing.assert_allclose(got["adjusted"], wanted, rtol=1e-12)
        np.testing.assert_array_equal(got["significant"], got["adjusted"] <= rate)
        assert int(got["tests"]) == there.sum()


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.sampled_from(["none", "spatial"]))
def test_the_threshold_is_the_largest_p_below_the_line(seed, m, dependence):
    p = np.random.default_rng(seed).beta(0.3, 1.0, size=m)
    got = benjamini_hochberg(p, rate=0.1, dependence=dependence)
    level = 0.1 * {"none": 1, "spatial": 2}[dependence]
    below = [q for i, q in enumerate(sorted(p), start=1) if q <= i / m * level]
    if below:
        assert float(got["threshold"]) == max(below)
        np.testing.assert_array_equal(got["significant"], p <= max(below))
    else:
        assert np.isnan(got["threshold"])
        assert not got["significant"].any()


def test_the_false_discovery_rate_is_kept():
    rng = np.random.default_rng(0)
    m, real, trials = 200, 40, 1500
    z = rng.normal(size=(trials, m))
    z[:, :real] += 3.0
    p = 2 * stats.norm.sf(np.abs(z))
    found = benjamini_hochberg(p, rate=0.1, dim=1)["significant"].values
    false = found[:, real:].sum(axis=1) / np.maximum(1, found.sum(axis=1))
    assert false.mean() == pytest.approx(0.1 * (m - real) / m, abs=0.008)
    assert found[:, :real].mean() > 0.6
    naive = p <= 0.1
    assert (naive[:, real:].sum(axis=1) / naive.sum(axis=1)).mean() > 0.25


def test_spatial_dependence_makes_the_test_of_maps_strict():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(600, 40, 40))
    smooth = gaussian_filter(noise, (0, 4, 4), mode="wrap")
    p = 2 * stats.norm.sf(np.abs(smooth / smooth.std()))
    rates = {}
    for dependence in ("none", "spatial"):
        made = benjamini_hochberg(p, rate=0.1, dim=(1, 2), dependence=dependence)
        rates[dependence] = float(made["significant"].any(("dim_1", "dim_2")).mean())
    assert rates["none"] < 0.075
    assert rates["none"] < rates["spatial"] < 0.13


@pytest.mark.parametrize("lazy", [False, True])
def test_maps_are_judged_apart(lazy):
    p = xr.DataArray(
        np.random.default_rng(2).beta(0.4, 1, size=(3, 6, 8)),
        {"step": [24, 48, 72]},
        ("step", "latitude", "longitude"),
    )
    p[1, 2] = np.nan
    p[2] = 0.9
    given_ = p.chunk(step=1, latitude=3) if lazy else p
    got = benjamini_hochberg(given_, dim=("latitude", "longitude"))
    assert (got["significant"].chunks is not None) == lazy
    assert got["significant"].dims == p.dims
    assert got["significant"].dtype == bool
    assert got["tests"].values.tolist() == [48, 40, 48]
    for i in range(3):
        one = benjamini_hochberg(p[i])
        for name in ("significant", "adjusted", "threshold"):
            np.testing.assert_array_equal(got[name][i], one[name])
    assert got["significant"][0].any()
    assert not got["significant"].values[1, 2].any()
    assert np.isnan(got["threshold"].values[2])
    across = benjamini_hochberg(given_, dim="step")
    wanted = stats.false_discovery_control(p.fillna(1.0).values[[0, 1, 2]][:, 0], axis=0)
    np.testing.assert_allclose(across["adjusted"][:, 0], wanted, rtol=1e-12)


def test_holms_values_are_those_of_a_table_made_by_hand():
    p = np.array([0.04, 0.01, np.nan, 0.005, 0.03])
    found = holm(p)
    # 4 x 0.005, 3 x 0.01, 2 x 0.03, and 0.04, which may not be below the one before
    np.testing.assert_allclose(found["adjusted"], [0.06, 0.03, np.nan, 0.02, 0.06], rtol=1e-12)
    assert found["significant"].values.tolist() == [False, True, False, True, False]
    assert (float(found["threshold"]), int(found["tests"])) == (0.01, 4)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
def test_holms_tests_end_at_the_first_that_fails(seed, m):
    p = np.random.default_rng(seed).beta(0.3, 1.0, size=m)
    expected = np.zeros(m, bool)
    for rank, at in enumerate(np.argsort(p)):
        if p[at] > 0.1 / (m - rank):
            break
        expected[at] = True
    np.testing.assert_array_equal(holm(p, rate=0.1)["significant"], expected)


def test_holm_keeps_the_probability_of_any_false_finding():
    rng = np.random.default_rng(4)
    z = rng.normal(size=(4000, 10))
    z[:, :3] += 4.0
    found = holm(2 * stats.norm.sf(np.abs(z)), rate=0.1, dim=1)["significant"].values
    assert found[:, 3:].any(axis=1).mean() < 0.11
    assert found[:, :3].mean() > 0.9
    with pytest.raises(ArgumentError, match="rate"):
        holm(np.array([0.1]), rate=0)


def test_tensors_and_dask_arrays_are_taken():
    torch = pytest.importorskip("torch")
    da = pytest.importorskip("dask.array")
    p = np.random.default_rng(3).beta(0.4, 1, size=(4, 30))
    wanted = benjamini_hochberg(p)["adjusted"]
    for other in (torch.from_numpy(p), da.from_array(p, chunks=10)):
        np.testing.assert_array_equal(benjamini_hochberg(other)["adjusted"], wanted)


def test_bad_input_is_refused():
    p = np.array([0.1, 0.2])
    for rate in (0.0, 1.0, 5):
        with pytest.raises(ArgumentError, match="rate"):
            benjamini_hochberg(p, rate=rate)
    for bad in (p - 0.2, p + 0.9):
        with pytest.raises(ArgumentError, match=r"p: values outside \[0, 1\]"):
            benjamini_hochberg(bad)
    with pytest.raises(UnknownNameError, match="did you mean 'spatial'"):
        benjamini_hochberg(p, dependence="spatia")
    with pytest.raises(ArgumentError, match="dim"):
        benjamini_hochberg(xr.DataArray(p, dims="x"), dim="y")
    empty = benjamini_hochberg(np.full(3, np.nan))
    assert not empty["significant"].any()
    assert int(empty["tests"]) == 0


def test_no_tests_and_tests_apart():
    with pytest.raises(ArgumentError, match="p: there are no tests"):
        benjamini_hochberg(np.zeros(0))
    found = benjamini_hochberg(np.array([0.01, 0.2]), dim=())
    assert found["tests"].dtype == np.int64
