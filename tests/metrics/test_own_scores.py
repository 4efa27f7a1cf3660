"""Scores that users register are scored as the package's own are."""

import numpy as np
import pytest
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import area_weights
from ens10.metrics import register_score, score_states, summarise, verify
from ens10.metrics.scores import registry


@pytest.fixture(autouse=True)
def _nothing_stays():
    """The tables are as they were after each test."""
    tables = registry.STATISTICS, registry.METRICS
    before = [dict(held) for held in tables]
    yield
    registry._CUSTOM.clear()
    for held, was in zip(tables, before, strict=True):
        held.clear()
        held.update(was)


def median_error(case):
    return np.abs(case.quantile(0.5) - case.y)


def weighted(values, latitude):
    rows = np.broadcast_to(area_weights(latitude.to_numpy())[:, None], values.shape)
    there = ~np.isnan(values)
    return (rows * np.where(there, values, 0)).sum() / (rows * there).sum()


def test_it_is_the_weighted_mean_of_the_values_of_points(world):
    ensemble, normal, truth = world
    register_score("mae", median_error, "mean absolute error of the median")
    got = verify(ensemble, truth, ["crps", "mae"], reference=normal)
    error = np.abs(np.median(ensemble["members"], axis=1) - truth.to_numpy())
    assert float(got["mae"]) == pytest.approx(weighted(error, truth["latitude"]), rel=1e-12)
    theirs = weighted(np.abs(normal["mu"].to_numpy() - truth.to_numpy()), truth["latitude"])
    assert float(got["mae_skill"]) == pytest.approx(1 - float(got["mae"]) / theirs, rel=1e-9)
    assert float(got["mae_lower"]) < float(got["mae"]) < float(got["mae_upper"])
    told = {"units": "K", "long_name": "mean absolute error of the median"}
    assert {key: got["mae"].attrs[key] for key in told} == told


def test_points_without_truth_do_not_count(world):
    """A comparison with NaN is False, which would count as a case where nothing happened."""
    ensemble, _, truth = world
    register_score("cold", lambda case: case.y < 275, "share below 275 K", units="1")
    got = verify(ensemble, truth, ["cold"])
    y = truth.to_numpy()
    share = weighted(np.where(np.isnan(y), np.nan, y < 275), truth["latitude"])
    assert float(got["cold"]) == pytest.approx(share, rel=1e-12)
    assert int(got["count"]) == np.isfinite(y).sum()
    assert got["cold"].attrs["units"] == "1"
    gap = ensemble.copy(deep=True)
    gap["members"][3, :, 0] = np.nan
    assert int(verify(gap, truth, ["cold"])["count"]) == np.isfinite(y).sum() - y.shape[2]


def test_squares_keep_the_square_of_the_units_and_groups_work(world):
    ensemble, _, truth = world
    register_score("mse", lambda case: case.error() ** 2, "mean squared error", units="truth2")
    states = score_states(ensemble, truth, ["mse", "rmse"], by=["latitude_band"])
    got = summarise(states, by=["latitude_band"])
    np.testing.assert_allclose(got["mse"], got["rmse"] ** 2, rtol=1e-12)
    assert got["mse"].attrs["units"] == states["error2_sum"].attrs["units"]


def test_it_is_not_among_the_usual_ones_and_can_be_changed(world):
    ensemble, _, truth = world
    register_score("mine", lambda case: 0 * case.y + 1, "one")
    register_score("mine", lambda case: 0 * case.y + 2, "two")
    assert float(verify(ensemble, truth, ["mine"])["mine"]) == pytest.approx(2)
    assert "mine" not in verify(ensemble, truth)


@pytest.mark.parametrize("name", ["crps", "crpss", "histogram", "y2", "Mine", "", "_x"])
def test_names_that_cannot_be_are_refused(name):
    with pytest.raises(ArgumentError, match="name"):
        register_score(name, median_error, "mine")
    assert name not in registry._CUSTOM


def test_other_units_and_shapes_are_refused(world):
    ensemble, _, truth = world
    with pytest.raises(UnknownNameError, match="units"):
        register_score("mine", median_error, "mine", units="K")
    register_score("mine", lambda case: case.y.mean(axis=0), "mine")
    with pytest.raises(ArgumentError, match=r"mine gives values of shape \(8,\)"):
        verify(ensemble, xr.DataArray(truth), ["mine"])
