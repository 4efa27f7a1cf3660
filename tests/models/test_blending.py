"""Pools of forecasts: weights against a search, scores by properscoring, scipy's fits, gaps."""

import numpy as np
import properscoring as ps
import pytest
from scipy.stats import beta, norm

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.blending import Blend, fit_beta, pool_weights

LEVELS = (np.arange(40) + 0.5) / 40
ONES = np.ones(200)


def normals(means, sigmas):
    """Quantiles (N, K, points) of normals with means (N, points)."""
    return (
        np.asarray(means)[:, None] + np.asarray(sigmas)[:, None, None] * norm.ppf(LEVELS)[:, None]
    )


def dates(count, seed=0, points=200, errors=(1.0, 2.0), bias=0.0):
    """Forecasts of two models with errors that are independent, and the truth."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        truth = rng.normal(0.0, 5.0, points)
        means = [truth + bias + rng.normal(0.0, error, points) for error in errors]
        yield normals(means, errors), truth


def crps(quantiles, truth):
    return ps.crps_ensemble(truth, np.moveaxis(quantiles, 0, -1)).mean()


@pytest.mark.parametrize("seed", range(3))
def test_weights_are_those_of_a_search_over_the_score(seed):
    rng = np.random.default_rng(seed)
    samples = rng.normal(rng.normal(size=(3, 1)), [[0.5], [1.0], [3.0]], (3, 60))
    y = rng.normal(size=50)
    distance = np.abs(samples[:, :, None] - y).mean(axis=(1, 2))
    difference = np.abs(samples[:, None, :, None] - samples[None, :, None, :]).mean(axis=(2, 3))
    found = pool_weights(distance, difference)
    assert found.sum() == pytest.approx(1.0)

    def score(w):
        shares = np.repeat(w, 60) / 60
        members = np.broadcast_to(samples.ravel(), (y.size, 180))
        return ps.crps_ensemble(y, members, weights=np.broadcast_to(shares, members.shape)).mean()

    grid = np.linspace(0, 1, 41)
    triples = [(a, b, 1 - a - b) for a in grid for b in grid if a + b <= 1]
    assert score(found) <= min(map(score, map(np.array, triples))) + 1e-9


def test_a_pool_learns_the_better_model_and_scores_better():
    blend, scores = Blend(2, LEVELS), []
    for quantiles, truth in dates(60):
        pooled = blend.forecast(quantiles)
        assert (np.diff(pooled, axis=0) >= 0).all()
        scores.append([crps(pooled, truth), *(crps(one, truth) for one in quantiles)])
        blend.learn(quantiles, truth, ONES)
    assert 0.7 < blend.weights[0] < 1.0
    pooled, better, worse = np.mean(scores[20:], axis=0)
    assert pooled < better < worse


def test_the_linear_pool_has_the_quantiles_of_the_mixture():
    blend = Blend(2, LEVELS)
    quantiles = normals([[0.0], [3.0]], [1.0, 0.5])
    found = blend.forecast(quantiles)[:, 0]
    mixture = 0.5 * norm.cdf(found) + 0.5 * norm.cdf(found, 3.0, 0.5)
    np.testing.assert_allclose(mixture, LEVELS, atol=0.02)


def test_one_model_alone_keeps_its_quantiles():
    for levels in (LEVELS, np.arange(1, 100) / 100, np.array([0.1, 0.5, 0.6])):
        q = norm.ppf(levels)[None, :, None]
        found = Blend(2, levels).forecast(np.concatenate([q, q * np.nan]))
        np.testing.assert_allclose(found, q[0], rtol=1e-12)


def test_beta_parameters_are_those_of_scipy():
    z = np.random.default_rng(1).beta(2.5, 1.5, 500)
    a, b, *_ = beta.fit(z, floc=0, fscale=1)
    found = fit_beta(np.log(z).mean(), np.log1p(-z).mean())
    np.testing.assert_allclose(found, (a, b), rtol=1e-5)


def test_the_beta_pool_is_calibrated_where_the_linear_one_is_too_wide():
    """Two calibrated forecasts with independent errors: the mixture is too wide."""
    coverage = {}
    for pool in ("linear", "beta"):
        blend, inside = Blend(2, LEVELS, pool), []
        for quantiles, truth in dates(80, errors=(1.0, 1.0)):
            pooled = blend.forecast(quantiles)
            inside.append(((truth > pooled[3]) & (truth <= pooled[36])).mean())
            blend.learn(quantiles, truth, ONES)
        coverage[pool] = np.mean(inside[20:])
    nominal = LEVELS[36] - LEVELS[3]
    assert coverage["linear"] > nominal + 0.05
    assert coverage["beta"] == pytest.approx(nominal, abs=0.02)


def test_emos_is_the_regression_of_numpy():
    blend, designs, truths = Blend(2, LEVELS, "emos"), [], []
    for quantiles, truth in dates(30, bias=2.0):
        blend.learn(quantiles, truth, ONES)
        designs.append(np.concatenate([np.ones((1, truth.size)), quantiles.mean(axis=1)]))
        truths.append(truth)
    coefficients = np.linalg.lstsq(np.concatenate(designs, axis=1).T, np.concatenate(truths))[0]
    (quantiles, truth), *_ = dates(1, seed=9, bias=2.0)
    found = blend.forecast(quantiles)
    mean = coefficients @ np.concatenate([np.ones((1, truth.size)), quantiles.mean(axis=1)])
    np.testing.assert_allclose(found.mean(axis=0), mean, rtol=1e-6, atol=1e-6)
    best = np.sqrt(1 / (1 / 1.0 + 1 / 4.0))  # of two independent unbiased errors
    spread = (found[-1] - found[0]) / (norm.ppf(LEVELS[-1]) - norm.ppf(LEVELS[0]))
    np.testing.assert_allclose(spread, best, rtol=0.05)


@pytest.mark.parametrize("pool", ["linear", "beta", "emos"])
def test_a_missing_model_leaves_its_weight_to_the_others(pool):
    blend, one = Blend(2, LEVELS, pool), Blend(2, LEVELS, pool)
    for n, (quantiles, truth) in enumerate(dates(20)):
        gap = quantiles.copy()
        if n % 3 == 0:
            gap[1] = np.nan
        blend.learn(gap, truth, ONES)
        one.learn(quantiles, truth, ONES)
    assert 0 < blend.weights[1] < 0.5
    np.testing.assert_allclose(blend.weights, one.weights, atol=0.15)
    (quantiles, _), *_ = dates(1, seed=5)
    quantiles[1] = np.nan
    found = blend.forecast(quantiles)
    assert np.isfinite(found).all()
    if pool == "linear":
        np.testing.assert_allclose(found, quantiles[0], rtol=1e-12)


@pytest.mark.parametrize("pool", ["linear", "beta", "emos"])
def test_a_gap_of_one_model_at_a_point_is_filled_by_the_others(pool):
    blend = Blend(2, LEVELS, pool)
    for quantiles, truth in dates(12):
        blend.learn(quantiles, truth, ONES)
    (quantiles, _), *_ = dates(1, seed=5)
    whole, gap = blend.forecast(quantiles), quantiles.copy()
    gap[1, :, 7], gap[:, :, 9] = np.nan, np.nan
    alone = quantiles.copy()
    alone[1] = np.nan
    found = blend.forecast(gap)
    others = np.delete(np.arange(200), [7, 9])
    np.testing.assert_allclose(found[:, others], whole[:, others], rtol=1e-12)
    np.testing.assert_allclose(found[:, 7], blend.forecast(alone)[:, 7], rtol=1e-12)
    assert np.isnan(found[:, 9]).all()


def test_points_without_truth_and_dates_without_models_teach_nothing():
    blend, other = Blend(2, LEVELS), Blend(2, LEVELS)
    for quantiles, truth in dates(8):
        gap = truth.copy()
        gap[50:] = np.nan
        blend.learn(quantiles, gap, ONES)
        other.learn(quantiles[..., :50], truth[:50], ONES[:50])
        blend.learn(quantiles * np.nan, truth, ONES)
        blend.learn(quantiles, truth * np.nan, ONES)
    assert blend.dates == 8
    np.testing.assert_array_equal(blend.weights, other.weights)


def test_what_is_refused():
    with pytest.raises(UnknownNameError, match="linear"):
        Blend(2, LEVELS, "log")
    with pytest.raises(ArgumentError, match="1 cannot be blended"):
        Blend(1, LEVELS)
