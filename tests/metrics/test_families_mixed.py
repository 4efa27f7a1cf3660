"""Mixtures of normals, and Bernstein quantile functions."""

import numpy as np
import pytest
import torch
import xarray as xr
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import binom, norm

from ens10.errors import ArgumentError
from ens10.metrics import crps_normal
from ens10.metrics.distributions.bernstein import crps_bernstein
from ens10.metrics.distributions.mixture import (
    crps_normal_mixture,
    log_score_normal_mixture,
    pit_normal_mixture,
    quantile_normal_mixture,
)
from ens10.metrics.families import (
    FAMILIES,
    crps,
    log_score,
    mean,
    pit,
    pit_interval,
    variance,
)

RNG = np.random.default_rng(0)
MU, SIGMA = RNG.normal(size=(3, 50)), RNG.uniform(0.1, 2, (3, 50))
SHARES = RNG.dirichlet(np.ones(3), 50).T
Y = 2 * RNG.normal(size=50)
COEFFICIENTS = np.cumsum(RNG.gamma(1, 1, (6, 50)), axis=0) - 3


def test_mixtures_equal_scoringrules():
    sr = pytest.importorskip("scoringrules")
    wanted = sr.crps_mixnorm(Y, MU.T, SIGMA.T, SHARES.T)
    got = crps_normal_mixture(MU, SIGMA, SHARES, Y, component_dim=0)
    assert np.abs(got - wanted).max() < 1e-12 * wanted.mean()


def test_functions_of_mixtures_equal_scoringrules_and_scipy():
    sr = pytest.importorskip("scoringrules")
    parameters, options = (MU, SIGMA, SHARES), {"component_dim": 0}
    got = log_score_normal_mixture(*parameters, Y, **options)
    np.testing.assert_allclose(got, sr.logs_mixnorm(Y, MU.T, SIGMA.T, SHARES.T), rtol=1e-12)
    wanted = (SHARES * norm.cdf(Y, MU, SIGMA)).sum(axis=0)
    np.testing.assert_allclose(pit_normal_mixture(*parameters, Y, **options), wanted, rtol=1e-12)
    for level in (1e-6, 0.3, 0.975):
        at = quantile_normal_mixture(*parameters, level, **options)
        np.testing.assert_allclose((SHARES * norm.cdf(at, MU, SIGMA)).sum(axis=0), level, rtol=1e-9)
    levels = np.linspace(0.02, 0.98, 50)
    at = quantile_normal_mixture(*parameters, levels, **options)
    np.testing.assert_allclose(pit_normal_mixture(*parameters, at, **options), levels, rtol=1e-9)
    far = log_score_normal_mixture(*parameters, Y + 300, **options)
    assert np.isfinite(far).all()  # all densities are 0 there
    equal = quantile_normal_mixture(MU[:1], SIGMA[:1], np.ones(1), 0.9, **options)
    np.testing.assert_allclose(equal, norm.ppf(0.9, MU[0], SIGMA[0]), rtol=1e-12)


def test_functions_of_mixtures_in_every_library():
    functions = (log_score_normal_mixture, pit_normal_mixture, quantile_normal_mixture)
    for function, last in zip(functions, (Y, Y, np.full(50, 0.7)), strict=True):
        wanted = function(MU, SIGMA, SHARES, last, component_dim=0)
        named = [xr.DataArray(v, dims=("k", "x")).chunk(x=20) for v in (MU, SIGMA, SHARES)]
        named[0].attrs["units"] = "K"
        lazy = function(*named, xr.DataArray(last, dims="x"), component_dim="k")
        assert lazy.chunks is not None
        np.testing.assert_allclose(lazy, wanted, rtol=1e-13, atol=1e-15)  # Newton steps of a chunk
        assert lazy.attrs["units"] == ("K" if function is quantile_normal_mixture else "1")
        tensors = [torch.tensor(v) for v in (MU, SIGMA, SHARES, last)]
        found = function(*tensors, component_dim=0)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-15)
    single = [np.float32(v) for v in (MU, SIGMA, SHARES, Y)]
    assert log_score_normal_mixture(*single, component_dim=0).dtype == np.float32
    tensors = [torch.tensor(v[..., :8], requires_grad=True) for v in (MU, SIGMA, SHARES, Y)]
    for function in functions[:2]:
        call = lambda *t, f=function: f(*t, component_dim=0, check=False)  # noqa: E731
        assert torch.autograd.gradcheck(call, tensors)


REFUSED = {
    "a density without spread": (
        log_score_normal_mixture, (MU, 0 * SIGMA, SHARES, Y), "sigma",
    ),
    "a density of negative spread": (
        log_score_normal_mixture, (MU, -SIGMA, SHARES, Y), "sigma",
    ),
    "shares of a PIT above 1": (
        pit_normal_mixture, (MU, SIGMA, np.ones(3), Y), "add up to 3",
    ),
    "a level above 1": (
        quantile_normal_mixture, (MU, SIGMA, SHARES, 1.2), "not probabilities",
    ),
    "shares of a CRPS above 1": (
        crps_normal_mixture, (MU, SIGMA, np.ones(3), Y),
        r"component_weights: they add up to 3\.",
    ),
    "a negative share": (
        crps_normal_mixture, (MU, SIGMA, np.array([-1.0, 1, 1]), Y),
        "component_weights: the lowest is -",
    ),
    "negative spread": (
        crps_normal_mixture, (MU, -SIGMA, SHARES, Y), "sigma: the lowest is -",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", REFUSED)
def test_what_is_no_mixture(which):
    function, arguments, words = REFUSED[which]
    with pytest.raises(ArgumentError, match=words):
        function(*arguments, component_dim=0)


def test_one_component_is_a_normal():
    got = crps_normal_mixture(MU[:1], SIGMA[:1], np.ones(1), Y, component_dim=0)
    np.testing.assert_allclose(got, crps_normal(MU[0], SIGMA[0], Y), rtol=1e-12)


def test_mixture_is_the_integral_of_the_squared_cdf_error():
    def squared(x):
        cdf = (SHARES[:, 0] * norm.cdf(x, MU[:, 0], SIGMA[:, 0])).sum()
        return (cdf - (x >= Y[0])) ** 2

    wanted = quad(squared, -30, Y[0], epsabs=1e-12)[0] + quad(squared, Y[0], 30, epsabs=1e-12)[0]
    got = crps_normal_mixture(MU[:, 0], SIGMA[:, 0], SHARES[:, 0], Y[0], component_dim=0)
    assert float(got) == pytest.approx(wanted, rel=1e-9)


def test_mixture_in_every_library_and_its_gradient():
    wanted = crps_normal_mixture(MU, SIGMA, SHARES, Y, component_dim=0)
    named = [xr.DataArray(v, dims=("k", "x")).chunk(x=20) for v in (MU, SIGMA, SHARES)]
    lazy = crps_normal_mixture(*named, xr.DataArray(Y, dims="x"), component_dim="k")
    np.testing.assert_array_equal(lazy, wanted)
    tensors = [torch.tensor(v[..., :8], requires_grad=True) for v in (MU, SIGMA, SHARES, Y)]
    call = lambda *t: crps_normal_mixture(*t, component_dim=0, check=False)  # noqa: E731
    np.testing.assert_allclose(call(*tensors).detach(), wanted[:8], rtol=1e-12)
    assert torch.autograd.gradcheck(call, tensors)
    still = [t.detach().clone().requires_grad_() for t in tensors]
    call(still[0], still[1] * 0, *still[2:]).sum().backward()
    assert all(bool(torch.isfinite(t.grad).all()) for t in still)


def quantile(a, u):
    d = len(a) - 1
    return (a * binom.pmf(np.arange(d + 1), d, u)).sum()


def test_bernstein_is_the_integral_of_quantile_scores():
    got = crps_bernstein(COEFFICIENTS, Y, coefficient_dim=0)
    for i in range(8):
        a, y = COEFFICIENTS[:, i], Y[i]

        def pinball(u, a=a, y=y):
            q = quantile(a, u)
            return 2 * ((y <= q) - u) * (q - y)

        at = 0.5 if not a[0] < y < a[-1] else brentq(lambda u, a=a, y=y: quantile(a, u) - y, 0, 1)
        wanted = sum(quad(pinball, *ends, epsabs=1e-12)[0] for ends in ((0, at), (at, 1)))
        assert got[i] == pytest.approx(wanted, rel=1e-9)


def test_a_straight_line_is_the_uniform_distribution():
    sr = pytest.importorskip("scoringrules")
    y = np.array([-2.0, 0.3, 0.9, 4.0])
    line = np.broadcast_to(np.array([0.0, 0.5, 1.0])[:, None], (3, 4))
    got = crps_bernstein(line, y, coefficient_dim=0)
    np.testing.assert_allclose(got, sr.crps_uniform(y, 0.0, 1.0), rtol=1e-12)
    point = crps_bernstein(np.ones((4, 4)), y, coefficient_dim=0)
    np.testing.assert_allclose(point, np.abs(y - 1), rtol=1e-12)


def test_bernstein_in_every_library_and_its_gradient():
    wanted = crps_bernstein(COEFFICIENTS, Y, coefficient_dim=0)
    named = xr.DataArray(COEFFICIENTS, dims=("k", "x")).chunk(x=20)
    lazy = crps_bernstein(named, xr.DataArray(Y, dims="x"), coefficient_dim="k")
    np.testing.assert_array_equal(lazy, wanted)
    tensors = [torch.tensor(v[..., :8], requires_grad=True) for v in (COEFFICIENTS, Y)]
    call = lambda a, y: crps_bernstein(a, y, coefficient_dim=0, check=False)  # noqa: E731
    np.testing.assert_allclose(call(*tensors).detach(), wanted[:8])
    assert torch.autograd.gradcheck(call, tensors)
    single = crps_bernstein(COEFFICIENTS.astype("f4"), Y.astype("f4"), coefficient_dim=0)
    assert single.dtype == np.float32
    missing = crps_bernstein(COEFFICIENTS, np.where(Y > 0, np.nan, Y), coefficient_dim=0)
    assert (np.isnan(missing) == (Y > 0)).all()


def test_coefficients_that_fall():
    with pytest.raises(ArgumentError, match="coefficients: 50 quantile functions have"):
        crps_bernstein(COEFFICIENTS[::-1], Y, coefficient_dim=0)


def test_labels_of_variances_and_draws():
    mu = xr.DataArray([1.0, 2.0], dims="a", attrs={"units": "K"})
    given = {"mu": mu, "sigma": mu}
    assert variance("normal", given).attrs["units"] == "(K)2"
    assert "units" not in variance("normal", {"mu": mu.drop_attrs(), "sigma": 1.0}).attrs
    bounds = {"lower": 0.0}
    assert pit("censored_normal", given | bounds, mu, seed=1).name == "pit"


@pytest.mark.parametrize(
    "family", [name for name in FAMILIES if name != "csgd" and not name.endswith("ed_student_t")]
)
@pytest.mark.parametrize("score", [crps, log_score, pit_interval, mean, variance])
def test_what_is_missing_stays_so(family, score):
    known = dict.fromkeys(FAMILIES[family].parameters, 0.2) | {"df": 5.0}
    given = {k: v for k, v in known.items() if k in FAMILIES[family].parameters}
    given |= {"upper": 1.5} if "upper" in given else {}
    if score not in (mean, variance):
        assert np.isnan(score(family, given, np.array([np.nan]))).all()
    for name in given:
        missing = given | {name: np.array([np.nan])}
        y = () if score in (mean, variance) else (0.4,)
        assert np.isnan(score(family, missing, *y)).all(), name
