"""Randomised PIT of ensembles, of quantiles and of any distribution function."""

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from scipy.stats import kstest, norm

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.calibration import pit_ensemble, pit_quantiles, pit_values, rank_histogram

RNG = np.random.default_rng(0)


def test_pit_of_ensembles_of_any_size_pool():
    parts = []
    for M, seed in ((1, 1), (2, 2), (5, 3), (50, 4)):
        x = np.random.default_rng(seed).normal(size=(M + 1, 15_000))
        parts.append(pit_ensemble(x[:M], x[M], member_dim=0, seed=seed))
        assert kstest(parts[-1], "uniform").pvalue > 1e-3
        assert 0 < parts[-1].min() < parts[-1].max() < 1
    assert kstest(np.concatenate(parts), "uniform").pvalue > 1e-3
    x = np.random.default_rng(9).normal(size=(4, 15_000))
    narrow = pit_ensemble(0.3 * x[:3], x[3], member_dim=0, seed=0)
    assert kstest(narrow, "uniform").pvalue < 1e-6


def test_pit_of_ensembles_with_ties_and_missing_members():
    # rain: members and observations are often 0
    x = np.maximum(np.random.default_rng(6).normal(size=(6, 40_000)), 0)
    y = x[5].copy()
    assert kstest(pit_ensemble(x[:5], y, member_dim=0, seed=0), "uniform").pvalue > 1e-3
    x[:5][np.random.default_rng(7).random((5, 40_000)) < 0.3] = np.nan
    found = pit_ensemble(x[:5], y, member_dim=0, seed=0, nan="skip-members")
    none = np.isnan(x[:5]).all(axis=0)
    np.testing.assert_array_equal(np.isnan(found), none)
    assert kstest(found[~none], "uniform").pvalue > 1e-3
    found = pit_ensemble(x[:5], y, member_dim=0, seed=0)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(x[:5]).any(axis=0))


def test_pit_and_ranks_are_of_one_random_number():
    x, y = np.round(RNG.normal(size=(4, 6, 50)), 1), np.round(RNG.normal(size=(6, 50)), 1)
    values = pit_ensemble(x, y, member_dim=0, seed=4)
    ranks = rank_histogram(x, y, member_dim=0, seed=4)["count"]
    np.testing.assert_array_equal(np.bincount((values * 5).astype(int).ravel()), ranks)


def test_pit_of_ensembles_lies_in_the_interval_of_scores():
    scores = pytest.importorskip("scores")
    x, y = np.round(RNG.normal(size=(7, 500)), 1), np.round(RNG.normal(size=500), 1)
    found = scores.probability.Pit(
        xr.DataArray(x, dims=("number", "a")), xr.DataArray(y, dims="a"),
        ensemble_member_dim="number", preserve_dims="all",
    ).pit_uniform_endpoints  # fmt: skip
    low, high = (found.sel(uniform_endpoint=e).values for e in ("lower", "upper"))
    values = pit_ensemble(x, y, member_dim=0, seed=0) * 8  # (rank + u) / (M + 1)
    assert (values >= low * 7).all()
    assert (values <= high * 7 + 1).all()


LEVELS = (0.05, 0.25, 0.5, 0.7, 0.95)


def lazy(a):
    return da.from_array(a, chunks=(-1, 4, 2)[-a.ndim :])


@pytest.mark.parametrize("kind", [torch.tensor, lazy, xr.DataArray])
def test_random_pit_in_every_library(kind):
    x, y = np.round(RNG.normal(size=(3, 6, 5)), 1), np.round(RNG.normal(size=(6, 5)), 1)
    axis = 0
    if kind is xr.DataArray:
        x, y = (xr.DataArray(a, dims=("m", "dim_0", "dim_1")[3 - a.ndim :]) for a in (x, y))
        axis, lazily = "m", [x.chunk(dim_0=4), y.chunk(dim_1=2)]
    else:
        lazily = [kind(x), kind(y)]
    wanted = pit_ensemble(np.asarray(x), np.asarray(y), member_dim=0, seed=1)
    np.testing.assert_array_equal(pit_ensemble(*lazily, member_dim=axis, seed=1), wanted)
    q, options = np.sort(np.asarray(x), axis=0), {"levels": (0.2, 0.5, 0.9), "seed": 1}
    wanted = pit_quantiles(q, np.asarray(y), quantile_dim=0, **options)
    given = xr.DataArray(q, dims=x.dims) if kind is xr.DataArray else kind(q)
    found = pit_quantiles(given, lazily[1], quantile_dim=axis, **options)
    np.testing.assert_allclose(found, wanted, atol=1e-15)
    wanted = pit_values(np.full((6, 5), 0.7), np.asarray(y), left=np.zeros((6, 5)), seed=1)
    given = [np.full((6, 5), 0.7), np.zeros((6, 5))]
    given = [xr.DataArray(a, dims=y.dims) if kind is xr.DataArray else kind(a) for a in given]
    found = pit_values(given[0], lazily[1], left=given[1], seed=1)
    np.testing.assert_allclose(found, wanted, atol=1e-15)
    assert (wanted < 0.7).all()


@pytest.mark.parametrize("tails", ["random", "normal"])
def test_pit_of_true_quantiles_is_uniform(tails):
    # quantiles of the uniform are piecewise linear; the normal's tails are normal
    rng = np.random.default_rng(10)
    shift, draws = rng.normal(size=40_000), rng.random(40_000)
    options = {"levels": LEVELS, "quantile_dim": 0, "seed": 1, "tails": tails}
    if tails == "random":
        q, y = np.array(LEVELS)[:, None] + shift, draws + shift
        found = pit_quantiles(q, y, **options)
    else:
        many = np.arange(1, 1000) / 1000
        q, y = norm.ppf(many)[:, None] + shift, norm.ppf(draws) + shift
        found = pit_quantiles(q, y, **options | {"levels": many})
        np.testing.assert_allclose(found, draws, atol=1e-4)
    assert kstest(found, "uniform").pvalue > 1e-3


def test_pit_of_quantiles_by_hand():
    q = np.array([[1.0], [2.0], [2.0], [4.0]])
    options = {"levels": (0.1, 0.4, 0.6, 0.9), "quantile_dim": 0, "seed": 0}

    def pit(y, **more):
        return float(pit_quantiles(q, np.array([y]), **options | more)[0])

    assert pit(1.5) == pytest.approx(0.25)
    assert pit(3.5) == pytest.approx(0.825)
    assert pit(1.0) == pytest.approx(0.1)
    assert pit(4.0) == pytest.approx(0.9)
    assert 0.4 < pit(2.0) < 0.6
    assert 0 < pit(0.5) < 0.1
    assert 0.9 < pit(5.0) < 1
    assert pit(0.25, support=(0, None)) == pytest.approx(0.025)
    assert pit(6.0, support=(None, 8.0)) == pytest.approx(0.95)
    z = norm.ppf([0.1, 0.4, 0.6, 0.9])
    assert pit(0.0, tails="normal") == pytest.approx(norm.cdf(z[0] - (z[1] - z[0])))
    assert pit(5.0, tails="normal") == pytest.approx(norm.cdf(z[3] + (z[3] - z[2]) / 2))
    assert np.isnan(pit(np.nan))


def test_pit_of_quantiles_with_an_atom_at_a_bound():
    # rain: 0 with probability 0.4, uniform above
    draws = np.random.default_rng(11).random(40_000)
    y = np.maximum(draws - 0.4, 0)
    levels = np.array([0.1, 0.3, 0.4, 0.6, 0.9])
    q = np.repeat(np.maximum(levels - 0.4, 0)[:, None], y.size, axis=1)
    options = {"levels": levels, "quantile_dim": 0, "seed": 2}
    found = pit_quantiles(q, y, support=(0, None), **options)
    assert kstest(found, "uniform").pvalue > 1e-3
    assert kstest(pit_quantiles(q, y, **options), "uniform").pvalue < 1e-6


def test_pit_of_a_censored_distribution():
    y = np.maximum(np.random.default_rng(12).normal(0.2, 1, 40_000), 0)
    found = pit_values(
        lambda v: norm.cdf(v, 0.2), y, left=lambda v: np.where(v > 0, norm.cdf(v, 0.2), 0), seed=3
    )
    assert kstest(found, "uniform").pvalue > 1e-3
    np.testing.assert_allclose(found[y > 0], norm.cdf(y[y > 0], 0.2))
    missing = pit_values(norm.cdf(y[:3]), np.array([np.nan, 1.0, 2.0]))
    assert np.isnan(missing).tolist() == [True, False, False]


def test_what_pit_refuses():
    x, y = np.zeros((3, 4)), np.zeros(4)
    options = {"levels": (0.1, 0.5, 0.9), "quantile_dim": 0, "seed": 0}
    with pytest.raises(ArgumentError, match="y: shapes that do not fit"):
        pit_ensemble(x, x, member_dim=0, seed=0)
    with pytest.raises(UnknownNameError, match="nan: 'omit' is not known"):
        pit_ensemble(x, y, member_dim=0, seed=0, nan="omit")
    with pytest.raises(UnknownNameError, match="tails: 'gauss' is not known"):
        pit_quantiles(x, y, **options | {"tails": "gauss"})
    with pytest.raises(ArgumentError, match="quantiles cross at 1 of 4 points"):
        pit_quantiles(np.array([[0, 0, 0, 1.0]] + [[0.5] * 4] * 2), y, **options)
    with pytest.raises(ArgumentError, match="y: some lie beyond the support's bound 1"):
        pit_quantiles(x + 1, y, **options, support=(1, None))
    with pytest.raises(ArgumentError, match="values: some lie beyond the support's bound -1"):
        pit_quantiles(x, y - 2, **options, support=(None, -1))
    with pytest.raises(ArgumentError, match="a normal tail needs two quantiles"):
        pit_quantiles(x[:1], y, **options | {"levels": (0.5,), "tails": "normal"})
    with pytest.raises(ArgumentError, match="levels: 2 levels for 3 quantiles"):
        pit_quantiles(x, y, **options | {"levels": (0.1, 0.2)})
    with pytest.raises(ArgumentError, match="seed: a distribution with point masses needs one"):
        pit_values(y, y, left=y)
    with pytest.raises(ArgumentError, match="cdf: between 2 and 2, not 0 and 1"):
        pit_values(y + 2, y)
    with pytest.raises(ArgumentError, match=r"left: .* above"):
        pit_values(y, y, left=y + 1, seed=0)


def test_draws_of_whole_numbers_and_half_precision():
    x, y = np.arange(12).reshape(3, 4) % 5, np.arange(4)
    wanted = pit_ensemble(x.astype(float), y.astype(float), member_dim=0, seed=1)
    got = pit_ensemble(torch.tensor(x), torch.tensor(y), member_dim=0, seed=1)
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    halves = pit_ensemble(x.astype(np.float16), y.astype(np.float16), member_dim=0, seed=1)
    np.testing.assert_allclose(halves, wanted, atol=1e-3)
