"""The cross-check finds what is wrong, and says what it needs."""

import sys

import numpy as np
import pytest
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics.scores.pairs import Pair
from ens10.metrics.verification.crosscheck import cross_check


@pytest.mark.parametrize(
    ("dtype", "most", "tolerance"), [("float64", 1e-12, 1e-10), ("float32", 2e-6, 1e-5)]
)
def test_ours_and_properscoring_agree(dtype, most, tolerance, world):
    ensemble, normal, truth = world
    for forecast in (ensemble, normal):
        found = cross_check(forecast.astype(dtype), truth.astype(dtype), 200)
        assert found.points == 200
        assert found.largest < most
        assert found.tolerance == tolerance
        assert found.agrees
    assert "200 points" in str(found)
    assert found == cross_check(normal.astype(dtype), truth.astype(dtype), 200)
    assert cross_check(normal, truth, 3).points == 3


def test_a_wrong_score_is_found(world, monkeypatch):
    ensemble, normal, truth = world
    crps = Pair.crps
    monkeypatch.setattr(Pair, "crps", lambda self: crps(self) + 1e-6 * (self.y > 285))
    for forecast in (ensemble, normal):
        assert not cross_check(forecast, truth, 100).agrees


def test_a_sigma_of_zero_and_gaps_are_no_difference(world):
    _, normal, truth = world
    flat = normal.copy(deep=True)
    flat["sigma"][:, :3] = 0.0
    flat["mu"][:, 4, :4] = np.nan
    found = cross_check(flat, truth, 400)
    assert found.largest < 1e-12
    assert found.points <= 400


def test_what_cannot_be_checked_is_told(world, monkeypatch):
    ensemble, normal, truth = world
    with pytest.raises(ArgumentError, match="one point or more, got 0"):
        cross_check(normal, truth, 0)
    with pytest.raises(ArgumentError, match="no CRPS of logistic forecasts"):
        cross_check(normal.assign_attrs(forecast_kind="logistic"), truth)
    with pytest.raises(ArgumentError, match="no point of the sample"):
        cross_check(normal, xr.full_like(truth, np.nan))
    monkeypatch.setitem(sys.modules, "properscoring", None)
    with pytest.raises(ArgumentError, match="pip install properscoring"):
        cross_check(ensemble, truth)
