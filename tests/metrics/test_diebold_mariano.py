"""The Diebold-Mariano test: against scores, scipy, formulas in loops, and by simulation."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import RechunkWarning
from ens10.metrics.uncertainty import automatic_lags, diebold_mariano

SEEDS = st.integers(0, 2**32 - 1)


def walk(rng, phi, shape):
    """AR(1) series of mean 0 and variance 1, dates first."""
    d = rng.normal(size=shape)
    for t in range(1, shape[0]):
        d[t] = phi * d[t - 1] + np.sqrt(1 - phi**2) * d[t]
    return d


def by_loops(d, lags, kernel, small):
    """The definition, date by date; dates may be missing."""
    there = np.flatnonzero(~np.isnan(d))
    n, mean = there.size, d[there].mean()
    V, expected = 0.0, 1.0 - 1.0 / n
    for s in there:
        for t in there:
            k = abs(int(s) - int(t))
            w = 1.0 if kernel == "rectangular" else 1.0 - k / (lags + 1)
            if k <= lags:
                V += w * (d[s] - mean) * (d[t] - mean) / n
                expected -= (w / n**2) if k else 0.0
    error = np.sqrt(V / n / (expected if small else 1.0))
    t = mean / error
    p = 2 * (stats.t.sf(abs(t), n - 1) if small else stats.norm.sf(abs(t)))
    return mean, error, t, p


@pytest.mark.filterwarnings("ignore:invalid value")
@settings(deadline=None, max_examples=40)
@given(SEEDS, st.integers(3, 25), st.integers(0, 6), st.sampled_from(["bartlett", "rectangular"]),
       st.booleans(), st.booleans())  # fmt: skip
def test_is_its_definition(seed, n, lags, kernel, small, gaps):
    rng = np.random.default_rng(seed)
    lags = min(lags, n - 2)
    d = walk(rng, 0.4, (n,)) + 0.3
    if gaps and n - 2 > lags + 2:
        d[rng.choice(n, 2, replace=False)] = np.nan
    got = diebold_mariano(d, lags=lags, kernel=kernel, small_sample=small, nan="omit")
    wanted = by_loops(d, lags, kernel, small)
    made = [float(got[k]) for k in ("difference", "standard_error", "statistic", "p_value")]
    if not wanted[1] > 1e-6:  # the rectangular kernel may make the variance 0 or less
        assert np.isnan(made[1:]).all() or made[1] < 1e-5
    else:
        np.testing.assert_allclose(made, wanted, rtol=1e-9, atol=1e-300)
    assert int(got["dates"]) == (~np.isnan(d)).sum()


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.integers(6, 60), st.integers(1, 5))
def test_rectangular_is_the_test_of_harvey_leybourne_and_newbold(seed, n, horizon):
    oracle = pytest.importorskip("scores.stats.statistical_tests")
    d = walk(np.random.default_rng(seed), 0.5, (n,)) + 0.2
    table = xr.DataArray(
        d[None], {"lead": [1], "h": ("lead", [horizon]), "date": np.arange(n)}, ("lead", "date")
    )
    wanted = oracle.diebold_mariano(
        table, "lead", "h", method="HLN", statistic_distribution="t", confidence_level=0.9
    ).isel(lead=0)
    got = diebold_mariano(d, horizon=horizon, kernel="rectangular", alternative="less")
    np.testing.assert_allclose(got["statistic"], wanted["dm_test_stat"], rtol=1e-10)
    np.testing.assert_allclose(got["p_value"], wanted["confidence_gt_0"], rtol=1e-9)
    half = stats.t.ppf(0.95, n - 1) * got["standard_error"]
    np.testing.assert_allclose(got["difference"] + half, wanted["ci_upper"], rtol=1e-8)


@pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])
def test_without_lags_it_is_the_paired_t_test(alternative):
    rng = np.random.default_rng(0)
    a, b = rng.gamma(2.0, size=(2, 30, 4, 5))
    for kernel in ("bartlett", "rectangular"):
        got = diebold_mariano(a - b, time_dim=0, lags=0, kernel=kernel, alternative=alternative)
        wanted = stats.ttest_rel(a, b, alternative=alternative)
        np.testing.assert_allclose(got["statistic"], wanted.statistic, rtol=1e-11)
        np.testing.assert_allclose(got["p_value"], wanted.pvalue, rtol=1e-10)
    a[3, 1, 2] = np.nan
    got = diebold_mariano(a - b, time_dim=0, lags=0, alternative=alternative, nan="omit")
    wanted = stats.ttest_rel(a, b, nan_policy="omit", alternative=alternative)
    np.testing.assert_allclose(got["p_value"], wanted.pvalue, rtol=1e-10)
    assert got["dates"].values[1, 2] == 29


def test_automatic_lags_are_newey_and_wests():
    assert [automatic_lags(n) for n in (2, 3, 10, 100, 101, 400, 1000)] == [0, 1, 2, 4, 4, 5, 6]
    got = diebold_mariano(np.random.default_rng(0).normal(size=100))
    assert got.attrs["lags"] == 4
    assert got.attrs["kernel"] == "bartlett"
    d = walk(np.random.default_rng(8), 0.4, (30,))
    got = diebold_mariano(d, horizon=4)
    assert got.attrs["lags"] == 3
    wanted = by_loops(d, 3, "bartlett", True)
    assert float(got["standard_error"]) == pytest.approx(wanted[1], rel=1e-12)


@pytest.mark.parametrize(
    ("phi", "lags", "most"), [(0.0, 0, 0.06), (0.0, None, 0.065), (0.3, None, 0.10)]
)
def test_p_values_are_uniform_without_a_difference(phi, lags, most):
    d = walk(np.random.default_rng(1), phi, (150, 6000))
    p = diebold_mariano(d, time_dim=0, lags=lags)["p_value"].values
    rejected = (p <= 0.05).mean()
    assert 0.043 < rejected < most  # the Bartlett kernel leaves out a part of the dependence
    if phi == 0:
        assert stats.kstest(p, "uniform").statistic < 0.03
    naive = diebold_mariano(d, time_dim=0, lags=0)["p_value"].values
    if phi > 0:
        assert (naive <= 0.05).mean() > rejected + 0.03


def test_small_samples_need_their_correction():
    d = np.random.default_rng(2).normal(size=(20, 8000))
    rates = {}
    for small in (True, False):
        made = diebold_mariano(d, time_dim=0, lags=3, small_sample=small)
        rates[small] = float((made["p_value"] <= 0.05).mean())
    assert 0.04 < rates[True] < 0.085
    assert rates[False] > rates[True] + 0.04


def test_the_better_forecast_is_found():
    rng = np.random.default_rng(3)
    d = walk(rng, 0.5, (300, 200)) - 0.5
    made = diebold_mariano(d, time_dim=0)
    assert ((made["p_value"] < 0.05) & (made["statistic"] < 0)).mean() > 0.95
    less = diebold_mariano(d, time_dim=0, alternative="less")["p_value"]
    np.testing.assert_allclose(less, made["p_value"] / 2, rtol=1e-9)


@pytest.mark.parametrize("chunks", [{"time": -1, "x": 7}, {"time": 5, "x": -1}])
def test_lazy_maps_are_tested_lazily(chunks):
    da = pytest.importorskip("dask.array")
    time = np.datetime64("2001-01-01", "ns") + np.arange(40) * np.timedelta64(1, "D")
    d = np.random.default_rng(4).normal(size=(40, 3, 20))
    whole = xr.DataArray(
        d, {"time": time, "x": np.arange(20)}, ("time", "y", "x"), attrs={"units": "K"}
    )
    wanted = diebold_mariano(whole, time_dim="time")
    if chunks["time"] == 5:
        with pytest.warns(RechunkWarning, match="8 chunks"):
            lazy = diebold_mariano(whole.chunk(chunks), time_dim="time")
    else:
        lazy = diebold_mariano(whole.chunk(chunks), time_dim="time")
    assert lazy["p_value"].chunks is not None
    xr.testing.assert_allclose(lazy.compute(), wanted, rtol=1e-12)
    assert wanted["p_value"].dims == ("y", "x")
    assert wanted["difference"].attrs == {"units": "K"}
    assert "units" not in wanted["p_value"].attrs
    plain = diebold_mariano(da.from_array(d, chunks=(40, 3, 10)), time_dim=0)
    np.testing.assert_allclose(plain["p_value"], wanted["p_value"], rtol=1e-12)


def test_tensors_and_other_axes_give_the_same(monkeypatch):
    torch = pytest.importorskip("torch")
    d = np.random.default_rng(5).normal(size=(3, 30, 50))
    wanted = np.array([diebold_mariano(row, time_dim=0)["p_value"].values for row in d])
    monkeypatch.setattr("ens10.metrics.uncertainty.hac._BLOCK_VALUES", 30 * 7)
    for given_ in (d, torch.from_numpy(d)):
        np.testing.assert_array_equal(diebold_mariano(given_, time_dim=1)["p_value"], wanted)
    single = diebold_mariano(d.astype(np.float32), time_dim=-2)["p_value"]
    np.testing.assert_allclose(single, wanted, rtol=1e-5)


def test_nothing_to_test_is_nan():
    d = np.random.default_rng(6).normal(size=(12, 5))
    d[:, 0], d[:, 1], d[3, 2], d[2:, 3] = 0.0, 0.1, np.nan, np.nan
    made = diebold_mariano(d, time_dim=0, lags=1)
    assert np.isnan(made["p_value"]).values.tolist() == [True, True, True, True, False]
    assert np.isnan(made["standard_error"]).values.tolist() == [True, True, True, True, False]
    assert made["difference"].values[:2] == pytest.approx([0.0, 0.1])
    assert np.isnan(made["difference"].values[2])
    omitted = diebold_mariano(d, time_dim=0, lags=1, nan="omit")
    assert np.isnan(omitted["p_value"]).values.tolist() == [True, True, False, True, False]
    assert omitted["dates"].values.tolist() == [12, 12, 11, 2, 12]
    # alternating signs make the rectangular estimate negative, never Bartlett's
    turns = np.array([1.0, -1.0] * 6) + 0.1
    assert np.isnan(diebold_mariano(turns, horizon=2, kernel="rectangular")["p_value"])
    assert diebold_mariano(turns, horizon=2)["p_value"] > 0


def test_bad_input_is_refused():
    d = np.random.default_rng(7).normal(size=20)
    for message, options in {
        "passed together": {"horizon": 2, "lags": 1},
        "needed for the kernel": {"kernel": "rectangular"},
        "horizon: expected": {"horizon": 0},
        "lags: expected": {"lags": -1},
        "20 dates are too few for 19 lags": {"lags": 19},
    }.items():
        with pytest.raises(ArgumentError, match=message):
            diebold_mariano(d, **options)
    for options in ({"kernel": "bartlet"}, {"alternative": "les"}, {"nan": "omitt"}):
        with pytest.raises(UnknownNameError, match="did you mean"):
            diebold_mariano(d, **options)
    with pytest.raises(ArgumentError, match="time_dim: None, of differences with 2"):
        diebold_mariano(d[None])
    with pytest.raises(ArgumentError, match="too few"):
        diebold_mariano(d[:1])
    dated = xr.DataArray(d, {"date": np.arange(20)[::-1]}, ("date",))
    with pytest.raises(ArgumentError, match=r"not in order. Use .sortby\('date'\)"):
        diebold_mariano(dated)
    with pytest.raises(ArgumentError, match="no dimension 'time'"):
        diebold_mariano(dated, time_dim="time")
    assert diebold_mariano(dated.sortby("date"))["p_value"] > 0


def test_other_coordinates_have_the_chunks_of_the_result():
    d = xr.DataArray(np.random.default_rng(0).normal(size=(9, 4)), dims=("time", "a"))
    cut = d.assign_coords(name=("a", list("wxyz"))).chunk(time=4, a=1)
    with pytest.warns(RechunkWarning):
        assert sum(diebold_mariano(cut, time_dim="time").chunksizes["a"]) == 4


def test_another_dimension_called_time():
    d = xr.DataArray(np.zeros((9, 4)), dims=("date", "time"))
    with pytest.raises(ArgumentError, match="'time' is another one of"):
        diebold_mariano(d, time_dim="date")
