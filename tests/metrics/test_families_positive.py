"""Log-normal, gamma, shifted gamma, extreme value and t distributions against other formulas."""

import mpmath
import numpy as np
import pytest
import scipy.stats as ss
import torch
import xarray as xr
from slopes import assert_slopes

from ens10.errors import ArgumentError
from ens10.metrics.distributions.gamma_functions import gammainc_by_shape
from ens10.metrics.families import FAMILIES, crps, log_score, mean, pit, variance

sr = pytest.importorskip("scoringrules")

N = 200


def parameters(name, seed=0):
    """Parameters over their ranges, and observations in the support."""
    rng = np.random.default_rng(seed)
    shape, scale = rng.uniform(0.2, 20, N), rng.uniform(0.1, 4, N)
    mu, sigma, y = rng.normal(size=N), rng.uniform(0.1, 2, N), 3 * rng.normal(size=N)
    drawn = rng.gamma(shape, scale) * rng.uniform(0.3, 2, N)
    if name == "lognormal":
        return {"mu": mu, "sigma": sigma}, rng.gamma(1, 2, N)
    if name == "gamma":
        return {"shape": shape, "scale": scale}, drawn
    if name == "csgd":
        shift = rng.uniform(0.01, 3, N)
        return {"shape": shape, "scale": scale, "shift": shift}, np.maximum(drawn - shift, 0)
    if name == "student_t":
        return {"df": rng.uniform(1.2, 30, N), "mu": mu, "sigma": sigma}, y
    xi = rng.uniform(-0.6, 0.8, N)
    xi[:40] = rng.uniform(-0.06, 0.06, 40)
    xi[40:50] = 0
    return {"mu": mu, "sigma": sigma, "shape": xi}, y


ORACLES = {
    "lognormal": lambda y, mu, sigma: sr.crps_lognormal(y, mu, sigma),
    "gamma": lambda y, shape, scale: sr.crps_gamma(y, shape, 1 / scale),
    "csgd": lambda y, shape, scale, shift: sr.crps_csg0(
        y, shape=shape, rate=1 / scale, shift=shift
    ),
    "student_t": lambda y, df, mu, sigma: sr.crps_t(y, df, mu, sigma),
}
# numpy's distributions of the same parameters
MADE = {
    "lognormal": lambda mu, sigma: ss.lognorm(sigma, scale=np.exp(mu)),
    "gamma": lambda shape, scale: ss.gamma(shape, scale=scale),
    "student_t": lambda df, mu, sigma: ss.t(df, mu, sigma),
    "gev": lambda mu, sigma, shape: ss.genextreme(-shape, mu, sigma),
}
NAMES = [*ORACLES, "gev"]


@pytest.mark.parametrize("name", ORACLES)
def test_crps_equals_scoringrules(name):
    given, y = parameters(name)
    wanted = ORACLES[name](y, **given)
    assert np.abs(crps(name, given, y) - wanted).max() < 1e-12 * wanted.mean()


def exact_gev(z, xi):
    """The CRPS of the standard distribution in 40 digits (Friederichs & Thorarinsdottir 2012)."""
    with mpmath.workdps(40):
        z, xi = mpmath.mpf(z), mpmath.mpf(xi)
        if xi == 0:
            t = mpmath.e ** (-z)
            return float(-z + mpmath.euler - mpmath.log(2) - 2 * mpmath.ei(-t))
        t = (1 + xi * z) ** (-1 / xi)
        part = 2**xi * mpmath.gamma(1 - xi) - 2 * mpmath.gammainc(1 - xi, 0, t)
        return float((-z - 1 / xi) * (1 - 2 * mpmath.e ** (-t)) - part / xi)


@pytest.mark.parametrize("xi", [0, 1e-12, -1e-7, 1e-3, 0.03, 0.0499, 0.0501, -0.04, 0.2, -0.3, 0.7])
def test_gev_equals_forty_digits(xi):
    z = np.array([z for z in (-2.0, -0.5, 0.0, 0.3, 3.0, 15.0) if 1 + xi * z > 0])
    wanted = np.array([exact_gev(one, xi) for one in z])
    got = crps("gev", {"mu": 0.0, "sigma": 1.0, "shape": xi}, z)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", MADE)
def test_pit_log_score_and_moments_equal_scipy(name):
    given, y = parameters(name)
    made = MADE[name](**given)
    np.testing.assert_allclose(pit(name, given, y), made.cdf(y), atol=1e-13)
    inside = made.pdf(y) > 1e-200
    got = log_score(name, given, y)
    np.testing.assert_allclose(got[inside], -made.logpdf(y)[inside], rtol=1e-8, atol=1e-9)
    sure = given.get("df", np.inf) > 2.5 if name == "student_t" else np.full(N, True)
    sure &= (given["shape"] < 0.3) & (abs(given["shape"]) > 0.01) if name == "gev" else True
    np.testing.assert_allclose(mean(name, given)[sure], made.mean()[sure], rtol=1e-9)
    np.testing.assert_allclose(variance(name, given)[sure], made.var()[sure], rtol=1e-7)


def test_the_shifted_gamma_is_that_of_its_draws():
    given = {"shape": 1.4, "scale": 2.0, "shift": 1.1}
    drawn = np.maximum(np.random.default_rng(0).gamma(1.4, 2.0, 400_000) - 1.1, 0)
    assert float(mean("csgd", given)) == pytest.approx(drawn.mean(), rel=0.01)
    assert float(variance("csgd", given)) == pytest.approx(drawn.var(), rel=0.02)
    assert float(np.exp(-log_score("csgd", given, 0.0))) == pytest.approx(
        (drawn == 0).mean(), rel=0.01
    )
    inside = (np.abs(drawn - 2.0) < 0.05).mean() / 0.1
    assert float(np.exp(-log_score("csgd", given, 2.0))) == pytest.approx(inside, rel=0.03)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("score", ["crps", "log_score"])
def test_gradients(name, score):
    given, y = parameters(name)
    if name == "gev":
        given["shape"] = np.clip(given["shape"], -0.2, 0.5)
        y = given["mu"] + given["sigma"] * np.clip(y, -1.5, 3)
    picked = [torch.tensor(v[30:60], requires_grad=True) for v in (*given.values(), y + 1e-3)]
    assert_slopes(FAMILIES[name].formula(score), picked)


@pytest.mark.parametrize("name", ["lognormal", "student_t", "gev"])
def test_a_scale_of_0_is_a_point(name):
    given = {"mu": 0.5, "sigma": 0.0, "df": 5.0, "shape": 0.1}
    given = {k: given[k] for k in FAMILIES[name].parameters}
    point = np.exp(0.5) if name == "lognormal" else 0.5
    y = np.array([-1.0, point, 3.0])
    np.testing.assert_allclose(crps(name, given, y), np.abs(y - point), atol=1e-12)
    tensors = {k: torch.tensor([v] * 3, requires_grad=True) for k, v in given.items()}
    crps(name, tensors, torch.tensor(y)).sum().backward()
    assert all(bool(torch.isfinite(t.grad).all()) for t in tensors.values())


def test_infinite_scores_are_said_so():
    y = np.array([0.5])
    assert crps("student_t", {"df": 0.5, "mu": 0.0, "sigma": 1.0}, y)[0] == np.inf
    assert crps("gev", {"mu": 0.0, "sigma": 1.0, "shape": 2.0}, y)[0] == np.inf
    assert log_score("gamma", {"shape": 2.0, "scale": 1.0}, np.array([-1.0]))[0] == np.inf
    with pytest.raises(ArgumentError, match="scale: 1 of 1 values are not above 0"):
        crps("gamma", {"shape": 2.0, "scale": 0.0}, y)


@pytest.mark.parametrize("name", NAMES)
def test_every_library_and_missing_values(name):
    given, y = parameters(name)
    wanted = crps(name, given, y)
    named = {k: xr.DataArray(v, dims="x").chunk(x=70) for k, v in given.items()}
    lazy = crps(name, named, xr.DataArray(y, dims="x"))
    np.testing.assert_array_equal(lazy, wanted)
    tensors = {k: torch.tensor(v) for k, v in given.items()}
    np.testing.assert_allclose(crps(name, tensors, torch.tensor(y)), wanted, rtol=1e-11)
    y = y.astype(np.float32)
    y[0] = np.nan
    single = crps(name, {k: v.astype(np.float32) for k, v in given.items()}, y)
    assert single.dtype == np.float32
    assert np.isnan(single[0])
    np.testing.assert_allclose(single[1:], wanted[1:], atol=2e-5 * wanted.mean())


def test_the_incomplete_gamma_functions_derivative():
    rng = np.random.default_rng(1)
    a, x = rng.uniform(0.05, 300, 60), rng.uniform(0.0, 1.5, 60)
    x *= a
    got = gammainc_by_shape(a, x)
    for i in range(0, 60, 4):
        with mpmath.workdps(30):
            wanted = mpmath.diff(lambda s, at=x[i]: mpmath.gammainc(s, 0, at, True), a[i])
        assert got[i] == pytest.approx(float(wanted), abs=1e-13)
    assert gammainc_by_shape(2.0, 1e5) == 0
    assert np.isnan(gammainc_by_shape(np.nan, 1.0))
