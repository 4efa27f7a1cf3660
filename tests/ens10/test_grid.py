import numpy as np
import pytest
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import area_weights, is_global, location_features


def test_cell_areas_sum_to_the_sphere():
    lat = np.linspace(90, -90, 37)
    weights = area_weights(lat)
    areas = weights / weights.sum()  # share of the sphere
    cap = (1 - np.sin(np.deg2rad(87.5))) / 2  # analytic area of the cap round a pole
    np.testing.assert_allclose(areas[[0, -1]], cap, rtol=1e-12)
    north = areas[lat >= 62.4].sum()  # edges at 62.5 degrees
    np.testing.assert_allclose(north, (1 - np.sin(np.deg2rad(62.5))) / 2, rtol=1e-12)
    np.testing.assert_allclose(weights.mean(), 1.0, rtol=1e-12)


def test_regional_rows_are_bands_of_the_sphere():
    lat = np.array([50.0, 47.0, 46.0])
    weights = area_weights(lat)
    bands = np.sin(np.deg2rad([51.5, 48.5, 46.5])) - np.sin(np.deg2rad([48.5, 46.5, 45.5]))
    np.testing.assert_allclose(weights, bands / bands.mean(), rtol=1e-12)


@pytest.mark.parametrize("weighting", ["cell", "cos", "none"])
def test_order_of_rows_does_not_matter(weighting):
    lat = np.linspace(90, -30, 17)
    np.testing.assert_allclose(
        area_weights(lat[::-1], weighting)[::-1], area_weights(lat, weighting)
    )


def test_named_weightings():
    lat = np.array([90.0, 60.0, 0.0])
    np.testing.assert_allclose(area_weights(lat, "cos"), [0, 1, 2], atol=1e-12)
    np.testing.assert_array_equal(area_weights(lat, "none"), 1.0)
    with pytest.raises(UnknownNameError, match="did you mean 'cell'"):
        area_weights(lat, "cells")


def test_weights_of_a_labelled_latitude_are_labelled():
    lat = np.array([50.0, 47.0, 46.0])
    told = {"units": "degrees_north"}
    labelled = xr.DataArray(lat, {"latitude": ("latitude", lat, told), "step": 48}, "latitude")
    expected = xr.DataArray(area_weights(lat), {"latitude": ("latitude", lat, told)}, "latitude")
    expected = expected.rename("area_weights")
    for one in (labelled, labelled["latitude"]):
        xr.testing.assert_identical(area_weights(one), expected)


@pytest.mark.parametrize("lat", [[], [[1.0, 2.0]], [10, 20, 15], [100, 80], [1, 1]])
def test_bad_latitudes(lat):
    with pytest.raises(ArgumentError, match="latitude"):
        area_weights(lat)


def test_location_lies_on_the_unit_sphere():
    features = location_features([90, 0], [0, 90, 180])
    np.testing.assert_allclose((features**2).sum(0), 1, rtol=1e-6)
    np.testing.assert_allclose(features[:, 1, 1], [0, 1, 0], atol=1e-7)  # 0 N 90 E
    np.testing.assert_allclose(features[:, 0, 2], [1, 0, 0], atol=1e-7)  # the pole


def test_is_global():
    assert is_global(np.arange(0, 360, 3.75))
    assert not is_global(np.arange(0, 355, 3.75))
    assert not is_global([0.0])
