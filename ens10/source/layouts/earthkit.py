"""Datasets of earthkit-data's `to_xarray`: GRIB short names and `forecast_reference_time`.

Source: https://earthkit-data.readthedocs.io/en/latest/concepts/xarray/earthkit_profile.html, and
the defaults of the engine (xr_engine/profiles). Members are texts. With the default `squeeze` the
start of a single run is left out: it is `valid_time` less `step` with `add_valid_time_coord=True`.
"""

import numpy as np
import xarray as xr

from ens10.source.layouts.registry import Layout, register


def _matches(dataset: xr.Dataset) -> bool:
    own_attribute = any("_earthkit" in field.attrs for field in dataset.data_vars.values())
    return own_attribute or "forecast_reference_time" in dataset.dims


def _with_start_and_members(dataset: xr.Dataset) -> xr.Dataset:
    """Assign the start of a single run, and members as numbers."""
    if "member" in dataset.coords and dataset["member"].dtype.kind == "U":
        dataset = dataset.assign_coords(member=dataset["member"].astype(np.int64))
    if "forecast_reference_time" in dataset.variables or "valid_time" not in dataset.coords:
        return dataset
    start = (dataset["valid_time"] - dataset["step"]).to_numpy().flat[0]
    return dataset.drop_vars("valid_time").assign_coords(forecast_reference_time=start)


register(Layout(
    name="earthkit-data", matches=_matches, reshape=_with_start_and_members,
    source="https://earthkit-data.readthedocs.io/en/latest/concepts/xarray/profile.html",
    special="forecast_reference_time, step or forecast_period; members as texts",
    names={"forecast_reference_time": "time", "forecast_period": "step", "member": "number"},
))  # fmt: skip
