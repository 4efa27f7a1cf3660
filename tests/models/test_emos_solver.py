import numpy as np
import properscoring
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import norm

from ens10.models.statistical.normal_regression import Block, Samples, minimise


def problem(seed, problems=3, samples=20):
    rng = np.random.default_rng(seed)
    r, u = rng.normal(size=(2, problems, samples))
    v = rng.gamma(2, 0.5, size=(problems, samples))
    w = rng.uniform(size=(problems, samples))
    w[:, 0] = 0
    w /= w.sum(1, keepdims=True)
    return Block(r, u, v, w)


def cut(block, *bounds, likelihood=False):
    """The samples of a block in several blocks."""
    slices = [slice(a, b) for a, b in zip((0, *bounds), (*bounds, None), strict=True)]

    def part(chosen):
        return Block(*(x[:, chosen] for x in (block.r, block.u, block.v, block.w)))

    return Samples([lambda chosen=chosen: part(chosen) for chosen in slices], likelihood)


def mean_score(theta, block, which, likelihood=False):
    """The score through an independent implementation, for one problem."""
    alpha, beta, gamma, delta = theta
    r, u, v, w = (x[which] for x in (block.r, block.u, block.v, block.w))
    sigma = np.sqrt(gamma**2 + delta**2 * v + 1e-8)
    mu = alpha + beta * u
    if likelihood:
        return float(-(w * (norm.logpdf(r, mu, sigma) + 0.5 * np.log(2 * np.pi))).sum())
    return float((w * properscoring.crps_gaussian(r, mu, sigma)).sum())


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000), likelihood=st.booleans())
def test_score_gradient_and_hessian(seed, likelihood):
    block = problem(seed)
    samples = cut(block, likelihood=likelihood)
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


def test_blocks_add_up():
    block, theta = problem(0), np.ones((3, 4))
    whole, parts = cut(block), cut(block, 7, 11)
    assert len(parts.makers) == 3
    for one, other in zip(whole.evaluate(theta), parts.evaluate(theta), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12)
    np.testing.assert_allclose(minimise(theta, parts), minimise(theta, whole), rtol=1e-5)


def test_blocks_are_made_anew_unless_there_is_one():
    asked = []

    def maker(name):
        asked.append(name)
        return problem(0)

    many = Samples([lambda: maker("first"), lambda: maker("second")])
    one = Samples([lambda: maker("only")])
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
    assert (found[:, 2:] >= 0).all()
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
    block = problem(seed, problems=2, samples=100)
    start = np.array([[0.0, 0.0, 0.7, 0.7]] * 2)
    found = minimise(start, cut(block, 40, likelihood=True))
    for i in range(2):
        oracle = minimize(mean_score, start[i], args=(block, i, True), method="BFGS", tol=1e-9)
        assert mean_score(found[i], block, i, True) == pytest.approx(oracle.fun, rel=1e-6)
