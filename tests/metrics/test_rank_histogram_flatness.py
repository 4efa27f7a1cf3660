"""Summaries of rank histograms: their distribution if calibrated, and what they see if not."""

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from scipy.stats import chi2, chisquare, kstest, norm

from ens10.errors import ArgumentError
from ens10.metrics.calibration import histogram_flatness, pit_histogram, rank_histogram
from ens10.metrics.calibration.histograms import contrasts

RNG = np.random.default_rng(0)
MANY = xr.DataArray(RNG.multinomial(900, [1 / 9] * 9, size=4000), dims=("case", "rank"))


def test_by_hand():
    found = histogram_flatness(xr.DataArray([8, 2, 2, 4], dims="rank"))
    assert float(found["reliability_index"]) == pytest.approx((4 + 2 + 2 + 0) / 16)
    assert float(found["delta"]) == pytest.approx((16 + 4 + 4) / (16 * 3 / 4))
    wanted = chisquare([8, 2, 2, 4])
    assert float(found["chi2"]) == pytest.approx(wanted.statistic)
    assert float(found["chi2_p"]) == pytest.approx(wanted.pvalue)
    slope = (np.array([-3, -1, 1, 3]) @ [8, 2, 2, 4]) / 20**0.5 / 2
    u_shape = (np.array([1, -1, -1, 1]) @ [8, 2, 2, 4]) / 4**0.5 / 2
    assert float(found["slope"]) == pytest.approx(slope)
    assert float(found["u_shape"]) == pytest.approx(u_shape)
    assert float(found["slope_p"]) == pytest.approx(2 * norm.sf(abs(slope)))
    assert float(found["u_shape_p"]) == pytest.approx(2 * norm.sf(abs(u_shape)))
    rest = wanted.statistic - slope**2 - u_shape**2
    assert float(found["rest_p"]) == pytest.approx(chi2.sf(rest, 1))
    assert int(found["points"]) == 16


@pytest.mark.parametrize("n", [3, 4, 11, 51])
def test_contrasts_are_orthogonal(n):
    basis = np.stack([*contrasts(n), np.full(n, n**-0.5)])
    np.testing.assert_allclose(basis @ basis.T, np.eye(3), atol=1e-13)


def test_statistics_of_calibrated_histograms():
    found = histogram_flatness(MANY)
    assert float(found["delta"].mean()) == pytest.approx(1, abs=4 * (2 / 8 / 4000) ** 0.5)
    for name in ("slope", "u_shape"):
        assert kstest(found[name], "norm").pvalue > 1e-3
    # counts are discrete; their chi-square is nearly one
    for name in ("chi2_p", "slope_p", "u_shape_p", "rest_p"):
        assert kstest(found[name], "uniform").pvalue > 1e-4


def test_what_a_wrong_forecast_shows():
    x = np.random.default_rng(1).normal(size=(10, 5000))
    y = np.random.default_rng(2).normal(size=5000)

    def of(members, observed):
        counts = rank_histogram(members, observed, member_dim=0, seed=0)
        return {k: float(v) for k, v in histogram_flatness(counts).items()}

    narrow, wide, low = of(0.5 * x, y), of(2 * x, y), of(x - 0.5, y)
    assert narrow["u_shape"] > 20
    assert wide["u_shape"] < -20
    assert low["slope"] > 20
    assert of(x, y)["delta"] < 4
    for wrong in (narrow, wide, low):
        assert wrong["delta"] > 20
        assert wrong["chi2_p"] < 1e-10


def test_pit_histograms_lazily_and_by_row():
    values = da.from_array(np.random.default_rng(3).random((4, 500)), chunks=(2, 100))
    counts = pit_histogram(values, 10, dim=1)
    found = histogram_flatness(counts)
    assert dask.is_dask_collection(found)
    assert found["delta"].dims == ("dim_0",)
    wanted = histogram_flatness(counts["count"][2].compute())
    assert float(found["delta"][2]) == pytest.approx(float(wanted["delta"]))


def test_few_bins_or_points():
    found = histogram_flatness(xr.DataArray([[3, 5], [0, 0]], dims=("a", "rank")))
    assert float(found["slope"][0]) == pytest.approx(2 / 8**0.5)
    assert np.isnan(found["u_shape"]).all()
    assert np.isnan(found["delta"][1])
    with pytest.raises(ArgumentError, match=r"no dimension rank or pit_bin, only \('a',\)"):
        histogram_flatness(xr.DataArray([1, 2], dims="a"))
    with pytest.raises(ArgumentError, match="two or more bins"):
        histogram_flatness(xr.DataArray([1], dims="rank"))
