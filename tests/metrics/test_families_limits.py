"""Families at the ends of their parameters, against many digits: where closed forms cancel."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ens10.metrics import crps_normal, twcrps_normal
from ens10.metrics.distributions.mixture import crps_normal_mixture
from ens10.metrics.distributions.registry import location_scale
from ens10.metrics.families import FAMILIES, crps, log_score, pit

INF = math.inf
mp = mpmath.mp


def score_and_gradients(score, name, known, y, dtype=torch.float64):
    """A score of tensors, and its derivatives by the parameters and y."""
    inputs = [torch.tensor(v, dtype=dtype, requires_grad=True) for v in (*known.values(), y)]
    value = score(name, dict(zip(known, inputs[:-1], strict=True)), inputs[-1])
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
    known = {"df": df, "mu": 0.0, "sigma": 1.0}
    with mp.workdps(60):
        at, step = mpmath.mpf(df), mpmath.mpf(df) * mpmath.mpf(10) ** -15
        wanted = float(exact_t(df, z)), float(mpmath.diff(lambda n: exact_t(n, z), at, h=step))
        log = [-log_density_t(at, z), -mpmath.diff(lambda n: log_density_t(n, z), at, h=step)]
    value, slopes = score_and_gradients(crps, "student_t", known, z)
    assert value == pytest.approx(wanted[0], rel=1e-13)
    assert slopes[0] == pytest.approx(wanted[1], rel=1e-6, abs=1e-12)
    value, slopes = score_and_gradients(log_score, "student_t", known, z)
    assert value == pytest.approx(float(log[0]), rel=1e-13)
    assert slopes[0] == pytest.approx(float(log[1]), rel=1e-9)


def test_the_cauchy_distribution_has_a_finite_crps():
    z = np.array([-3.0, 0.0, 0.5, 40.0, 1e9])
    # the integral of F^2 below z and (1 - F)^2 above it
    wanted = (2 * z * np.arctan(z) - np.log1p(z * z) + math.log(4)) / math.pi
    known = {"df": 1.0, "mu": 2.0, "sigma": 3.0}
    np.testing.assert_allclose(crps("student_t", known, 2 + 3 * z), 3 * wanted, rtol=1e-13)
    tensors = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in known.values()]
    y = torch.tensor([0.5, 4.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(FAMILIES["student_t"].formula("crps"), [*tensors, y])


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
        got = FAMILIES["student_t"].formula(score)(*ends, torch.tensor(1.2))
        wanted = FAMILIES["normal"].formula(score)(*ends[1:], torch.tensor(1.2))
        found = torch.autograd.grad(got, ends)
        assert found[0] == 0
        for a, b in zip(found[1:], torch.autograd.grad(wanted, ends[1:]), strict=True):
            assert float(a) == pytest.approx(float(b), rel=1e-12)


def test_a_forecast_of_t_without_degrees_of_freedom_is_the_normal():
    mu, sigma = torch.zeros(1, 2, 2), torch.ones(1, 2, 2)
    y = torch.tensor([[[0.0, 1.0], [-2.0, 5.0]]])
    found, normal = (location_scale(name, mu, sigma) for name in ("student_t", "normal"))
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
    known = {"df": df, "mu": 0.0, "sigma": 1.0}
    y = np.array([1e155, -1e200, INF, -INF])
    np.testing.assert_allclose(crps("student_t", known, y), np.abs(y))
    score = log_score("student_t", known, y)
    assert (score[2:] == INF).all()
    if df < 1e10:
        np.testing.assert_allclose(score[:2], -stats.t.logpdf([1e100, 1e100], df) + np.array(
            [55, 100]) * (df + 1) * math.log(10), rtol=1e-12)  # fmt: skip
    small = crps("student_t", known | {"sigma": 1e-310}, 1.0)
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
    known = {"mu": 0.0, "sigma": sigma}
    # y is rounded, and with it z
    rel = 1e-13 + 2e-16 / sigma + 1e-16 * sigma**2 + 1e-15 * abs(sigma * z)
    assert float(crps("lognormal", known, y)) == pytest.approx(value, rel=rel, abs=0)
    found, slopes = score_and_gradients(crps, "lognormal", known, y)
    assert found == pytest.approx(value, rel=rel, abs=0)
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


def exact_gamma(k, x, c=0):
    """The CRPS of max(0, G - c) at x - c, for a scale of 1 (Scheuerer & Hamill 2015)."""
    k, x, c = (mpmath.mpf(v) for v in (k, x, c))
    (f, d), (f_0, d_0) = (
        (1 - mpmath.gammainc(k, v, mpmath.inf, True), v**k * mpmath.exp(-v) / mpmath.gamma(k + 1))
        for v in (x, c)
    )
    half = mpmath.gamma(k + 0.5) / mpmath.gamma(k) / mpmath.sqrt(mpmath.pi)
    rest = 2 * k * (d - f_0 * d_0) - half * mpmath.gammainc(2 * k, 2 * c, mpmath.inf, True)
    return (x - k) * (2 * f - 1) + (k - c) * f_0**2 + rest


@pytest.mark.parametrize("k", [1e-10, 1e-3, 0.2, 0.3, 0.9, 1.1, 15.0, 17.0, 90.0])
@pytest.mark.parametrize("share", [1e-8, 0.9, 5.0])
def test_gamma_and_shifted_gamma_keep_their_digits(k, share):
    x = np.float64(k * share)
    with mp.workdps(100):
        wanted = float(exact_gamma(k, x))
        assert float(crps("gamma", {"shape": k, "scale": 1.0}, x)) == pytest.approx(
            wanted, 1e-12, abs=0
        )
        for c in (1e-12, 0.1 * k, 2 * k + 3, 2 * k + 20):
            wanted = float(exact_gamma(k, mpmath.mpf(x) + mpmath.mpf(c), c))
            got = float(crps("csgd", {"shape": k, "scale": 1.0, "shift": c}, x))
            assert got == pytest.approx(wanted, 1e-10, abs=0)


def test_a_shifted_gamma_that_is_almost_all_dry():
    known = {"shape": 0.37494690172551615, "scale": 0.3981451561151403, "shift": 6.3965339765925355}
    c = mpmath.mpf(known["shift"]) / mpmath.mpf(known["scale"])
    with mp.workdps(60):
        wanted = float(mpmath.mpf(known["scale"]) * exact_gamma(known["shape"], c, c))
    value, slopes = score_and_gradients(crps, "csgd", known, 0.0)
    assert value == pytest.approx(wanted, rel=1e-12, abs=0)
    assert slopes[2] < 0  # a larger shift is better
    assert all(math.isfinite(g) for g in slopes)


@pytest.mark.parametrize("k", [1e6, 1e10, 1e14])
@pytest.mark.parametrize("z", [-5.0, -0.5, 0.0, 3.0])
def test_gammas_of_a_large_shape_are_normal(k, z):
    """To the skewness 2 / sqrt(k): its part is odd in z, and leaves with the mean of both sides."""
    root = math.sqrt(k)
    for name, rest in (("gamma", {}), ("csgd", {"shift": 0.0})):
        known = {"shape": k, "scale": 1.0} | rest
        pair = [float(crps(name, known, k + s * root * z)) for s in (1, -1)]
        assert np.mean(pair) == pytest.approx(float(crps_normal(0.0, root, root * z)), rel=3 / root)
        _, slopes = score_and_gradients(crps, name, known, k + root * z)
        by_z = 2 * stats.norm.cdf(z) - 1
        assert slopes[0] == pytest.approx(-by_z, abs=2 / root)
    below = float(pit("gamma", {"shape": k, "scale": 1.0}, k + root * z))
    at_z = np.round(k + root * z) - k
    third = (1 - z * z) * stats.norm.pdf(z) / (3 * root)  # of Edgeworth's expansion
    assert below == pytest.approx(stats.norm.cdf(at_z / root) + third, abs=3 / k + 1e-9 / root)


@pytest.mark.parametrize("k", [1e-308, 1e-20])
def test_gammas_of_a_vanishing_shape_are_0(k):
    y = np.array([0.0, 1e-300, 0.7, INF])
    for name, rest in (("gamma", {}), ("csgd", {"shift": 0.3})):
        known = {"shape": k, "scale": 1.0} | rest
        np.testing.assert_allclose(crps(name, known, y), y, rtol=1e-12, atol=1e-35)


def exact_gev(z, xi):
    """The closed form (Friederichs & Thorarinsdottir 2012), analytic in xi below 2."""
    z, xi = mpmath.mpf(z), mpmath.mpf(xi)
    t = (1 + xi * z) ** (-1 / xi)
    full = mpmath.gamma(1 - xi)
    part = 2**xi * full - 2 * (full - mpmath.gammainc(1 - xi, t))
    return (-z - 1 / xi) * (1 - 2 * mpmath.exp(-t)) - part / xi


@pytest.mark.parametrize("xi", [-160.3, -3.3, 0.499, 0.501, 0.999999, 1.0000001, 1.3, 1.99])
@pytest.mark.parametrize("z", [-0.4, 0.7, 50.0, 1e6])
def test_gev_without_a_mean(xi, z):
    if 1 + xi * z <= 0:
        pytest.skip("outside the support")
    with mp.workdps(50):
        step = mpmath.mpf(10) ** -15
        value = float(exact_gev(z, xi))
        slope = float(mpmath.diff(lambda s: exact_gev(z, s), mpmath.mpf(xi), h=step))
    known = {"mu": 0.0, "sigma": 1.0, "shape": xi}
    found, slopes = score_and_gradients(crps, "gev", known, z)
    assert found == pytest.approx(value, rel=1e-12)
    assert slopes[2] == pytest.approx(slope, rel=1e-10, abs=1e-11)


def test_gev_of_shape_1_is_the_integral():
    with mp.workdps(20):
        above = [0.5, 5, 100, 1e4, mpmath.inf]
        wanted = mpmath.quad(lambda x: mpmath.exp(-2 / (1 + x)), [-1, 0.5])
        wanted += mpmath.quad(lambda x: mpmath.expm1(-1 / (1 + x)) ** 2, above)
    got = crps("gev", {"mu": 0.0, "sigma": 1.0, "shape": 1.0}, 0.5)
    assert float(got) == pytest.approx(float(wanted), rel=1e-12)


def exact_square(shape, x):
    """The integral of F^2 up to x."""
    if shape == "logistic":
        return mpmath.log1p(mpmath.exp(x)) - 1 / (1 + mpmath.exp(-x))
    f, twice = mpmath.ncdf(x), mpmath.ncdf(x * mpmath.sqrt(2))
    return x * f**2 + 2 * mpmath.npdf(x) * f - twice / mpmath.sqrt(mpmath.pi)


@pytest.mark.parametrize("shape", ["normal", "logistic"])
@pytest.mark.parametrize(
    "window", [(-1, 1), (10, 11), (20, 20.1), (-9, -8.5), (-1e-9, 1e-9), (5, 5 + 1e-9), (-3, 50)]
)
def test_censored_far_from_the_mass_and_between_close_bounds(shape, window):
    lower, upper = (float(v) for v in window)
    for share in (0.0, 0.3, 1.0):
        y = lower + share * (upper - lower)
        with mp.workdps(250):
            lo, hi, z = (mpmath.mpf(v) for v in (lower, upper, y))
            below = exact_square(shape, z) - exact_square(shape, lo)
            wanted = float(below + exact_square(shape, -z) - exact_square(shape, -hi))
        known = {"mu": 0.0, "sigma": 1.0, "lower": lower, "upper": upper}
        got = [crps(f"censored_{shape}", known, y)]
        if shape == "normal":
            got.append(twcrps_normal(0.0, 1.0, y, lower=lower, upper=upper))
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_mixtures_of_any_scale(dtype):
    mu, sigma, shares = (np.array(v, dtype) for v in ([0, 1], [1e20, 1e20], [0.5, 0.5]))
    got = crps_normal_mixture(mu, sigma, shares, np.asarray(0, dtype), component_dim=0)
    assert float(got) == pytest.approx(float(crps_normal(0.0, 1e20, 0.0)), rel=1e-6)
    # a far component with a small share adds w^2 |mu|, which two sums of w |mu| hide
    mu, sigma, shares = (np.array(v, dtype) for v in ([0, 1e12], [1e-3, 1], [1, 1e-9]))
    got = crps_normal_mixture(mu, sigma, shares, np.asarray(0, dtype), component_dim=0)
    assert float(got) == pytest.approx(1e-6 + 1e-3 * float(crps_normal(0.0, 1.0, 0.0)), rel=1e-4)


def power(low, high):
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


def sided(low, high):
    return st.builds(lambda sign, size: sign * size, st.sampled_from([-1.0, 1.0]), power(low, high))


# these are for usual magnitudes: test_bounded_student_t.py, test_censored_gev.py
AT_LIMITS = [name for name in FAMILIES if not name.endswith(("ed_student_t", "censored_gev"))]
RANGES = {
    "mu": sided(-9, 9),
    "shift": power(-2, 2),
    "df": power(-0.3, 18),
    "shape": power(-9, 12),
    "lower": sided(-3, 1.5),
    "upper": power(-5, 2),
}
OWN = {
    ("lognormal", "mu"): st.floats(-40, 40),
    ("lognormal", "sigma"): power(-9, 1.2),
    ("gev", "shape"): st.floats(-20, 1.99),
}


@st.composite
def forecasts(draw, name):
    """Parameters over many magnitudes, and observations near and far."""
    scale, parameters = draw(power(-9, 9)), FAMILIES[name].parameters
    known = {k: draw(OWN.get((name, k), RANGES.get(k, st.just(1.0)))) for k in parameters}
    if name != "lognormal":
        known |= {k: v * scale for k, v in known.items() if k in ("sigma", "scale", "shift")}
    middle = known.get("mu", known.get("shape", 0.0) * scale)
    if "lower" in known:
        known["lower"] = middle + scale * known["lower"]
        known["upper"] = known["lower"] + max(abs(known["lower"]), scale) * known["upper"]
        middle = known[draw(st.sampled_from(["lower", "upper"]))]
    if name == "lognormal":
        middle = math.exp(middle)
    return known, draw(st.sampled_from([middle, 0.0, middle + scale * draw(sided(-9, 2))]))


@pytest.mark.parametrize("name", AT_LIMITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_no_crps_is_negative_and_no_gradient_is_missing(name, dtype, data):
    known, y = data.draw(forecasts(name))
    value, slopes = score_and_gradients(crps, name, known, y, dtype)
    assert value >= 0
    assert not any(math.isnan(g) for g in slopes)
    arrays = {k: np.array(v, str(dtype)[6:]) for k, v in known.items()}
    assert crps(name, arrays, np.array(y, str(dtype)[6:])) >= 0


@pytest.mark.parametrize("name", AT_LIMITS)
def test_an_infinite_observation_has_an_infinite_score(name):
    values = {"mu": 0.5, "sigma": 1.2, "df": 3.0, "shape": 0.4, "scale": 2.0, "shift": 0.1}
    values |= {"lower": -1.0, "upper": 3.0}
    known = {k: values[k] for k in FAMILIES[name].parameters}
    for y in (INF, -INF):
        for score in (crps, log_score):
            value, slopes = score_and_gradients(score, name, known, y)
            assert value == INF
            assert not any(math.isnan(g) for g in slopes), slopes


@pytest.mark.parametrize("name", ["normal", "logistic", "student_t", "gev"])
def test_a_distance_over_the_scale_that_overflows(name):
    known = {"mu": 0.0, "sigma": 1e-30, "df": 3.0, "shape": 0.4}
    known = {k: known[k] for k in FAMILIES[name].parameters}
    value, slopes = score_and_gradients(crps, name, known, 1e10, torch.float32)
    assert value == pytest.approx(1e10)
    assert not any(math.isnan(g) for g in slopes)
