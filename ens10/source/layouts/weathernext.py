"""WeatherNext 2: names of ERA5 without units, members as `sample`, stores of one run or of a year.

Source: https://developers.google.com/weathernext/guides/gcs and the table of variables in
https://developers.google.com/weathernext/guides/models-wn2. They do not list the dimensions, which
are those that public readers of the stores expect (dynamical-org/reformatters, google/weathernext2;
openclimatefix): of one run (sample, time, [level,] lat, lon), where `time` is the lead and
`init_time` a scalar; of a year (time, sample, prediction_timedelta, [level,] lat, lon).
"""

import xarray as xr

from ens10.source.layouts.registry import Layout, register

_SOURCE = "https://developers.google.com/weathernext/guides/gcs"
_NAMES = {"sample": "number", "total_precipitation_6hr": "tp"}
_SUMS = {"total_precipitation_6hr": "6 h"}


def _is_run(dataset: xr.Dataset) -> bool:
    return "sample" in dataset.dims and "init_time" in dataset.variables


def _is_year(dataset: xr.Dataset) -> bool:
    return {"sample", "prediction_timedelta"} <= set(dataset.dims)


register(Layout(
    name="WeatherNext 2, a run", source=_SOURCE, matches=_is_run, accumulation=_SUMS,
    special="members along sample; time is the lead; precipitation of 6 hours; no units",
    names={**_NAMES, "time": "step", "init_time": "time"},
))  # fmt: skip
register(Layout(
    name="WeatherNext 2, a year", source=_SOURCE, matches=_is_year, accumulation=_SUMS,
    special="members along sample; prediction_timedelta; precipitation of 6 hours; no units",
    names=_NAMES,
))  # fmt: skip
