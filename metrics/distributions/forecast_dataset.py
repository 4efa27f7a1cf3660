"""Check a Dataset that holds a forecast: its kind, variables, dimensions and coordinates."""

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError, listing
from ens10.metrics._dispatch import fill_masked
from ens10.metrics.distributions.registry import kind_of
from ens10.stations import as_row

GRID = ("latitude", "longitude")
STEP_AND_LEVEL = ("step", "level")  # dimensions other than time that are scored separately


def checked_forecast(forecast: xr.Dataset, name: str = "forecast") -> xr.Dataset:
    """Check a forecast and return the variables of its kind, with dimensions in order.

    The order is time [, step] [, level] [, number or quantile], latitude, longitude.

    Raises:
        UnknownNameError: a `forecast_kind` that is not known.
        MissingDataError: variables of that kind that it lacks.
        ArgumentError: no `forecast_kind` in its attributes, wrong dimensions, duplicate dates,
            units that differ, or quantile levels that do not ascend between 0 and 1.
    """
    forecast, kind = as_row(forecast), kind_of(forecast, name)
    variables = kind.stored_variables(forecast)
    absent = [variable for variable in variables if variable not in forecast]
    if absent:
        raise MissingDataError(f"{kind.kind} {name}", absent)
    dataset = forecast[list(variables)].map(fill_masked, keep_attrs=True)
    extra_dims = tuple(dim for dim in STEP_AND_LEVEL if dim in dataset.dims)
    expected = ("time", *extra_dims, *kind.core_dims(), *GRID)
    for variable in dataset.values():
        if set(variable.dims) != set(expected):
            raise ArgumentError(name, f"dimensions {variable.dims} instead of {expected}")
    for dim in ("time", *extra_dims):
        if dataset.indexes[dim].has_duplicates:
            duplicate = "a date" if dim == "time" else f"a {dim}"
            raise ArgumentError(name, f"{duplicate} occurs twice in its coordinate {dim}")
    if "quantile" in kind.core_dims():
        _check_levels(dataset["quantile"].to_numpy())
    return dataset.transpose(*expected)


def _check_levels(levels: npt.NDArray[Any]) -> None:
    if not (levels.size and levels.min() > 0 and levels.max() < 1 and np.all(np.diff(levels) > 0)):
        raise ArgumentError(
            "quantile",
            f"levels {listing([f'{level:g}' for level in levels])} do not rise between 0 and 1",
            "Sort the forecast by quantile, and give probabilities",
        )
