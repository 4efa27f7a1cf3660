"""The censored extreme value distribution against quadrature, scipy and draws."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from slopes import assert_slopes

from ens10.metrics.distributions.censored_gev import CensoredGEV, crps_censored_gev
from ens10.metrics.distributions.gev import crps_gev
from ens10.metrics.families import FAMILIES, crps, log_score, mean, pit_interval, variance

N = 60


def parameters(seed=0):
    """Parameters with bounds from far below to far above the location, and observations."""
    rng = np.random.default_rng(seed)
    mu, sigma = rng.normal(size=N), rng.uniform(0.1, 2, N)
    shape = rng.uniform(-0.9, 0.9, N)
    shape[:12], shape[12:16] = rng.uniform(-0.06, 0.06, 12), 0.0
    lower = mu + sigma * np.where(np.arange(N) % 7 == 3, 5.0, rng.normal(size=N))
    y = np.maximum(lower, mu + 2 * sigma * rng.normal(size=N))
    return {"mu": mu, "sigma": sigma, "shape": shape, "lower": lower}, y


def exact(mu, sigma, shape, lower, y):
    """The integrals of F^2 from the bound to y and of (1 - F)^2 above it, by quadrature."""
    free = stats.genextreme(-shape, mu, sigma)
    options = {"epsabs": 1e-13, "epsrel": 1e-12, "limit": 400}
    below = integrate.quad(lambda x: free.cdf(x) ** 2, lower, y, **options)[0]
    start, end = free.support()
    if y >= end:
        return below
    s = -np.log(-free.logcdf(max(y, start))) if y > start else -30.0
    s = max(s, -30.0)

    def square(s):  # in s = -log t, dx = sigma exp(shape s) ds
        return np.expm1(-np.exp(-s)) ** 2 * np.exp(shape * s)

    end_of_tail = s + min(60 / (2 - shape), 300.0)
    above = integrate.quad(square, s, end_of_tail, **options)[0] * sigma
    return below + above + max(start - y, 0.0)


def test_crps_equals_quadrature():
    given, y = parameters()
    wanted = [exact(*one, at) for *one, at in zip(*given.values(), y, strict=True)]
    np.testing.assert_allclose(crps("censored_gev", given, y), wanted, rtol=1e-9, atol=1e-11)


def test_without_a_bound_it_is_the_gev_and_below_the_bound_the_distance_is_added():
    given, y = parameters(1)
    free = {k: v for k, v in given.items() if k != "lower"}
    np.testing.assert_array_equal(crps_censored_gev(**free, y=y), crps_gev(**free, y=y))
    low = crps("censored_gev", given, given["lower"] - 0.7)
    np.testing.assert_allclose(low, crps("censored_gev", given, given["lower"]) + 0.7, rtol=1e-12)


@pytest.mark.parametrize("shape", [1.0, 1.2, 1.8])
def test_heavy_tails_have_a_finite_score(shape):
    wanted = exact(0.3, 1.1, shape, 0.2, 1.5)
    got = crps_censored_gev(0.3, 1.1, shape, 1.5, lower=0.2)
    assert float(got) == pytest.approx(wanted, rel=1e-8)
    assert crps_censored_gev(0.3, 1.1, 2.0, 1.5, lower=0.2) == np.inf


@pytest.mark.parametrize("score", ["crps", "log_score"])
def test_gradients(score):
    given, y = parameters(2)
    free = stats.genextreme(-given["shape"], given["mu"], given["sigma"])
    y = np.maximum(given["lower"], free.ppf(np.linspace(0.2, 0.95, N))) + 1e-3
    y[::5] = given["lower"][::5] - (score == "crps") * 0.4
    keep = free.cdf(given["lower"]) < 1 - 1e-9
    inputs = [torch.tensor(v[keep], requires_grad=True) for v in (*given.values(), y)]
    formula = FAMILIES["censored_gev"].formula(score)
    if score == "crps":
        assert_slopes(formula, inputs)
        return
    # on the bound y moves with it
    on = torch.tensor((y == given["lower"])[keep])

    def moved(mu, sigma, shape, lower, y):
        return formula(mu, sigma, shape, lower, torch.where(on, lower, y))

    assert_slopes(moved, inputs)


def test_all_mass_on_the_bound_and_a_scale_of_0_have_finite_gradients():
    values = {"mu": [-50.0, 0.5, -1.0, 3.0], "sigma": [1.0, 0.0, 0.0, 0.5]}
    values |= {"shape": [-0.3, 0.1, 0.1, -0.5], "lower": [0.0, 0.0, 0.0, 5.0]}
    y = torch.tensor([0.0, 2.0, 1.0, 6.0], dtype=torch.float64)
    tensors = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values.values()]
    score = FAMILIES["censored_gev"].formula("crps")(*tensors, y)
    np.testing.assert_allclose(score.detach(), [0.0, 1.5, 1.0, 1.0], atol=1e-12)
    for gradient in torch.autograd.grad(score.sum(), tensors):
        assert bool(torch.isfinite(gradient).all())
    for end in (np.inf, -np.inf):
        far = torch.full((4,), end, dtype=torch.float64)
        score = FAMILIES["censored_gev"].formula("crps")(*tensors, far)
        assert bool((score == np.inf).all())
        for gradient in torch.autograd.grad(score.sum(), tensors):
            assert not bool(torch.isnan(gradient).any())


def test_probabilities_quantiles_moments_and_draws():
    given, y = parameters(3)
    given["shape"] = np.clip(given["shape"], -0.6, 0.3)
    free = stats.genextreme(-given["shape"], given["mu"], given["sigma"])
    below, upto = pit_interval("censored_gev", given, y)
    np.testing.assert_allclose(upto, free.cdf(y), atol=1e-13)
    np.testing.assert_array_equal(below, np.where(y > given["lower"], upto, 0.0))
    mass = log_score("censored_gev", given, given["lower"])
    there = free.cdf(given["lower"]) > 1e-200
    np.testing.assert_allclose(mass[there], -free.logcdf(given["lower"])[there], rtol=1e-8)
    forecast = CensoredGEV(**{k: v[:, None] for k, v in given.items()})
    levels = (np.arange(400_000) + 0.5) / 400_000
    for n in range(0, N, 6):
        one = {k: v[n] for k, v in given.items()}
        here = stats.genextreme(-one["shape"], one["mu"], one["sigma"])
        values = np.maximum(here.ppf(levels), one["lower"])
        assert float(mean("censored_gev", one)) == pytest.approx(values.mean(), abs=2e-4)
        assert float(variance("censored_gev", one)) == pytest.approx(
            values.var(), rel=0.03, abs=1e-5
        )
    middle = forecast.quantile(0.5)[:, 0]
    np.testing.assert_allclose(middle, np.maximum(free.median(), given["lower"]), rtol=1e-12)
    assert (forecast.sample(50, 0).min(-3) >= given["lower"][:, None]).all()


@pytest.mark.parametrize("interval", [(2.0, np.inf), (0.5, 3.0), (-1.0, 1.0), (-np.inf, np.inf)])
@pytest.mark.parametrize("name", ["censored_gev", "csgd"])
def test_threshold_weighted_scores_are_integrals(name, interval):
    third = {"censored_gev": {"mu": 1.0, "sigma": 0.8, "shape": 0.2, "lower": 0.0}}
    given = third.get(name, {"shape": 1.3, "scale": 0.9, "shift": 0.4})
    parts = {
        k: torch.tensor([[v]], dtype=torch.float64, requires_grad=True) for k, v in given.items()
    }
    forecast = FAMILIES[name](**parts)
    free = {"censored_gev": stats.genextreme(-0.2, 1.0, 0.8), "csgd": stats.gamma(1.3, -0.4, 0.9)}

    def cdf(x):
        return free[name].cdf(x) * (x >= 0)

    for y in (0.0, 0.7, 4.0, -0.3):
        low, high = max(interval[0], -2.0), min(interval[1], 60.0)
        points = sorted({x for x in (0.0, y) if low < x < high})
        wanted = integrate.quad(
            lambda x, y=y: (cdf(x) - (y <= x)) ** 2, low, high, points=points, limit=300
        )[0]
        got = forecast.twcrps(torch.full((1, 1), y, dtype=torch.float64), *interval)
        assert float(got.detach()) == pytest.approx(wanted, rel=1e-6)
        gradients = torch.autograd.grad(got.sum(), list(parts.values()))
        assert all(bool(g.isfinite().all()) for g in gradients)
