"""The probability integral transform of families, with and without point masses."""

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats

from ens10.errors import ArgumentError
from ens10.metrics.distributions import Ensemble, Quantiles
from ens10.metrics.families import FAMILIES, pit, pit_interval

BOUNDS = {"lower": -1.0, "upper": 2.0}
GIVEN = {"mu": 0.4, "sigma": 1.3}
CENSORED = ["censored_normal", "censored_logistic"]
CONTINUOUS = ["normal", "truncated_normal", "logistic", "truncated_logistic"]


def observed(name, n, seed=0):
    """Draws of the family itself."""
    rng = np.random.default_rng(seed)
    latent = rng.normal if "normal" in name else rng.logistic
    y = 0.4 + 1.3 * latent(size=n)
    if "truncated" in name:
        return y[(y > -1) & (y < 2)]
    return np.clip(y, -1, 2) if "censored" in name else y


def given_of(name):
    return GIVEN | (BOUNDS if "lower" in FAMILIES[name].parameters else {})


@pytest.mark.parametrize("name", [*CONTINUOUS, *CENSORED])
def test_it_is_uniform_under_the_truth(name):
    y = observed(name, 20_000)
    values = pit(name, given_of(name), y, seed=7)
    assert stats.kstest(values, "uniform").pvalue > 1e-3
    wrong = pit(name, given_of(name) | {"sigma": 0.8}, y, seed=7)
    assert stats.kstest(wrong, "uniform").pvalue < 1e-6


@pytest.mark.parametrize("name", CENSORED)
def test_jumps_of_censored_families(name):
    frozen = (stats.norm if "normal" in name else stats.logistic)(0.4, 1.3)
    y = np.array([-1.5, -1.0, 0.3, 2.0, 2.5])
    below, upto = pit_interval(name, GIVEN | BOUNDS, y)
    np.testing.assert_allclose(below, [0, 0, frozen.cdf(0.3), frozen.cdf(2), 1], rtol=1e-14)
    np.testing.assert_allclose(upto, [0, frozen.cdf(-1), frozen.cdf(0.3), 1, 1], rtol=1e-14)
    drawn = pit(name, GIVEN | BOUNDS, np.full(500, -1.0), seed=1)
    assert drawn.min() > 0
    assert drawn.max() < upto[1]
    assert np.unique(drawn).size == 500
    np.testing.assert_array_equal(drawn, pit(name, GIVEN | BOUNDS, np.full(500, -1.0), seed=1))
    assert (drawn != pit(name, GIVEN | BOUNDS, np.full(500, -1.0), seed=2)).any()


@pytest.mark.parametrize("name", CENSORED)
def test_draws_do_not_depend_on_chunks(name):
    y = observed(name, 60).reshape(6, 10)
    wanted = pit(name, GIVEN | BOUNDS, xr.DataArray(y, dims=("a", "b")), seed=3)
    lazy = pit(name, GIVEN | BOUNDS, xr.DataArray(y, dims=("a", "b")).chunk(a=2, b=3), seed=3)
    assert dask.is_dask_collection(lazy)
    np.testing.assert_array_equal(lazy, wanted)
    assert wanted.attrs["family"] == name
    array = pit(name, GIVEN | BOUNDS, y, seed=3)
    for make in (torch.tensor, lambda a: da.from_array(a, chunks=4)):
        np.testing.assert_allclose(pit(name, GIVEN | BOUNDS, make(y), seed=3), array, rtol=1e-14)


def test_a_seed_is_asked_for_where_it_is_needed():
    for name in CENSORED:
        with pytest.raises(ArgumentError, match=r"seed: censored_.* has point masses"):
            pit(name, GIVEN | BOUNDS, 0.0)
    for name in CONTINUOUS:
        below, upto = pit_interval(name, given_of(name), np.array([0.0, 1.0]))
        np.testing.assert_array_equal(below, upto)
        np.testing.assert_array_equal(pit(name, given_of(name), np.array([0.0, 1.0])), upto)


@pytest.mark.parametrize("name", [*CONTINUOUS, *CENSORED])
def test_without_spread(name):
    given = given_of(name) | {"sigma": 0.0}
    below, upto = pit_interval(name, given, np.array([0.3, 0.4, 0.5]))
    step = [0, 0.5, 1] if name in CONTINUOUS else [0, 1, 1]
    np.testing.assert_array_equal(upto, step)
    np.testing.assert_array_equal(below, step if name in CONTINUOUS else [0, 0, 1])
    if "lower" in given:  # all of it on the bound
        below, upto = pit_interval(name, given | {"mu": -3.0}, np.array([-1.5, -1.0, 0.0]))
        np.testing.assert_array_equal(upto, step)
        np.testing.assert_array_equal(below, step if name in CONTINUOUS else [0, 0, 1])


def test_truncated_outside_its_bounds():
    y = np.array([-1.1, -1.0, 2.0, 2.1])
    for name in ("truncated_normal", "truncated_logistic"):
        np.testing.assert_allclose(pit(name, GIVEN | BOUNDS, y), [0, 0, 1, 1], atol=1e-15)


def test_the_gradient_is_the_density():
    y = torch.tensor([0.1], requires_grad=True)
    pit("logistic", GIVEN, y).sum().backward()
    assert y.grad.item() == pytest.approx(
        stats.logistic.pdf(0.1, GIVEN["mu"], GIVEN["sigma"]), rel=1e-6
    )


def test_equal_quantiles_are_a_point_mass():
    """Such as dry weather: P(Y < 0) is 0, and the PIT of 0 is drawn within the jump."""
    values = np.zeros((1, 5, 40, 50))
    values[:, 3], values[:, 4] = 1.0, 2.0
    held = Quantiles(values, [0.1, 0.3, 0.5, 0.7, 0.9])
    fields = {y: np.full((1, 40, 50), y) for y in (-1.0, 0.0, 0.5, 2.0, 3.0)}
    below = {y: held.cdf_below(field)[0, 0, 0] for y, field in fields.items()}
    assert below == pytest.approx({-1.0: 0.0, 0.0: 0.0, 0.5: 0.6, 2.0: 0.9, 3.0: 1.0})
    at = {y: held.cdf(field)[0, 0, 0] for y, field in fields.items()}
    assert at == pytest.approx({-1.0: 0.0, 0.0: 0.5, 0.5: 0.6, 2.0: 1.0, 3.0: 1.0})
    drawn = held.pit(fields[0.0], seed=1)
    assert stats.kstest(drawn.ravel() / 0.5, "uniform").pvalue > 0.01
    np.testing.assert_allclose(held.pit(fields[0.5]), 0.6)


@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
def test_quantiles_of_an_ensemble_with_a_missing_member_are_missing(library):
    members = np.moveaxis(np.array([[[1.0, np.nan, 3.0, 2.0], [1.0, 4.0, 3.0, 2.0]]]), -1, 1)
    held = Ensemble(library(members[..., None]))
    found = np.asarray(held.quantile([0.25, 0.5]))
    np.testing.assert_array_equal(found[:, 0, :, 0], [[np.nan, 1.0], [np.nan, 2.0]])
    assert np.isnan(np.asarray(held.quantile(0.5))[0, 0, 0])
