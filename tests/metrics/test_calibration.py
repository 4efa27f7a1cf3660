"""Histograms of ranks and PIT values, and the scores of mean and spread."""

import numpy as np
import pytest
import torch
import xarray as xr
from scipy.stats import chisquare, norm

from ens10.errors import ArgumentError
from ens10.metrics import pit_histogram, pit_normal, rank_histogram, rmse, spread_error_ratio


def test_ranks_of_exchangeable_draws_are_uniform():
    x = np.random.default_rng(0).normal(size=(9, 40_000))
    counts = rank_histogram(x[:8], x[8], member_dim=0, seed=1)
    assert counts.shape == (9,)
    assert counts.sum() == 40_000
    assert chisquare(counts).pvalue > 1e-3


def test_ranks_count_the_members_below():
    x = np.array([[1.0, 2.0, 3.0]] * 4)
    counts = rank_histogram(x, np.array([0.0, 1.5, 2.5, 9.0]), member_dim=1, seed=0)
    assert counts.tolist() == [1, 1, 1, 1]
    counts = rank_histogram(x, np.array([2.5, 2.5, 2.6, 9.0]), member_dim=1, seed=0)
    assert counts.tolist() == [0, 0, 3, 1]


def test_ties_are_shared_at_random_by_a_seed():
    # wet and dry: the observation equals three members that are 0, and one is above
    x = np.repeat([[0.0], [0.0], [0.0], [1.0]], 8000, axis=1)
    counts = rank_histogram(x, np.zeros(8000), member_dim=0, seed=5)
    assert counts[4] == 0
    assert chisquare(counts[:4]).pvalue > 1e-3
    again = rank_histogram(x, np.zeros(8000), member_dim=0, seed=5)
    other = rank_histogram(x, np.zeros(8000), member_dim=0, seed=6)
    assert counts.tolist() == again.tolist()
    assert counts.tolist() != other.tolist()


def test_ranks_leave_out_missing_points_and_take_dimension_names():
    x = xr.DataArray(np.random.default_rng(2).normal(size=(3, 5, 50)), dims=("a", "number", "b"))
    y = xr.DataArray(np.random.default_rng(3).normal(size=(50, 3)), dims=("b", "a"))
    x[0, 2, 7], y[9, 1] = np.nan, np.nan
    named = rank_histogram(x.chunk(number=2), y, member_dim="number", seed=0)
    assert named.dims == ("rank",)
    assert int(named.sum()) == 148
    plain = rank_histogram(x.values, y.values.T, member_dim=1, seed=0)
    assert named.values.tolist() == plain.tolist()


def test_ranks_refuse_what_would_broadcast():
    with pytest.raises(ArgumentError, match="observations of shape"):
        rank_histogram(np.zeros((4, 3)), np.zeros((4, 3)), member_dim=0, seed=0)
    with pytest.raises(ArgumentError, match="tensors"):
        rank_histogram(torch.zeros(4, 3), torch.zeros(3), member_dim=0, seed=0)


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
    assert pit_histogram(values, 4).tolist() == [2, 1, 0, 2]
    draws = norm.cdf(np.random.default_rng(4).normal(size=40_000))
    assert chisquare(pit_histogram(draws, 20)).pvalue > 1e-3
    with pytest.raises(ArgumentError, match="values"):
        pit_histogram(np.array([1.5]), 4)
    with pytest.raises(ArgumentError, match="bins"):
        pit_histogram(values, 0)


def test_rmse_is_weighted_and_spread_matches_error_of_exchangeable_members():
    assert rmse(np.array([1.0, 5.0]), np.zeros(2), weights=[3.0, 1.0]) == pytest.approx(7**0.5)
    M = 4
    x = np.random.default_rng(5).normal(size=(M + 1, 400_000)) * 3
    mean, variance = x[:M].mean(axis=0), x[:M].var(axis=0, ddof=1)
    ratio = spread_error_ratio(mean, variance, x[M], members=M)
    assert ratio == pytest.approx(1.0, abs=0.01)
    without = spread_error_ratio(mean, variance, x[M])
    assert ratio / without == pytest.approx((5 / 4) ** 0.5)
    with pytest.raises(ArgumentError, match="two or more"):
        spread_error_ratio(mean, variance, x[M], members=1)


def test_moments_take_dimension_names_and_stay_lazy():
    rng = np.random.default_rng(6)
    mean, y = rng.normal(size=(5, 4)), rng.normal(size=(5, 4))
    weights = xr.DataArray([1.0, 2.0, 3.0, 4.0], dims="latitude")
    lazy = [xr.DataArray(a, dims=("time", "latitude")).chunk(time=2) for a in (mean, y)]
    got = rmse(*lazy, weights=weights)
    assert got.chunks is not None
    assert float(got) == pytest.approx(rmse(mean, y, weights=weights.values))
    ratio = spread_error_ratio(lazy[0], lazy[0] ** 2, lazy[1], weights=weights)
    assert float(ratio) == pytest.approx(
        spread_error_ratio(mean, mean**2, y, weights=weights.values)
    )
