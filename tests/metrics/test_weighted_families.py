"""Scores of families between thresholds, against quadrature, scipy and scoringrules."""

from itertools import pairwise

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats
from scipy.integrate import quad, quad_vec

from ens10.errors import ArgumentError
from ens10.metrics import (
    censored_log_score,
    conditional_log_score,
    log_score,
    twcrps,
    twcrps_normal,
)
from ens10.metrics.families import FAMILIES, crps, pit_interval

sr = pytest.importorskip("scoringrules")
INF = np.inf
CLOSED = {
    "normal": {"mu": 0.4, "sigma": 1.3},
    "logistic": {"mu": 0.4, "sigma": 0.8},
    "student_t": {"df": 4.0, "mu": 0.4, "sigma": 0.8},
    "censored_normal": {"mu": 0.4, "sigma": 1.3, "lower": -0.5, "upper": 2.0},
    "censored_logistic": {"mu": 0.4, "sigma": 0.8, "lower": -0.5},
    "censored_student_t": {"df": 4.0, "mu": 0.4, "sigma": 0.8, "lower": -0.5, "upper": 3.0},
    "truncated_normal": {"mu": 0.4, "sigma": 1.3, "lower": -0.5, "upper": 2.0},
    "truncated_logistic": {"mu": 0.4, "sigma": 0.8, "lower": -0.5},
    "truncated_student_t": {"df": 4.0, "mu": 0.4, "sigma": 0.8, "lower": -0.5, "upper": 3.0},
    "gamma": {"shape": 1.7, "scale": 0.8},
    "csgd": {"shape": 1.7, "scale": 0.8, "shift": 0.6},
    "gev": {"mu": 0.4, "sigma": 0.8, "shape": 0.15},
    "censored_gev": {"mu": 0.4, "sigma": 0.8, "shape": -0.2, "lower": 0.1},
}
INTERVALS = [(0.2, INF), (-INF, 0.7), (-0.3, 1.1), (0.9, 0.9), (-4.0, -1.0), (2.5, 6.0)]


def test_the_families_with_a_closed_form():
    assert {name for name, cls in FAMILIES.items() if cls.has_twcrps()} == CLOSED.keys()
    with pytest.raises(ArgumentError, match="of lognormal has no closed form here"):
        twcrps("lognormal", {"mu": 0.0, "sigma": 1.0}, 1.0, lower=2.0)


def integrals(family, parameters, cases):
    """Integrals of the squared error of the cdf, for (y, lower, upper); all in one quadrature."""
    kinks = [parameters[k] for k in ("lower", "upper") if k in parameters] + [0.0, 1.0, 3.0]
    pieces = []  # case, observation, start and end, between which the integrand is smooth
    for number, (y, lower, upper) in enumerate(cases):
        a, b = max(lower, -40.0), min(upper, 60.0)
        ends = sorted({a, *(x for x in (*kinks, y) if a < x < b), b})
        pieces += [(number, y, *piece) for piece in pairwise(ends)]
    of, y, a, b = np.array(pieces).T

    def squared(u):
        cdf = pit_interval(family, parameters, a + u * (b - a))[1]
        return (b - a) * (cdf - (y <= (a + b) / 2)) ** 2

    values = quad_vec(squared, 0, 1, epsrel=1e-9, norm="max")[0]
    return np.bincount(of.astype(int), values, len(cases))


@pytest.mark.parametrize("family", CLOSED)
def test_threshold_weighted_crps_is_the_integral(family):
    cases = [(y, *interval) for interval in INTERVALS for y in (-0.8, 0.5, 1.6, 4.0)]
    wanted = integrals(family, CLOSED[family], cases)
    y, lower, upper = np.array(cases).T
    got = twcrps(family, CLOSED[family], y, lower=lower, upper=upper)
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("family", CLOSED)
def test_without_thresholds_it_is_the_crps_and_parts_add(family):
    y = np.array([-0.7, 0.3, 1.9])
    whole = crps(family, CLOSED[family], y)
    np.testing.assert_allclose(twcrps(family, CLOSED[family], y), whole, rtol=1e-9)
    cut = np.array([0.5, -0.2, 2.5])
    parts = [twcrps(family, CLOSED[family], y, **part) for part in ({"upper": cut}, {"lower": cut})]
    np.testing.assert_allclose(parts[0] + parts[1], whole, rtol=1e-8)


def test_against_censored_scores_of_scoringrules():
    y, lower, upper = np.array([-1.0, 0.2, 0.9, 3.0]), -0.4, 1.5
    clipped = np.clip(y, lower, upper)
    for family, function, names in (
        ("normal", sr.crps_cnormal, ("mu", "sigma")),
        ("logistic", sr.crps_clogistic, ("mu", "sigma")),
        ("student_t", sr.crps_ct, ("df", "mu", "sigma")),
    ):
        values = [CLOSED[family][name] for name in names]
        wanted = function(clipped, *values, lower, upper)
        got = twcrps(family, CLOSED[family], y, lower=lower, upper=upper)
        np.testing.assert_allclose(got, wanted, rtol=1e-9)


@pytest.mark.parametrize(
    ("family", "function", "known"),
    [
        ("truncated_normal", sr.crps_gtcnormal, stats.norm),
        ("truncated_logistic", sr.crps_gtclogistic, stats.logistic),
    ],
)
def test_truncated_families_against_scores_with_point_masses(family, function, known):
    """Censored at the thresholds, a truncated distribution has a point mass on each."""
    y, low, high = np.array([-1.0, 0.2, 0.9, 3.0]), -0.2, 1.5
    one = CLOSED[family]
    cdf = known(one["mu"], one["sigma"]).cdf
    a, b = one["lower"], one.get("upper", INF)
    mass = cdf(b) - cdf(a)
    below, above = (cdf(low) - cdf(a)) / mass, (cdf(b) - cdf(high)) / mass
    clipped = np.clip(y, low, high)
    wanted = function(clipped, one["mu"], one["sigma"], low, high, below, above)
    got = twcrps(family, one, y, lower=low, upper=high)
    np.testing.assert_allclose(got, wanted, rtol=1e-9)


def test_a_truncated_family_keeps_its_digits_far_out():
    """30 scales beyond mu the conditional distribution is exponential, whose score is known."""
    far, rate = 30.0, 30.0
    parameters = {"mu": 0.0, "sigma": 1.0, "lower": far}
    low = far + 0.02
    tail = np.exp(-rate * 0.02)  # of an exponential variable; its twCRPS for y below is tail^2 / 2
    got = twcrps("truncated_normal", parameters, far, lower=low)
    assert float(got) == pytest.approx(tail**2 / (2 * rate), rel=5e-3)


def test_in_every_library_with_gradients():
    mu, y = np.array([0.1, 0.4, np.nan]), np.array([0.5, -0.2, 1.0])
    wanted = twcrps("logistic", {"mu": mu, "sigma": 1.2}, y, lower=0.0)
    np.testing.assert_array_equal(np.isnan(wanted), [False, False, True])
    lazy = twcrps("logistic", {"mu": da.from_array(mu), "sigma": 1.2}, da.from_array(y), lower=0.0)
    np.testing.assert_array_equal(lazy.compute(), wanted)
    named = [xr.DataArray(v, dims="x", attrs={"units": "K"}) for v in (mu, y)]
    found = twcrps("logistic", {"mu": named[0], "sigma": 1.2}, named[1], lower=0.0)
    assert found.attrs["units"] == "K"
    np.testing.assert_array_equal(found, wanted)
    single = twcrps("logistic", {"mu": np.float32(mu), "sigma": 1.2}, np.float32(y), lower=0.0)
    assert single.dtype == np.float32
    tensors = [torch.tensor(v, requires_grad=True) for v in (mu[:2], np.array([1.2, 0.7]), y[:2])]
    for family in ("normal", "logistic"):

        def call(mu, sigma, y, family=family):
            parameters = {"mu": mu, "sigma": sigma}
            return twcrps(family, parameters, y, lower=0.0, upper=1.5, check=False)

        assert torch.autograd.gradcheck(call, tensors)
    normal = twcrps("normal", {"mu": mu, "sigma": 1.2}, y, lower=0.2)
    np.testing.assert_allclose(normal, twcrps_normal(mu, 1.2, y, lower=0.2), rtol=1e-12)
    mean = twcrps("normal", {"mu": mu, "sigma": 1.2}, y, lower=0.2, dim="all", nan="omit")
    assert float(mean) == pytest.approx(np.nanmean(normal))
    with pytest.raises(ArgumentError, match="lower"):
        twcrps("normal", {"mu": mu, "sigma": 1.2}, y, lower=1.0, upper=0.0)
    with pytest.raises(ArgumentError, match="sigma"):
        twcrps("logistic", {"mu": mu, "sigma": -1.2}, y)


DENSITIES = {
    "normal": stats.norm(0.4, 1.3),
    "logistic": stats.logistic(0.4, 0.8),
    "student_t": stats.t(4.0, 0.4, 0.8),
    "gamma": stats.gamma(1.7, scale=0.8),
}


@pytest.mark.parametrize("family", DENSITIES)
def test_likelihoods_against_scipy(family):
    known = DENSITIES[family]
    y = np.array([0.1, 0.5, 1.4, 9.0])
    for lower, upper in ((0.3, INF), (-INF, 0.7), (0.2, 1.6), (7.0, INF)):
        inside = (y >= lower) & (y <= upper)
        tails = known.cdf(lower) + known.sf(upper)
        share = known.sf(lower) - known.sf(upper)
        density = -known.logpdf(y)
        options = {"lower": lower, "upper": upper}
        got = conditional_log_score(family, CLOSED[family], y, **options)
        wanted = np.where(inside, density + np.log(share), 0)
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)
        got = censored_log_score(family, CLOSED[family], y, **options)
        np.testing.assert_allclose(got, np.where(inside, density, -np.log(tails)), rtol=1e-9)
    all_y = censored_log_score(family, CLOSED[family], y)
    np.testing.assert_allclose(all_y, log_score(family, CLOSED[family], y), rtol=1e-12)


@pytest.mark.parametrize("family", ["normal", "logistic", "student_t"])
def test_the_conditional_likelihood_keeps_its_digits_far_out(family):
    known, far = DENSITIES[family], 30.0
    got = conditional_log_score(family, CLOSED[family], far + 0.5, lower=far)
    wanted = known.logsf(far) - known.logpdf(far + 0.5)
    assert float(got) == pytest.approx(wanted, rel=1e-6)


def test_likelihoods_against_scoringrules():
    """Its kernel density of one member is the normal."""
    y, mu, sigma = np.array([-1.0, 0.3, 2.0]), np.array([0.5, 0.1, 1.0]), np.array([1.0, 0.5, 2.0])
    for function, censored in ((censored_log_score, True), (conditional_log_score, False)):
        wanted = sr.clogs_ensemble(y, mu[:, None], -0.5, 1.5, bw=sigma, cens=censored)
        got = function("normal", {"mu": mu, "sigma": sigma}, y, lower=-0.5, upper=1.5)
        np.testing.assert_allclose(got, wanted, rtol=1e-9)


def test_likelihoods_are_proper_and_what_they_refuse():
    rng = np.random.default_rng(0)
    y = rng.normal(size=100_000)
    for function in (censored_log_score, conditional_log_score):
        scores = [
            float(function("normal", {"mu": mu, "sigma": s}, y, lower=1.0, dim="all"))
            for mu, s in ((0, 1), (0.2, 1), (0, 1.2), (-0.2, 0.9))
        ]
        assert np.argmin(scores) == 0
    gap = censored_log_score("normal", {"mu": [0.0, np.nan], "sigma": 1.0}, [np.nan, 0.0])
    assert np.isnan(gap).all()
    with pytest.raises(ArgumentError, match="sigma"):
        censored_log_score("normal", {"mu": 0.0, "sigma": 0.0}, 1.0)
    tensor = torch.tensor([0.0], requires_grad=True)
    with pytest.raises(ArgumentError, match="has no gradient"):
        censored_log_score("normal", {"mu": tensor, "sigma": 1.0}, torch.tensor([1.0]))


def test_forecasts_of_few_degrees_of_freedom_are_scored_by_quantiles():
    shape = (1, 1)
    forecast = FAMILIES["student_t"](np.full(shape, 0.9), np.zeros(shape), np.ones(shape))
    got = forecast.twcrps(np.full(shape, 0.3), 0.0, 2.0)
    cdf = stats.t(0.9).cdf
    ends = (0.0, 0.3, 2.0)
    wanted = quad(lambda z: cdf(z) ** 2, *ends[:2])[0]
    wanted += quad(lambda z: (1 - cdf(z)) ** 2, *ends[1:])[0]
    assert got.item() == pytest.approx(wanted, rel=1e-3)
