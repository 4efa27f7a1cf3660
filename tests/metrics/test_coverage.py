"""Central intervals: nominal coverage, width and the interval score."""

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from scipy.stats import norm

from ens10.errors import ArgumentError
from ens10.metrics.calibration import (
    interval_coverage,
    interval_ensemble,
    interval_normal,
    interval_quantiles,
    interval_score,
    interval_width,
    nominal_coverage,
    quantile_score,
)

RNG = np.random.default_rng(0)
LOW, HIGH = -RNG.random((6, 5)) * 2, RNG.random((6, 5))
Y = RNG.normal(size=(6, 5))


def test_intervals_of_normals():
    mu, sigma = RNG.normal(size=7), RNG.random(7) + 0.1
    low, high = interval_normal(mu, sigma, level=0.8)
    np.testing.assert_allclose([low, high], norm.interval(0.8, mu, sigma), rtol=1e-13)
    tensors = interval_normal(torch.tensor(mu), torch.tensor(sigma), level=0.8)
    np.testing.assert_allclose(tensors[0], low, rtol=1e-13)
    labelled = interval_normal(xr.DataArray(mu, dims="a", attrs={"units": "K"}), 1.0, level=0.8)
    assert labelled[0].attrs["units"] == "K"
    np.testing.assert_allclose(labelled[1], mu + norm.ppf(0.9), rtol=1e-13)
    y = np.random.default_rng(1).normal(size=(3000, 7)) * sigma + mu
    assert interval_coverage(low, high, y, dim="all") == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(("M", "outer"), [(2, 1), (7, 1), (10, 3)])
def test_intervals_of_ensembles_hold_their_share(M, outer):
    x = np.random.default_rng(M).normal(size=(M + 1, 40_000))
    low, high = interval_ensemble(x[:M], member_dim=0, outer=outer)
    np.testing.assert_array_equal(low, np.sort(x[:M], axis=0)[outer - 1])
    np.testing.assert_array_equal(high, np.sort(x[:M], axis=0)[M - outer])
    found, wanted = interval_coverage(low, high, x[M], dim=0), nominal_coverage(M, outer)
    assert wanted == (M + 1 - 2 * outer) / (M + 1)
    assert abs(found - wanted) < 4 * (wanted * (1 - wanted) / 40_000) ** 0.5


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_an_infinite_member_is_an_end_and_a_missing_one_is_not(kind):
    x = kind(np.array([[1.0, 1.0], [np.inf, 2.0], [0.0, np.nan]]))
    low, high = interval_ensemble(x, member_dim=0)
    np.testing.assert_array_equal(low, [0.0, np.nan])
    np.testing.assert_array_equal(high, [np.inf, np.nan])


def test_intervals_between_quantiles():
    q, levels = np.sort(RNG.normal(size=(4, 5, 3)), axis=1), (0.05, 0.25, 0.5, 0.75, 0.95)
    low, high = interval_quantiles(q, levels=levels, quantile_dim=1, level=0.9)
    np.testing.assert_array_equal(low, q[:, 0])
    np.testing.assert_array_equal(high, q[:, 4])
    low, high = interval_quantiles(torch.tensor(q), levels=levels, quantile_dim=1, level=0.5)
    np.testing.assert_array_equal(high, q[:, 3])
    with pytest.raises(ArgumentError, match=r"level: no quantile of level 0.1, only \[0.05"):
        interval_quantiles(q, levels=levels, quantile_dim=1, level=0.8)


def test_interval_scores_agree_with_scoringrules():
    scoringrules = pytest.importorskip("scoringrules")
    wanted = scoringrules.interval_score(Y, LOW, HIGH, 0.2)
    np.testing.assert_allclose(interval_score(LOW, HIGH, Y, level=0.8), wanted, rtol=1e-13)


def test_interval_score_is_that_of_its_two_quantiles():
    q = np.stack([LOW, HIGH])
    both = quantile_score(q, Y, levels=(0.05, 0.95), quantile_dim=0).sum(axis=0)
    np.testing.assert_allclose(interval_score(LOW, HIGH, Y, level=0.9), both * 2 / 0.1, rtol=1e-12)


def test_coverage_counts_both_ends():
    found = interval_coverage(np.zeros(5), 1.0, np.array([-0.1, 0, 0.5, 1, 1.1]))
    assert found.tolist() == [0, 1, 1, 1, 0]
    found = interval_coverage(np.zeros(2), 1.0, np.array([np.nan, 0.5]), dim=0, nan="omit")
    assert found == 1
    assert np.isnan(interval_coverage(np.zeros(2), 1.0, np.array([np.nan, 0.5]), dim=0))
    np.testing.assert_allclose(
        interval_width(LOW, HIGH, dim=1, weights=np.arange(5.0)),
        np.average(HIGH - LOW, axis=1, weights=np.arange(5.0)),
    )


@pytest.mark.parametrize("kind", [torch.tensor, lambda a: da.from_array(a, chunks=2), xr.DataArray])
def test_in_every_library(kind):
    given = [kind(a) for a in (LOW, HIGH, Y)]
    for function, more in (
        (interval_coverage, {}),
        (interval_score, {"level": 0.9}),
        (lambda low, high, y: interval_width(low, high), {}),
    ):
        found = function(*given, **more)
        assert type(found) is type(given[0])
        np.testing.assert_allclose(found, function(LOW, HIGH, Y, **more), rtol=1e-13)
    if kind is xr.DataArray:
        low = given[0].assign_attrs(units="K")
        assert interval_coverage(low, *given[1:]).attrs["units"] == "1"
        assert interval_score(low.chunk(), *given[1:], level=0.5).attrs["units"] == "K"
        x = given[2].chunk(dim_0=2)
        found = interval_ensemble(x, member_dim="dim_1")
        assert dask.is_dask_collection(found[0])
        np.testing.assert_array_equal(found[0], Y.min(axis=1))


def test_gradients():
    low, high, y = (torch.tensor(a, requires_grad=True) for a in (LOW, HIGH, Y))
    assert torch.autograd.gradcheck(lambda *a: interval_score(*a, level=0.9), (low, high, y))
    found = interval_coverage(low, high, y)
    assert not found.requires_grad


def test_the_true_interval_wins():
    y = np.random.default_rng(3).normal(size=100_000)
    means = [
        float(interval_score(*interval_normal(mu, np.full(1, s), level=0.8), y, level=0.8, dim=0))
        for mu, s in ((0, 1), (0, 0.9), (0, 1.1), (0.1, 1))
    ]
    assert np.argmin(means) == 0


def test_missing_members_make_no_interval():
    x = np.array([[1.0, np.nan], [2.0, 3.0], [0.0, 1.0]])
    for kind in (np.asarray, torch.tensor):
        low, high = interval_ensemble(kind(x), member_dim=0)
        np.testing.assert_array_equal(low, [0, np.nan])
        np.testing.assert_array_equal(high, [2, np.nan])


def test_what_intervals_refuse():
    with pytest.raises(ArgumentError, match="level: expected a coverage between 0 and 1, got 90"):
        interval_normal(Y, 1.0, level=90)
    for kind in (np.asarray, torch.tensor):
        with pytest.raises(ArgumentError, match="sigma: "):
            interval_normal(kind(Y), kind(np.full(5, -1.0)), level=0.9)
        with pytest.raises(ArgumentError, match="lower: it lies above upper at 30 points"):
            interval_width(kind(HIGH), kind(LOW))
        with pytest.raises(ArgumentError, match=r"members: .* needs 4 or more, got 3"):
            interval_ensemble(kind(np.zeros((3, 4))), member_dim=0, outer=2)
    with pytest.raises(ArgumentError, match="outer: expected 1 or more, got 0"):
        nominal_coverage(5, 0)
    lazy = interval_coverage(da.from_array(HIGH), da.from_array(LOW), Y)
    with pytest.raises(ArgumentError, match="lies above upper"):
        lazy.compute()
