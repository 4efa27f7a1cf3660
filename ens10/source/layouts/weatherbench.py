"""WeatherBench 2: names of ERA5, `prediction_timedelta`, members as `number` or `realization`.

Source: https://weatherbench2.readthedocs.io/en/latest/data-guide.html; the dimension
`realization` is that of weatherbench2/metrics.py (REALIZATION). `total_precipitation_6hr` is the
sum of the six hours before the valid time, in m, in forecasts and in ERA5.
"""

import xarray as xr

from ens10.source.layouts.registry import Layout, register


def _matches(dataset: xr.Dataset) -> bool:
    forecast = "prediction_timedelta" in dataset.dims
    return (forecast or "total_precipitation_6hr" in dataset) and "sample" not in dataset.dims


register(
    Layout(
        name="WeatherBench 2",
        source="https://weatherbench2.readthedocs.io/en/latest/data-guide.html",
        special="prediction_timedelta; members along number or realization; precipitation of 6 "
        "hours; no units",
        matches=_matches,
        names={"realization": "number", "total_precipitation_6hr": "tp"},
        accumulation={"total_precipitation_6hr": "6 h"},
    )
)
