"""Starts, lead times and members by the CF standard names of coordinates.

CF names a run by `forecast_reference_time` and `forecast_period`, and its members by `realization`;
`time` is the valid time beside them. A `time` alone is the start, as in most ensemble archives.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import FileError
from ens10.source.names import Names
from ens10.source.times import in_nanoseconds, lead_times

_REFERENCE, _PERIOD, _VALID = "forecast_reference_time", "forecast_period", "time"
Times = npt.NDArray[np.datetime64]


def with_cf_times(dataset: xr.Dataset, names: Names, source: Path | str) -> xr.Dataset:
    """Return a dataset whose starts, lead times and members have this package's names.

    Args:
        dataset: with coordinates of any names. Without a reference time, and without a lead time
            that varies along `time`, it is unchanged but for the members.
        names: with `step_units`, for lead times without units.
        source: where it comes from, for errors.

    Returns:
        The dataset over `time` (start) and `step`. Valid times of one or several runs are split
        into starts and lead times.

    Raises:
        FileError: the valid times are not all lead times of all starts.
    """
    roles = _roles(dataset)
    if {"time", "step"} <= set(dataset.dims):
        roles = {role: name for role, name in roles.items() if role == "realization"}
    realization = roles.get("realization")
    if realization and "number" not in dataset.variables:
        dataset = dataset.rename({realization: "number"})
    reference, period = roles.get(_REFERENCE), roles.get(_PERIOD)
    if reference == "time" or (period == "step" and not reference and "step" in dataset.dims):
        return dataset
    valid = roles.get(_VALID) or ("time" if "time" in dataset.variables else None)
    if reference is None and (
        valid is None or period is None or not _varies(dataset, period, valid)
    ):
        return dataset.rename({period: "step"}) if _is_free(dataset, period, "step") else dataset
    parts = [name for name in (reference, period, valid) if name is not None]
    if len({dim for name in parts for dim in dataset[name].dims}) > 1 or len(parts) == 1:
        return _rename(dataset, reference, period, valid)
    return _split(dataset, reference, period, valid, names, source)


def _roles(dataset: xr.Dataset) -> dict[str, str]:
    """Return the variable of each CF name that exactly one variable off the grid has."""
    roles: dict[str, list[str]] = {}
    for name, variable in dataset.variables.items():
        standard_name = variable.attrs.get("standard_name", _PERIOD if name == "step" else name)
        if standard_name in (_REFERENCE, _PERIOD, _VALID, "realization") and variable.ndim < 3:
            roles.setdefault(standard_name, []).append(str(name))
    return {role: found[0] for role, found in roles.items() if len(found) == 1}


def _is_free(dataset: xr.Dataset, old: str | None, new: str) -> bool:
    return old is not None and new not in dataset.variables


def _varies(dataset: xr.Dataset, period: str, valid: str) -> bool:
    """Return True if the lead time varies along the dimension of `time`."""
    lead = dataset[period]
    return lead.dims == dataset[valid].dims and lead.ndim == 1 and np.unique(lead).size > 1


def _rename(
    dataset: xr.Dataset, reference: str | None, period: str | None, valid: str | None
) -> xr.Dataset:
    table = {}
    if valid == "time" and reference is not None:
        table[valid] = "valid_time"
    if reference is not None:
        table[reference] = "time"
    if _is_free(dataset, period, "step"):
        table[str(period)] = "step"
    return dataset.set_coords(list(table)).rename(table)


def _split(
    dataset: xr.Dataset,
    reference: str | None,
    period: str | None,
    valid: str | None,
    names: Names,
    source: Path | str,
) -> xr.Dataset:
    """Return a dataset over valid times of one dimension as one over starts and lead times."""
    parts = [name for name in (reference, period, valid) if name is not None]
    dims = [dim for name in parts for dim in dataset[name].dims]
    starts, leads = _starts_and_leads(dataset, reference, period, valid, names, source)
    start_values, row = np.unique(starts, return_inverse=True)
    lead_values, column = np.unique(leads, return_inverse=True)
    place = np.full((start_values.size, lead_values.size), -1)
    place[row.ravel(), column.ravel()] = np.arange(row.size)
    bare = dataset.drop_vars([*parts, *(["valid_time"] if "valid_time" in dataset else [])])
    lead_coordinate = {"step": ("step", lead_values)}
    if not dims:
        return bare.assign_coords(time=start_values[0], step=lead_values[0])
    if place.min() < 0 or np.count_nonzero(place >= 0) < row.size:
        raise FileError(
            source,
            f"its {row.size} valid times are not all {lead_values.size} lead times of all "
            f"{start_values.size} starts",
            "Write a file for each start, or the dimensions start and lead time both",
        )
    (dim,) = set(dims)
    of_starts = [
        bare.isel({dim: one}).rename({dim: "step"}).assign_coords(lead_coordinate) for one in place
    ]
    if start_values.size == 1:
        return of_starts[0].assign_coords(time=start_values[0])
    index = xr.DataArray(start_values, dims="time", name="time")
    result: xr.Dataset = xr.concat(of_starts, index, coords="minimal", compat="override")
    return result


def _starts_and_leads(
    dataset: xr.Dataset,
    reference: str | None,
    period: str | None,
    valid: str | None,
    names: Names,
    source: Path | str,
) -> tuple[Times, npt.NDArray[np.timedelta64]]:
    """Return start and lead time of each valid time; each broadcast to the same shape."""
    lead: Any = None
    if period is not None:
        values, units = lead_times(dataset[period], names, source)
        if units == "h":
            lead = np.round(values * 3600).astype("timedelta64[s]")
    start = None if reference is None else dataset[reference].to_numpy().astype("datetime64[s]")
    end = None if valid is None else dataset[valid].to_numpy().astype("datetime64[s]")
    if end is not None and start is not None:
        lead = end - start
    elif start is None:
        start = end - lead
    starts, leads = np.broadcast_arrays(np.atleast_1d(start), np.atleast_1d(lead))
    # leads of centuries do not fit in nanoseconds
    return in_nanoseconds(starts, reference or "time"), leads.astype("timedelta64[s]")
