"""Families at the ends of their parameters, against many digits: where closed forms cancel."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from ens10.metrics import crps_normal
from ens10.metrics.families import FAMILIES, crps, log_score, pit
from ens10.models.predictive.family import FamilyForecast

INF = math.inf
mp = mpmath.mp


def score_and_gradients(score, name, given, y, dtype=torch.float64):
    """A score of tensors, and its derivatives by the parameters and y."""
    inputs = [torch.tensor(v, dtype=dtype, requires_grad=True) for v in (*given.values(), y)]
    value = score(name, dict(zip(given, inputs[:-1], strict=True)), inputs[-1])
    return float(value.detach()), [float(g) for g in torch.autograd.grad(value, inputs)]


def exact_t(df, z):
    """The closed form (Jordan, Krueger & Lerch 2019), which is analytic in df above 1/2."""
    df, z = mpmath.mpf(df), mpmath.mpf(z)
    peak = mpmath.gamma((df + 1) / 2) / mpmath.gamma(df / 2) / mpmath.sqrt(df * mpmath.pi)
    centred = z * peak * mpmath.hyp2f1(0.5, (df + 1) / 2, 1.5, -z * z / df)
    at_z = peak * (1 + z * z / df) ** (-(df + 1) / 2)
    ratio = mpmath.beta(0.5, df - 0.5) / mpmath.beta(0.5, df / 2) ** 2
    return 2 * (z * centred + (at_z * (df + z * z) - mpmath.sqrt(df) * ratio) / (df - 1))


def log_density_t(df, z):
    return (
        mpmath.loggamma((df + 1) / 2)
        - mpmath.loggamma(df / 2)
        - mpmath.log(df * mpmath.pi) / 2
        - (df + 1) / 2 * mpmath.log1p(mpmath.mpf(z) ** 2 / df)
    )


@pytest.mark.parametrize(
    "df", [0.6, 0.81, 0.999999, 1.0000001, 1.3, 5, 33, 190, 210, 1e4, 1e8, 1e12]
)
@pytest.mark.parametrize("z", [0.0, 0.5, -7.0])
def test_student_t_at_few_and_at_many_degrees_of_freedom(df, z):
    given = {"df": df, "mu": 0.0, "sigma": 1.0}
    with mp.workdps(60):
        at, step = mpmath.mpf(df), mpmath.mpf(df) * mpmath.mpf(10) ** -15
        wanted = float(exact_t(df, z)), float(mpmath.diff(lambda n: exact_t(n, z), at, h=step))
        log = [-log_density_t(at, z), -mpmath.diff(lambda n: log_density_t(n, z), at, h=step)]
    value, slopes = score_and_gradients(crps, "student_t", given, z)
    assert value == pytest.approx(wanted[0], rel=1e-13)
    assert slopes[0] == pytest.approx(wanted[1], rel=1e-6, abs=1e-12)
    value, slopes = score_and_gradients(log_score, "student_t", given, z)
    assert value == pytest.approx(float(log[0]), rel=1e-13)
    assert slopes[0] == pytest.approx(float(log[1]), rel=1e-9)


def test_the_cauchy_distribution_has_a_finite_crps():
    z = np.array([-3.0, 0.0, 0.5, 40.0, 1e9])
    # the integral of F^2 below z and (1 - F)^2 above it
    wanted = (2 * z * np.arctan(z) - np.log1p(z * z) + math.log(4)) / math.pi
    given = {"df": 1.0, "mu": 2.0, "sigma": 3.0}
    np.testing.assert_allclose(crps("student_t", given, 2 + 3 * z), 3 * wanted, rtol=1e-13)
    tensors = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in given.values()]
    y = torch.tensor([0.5, 4.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(FAMILIES["student_t"].crps, [*tensors, y])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_infinite_degrees_of_freedom_are_the_normal(dtype):
    y = np.array([0.0, 0.8, -3.0, 20.0, 1e30, INF, -INF], dtype)
    normal = {"mu": np.asarray(0.5, dtype), "sigma": np.asarray(2.0, dtype)}
    student = {"df": np.asarray(INF, dtype), **normal}
    rtol = 1e-6 if dtype == "f4" else 1e-14
    np.testing.assert_allclose(crps("student_t", student, y), crps_normal(0.5, 2.0, y), rtol)
    for score in (log_score, pit):
        np.testing.assert_allclose(
            score("student_t", student, y), score("normal", normal, y), rtol, atol=1e-300
        )
    ends = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (INF, 0.5, 2.0)]
    for score in ("crps", "log_score"):
        got = getattr(FAMILIES["student_t"], score)(*ends, torch.tensor(1.2))
        wanted = getattr(FAMILIES["normal"], score)(*ends[1:], torch.tensor(1.2))
        found = torch.autograd.grad(got, ends)
        assert found[0] == 0
        for a, b in zip(found[1:], torch.autograd.grad(wanted, ends[1:]), strict=True):
            assert float(a) == pytest.approx(float(b), rel=1e-12)


def test_a_forecast_of_t_without_degrees_of_freedom_is_the_normal():
    mu, sigma = torch.zeros(1, 2, 2), torch.ones(1, 2, 2)
    y = torch.tensor([[[0.0, 1.0], [-2.0, 5.0]]])
    found, normal = (FamilyForecast(name, mu, sigma) for name in ("student_t", "normal"))
    for call in (
        lambda f: f.crps(y),
        lambda f: f.log_score(y),
        lambda f: f.cdf(y),
        lambda f: f.quantile(0.3),
        lambda f: f.std,
    ):
        torch.testing.assert_close(call(found), call(normal))


@pytest.mark.parametrize("df", [0.7, 1.0, 3.0, 1e10, INF])
def test_student_t_far_from_an_observation(df):
    given = {"df": df, "mu": 0.0, "sigma": 1.0}
    y = np.array([1e155, -1e200, INF, -INF])
    np.testing.assert_allclose(crps("student_t", given, y), np.abs(y))
    score = log_score("student_t", given, y)
    assert (score[2:] == INF).all()
    if df < 1e10:
        np.testing.assert_allclose(score[:2], -stats.t.logpdf([1e100, 1e100], df) + np.array(
            [55, 100]) * (df + 1) * math.log(10), rtol=1e-12)  # fmt: skip
    small = crps("student_t", given | {"sigma": 1e-310}, 1.0)
    assert small == 1


def exact_lognormal(mu, sigma, y):
    """Baran & Lerch 2015, with the survival function of the second term."""
    mu, sigma, y = (mpmath.mpf(v) for v in (mu, sigma, y))
    z = (mpmath.log(y) - mu) / sigma
    mean = mpmath.exp(mu + sigma**2 / 2)
    return y * mpmath.erf(z / mpmath.sqrt(2)) + 2 * mean * (
        mpmath.ncdf(-sigma / mpmath.sqrt(2)) - mpmath.ncdf(z - sigma)
    )


@pytest.mark.parametrize("sigma", [1e-12, 1e-5, 0.49, 0.51, 3.0, 12.0, 40.0])
@pytest.mark.parametrize("z", [-20.0, -1.0, 0.0, 2.0, 15.0])
def test_lognormal_with_little_and_with_much_spread(sigma, z):
    y = math.exp(sigma * z)
    with mp.workdps(600):
        step = mpmath.mpf(10) ** -60
        value = exact_lognormal(0, sigma, y)
        wanted = [
            (exact_lognormal(*ahead, y) - exact_lognormal(*behind, y)) / (2 * step)
            for ahead, behind in (
                ((step, sigma), (-step, sigma)),
                ((0, sigma + step), (0, sigma - step)),
            )
        ]
    value, wanted = float(value), [float(v) for v in wanted]
    given = {"mu": 0.0, "sigma": sigma}
    # y is rounded, and with it z
    rel = 1e-13 + 2e-16 / sigma + 1e-16 * sigma**2 + 1e-15 * abs(sigma * z)
    assert float(crps("lognormal", given, y)) == pytest.approx(value, rel=rel)
    found, slopes = score_and_gradients(crps, "lognormal", given, y)
    assert found == pytest.approx(value, rel=rel)
    size = max(1.0, value)
    assert slopes[:2] == pytest.approx(wanted, rel=10 * rel, abs=10 * rel * size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lognormal_that_overflows_is_infinite(dtype):
    name = "lognormal"
    value, slopes = score_and_gradients(crps, name, {"mu": 0.0, "sigma": 12.0}, 1.0, dtype)
    assert value == pytest.approx(399981265934751.56, rel=2e-7)
    assert slopes[1] == pytest.approx((12 / 2 - 1 / 12) * value, rel=1e-3)
    for sigma in (60.0, 1e10, INF):
        value, slopes = score_and_gradients(crps, name, {"mu": 0.0, "sigma": sigma}, 1.0, dtype)
        assert (value, slopes[:2]) == (INF, [INF, INF])
    for y in (INF, -INF):
        for score in (crps, log_score):
            value, slopes = score_and_gradients(score, name, {"mu": 0.0, "sigma": 1.0}, y, dtype)
            assert value == INF
            assert not any(math.isnan(g) for g in slopes)
