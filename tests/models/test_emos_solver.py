from dataclasses import replace
from typing import get_args

import numpy as np
import properscoring
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import logistic, norm, truncnorm

from ens10.models.statistical.newton import minimise
from ens10.models.statistical.regression import (
    BlockSum,
    Regression,
    root_of_exponentials,
    root_of_squares,
    sum_of_exponentials,
)
from ens10.models.statistical.score_terms import FamilyName, score_of
from ens10.models.statistical.spool import Blocks


def problem(seed, problems=3, samples=20, likelihood=False, link=root_of_squares):
    rng = np.random.default_rng(seed)
    y, u = rng.normal(size=(2, problems, samples))
    v = rng.gamma(2, 0.5, size=(problems, samples))
    w = rng.uniform(size=(problems, samples))
    w[:, 0] = 0
    w /= w.sum(1, keepdims=True)
    score = score_of("normal", "likelihood" if likelihood else "crps")
    return Regression(score, link, y, w, (1.0, u), (1.0, v))


def cut(whole, *bounds):
    """The samples of a problem in several blocks."""
    slices = [slice(a, b) for a, b in zip((0, *bounds), (*bounds, None), strict=True)]

    def part(chosen):
        y, w, u, v = (x[:, chosen] for x in (whole.y, whole.w, whole.location[1], whole.scale[1]))
        return Regression(whole.score, whole.link, y, w, (1.0, u), (1.0, v))

    return BlockSum(Blocks([lambda chosen=chosen: part(chosen) for chosen in slices]))


def mean_score(theta, block, which, likelihood=False):
    """The score through an independent implementation, for one problem."""
    alpha, beta, gamma, delta = theta
    arrays = (block.y, block.location[1], block.scale[1], block.w)
    r, u, v, w = (x[which] for x in arrays)
    sigma = np.sqrt(gamma**2 + delta**2 * v + 1e-8)
    mu = alpha + beta * u
    if likelihood:
        return float(-(w * (norm.logpdf(r, mu, sigma) + 0.5 * np.log(2 * np.pi))).sum())
    return float((w * properscoring.crps_gaussian(r, mu, sigma)).sum())


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000), likelihood=st.booleans())
def test_score_gradient_and_hessian(seed, likelihood):
    block = problem(seed, likelihood=likelihood)
    samples = cut(block)
    theta = np.random.default_rng(seed + 1).normal(size=(3, 4))
    theta[:, 2:] += np.sign(theta[:, 2:])  # away from sigma of 0, where differences are no use
    value, gradient, hessian = samples.evaluate(theta)
    assert value[1] == pytest.approx(mean_score(theta[1], block, 1, likelihood))
    for j in range(4):
        step = np.zeros(4)
        step[j] = 1e-5
        up, down = samples.evaluate(theta + step), samples.evaluate(theta - step)
        np.testing.assert_allclose((up[0] - down[0]) / 2e-5, gradient[:, j], atol=1e-8)
        np.testing.assert_allclose((up[1] - down[1]) / 2e-5, hessian[:, j], atol=1e-7)


LINKS = {
    "squares": (root_of_squares, lambda e, v: np.sqrt(e[0] ** 2 + e[1] ** 2 * v + 1e-8)),
    "exponentials": (
        root_of_exponentials(50.0, 1e-8),
        lambda e, v: np.sqrt(np.exp(2 * e[0]) + np.exp(2 * e[1]) * v + 1e-8),
    ),
    "sum": (sum_of_exponentials, lambda e, v: np.exp(e[0]) + np.exp(e[1]) * v + 1e-6),
}


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("cycle", [False, True])
def test_each_link_has_the_derivatives_of_its_formula(name, cycle):
    link, formula = LINKS[name]
    rng = np.random.default_rng(1)
    whole = problem(0, link=link)
    functions = rng.normal(size=(20, 3)) if cycle else np.ones((20, 1))
    points = replace(whole, cycle=functions if cycle else None)
    theta = 0.3 * rng.normal(size=(3, 4 * functions.shape[1])) + 0.5
    value, gradient, hessian = points.evaluate(theta)
    eta = theta[1].reshape(4, -1) @ functions.T
    sigma = formula(eta[2:], whole.scale[1][1])
    scores = properscoring.crps_gaussian(whole.y[1], eta[0] + eta[1] * whole.location[1][1], sigma)
    assert value[1] == pytest.approx(whole.w[1] @ scores, rel=1e-12)
    for j, step in enumerate(1e-5 * np.eye(theta.shape[1])):
        up, down = points.evaluate(theta + step), points.evaluate(theta - step)
        np.testing.assert_allclose((up[0] - down[0]) / 2e-5, gradient[:, j], atol=1e-8)
        np.testing.assert_allclose((up[1] - down[1]) / 2e-5, hessian[:, j], atol=1e-7)


@pytest.mark.parametrize("family", ["logistic", "truncated_normal"])
def test_other_families_can_be_fitted_by_likelihood(family):
    rng = np.random.default_rng(0)
    mu, y, sigma = rng.normal(size=30), rng.normal(size=30), rng.uniform(0.5, 2, 30)
    bounds = () if family == "logistic" else (np.full(30, -3.0), np.full(30, 4.0))
    law = {"logistic": logistic(mu, sigma), "truncated_normal": truncnorm(
        (-3 - mu) / sigma, (4 - mu) / sigma, mu, sigma)}[family]  # fmt: skip
    score = score_of(family, "likelihood")
    terms = score((mu, sigma), bounds, y)
    np.testing.assert_allclose(terms.value, -law.logpdf(y), rtol=1e-10)
    up, down = (score((mu, sigma * np.exp(s)), bounds, y) for s in (1e-5, -1e-5))
    np.testing.assert_allclose((up.value - down.value) / 2e-5, terms.first[1], atol=1e-8)
    np.testing.assert_allclose((up.first[1] - down.first[1]) / 2e-5, terms.second[1, 1], atol=1e-3)


@pytest.mark.parametrize("family", get_args(FamilyName))
def test_selected_problems_have_the_values_of_all(family):
    rng = np.random.default_rng(0)
    whole = problem(3, problems=4)
    lower = np.minimum(whole.y, rng.normal(size=whole.y.shape)) - 1
    bounds = [] if family in ("normal", "logistic") else [lower, lower + 9]
    points = replace(
        whole, score=score_of(family), link=root_of_exponentials(50.0, 1e-8), bounds=bounds,
        offset=rng.normal(size=whole.y.shape), prior=rng.normal(size=(4, 4)),
        penalty=rng.uniform(size=(4, 4)),
    )  # fmt: skip
    theta, mask = rng.normal(size=(4, 4)), np.array([True, False, False, True])
    selected = points.select(mask).evaluate(theta[mask])
    for one, other in zip(points.evaluate(theta), selected, strict=True):
        np.testing.assert_allclose(other, one[mask], rtol=1e-13)


def test_blocks_add_up():
    block, theta = problem(0), np.ones((3, 4))
    whole, parts = cut(block), cut(block, 7, 11)
    assert len(parts.blocks.makers) == 3
    for one, other in zip(whole.evaluate(theta), parts.evaluate(theta), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12)
    mask = np.array([False, True, True])
    np.testing.assert_allclose(
        parts.select(mask).evaluate(theta[mask])[2], whole.evaluate(theta)[2][mask], rtol=1e-12
    )
    np.testing.assert_allclose(minimise(theta, parts), minimise(theta, whole), rtol=1e-5)


def test_blocks_are_made_anew_unless_there_is_one():
    asked = []

    def maker(name):
        asked.append(name)
        return problem(0)

    many = BlockSum(Blocks([lambda: maker("first"), lambda: maker("second")]))
    one = BlockSum(Blocks([lambda: maker("only")]))
    for samples in (many, one):
        for _ in range(2):
            samples.evaluate(np.ones((3, 4)))
    assert sorted(asked) == ["first", "first", "only", "second", "second"]


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000), samples=st.sampled_from([6, 12, 100]))
def test_minimum_is_no_worse_than_scipy_finds(seed, samples):
    block = problem(seed, problems=2, samples=samples)
    start = np.array([[0.0, 0.0, 0.7, 0.7]] * 2)
    found = minimise(start, cut(block))
    for i in range(2):
        oracle = minimize(mean_score, start[i], args=(block, i), method="BFGS", tol=1e-9)
        ours = mean_score(found[i], block, i)
        if samples == 100:  # one minimum: the same one
            assert ours == pytest.approx(oracle.fun, rel=1e-6)
        descended = minimize(mean_score, found[i], args=(block, i), method="Nelder-Mead")
        assert descended.fun > ours * (1 - 1e-6)  # nothing lower nearby


@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_largest_likelihood_is_that_of_scipy(seed):
    block = problem(seed, problems=2, samples=100, likelihood=True)
    start = np.array([[0.0, 0.0, 0.7, 0.7]] * 2)
    found = minimise(start, cut(block, 40))
    for i in range(2):
        oracle = minimize(mean_score, start[i], args=(block, i, True), method="BFGS", tol=1e-9)
        assert mean_score(found[i], block, i, True) == pytest.approx(oracle.fun, rel=1e-6)
