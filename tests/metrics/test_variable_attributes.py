"""Attributes of the parameters of distributions: only values of the target have its CF name."""

import numpy as np
import pytest
import xarray as xr

from ens10.metrics.distributions import Bernstein, Distribution
from ens10.metrics.distributions.registry import distribution_class, kinds

TARGET = {"units": "m s-1", "long_name": "10 metre wind speed", "standard_name": "wind_speed"}
# by the definitions of the families: what has the unit of the target, and what is a value of it
SCALES = {"sigma", "scale", "shift", "lower", "upper"}
PURE_NUMBERS = {"shape", "df", "component_weights"}
QUANTITIES = {("normal", "mu"), ("ensemble", "members"), ("quantiles", "values")}


def forecast_of(kind):
    """Two dates of 3 x 4 points."""
    cls, rng = distribution_class(kind), np.random.default_rng(0)
    values = {}
    for name, parameter in cls.parameters.items():
        shape = (2, 5, 3, 4) if parameter.core_dim else (2, 3, 4)
        values[name] = rng.random(shape) + (2.0 if name == "upper" else 0.5)
    values |= {"lower": np.zeros((2, 3, 4))} if "lower" in values else {}
    if "component_weights" in values:
        values["component_weights"] /= values["component_weights"].sum(1, keepdims=True)
    if kind == "quantiles":
        return cls(np.sort(values["values"], axis=1), [0.1, 0.3, 0.5, 0.7, 0.9])
    return cls(**values)


def stored(forecast, path):
    """The forecast with all attributes of the target, written to a netCDF file and read."""
    days = np.array(["2018-01-01", "2018-01-04"], "datetime64[ns]")
    lead = np.timedelta64(48, "h")
    coords = {"time": days, "valid_time": ("time", days + lead), "step": 48.0}
    coords |= {"latitude": [50.0, 40.0, 30.0], "longitude": [0.0, 10.0, 20.0, 30.0]}
    dataset = forecast.to_dataset(coords, TARGET["units"])
    for name in dataset.data_vars:
        assert dataset[name].attrs["units"] == forecast.variable_attributes(name, TARGET)["units"]
        dataset[name].attrs = forecast.variable_attributes(name, TARGET)
    dataset.to_netcdf(path)
    return xr.load_dataset(path)


@pytest.mark.parametrize("kind", kinds())
def test_each_parameter_has_its_own_unit_and_name(kind, tmp_path):
    forecast = forecast_of(kind)
    dataset = stored(forecast, tmp_path / "forecast.nc")
    assert set(dataset.data_vars) == set(forecast.parameters)
    for name, variable in dataset.data_vars.items():
        in_logarithms = kind == "lognormal"  # ln of m s-1 has no unit
        is_pure = name in PURE_NUMBERS or in_logarithms
        assert is_pure or name in SCALES | {"mu", "members", "values"}
        assert variable.attrs["units"] == ("1" if is_pure else "m s-1")
        is_quantity = (kind, name) in QUANTITIES
        assert variable.attrs.get("standard_name") == ("wind_speed" if is_quantity else None)
        assert variable.attrs["long_name"].endswith(" of 10 metre wind speed")
        np.testing.assert_array_equal(variable, getattr(forecast, name))
    words = [variable.attrs["long_name"] for variable in dataset.data_vars.values()]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("kind", kinds())
def test_a_forecast_is_read_back_from_its_file(kind, tmp_path):
    forecast = forecast_of(kind)
    found = Distribution.from_dataset(stored(forecast, tmp_path / "forecast.nc"))
    y = np.random.default_rng(1).random((2, 3, 4)) + 0.6
    np.testing.assert_allclose(found.cdf(y), forecast.cdf(y), rtol=1e-12, atol=1e-12)


def test_words_of_a_normal_with_and_without_those_of_the_target():
    normal = forecast_of("normal")
    assert normal.variable_attributes("sigma", TARGET) == {
        "units": "m s-1",
        "long_name": "standard deviation of the forecast of 10 metre wind speed",
    }
    assert normal.variable_attributes("mu", {"units": "K", "standard_name": "air_temperature"}) == {
        "units": "K",
        "standard_name": "air_temperature",
        "long_name": "mean of the forecast",
    }


def test_a_distribution_that_is_stored_as_quantiles_has_their_attributes():
    coefficients = np.sort(np.random.default_rng(0).random((2, 5, 3, 4)), axis=1)
    assert Bernstein(coefficients).variable_attributes("values", TARGET) == {
        **TARGET,
        "long_name": "quantiles of the forecast of 10 metre wind speed",
    }
