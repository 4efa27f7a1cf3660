"""Truncated, censored and logistic distributions: oracles, tails, limits, bad input."""

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from ens10 import metrics
from ens10.errors import ArgumentError
from ens10.metrics import (
    crps_censored_logistic,
    crps_censored_normal,
    crps_logistic,
    crps_truncated_logistic,
    crps_truncated_normal,
)
from ens10.metrics.distributions import distribution_class
from ens10.metrics.families import FAMILIES, crps, log_score, mean, variance

INF = float("inf")
BOUNDED = ["truncated_normal", "censored_normal", "truncated_logistic", "censored_logistic"]
FUNCTIONS = [getattr(metrics, f"crps_{name}") for name in BOUNDED]


def case(n, seed=0):
    rng = np.random.default_rng(seed)
    mu, sigma = 5 + rng.normal(size=n), 0.5 + rng.random(n)
    y = mu + sigma * rng.normal(size=n)
    return mu, sigma, y, mu - 2 * rng.random(n), mu + 0.5 + rng.random(n)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 9999), left=st.booleans(), right=st.booleans())
def test_equal_to_scoringrules(seed, left, right):
    oracle = pytest.importorskip("scoringrules")
    mu, sigma, y, lower, upper = case(50, seed)
    lower, upper = lower if left else np.full(50, -INF), upper if right else np.full(50, INF)
    inside = np.clip(y, lower, upper)
    bounds = {"lower": lower, "upper": upper}
    wide = np.where(np.isinf(lower), -90, lower), np.where(np.isinf(upper), 90, upper)
    for function, other, ends in (
        (crps_truncated_normal, oracle.crps_tnormal, (lower, upper)),
        (crps_censored_normal, oracle.crps_cnormal, (lower, upper)),
        (crps_truncated_logistic, oracle.crps_tlogistic, wide),  # gives NaN for one infinite
        (crps_censored_logistic, oracle.crps_clogistic, wide),
    ):
        for observed in (y, inside):
            wanted = other(observed, mu, sigma, *ends, backend="numpy")
            found = function(mu, sigma, observed, **bounds)
            assert np.abs(found - wanted).max() < 1e-12 * max(wanted.mean(), 0.1)
    wanted = oracle.crps_logistic(y, mu, sigma)
    np.testing.assert_allclose(crps_logistic(mu, sigma, y), wanted, rtol=1e-12)


def truncated_reference(mp, shape, lower, upper, z):
    """In many digits, from the integrals of F^2 and F; the region below 0, where F is small."""
    if shape == "normal":
        cdf, once = mp.ncdf, lambda x: x * mp.ncdf(x) + mp.npdf(x)

        def twice(x):
            root = mp.sqrt(mp.mpf(2))
            return x * cdf(x) ** 2 + 2 * mp.npdf(x) * cdf(x) - cdf(root * x) / mp.sqrt(mp.pi)

    else:
        cdf, once = (lambda x: 1 / (1 + mp.exp(-x))), (lambda x: mp.log(1 + mp.exp(x)))

        def twice(x):
            return once(x) - cdf(x)

    a, b = mp.mpf(lower), mp.mpf(upper)
    x = min(max(mp.mpf(z), a), b)
    low, high = cdf(a), cdf(b)
    below = twice(x) - twice(a) - 2 * low * (once(x) - once(a)) + low**2 * (x - a)
    above = twice(b) - twice(x) - 2 * high * (once(b) - once(x)) + high**2 * (b - x)
    return float((below + above) / (high - low) ** 2 + abs(mp.mpf(z) - x))


WINDOWS = [(10, 11), (10, 10.001), (10, 60), (0.1, 0.3), (0.1, 0.5), (-1e-6, 1e-6), (12.5, 13)]
WINDOWS += [
    (1, 1.2),
    (1, 1.4),
    (3, 3.1),
    (-0.19, 0.2),
    (-0.21, 0.2),
    (-0.3, 0.31),
    (30, 90),
    (10, 10.2),
]


@pytest.mark.parametrize("shape", ["normal", "logistic"])
@pytest.mark.parametrize("window", WINDOWS)
def test_truncated_far_in_a_tail_and_between_close_bounds(shape, window):
    mp = pytest.importorskip("mpmath").mp
    lower, upper = (float(v) for v in window)
    function = getattr(metrics, f"crps_truncated_{shape}")
    with mp.workdps(120):
        for share in (-0.2, 0.0, 0.03, 0.5, 1.0, 1.1):
            z = lower + share * min(upper - lower, 2.0)
            wanted = truncated_reference(mp, shape, -upper, -lower, -z)
            found = [function(0.0, 1.0, z, lower=lower, upper=upper)]
            found.append(function(0.0, 1.0, -z, lower=-upper, upper=-lower))
            if window[1] > 59:
                found.append(function(0.0, 1.0, z, lower=lower))
                found.append(function(0.0, 1.0, -z, upper=-lower))
            rel = 1e-12 if window[1] <= 59 or shape == "normal" else 1e-9
            np.testing.assert_allclose(found, wanted, rtol=rel)


@pytest.mark.parametrize("window", [(10.0, 11.0), (-1.0, INF), (-INF, -8.0), (0.2, 0.3), (30, 35)])
def test_truncated_normal_is_scipys(window):
    mu, sigma = 2.0, 1.5
    lower, upper = (mu + sigma * v for v in window)
    frozen = stats.truncnorm(*window, loc=mu, scale=sigma)
    y = frozen.ppf([0.01, 0.3, 0.9])
    given = {"mu": mu, "sigma": sigma, "lower": lower, "upper": upper}
    np.testing.assert_allclose(log_score("truncated_normal", given, y), -frozen.logpdf(y), 1e-10)
    probability = FAMILIES["truncated_normal"].formula("cdf")(*given.values(), y)
    np.testing.assert_allclose(probability, frozen.cdf(y), rtol=1e-9)
    assert float(mean("truncated_normal", given)) == pytest.approx(frozen.mean(), rel=1e-12)
    assert float(variance("truncated_normal", given)) == pytest.approx(frozen.var(), rel=1e-6)


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("window", [(0.2, 0.6), (-1.0, 3.0), (5.0, 9.0), (-0.2, INF), (-INF, -3.0)])
def test_moments_are_those_of_draws(name, window):
    """Of evenly spaced quantiles, which are draws without noise."""
    frozen = stats.norm() if "normal" in name else stats.logistic()
    lower, upper = window
    even = (np.arange(200_000) + 0.5) / 200_000
    if "truncated" in name:
        first, last = frozen.sf(lower), frozen.sf(upper)
        y = frozen.isf(first + (last - first) * even)
    else:
        y = np.clip(frozen.ppf(even), lower, upper)
    given = {"mu": 3.0, "sigma": 2.0, "lower": 3 + 2 * lower, "upper": 3 + 2 * upper}
    assert float(mean(name, given)) == pytest.approx(3 + 2 * y.mean(), rel=1e-4)
    assert float(variance(name, given)) == pytest.approx(4 * y.var(), rel=1e-2, abs=1e-6)
    assert float(variance(name, given | {"sigma": 0.0})) == 0


@pytest.mark.parametrize("name", BOUNDED)
def test_without_bounds_it_is_the_plain_family(name):
    mu, sigma, y, _, _ = case(30)
    given = {"mu": mu, "sigma": sigma}
    plain = name.split("_")[1]
    np.testing.assert_allclose(crps(name, given, y), crps(plain, given, y), rtol=1e-12)
    np.testing.assert_allclose(log_score(name, given, y), log_score(plain, given, y), rtol=1e-12)
    np.testing.assert_allclose(mean(name, given), mu, rtol=1e-14)
    np.testing.assert_allclose(variance(name, given), variance(plain, given), rtol=1e-13)
    assert np.isfinite(crps(name, {"mu": 0.0, "sigma": 1.0}, 1e6))
    assert crps(name, {"mu": 0.0, "sigma": 1.0}, INF) == INF


@pytest.mark.parametrize("name", [*BOUNDED, "logistic"])
def test_limits_at_zero_spread(name):
    mu = torch.tensor([-3.0, -1.0, 0.0, 0.5, 1.0, 4.0, 0.5, 0.5], dtype=torch.float64)
    y = torch.tensor([0.2, -1.0, 0.0, 0.7, -2.0, 1.0, 0.5, 3.0], dtype=torch.float64)
    bounds = [torch.tensor(v, dtype=torch.float64) for v in (-1.0, 1.0)] if name in BOUNDED else []
    inputs = [mu, torch.zeros_like(mu), *(b.expand(8).clone() for b in bounds), y]
    inputs = [x.requires_grad_() for x in inputs]
    values = FAMILIES[name].formula("crps")(*inputs)
    nearest = mu.clamp(-1, 1) if bounds else mu
    np.testing.assert_allclose(values.detach(), (y - nearest).abs().detach(), rtol=1e-15)
    gradients = torch.autograd.grad(values.sum(), inputs)
    assert all(g.isfinite().all() for g in gradients)
    near = [x.detach().clone() for x in inputs]
    near[1] = near[1] + 1e-7
    slope = (FAMILIES[name].formula("crps")(*near) - values.detach()) / 1e-7
    np.testing.assert_allclose(gradients[1].detach(), slope, atol=1e-5)


@pytest.mark.parametrize("name", BOUNDED)
def test_gradients_are_right_far_in_a_tail(name):
    lower = torch.tensor([10.0, -1.0, 12.0, -30.0, 0.2, 10.0], dtype=torch.float64)
    upper = torch.tensor([11.0, 0.2, 40.0, -10.0, 0.3, 10.01], dtype=torch.float64)
    y = lower + 0.4 * (upper - lower).clamp(max=1.0)
    mu, sigma = torch.zeros(6, dtype=torch.float64), torch.ones(6, dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (mu, sigma, lower, upper, y.detach())]
    for score in ("crps", "log_score"):
        function = FAMILIES[name].formula(score)
        assert torch.autograd.gradcheck(function, inputs, eps=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["truncated_normal", "truncated_logistic"])
@pytest.mark.parametrize("score", ["crps", "log_score"])
def test_gradients_where_a_bound_is_a_million_spreads_away(name, score):
    function = FAMILIES[name].formula(score)
    given = [torch.tensor(v, dtype=torch.float64) for v in (-3e6, 1.0, 0.0, INF, 4e-7)]
    mu, sigma = (v.clone().requires_grad_() for v in given[:2])
    found = torch.autograd.grad(function(mu, sigma, *given[2:]), (mu, sigma))
    for i, gradient in enumerate(found):
        step = 1e-4 * given[i]
        ahead, behind = (function(*given[:i], given[i] + d, *given[i + 1 :]) for d in (step, -step))
        wanted = float((ahead - behind) / (2 * step))
        assert float(gradient) == pytest.approx(wanted, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_refused(function):
    with pytest.raises(ArgumentError, match="sigma: 1 of 2 values are not 0 or more"):
        function(np.zeros(2), np.array([1.0, -1.0]), 0.0)
    for lower, upper in ((1.0, 0.0), (0.0, 0.0), (INF, INF), (-INF, -INF)):
        with pytest.raises(ArgumentError, match=r"lower: \d+ of \d+ values are not below upper"):
            function(np.zeros(2), 1.0, 0.0, lower=lower, upper=upper)
        with pytest.raises(ArgumentError, match="values are not below upper"):
            function(torch.zeros(2), 1.0, 0.0, lower=lower, upper=upper)
    with pytest.raises(ArgumentError, match="not below upper"):
        function(da.zeros(2), 1.0, 0.0, lower=1.0, upper=0.0).compute()
    with pytest.raises(ArgumentError, match="shapes that do not fit"):
        function(np.zeros(2), 1.0, 0.0, lower=np.zeros(3))
    celsius = xr.DataArray(0.0, attrs={"units": "degC"})
    kelvin = xr.DataArray(np.zeros(2), dims="x", attrs={"units": "K"})
    with pytest.raises(ArgumentError, match="units differ"):
        function(kelvin, 1.0, kelvin, lower=celsius)
    with pytest.raises(ArgumentError, match="weights: it applies to a mean"):
        function(np.zeros(2), 1.0, 0.0, weights=np.ones(2))


@pytest.mark.parametrize("name", BOUNDED)
def test_the_truth_wins(name):
    truth = {"mu": 0.3, "sigma": 1.0, "lower": -0.5, "upper": 2.0}
    rng = np.random.default_rng(5)
    latent = rng.normal if "normal" in name else rng.logistic
    y = truth["mu"] + latent(size=40_000)
    inside = (y >= truth["lower"]) & (y <= truth["upper"])
    y = y[inside] if "truncated" in name else np.clip(y, truth["lower"], truth["upper"])
    for score in (crps, log_score):
        best = score(name, truth, y, dim="all")
        for change in ({"mu": 0.8}, {"mu": -0.2}, {"sigma": 1.6}, {"sigma": 0.6}):
            assert best < score(name, truth | change, y, dim="all")


def upper_quantiles(oracle, levels):
    """By a root of log sf: `isf` of t has no digits at 1e-182 in scipy before 1.17."""
    return np.array(
        [
            optimize.brentq(
                lambda x, p=p: oracle.logsf(x) - np.log(p), -60, 60, xtol=1e-15, rtol=1e-15
            )
            for p in levels
        ]
    )


@pytest.mark.parametrize("distance", [-37.0, -8.3, -8.0, -3.0, 0.0, 4.0])
@pytest.mark.parametrize("name", ["normal", "logistic", "student_t"])
def test_quantiles_keep_their_digits_in_both_tails(name, distance):
    """With mu far outside the interval: by the survival function, which is small there."""
    p = np.array([0.001, 0.1, 0.5, 0.9, 0.999])
    df = {"df": np.full((1, 1), 884.0)} if name == "student_t" else {}
    oracle = {"normal": stats.norm, "logistic": stats.logistic, "student_t": stats.t(884.0)}[name]
    wanted = upper_quantiles(oracle, (1 - p) * oracle.sf(-distance)) + distance
    mu = np.full((1, 1), distance)
    family = distribution_class(f"truncated_{name}")
    above = family(mu=mu, sigma=np.ones_like(mu), lower=0.0, **df).quantile(p)
    np.testing.assert_allclose(above.ravel(), wanted, rtol=1e-9)
    below = family(mu=-mu, sigma=np.ones_like(mu), upper=0.0, **df).quantile(1 - p)
    np.testing.assert_allclose(below.ravel(), -wanted, rtol=1e-9)


@pytest.mark.parametrize("name", ["normal", "logistic"])
def test_quantiles_beyond_all_digits_are_the_bound(name):
    mu = torch.full((1, 1), -2000.0, requires_grad=True)
    far = distribution_class(f"truncated_{name}")(mu=mu, sigma=torch.ones(1, 1), lower=0.0)
    value = far.quantile(0.9)
    assert value.item() == pytest.approx(0.0)
    value.sum().backward()
    assert torch.isfinite(mu.grad).all()


def test_crps_of_a_truncated_t_far_in_a_tail_is_finite():
    far = np.array([[-41.0, -60.0, -80.0]])
    held = distribution_class("truncated_student_t")(
        mu=far, sigma=np.ones_like(far), df=np.full_like(far, 142.0), lower=0.0
    )
    crps = held.crps(np.full_like(far, 0.02))
    assert np.isfinite(crps).all()
    for score, mu in zip(crps[0], far[0], strict=True):

        def beyond(x, mu=mu):
            return stats.t(142.0).sf(x - mu) / stats.t(142.0).sf(-mu)

        below = integrate.quad(lambda x: (1 - beyond(x)) ** 2, 0, 0.02)[0]
        above = integrate.quad(lambda x: beyond(x) ** 2, 0.02, 20)[0]
        assert score == pytest.approx(below + above, rel=1e-7)
