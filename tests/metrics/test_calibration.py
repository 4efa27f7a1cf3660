"""PIT of normals, and histograms of PIT values."""

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from scipy.stats import chisquare, norm

from ens10.errors import ArgumentError
from ens10.metrics.calibration import pit_counts, pit_histogram, pit_normal

RNG = np.random.default_rng(0)


def test_pit_is_the_normal_distribution_function():
    rng = np.random.default_rng(1)
    mu, sigma, y = rng.normal(size=200), rng.uniform(0.1, 3, 200), rng.normal(size=200)
    np.testing.assert_allclose(pit_normal(mu, sigma, y), norm.cdf(y, mu, sigma), rtol=1e-12)
    lazy = xr.DataArray(mu, dims="p").chunk(p=7)
    got = pit_normal(lazy, 1.0, xr.DataArray(y, dims="p"))
    assert got.chunks is not None
    np.testing.assert_allclose(got, norm.cdf(y - mu), rtol=1e-12)
    assert pit_normal(1.0, np.zeros(3), np.array([0.0, 1.0, 2.0])).tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(ArgumentError, match="sigma"):
        pit_normal(0.0, np.array([-1.0]), 0.0)


def test_pit_histogram_counts_equal_bins():
    values = np.array([[0.0, 0.24, 0.25], [0.999, 1.0, np.nan]])
    found = pit_histogram(values, 4)
    assert found["count"].values.tolist() == [2, 1, 0, 2]
    assert found["pit_bin"].values.tolist() == [0.125, 0.375, 0.625, 0.875]
    assert int(found["missing"]) == 1
    assert pit_counts(values, 4).tolist() == [2, 1, 0, 2]
    draws = norm.cdf(np.random.default_rng(4).normal(size=40_000))
    assert chisquare(pit_histogram(draws, 20)["count"]).pvalue > 1e-3
    with pytest.raises(ArgumentError, match="values"):
        pit_histogram(np.array([1.5]), 4)
    with pytest.raises(ArgumentError, match="bins"):
        pit_histogram(values, 0)


def test_pit_histograms_keep_dimensions_and_add():
    values = np.random.default_rng(5).random((6, 4, 5))
    values[2, 1, 3] = np.nan
    whole = pit_histogram(values, 7, dim=(0, 2))
    parts = [pit_histogram(values[part], 7, dim=(0, 2)) for part in (slice(2), slice(2, 6))]
    xr.testing.assert_equal(parts[0] + parts[1], whole)
    assert whole["missing"].values.tolist() == [0, 1, 0, 0]
    for latitude in range(4):
        wanted, _ = np.histogram(values[:, latitude], 7, (0, 1))
        np.testing.assert_array_equal(whole["count"][latitude], wanted)
    lazy = pit_histogram(da.from_array(values, chunks=2), 7, dim=(0, 2))
    assert dask.is_dask_collection(lazy)
    xr.testing.assert_identical(lazy.compute(), whole)
    with pytest.raises(ArgumentError, match="values: between"):
        pit_histogram(da.from_array(values + 1, chunks=2), 7).compute()


def test_pit_normal_in_every_library():
    mu, y = RNG.normal(size=(4, 5)), RNG.normal(size=(4, 5))
    wanted = norm.cdf(y, mu, 2.0)
    found = pit_normal(torch.tensor(mu, requires_grad=True), 2.0, torch.tensor(y))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found, wanted, atol=1e-15)
    found = pit_normal(da.from_array(mu, chunks=2), 2.0, y)
    assert dask.is_dask_collection(found)
    np.testing.assert_allclose(found, wanted, atol=1e-15)
    a, b = (xr.DataArray(v, dims=("a", "b"), attrs={"units": "K"}) for v in (mu, y))
    assert pit_normal(a, 2.0, b).attrs["units"] == "1"
    with pytest.raises(ArgumentError, match="units differ"):
        pit_normal(a, 2.0, b.assign_attrs(units="degC"))
