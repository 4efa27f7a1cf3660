"""Datasets of earthkit-data's `to_xarray`: GRIB short names and `forecast_reference_time`.

Source: https://earthkit-data.readthedocs.io/en/latest/concepts/xarray/earthkit_profile.html and
the defaults of the engine (xr_engine/profiles): members are texts, and the start of a single run is
left out; with `add_valid_time_coord=True` it is `valid_time` less `step`.
"""

import xarray as xr

from ens10.errors import ArgumentError
from ens10.source.layouts.registry import Layout, register

_START, _REMEDY = "forecast_reference_time", "Pass ensure_dims=['forecast_reference_time'] to it"


def _matches(dataset: xr.Dataset) -> bool:
    own_attribute = any("_earthkit" in field.attrs for field in dataset.data_vars.values())
    return own_attribute or _START in dataset.dims


def _with_start_and_members(dataset: xr.Dataset) -> xr.Dataset:
    """Assign the start of a single run, and members as numbers."""
    if "member" in dataset.coords and dataset["member"].dtype.kind == "U":
        dataset = dataset.assign_coords(member=dataset["member"].astype("i8"))
    if {_START, "time"} & {*dataset.variables} or "step" not in dataset.variables:
        return dataset
    if "valid_time" not in dataset.variables:
        raise ArgumentError(_START, "to_xarray has left out the start of the single run", _REMEDY)
    start = (dataset["valid_time"] - dataset["step"]).to_numpy().flat[0]
    return dataset.drop_vars("valid_time").assign_coords({_START: start})


register(Layout(
    name="earthkit-data", matches=_matches, reshape=_with_start_and_members,
    source="https://earthkit-data.readthedocs.io/en/latest/concepts/xarray/profile.html",
    special="forecast_reference_time, step or forecast_period; members as texts",
    names={_START: "time", "forecast_period": "step", "member": "number"},
))  # fmt: skip
