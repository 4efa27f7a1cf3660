"""Output of anemoi-inference in netCDF and Zarr: (time, values), `time` is the valid time.

Source: https://github.com/ecmwf/anemoi-inference, outputs/netcdf.py (from 0.12 on with the scalar
`forecast_reference_time`; before, and in outputs/zarr.py, the start is the reference date of
`time`). There are no units. The file does not say whether `tp` is of each step of the model or
since the start (post-processor accumulate_from_start_of_forecast), so that it is not taken for tp.
"""

import pandas as pd
import xarray as xr

from ens10.source.layouts.cells import with_rows_and_columns
from ens10.source.layouts.registry import Layout, register

_START = "forecast_reference_time"


def _matches(dataset: xr.Dataset) -> bool:
    has_cells = "latitude" in dataset and dataset["latitude"].dims == ("values",)
    return has_cells and "time" in dataset.dims


def _one_run(dataset: xr.Dataset) -> xr.Dataset:
    """Return the fields over steps, rows and columns, with the scalar start `time`."""
    reference = str(dataset["time"].encoding.get("units")).partition(" since ")[2]
    start = dataset[_START].to_numpy() if _START in dataset else pd.Timestamp(reference).to_numpy()
    grid = with_rows_and_columns(dataset, "values", "latitude", "longitude")
    bare = grid.drop_vars([_START, "forecast_period"], errors="ignore")
    over_steps = bare.assign_coords(time=grid["time"] - start).rename(time="step")
    return over_steps.assign_coords(time=start)


register(Layout(
    name="anemoi-inference", matches=_matches, reshape=_one_run,
    source="https://github.com/ecmwf/anemoi-inference (outputs/netcdf.py, outputs/zarr.py)",
    special="cells of a regular grid; time is the valid time; no units; tp of a step or since the "
    "start, which the file does not say (tp_of_unknown_window)",
    names={"tp": "tp_of_unknown_window", "cp": "cp_of_unknown_window"},
))  # fmt: skip
