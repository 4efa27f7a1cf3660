import numpy as np
import properscoring
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from ens10.models.statistical.normal_regression import Block, minimise, score


def problem(seed, problems=3, samples=20):
    rng = np.random.default_rng(seed)
    r, u = rng.normal(size=(2, problems, samples))
    v = rng.gamma(2, 0.5, size=(problems, samples))
    w = rng.uniform(size=(problems, samples))
    w[:, 0] = 0
    w /= w.sum(1, keepdims=True)
    return Block(*(torch.from_numpy(x) for x in (r, u, v, w)))


def mean_crps(theta, block):
    """The score through an independent implementation, for one problem."""
    alpha, beta, gamma, delta = theta
    r, u, v, w = (x.numpy()[0] for x in (block.r, block.u, block.v, block.w))
    sigma = np.sqrt(gamma**2 + delta**2 * v + 1e-8)
    return float((w * properscoring.crps_gaussian(r, alpha + beta * u, sigma)).sum())


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_score_gradient_and_hessian(seed):
    block = problem(seed)
    rng = np.random.default_rng(seed + 1)
    theta = torch.from_numpy(rng.normal(size=(3, 4))).requires_grad_()
    value, gradient, hessian = score(theta, [block])
    one = block.select(torch.tensor([1]))
    assert value[1].item() == pytest.approx(mean_crps(theta.detach().numpy()[1], one))
    traced = torch.autograd.functional.jacobian(lambda t: score(t, [block])[0].sum(), theta)
    torch.testing.assert_close(gradient, traced)
    rows = torch.autograd.functional.jacobian(lambda t: score(t, [block])[1].sum(0), theta)
    torch.testing.assert_close(hessian.transpose(0, 1), rows)


def test_blocks_add_up():
    block, theta = problem(0), torch.ones(3, 4, dtype=torch.float64)
    parts = [
        Block(*(x[:, cut] for x in (block.r, block.u, block.v, block.w)))
        for cut in (slice(0, 7), slice(7, None))
    ]
    for whole, sum_ in zip(score(theta, [block]), score(theta, parts), strict=True):
        torch.testing.assert_close(whole, sum_)


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000), samples=st.sampled_from([6, 12, 100]))
def test_minimum_is_no_worse_than_scipy_finds(seed, samples):
    block = problem(seed, problems=2, samples=samples)
    start = torch.tensor([[0.0, 0.0, 0.7, 0.7]] * 2, dtype=torch.float64)
    found = minimise(start, [block])
    assert (found[:, 2:] >= 0).all()
    for i in range(2):
        one = block.select(torch.tensor([i]))
        oracle = minimize(mean_crps, start[i].numpy(), args=(one,), method="BFGS", tol=1e-9)
        ours = mean_crps(found[i].numpy(), one)
        if samples == 100:  # one minimum: the same one
            assert ours == pytest.approx(oracle.fun, rel=1e-6)
        descended = minimize(mean_crps, found[i].numpy(), args=(one,), method="Nelder-Mead")
        assert descended.fun > ours * (1 - 1e-6)  # nothing lower nearby
