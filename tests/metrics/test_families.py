"""Families against integrals of their own distribution function, and in every library."""

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from slopes import assert_slopes

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.metrics.families import (
    FAMILIES,
    crps,
    log_score,
    mean,
    pit,
    pit_interval,
    variance,
)

NAMES = list(FAMILIES)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)


def case(name, n=12, seed=0):
    """Parameters by their domains, and observations that some distributions cannot give."""
    rng = np.random.default_rng(seed)
    given = {
        # shapes near 0, and tails for which moments exist
        key: rng.normal(size=n) * (1.0 if p.unit == "target" else 0.25)
        if p.domain == "real"
        else 0.4 + rng.random(n) + 4.5 * (key == "df")
        for key, p in FAMILIES[name].parameters.items()
    }
    for key, side in (("lower", -1), ("upper", 1)):
        if key in given:
            given[key] = side * (0.5 + rng.random(n))
    y = given.get("mu", 0.0) + 1.5 * rng.normal(size=n)
    return given, np.abs(y) if FAMILIES[name].support[0] == 0 else y


def between_bounds(given, y):
    """Observations brought inside the bounds, away from the point masses."""
    inside = np.maximum(y, given.get("lower", -np.inf) + 0.01)
    return np.minimum(inside, given.get("upper", np.inf) - 0.01)


def point(given, i):
    return {key: float(values[i]) for key, values in given.items()}


def integral(function, name, one, y=0.0):
    """Over the line, in pieces that grow away from every place where the integrand has a kink."""
    kinks = [y, 0.0, one.get("mu", 0.0), *(one[k] for k in FAMILIES[name].bounds)]
    kinks += [end for end in FAMILIES[name].support if np.isfinite(end)]
    steps = 2.0 ** np.arange(-12, 34)
    ends = np.unique([[k + s for s in (*steps, 0, *-steps)] for k in kinks])
    half = 0.5 * np.diff(ends)[:, None]
    x = ends[:-1, None] + half * (1 + NODES)
    return float((half * WEIGHTS * function(x.ravel()).reshape(x.shape)).sum())


def cdf_of(name, one):
    return lambda x: FAMILIES[name].formula("cdf")(*one.values(), x)


@pytest.mark.parametrize("name", NAMES)
def test_crps_is_the_integral_of_the_squared_cdf_error(name):
    given, y = case(name, 4)
    found = crps(name, given, y)
    for i in range(4):
        one = point(given, i)
        cdf = cdf_of(name, one)
        wanted = integral(lambda x, i=i, cdf=cdf: (cdf(x) - (x >= y[i])) ** 2, name, one, y[i])
        assert found[i] == pytest.approx(wanted, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_log_score_is_of_the_slope_of_the_cdf(name):
    given, y = case(name)
    y = between_bounds(given, y)
    h = 1e-4
    ahead, behind = (pit_interval(name, given, y + d)[1] for d in (h, -h))
    wanted = -np.log((ahead - behind) / (2 * h))
    np.testing.assert_allclose(log_score(name, given, y), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in NAMES if "mean" in FAMILIES[n].kernels])
def test_moments_are_integrals_of_the_cdf(name):
    given, _ = case(name, 2)
    for i in range(2):
        one = point(given, i)
        cdf = cdf_of(name, one)
        first = integral(lambda x, cdf=cdf: (x > 0) - cdf(x), name, one)
        second = integral(lambda x, cdf=cdf: 2 * x * ((x > 0) - cdf(x)), name, one)
        assert float(mean(name, one)) == pytest.approx(first, abs=1e-9)
        assert float(variance(name, one)) == pytest.approx(second - first**2, rel=1e-6)


@pytest.mark.parametrize("name", [n for n in NAMES if FAMILIES[n].inverse is not None])
def test_quantiles_invert_the_cdf_within_the_support(name):
    given, _ = case(name, 6)
    forecast = FAMILIES[name](**{key: values[None] for key, values in given.items()})
    levels = np.array([1e-6, 0.05, 0.3, 0.5, 0.8, 0.999])
    found = forecast.quantile(levels)
    assert (np.diff(found, axis=0) >= 0).all()
    for level, value in zip(levels, found, strict=True):
        below, upto = forecast.cdf_below(value), forecast.cdf(value)
        assert (below <= level * (1 + 1e-7)).all()
        assert (upto >= level * (1 - 1e-7)).all()
    low, high = FAMILIES[name].support
    assert (found >= low).all()
    assert (found <= high).all()


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_values(name):
    given, y = case(name, 4)
    inside = between_bounds(given, y)
    for result, function in FAMILIES[name].formulas.items():
        observed = {"crps": [y], "mean": [], "variance": []}.get(result, [inside])
        tensors = [torch.tensor(a, requires_grad=True) for a in (*given.values(), *observed)]
        assert_slopes(function, tensors)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_truth_leaves_gradients_of_the_others(name):
    given, y = case(name, 4)
    y[1] = np.nan
    for score in (crps, log_score):
        tensors = {key: torch.tensor(a, requires_grad=True) for key, a in given.items()}
        score(name, tensors, torch.tensor(between_bounds(given, y)), dim=0, nan="omit").backward()
        for tensor in tensors.values():
            assert tensor.grad.isfinite().all()
            assert tensor.grad[1] == 0
        assert any(tensor.grad[0] != 0 for tensor in tensors.values())


@pytest.mark.parametrize("name", [n for n in NAMES if "sigma" in FAMILIES[n].parameters])
def test_gradients_at_scale_0_are_finite(name):
    given, y = case(name, 4)
    given["sigma"][:2] = 0.0
    for result, function in FAMILIES[name].formulas.items():
        if result == "log_score":
            continue
        observed = [] if result in ("mean", "variance") else [y]
        tensors = [torch.tensor(a, requires_grad=True) for a in (*given.values(), *observed)]
        value = function(*tensors)
        assert value.isfinite().all(), result
        value.sum().backward()
        assert all(tensor.grad.isfinite().all() for tensor in tensors), result


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("score", [crps, log_score])
def test_all_libraries_agree(name, score):
    given, y = case(name, 12)
    shape = {key: a.reshape(3, 4) for key, a in given.items()}, y.reshape(3, 4)
    wanted = score(name, *shape)
    makers = {
        torch.Tensor: torch.tensor,
        da.Array: lambda a: da.from_array(a, chunks=2),
        xr.DataArray: lambda a: xr.DataArray(a, dims=("a", "b"), attrs={"units": "K"}),
    }
    for kind, make in makers.items():
        arrays = {key: make(a) for key, a in shape[0].items()}
        got = score(name, arrays, make(shape[1]))
        assert isinstance(got, kind)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)
    assert got.attrs["units"] == ("K" if score is crps else "1")
    assert got.attrs["family"] == name
    lazy = {key: a.chunk(a=1) for key, a in arrays.items()}
    assert dask.is_dask_collection(score(name, lazy, make(shape[1]).chunk(b=2)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("score", [crps, log_score])
def test_means_over_dimensions(name, score):
    given, y = case(name)
    y = between_bounds(given, y)  # no infinite log score
    points, weights = score(name, given, y), np.arange(12.0)
    got = score(name, given, y, dim="all", weights=weights)
    assert got == pytest.approx(np.average(points, weights=weights), rel=1e-13)
    y[3] = np.nan
    assert np.isnan(score(name, given, y, dim=0))
    left = np.delete(points, 3).mean()
    assert score(name, given, y, dim=0, nan="omit") == pytest.approx(left, rel=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_number_gives_a_missing_score(name):
    given, y = case(name, 6)
    for i, key in enumerate([*given, "y"]):
        hurt = {k: v.copy() for k, v in (given | {"y": y}).items()}
        hurt[key][i] = np.nan
        observed = hurt.pop("y")
        for values in (crps(name, hurt, observed), log_score(name, hurt, observed)):
            np.testing.assert_array_equal(np.isnan(values), np.arange(6) == i)
        np.testing.assert_array_equal(
            np.isnan(pit_interval(name, hurt, observed)[1]), np.arange(6) == i
        )


@pytest.mark.parametrize(
    "name", [n for n in NAMES if getattr(FAMILIES[n].parameters.get("mu"), "unit", "") == "target"]
)
def test_single_precision_stays_and_is_right_at_large_values(name):
    given, y = case(name, 400)
    moved = {"mu", "lower", "upper"}
    units = {k: p.unit for k, p in FAMILIES[name].parameters.items()}
    large = {
        k: ((20 * v if units[k] == "target" else v) + 5e4 * (k in moved)).astype(np.float32)
        for k, v in given.items()
    }
    observed = (20 * y + 5e4).astype(np.float32)
    single = crps(name, large, observed)
    assert single.dtype == np.float32
    double = crps(name, {k: v.astype(float) for k, v in large.items()}, observed.astype(float))
    assert np.abs(single - double).max() < 1e-6 * double.mean()
    tensors = {k: torch.tensor(v) for k, v in large.items()}
    tensor = crps(name, tensors, torch.tensor(observed))
    assert tensor.dtype == torch.float32
    assert np.abs(tensor.numpy() - double).max() < 1e-6 * double.mean()


@pytest.mark.parametrize("name", NAMES)
def test_families_travel_to_other_processes(name):
    given, y = case(name)
    family = cloudpickle.loads(cloudpickle.dumps(FAMILIES[name]))
    np.testing.assert_array_equal(family(**given).crps(y), crps(name, given, y))


def test_names_that_are_not_known():
    given, y = case("normal")
    with pytest.raises(UnknownNameError, match="family: 'norml' is not known; did you mean 'norm"):
        crps("norml", given, y)
    with pytest.raises(UnknownNameError, match="parameters: 'sigm' is not known; did you mean"):
        log_score("normal", {"mu": 0.0, "sigm": 1.0}, y)
    with pytest.raises(MissingDataError, match=r"parameters of logistic: 1 part is missing: sigma"):
        pit("logistic", {"mu": 0.0}, y)
    with pytest.raises(UnknownNameError, match="nan: 'skip' is not known"):
        crps("logistic", given, y, nan="skip")
    assert len(FAMILIES) == len(set(FAMILIES))
    assert "gauss" not in FAMILIES


def test_what_a_family_has_no_closed_form_of(monkeypatch):
    monkeypatch.setattr(FAMILIES["normal"], "formulas", {})
    with pytest.raises(ArgumentError, match="family: the variance of normal is not in closed form"):
        variance("normal", {"mu": 0.0, "sigma": 1.0})
    with pytest.raises(ArgumentError, match="family: the density of normal is not in closed form"):
        log_score("normal", {"mu": 0.0, "sigma": 1.0}, 0.0)


@pytest.mark.parametrize("score", [crps, log_score, pit])
def test_units_that_differ(score):
    kelvin = xr.DataArray([280.0], dims="x", attrs={"units": "K"})
    celsius = xr.DataArray([7.0], dims="x", attrs={"units": "degC"})
    with pytest.raises(ArgumentError, match="units differ: mu in K, y in degC"):
        score("logistic", {"mu": kelvin, "sigma": 1.0}, celsius)
