"""The time at which a forecast is valid: start and step, in hours or in months of the calendar."""

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError
from ens10.source.names import Names


def with_valid_time(dataset: xr.Dataset, names: Names) -> xr.Dataset:
    """The dataset with the coordinate `valid_time`, over (time, step) or (time,)."""
    dims = [d for d in ("time", "step") if d in dataset.dims]
    if "valid_time" in dataset.coords:
        valid = dataset["valid_time"].to_numpy()
        held = dataset["valid_time"].dims
        indices = [slice(None) if d in held else None for d in dims]
        if set(held) <= set(dims) and np.issubdtype(valid.dtype, np.datetime64):
            valid = valid.transpose([held.index(d) for d in dims if d in held])[tuple(indices)]
        else:
            raise ArgumentError(
                "valid_time", "expected dates over time and step", "Map it with --names FILE"
            )
    elif "step" in dataset.dims:
        valid = _valid_times(dataset["time"].to_numpy(), dataset["step"].to_numpy(), names)
    else:
        valid = dataset["time"].to_numpy()
    shape = [dataset.sizes[d] for d in dims]
    valid = np.broadcast_to(valid, shape).astype("datetime64[ns]")
    dated = dataset.assign_coords(valid_time=(dims, valid))
    if "step" in dims:
        units = dataset["step"].attrs.get("units", names.step_units)
        dated = dated.assign_coords(step=("step", dataset["step"].to_numpy(), {"units": units}))
    return dated


def _valid_times(
    start: npt.NDArray[Any], step: npt.NDArray[Any], names: Names
) -> npt.NDArray[np.datetime64]:
    start = start.astype("datetime64[s]")
    ahead = step - names.first_step
    if names.step_units == "h":
        seconds = np.round(ahead * 3600).astype("timedelta64[s]")
        hours: npt.NDArray[np.datetime64] = start[:, None] + seconds[None, :]
        return hours
    if not np.issubdtype(ahead.dtype, np.integer):
        raise ArgumentError("step", "months must be whole numbers", "Give the steps in hours")
    months = start.astype("datetime64[M]")
    valid = months[:, None] + ahead.astype("timedelta64[M]")[None, :]
    within = (start - months.astype(start.dtype))[:, None]  # day and hour within the month
    length = (valid + 1).astype("datetime64[D]") - valid.astype("datetime64[D]")
    days = np.minimum(within.astype("timedelta64[D]"), length - 1)  # 31 January + 1: 28 February
    hour = within - within.astype("timedelta64[D]")
    dates: npt.NDArray[np.datetime64] = valid.astype("datetime64[s]") + days + hour
    return dates
