"""The log score of families, at point masses, outside the support and at its limits."""

import numpy as np
import pytest
import torch
from scipy import stats

from ens10.errors import ArgumentError
from ens10.metrics.families import FAMILIES, log_score

BOUNDS = {"lower": -1.0, "upper": 2.0}
NORMAL = {"mu": 0.4, "sigma": 1.3}
BOUNDED = ["truncated_normal", "censored_normal", "truncated_logistic", "censored_logistic"]
NAMES = ["normal", "logistic", *BOUNDED]


def test_equal_to_scipy():
    y = np.linspace(-6, 6, 25)
    for name, frozen in (
        ("normal", stats.norm(0.4, 1.3)),
        ("logistic", stats.logistic(0.4, 1.3)),
    ):
        np.testing.assert_allclose(log_score(name, NORMAL, y), -frozen.logpdf(y), rtol=1e-13)


def test_equal_to_scoringrules():
    oracle = pytest.importorskip("scoringrules")
    rng = np.random.default_rng(0)
    mu, sigma = rng.normal(size=100), 0.5 + rng.random(100)
    lower, upper = mu - rng.random(100), mu + 0.3 + rng.random(100)
    y = lower + (upper - lower) * rng.random(100)
    given = {"mu": mu, "sigma": sigma, "lower": lower, "upper": upper}
    for name, other in (
        ("truncated_normal", oracle.logs_tnormal),
        ("truncated_logistic", oracle.logs_tlogistic),
    ):
        wanted = other(y, mu, sigma, lower, upper, backend="numpy")
        np.testing.assert_allclose(log_score(name, given, y), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "frozen"),
    [
        ("censored_normal", stats.norm(0.4, 1.3)),
        ("censored_logistic", stats.logistic(0.4, 1.3)),
    ],
)
def test_bounds_of_censored_families_are_scored_by_their_probability(name, frozen):
    y = np.array([-1.0, 2.0, 0.3, -1.1, 2.1])
    wanted = [-frozen.logcdf(-1), -frozen.logsf(2), -frozen.logpdf(0.3), np.inf, np.inf]
    np.testing.assert_allclose(log_score(name, NORMAL | BOUNDS, y), wanted, rtol=1e-13)
    one_sided = log_score(name, NORMAL | {"lower": -1.0}, y)
    np.testing.assert_allclose(one_sided[:3], [wanted[0], -frozen.logpdf(2), wanted[2]])
    far = log_score(name, {"mu": 40.0, "sigma": 1.0, "lower": 0.0}, 0.0)
    plain = stats.norm if "normal" in name else stats.logistic
    assert far == pytest.approx(-plain.logcdf(-40), rel=1e-12)


@pytest.mark.parametrize("name", ["censored_normal", "censored_logistic"])
@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_gradients_at_point_masses(name, bound):
    mu, sigma = (torch.tensor([v, 1.3 * v + 2], requires_grad=True).double() for v in (0.4, 1.3))
    end = torch.tensor([BOUNDS[bound]] * 2, dtype=torch.float64, requires_grad=True)
    other = torch.tensor(9.0 if bound == "lower" else -9.0, dtype=torch.float64)

    def function(mu, sigma, end):
        pair = (end, other) if bound == "lower" else (other, end)
        return FAMILIES[name].formula("log_score")(mu, sigma, *pair, end)  # y moves with the bound

    inputs = [v.detach().requires_grad_() for v in (mu, sigma, end)]
    assert torch.autograd.gradcheck(function, inputs)


@pytest.mark.parametrize("name", BOUNDED)
def test_outside_the_support_it_is_infinite_without_gradient(name):
    given = [torch.tensor(v, dtype=torch.float64) for v in (0.4, 1.3, -1.0, 2.0, 2.5)]
    inputs = [v.requires_grad_() for v in given]
    score = FAMILIES[name].formula("log_score")(*inputs)
    assert score == torch.inf
    assert all(g == 0 for g in torch.autograd.grad(score, inputs))


@pytest.mark.parametrize("name", NAMES)
def test_a_scale_of_zero_has_no_density(name):
    family = FAMILIES[name]
    scales = [k for k, d in family.parameters.items() if d.domain != "real"]
    given = {k: 0.0 if k in scales else 0.5 for k in family.parameters if k not in BOUNDS}
    with pytest.raises(ArgumentError, match="1 of 1 values are not above 0"):
        log_score(name, given, 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_the_truth_wins(name):
    """Gibbs: the mean score under the distribution itself is lowest for its own parameters."""
    truth = NORMAL | (BOUNDS if name in BOUNDED else {})
    plain = stats.norm if "normal" in name else stats.logistic
    y = plain(0.4, 1.3).ppf((np.arange(20_000) + 0.5) / 20_000)
    if "truncated" in name:
        y = y[(y > -1) & (y < 2)]
    elif "censored" in name:
        y = np.clip(y, -1, 2)
    best = log_score(name, truth, y, dim="all")
    for change in ({"mu": 0.6}, {"mu": 0.2}, {"sigma": 1.6}, {"sigma": 1.1}):
        assert best < log_score(name, truth | change, y, dim="all")
