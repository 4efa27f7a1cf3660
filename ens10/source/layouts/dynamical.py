"""Datasets of dynamical.org: Zarr 3 with shards, levels in names, and rates of precipitation.

Source: https://dynamical.org/catalog/ecmwf-ifs-ens-forecast-15-day-0-25-degree and, for names,
attributes and order of all datasets, https://github.com/dynamical-org/reformatters
(templates/latest.zarr). Temperatures are in degree_Celsius, heights of pressure levels in m.
Variables on many levels are in the group `pressure_level`.
"""

import xarray as xr

from ens10.source.layouts.registry import Layout, register

_NAMES = {
    "init_time": "time", "lead_time": "step", "ensemble_member": "number",
    "pressure_level": "level", "y": "latitude", "x": "longitude",
    "temperature_2m": "t2m", "wind_u_10m": "u10", "wind_v_10m": "v10",
    "pressure_reduced_to_mean_sea_level": "msl", "total_cloud_cover_atmosphere": "tcc",
    "precipitable_water_atmosphere": "tcwv", "precipitation_surface": "tp",
    "geopotential_height": "z", "temperature": "t", "wind_u": "u", "wind_v": "v",
}  # fmt: skip


def _matches(dataset: xr.Dataset) -> bool:
    forecast = {"init_time", "lead_time"} <= set(dataset.dims)
    return forecast or "dynamical.org" in str(dataset.attrs.get("attribution", ""))


register(
    Layout(
        name="dynamical.org", source="https://dynamical.org/catalog",
        special="init_time, lead_time, ensemble_member; levels in names; mean rates of "
        "precipitation since the previous step; groups of pressure levels",
        matches=_matches, names=_NAMES, accumulation={"precipitation_surface": "previous step"},
    )
)  # fmt: skip
