"""Starts, lead times and members by the CF standard names of coordinates.

CF names a run by `forecast_reference_time` and `forecast_period`, and its members by `realization`;
`time` is the valid time beside them. A `time` alone is the start, as in most ensemble archives.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import FileError
from ens10.source.names import Names
from ens10.source.times import contradiction, in_nanoseconds, lead_times

_REFERENCE, _PERIOD, _VALID = "forecast_reference_time", "forecast_period", "time"
_MEMBER = "realization"
# Of variables without a standard name, if they are dates
_REFERENCE_NAMES = (
    "init_time", "initial_time", "initialization_time", "initialisation_time", "init",
    "reference_time", "reftime", "forecast_reference_time", "analysis_time", "base_time",
    "run_time", "start_time",
)  # fmt: skip
Times = npt.NDArray[np.datetime64]


class _Run(NamedTuple):
    """The variables of start, lead time and valid time; None for those that do not exist."""

    reference: str | None
    period: str | None
    valid: str | None

    @property
    def names(self) -> list[str]:
        """The variables that exist."""
        return [name for name in self if name is not None]


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
        roles = {role: name for role, name in roles.items() if role == _MEMBER}
    if _MEMBER in roles and "number" not in dataset.variables:
        dataset = dataset.rename({roles[_MEMBER]: "number"})
    reference, period = roles.get(_REFERENCE), roles.get(_PERIOD)
    if period == "step" and not reference and "step" in dataset.dims:
        return dataset
    named = ("time" in dataset.variables, "time"), ("valid_time" in dataset.dims, "valid_time")
    valid = roles.get(_VALID) or next((name for is_there, name in named if is_there), None)
    run = _Run(reference, period, valid if valid != reference else None)
    if reference is None and (
        valid is None or period is None or not _varies(dataset, period, valid)
    ):
        return _rename(dataset, run._replace(valid=None))
    dims = {dim for name in run.names for dim in dataset[name].dims}
    is_along_valid = run.valid is not None and dims - {"time"}
    if (reference == "time" and not is_along_valid) or len(dims) > 1 or len(run.names) == 1:
        return _rename(dataset, run)
    return _split(dataset, run, names, source)


def _roles(dataset: xr.Dataset) -> dict[str, str]:
    """Return the variable of each CF name that exactly one variable off the grid has.

    Where none has the standard name of a start, a date with a usual name of one counts.
    """
    roles: dict[str, list[str]] = {}
    for name, variable in dataset.variables.items():
        standard_name = variable.attrs.get("standard_name", _PERIOD if name == "step" else name)
        if standard_name in (_REFERENCE, _PERIOD, _VALID, _MEMBER) and variable.ndim < 3:
            roles.setdefault(standard_name, []).append(str(name))
    named = [n for n in _REFERENCE_NAMES if n in dataset and dataset[n].dtype.kind == "M"]
    found = {_REFERENCE: named, **roles}
    return {role: names[0] for role, names in found.items() if len(names) == 1}


def _is_free(dataset: xr.Dataset, old: str | None, new: str) -> bool:
    return old is not None and new not in dataset.variables


def _varies(dataset: xr.Dataset, period: str, valid: str) -> bool:
    """Return True if the lead time varies along the dimension of `time`."""
    lead = dataset[period]
    return lead.dims == dataset[valid].dims and lead.ndim == 1 and np.unique(lead).size > 1


def _rename(dataset: xr.Dataset, run: _Run) -> xr.Dataset:
    ours = {"valid_time": run.valid, "time": run.reference, "step": run.period}
    table = {
        old: new
        for new, old in ours.items()
        if _is_free(dataset, old, new) or (new == "time" and old not in (None, "time"))
    }
    return dataset.set_coords([str(name) for name in table]).rename(table)


def _split(dataset: xr.Dataset, run: _Run, names: Names, source: Path | str) -> xr.Dataset:
    """Return a dataset over valid times of one dimension as one over starts and lead times."""
    starts, leads = _starts_and_leads(dataset, run, names, source)
    start_values, row = np.unique(starts, return_inverse=True)
    lead_values, column = np.unique(leads, return_inverse=True)
    place = np.full((start_values.size, lead_values.size), -1)
    place[row.ravel(), column.ravel()] = np.arange(row.size)
    bare = dataset.drop_vars([*run.names, *(["valid_time"] if "valid_time" in dataset else [])])
    dims = {dim for name in run.names for dim in dataset[name].dims}
    if not dims:
        return bare.assign_coords(time=start_values[0], step=lead_values[0])
    if place.min() < 0 or np.count_nonzero(place >= 0) < row.size:
        raise FileError(
            source,
            f"its {row.size} valid times are not all {lead_values.size} lead times of all "
            f"{start_values.size} starts",
            "Write a file for each start, or the dimensions start and lead time both",
        )
    (dim,) = dims
    if lead_values.size == 1:
        by_start = bare.isel({dim: place[:, 0]}).rename({dim: "time"})
        return by_start.assign_coords(time=("time", start_values), step=lead_values[0])
    of_starts = [
        bare.isel({dim: one}).rename({dim: "step"}).assign_coords(step=("step", lead_values))
        for one in place
    ]
    if start_values.size == 1:
        return of_starts[0].assign_coords(time=start_values[0])
    index = xr.DataArray(start_values, dims="time", name="time")
    result: xr.Dataset = xr.concat(of_starts, index, coords="minimal", compat="override")
    return result


def _starts_and_leads(
    dataset: xr.Dataset, run: _Run, names: Names, source: Path | str
) -> tuple[Times, npt.NDArray[np.timedelta64]]:
    """Return start and lead time of each valid time; each broadcast to the same shape.

    Raises:
        FileError: start, lead time and valid time contradict each other, or a valid time is before
            its start.
    """
    lead: Any = None
    if run.period is not None:
        values, units = lead_times(dataset[run.period], names, source)
        if units == "h":
            lead = np.round(values * 3600).astype("timedelta64[s]")
    start, end = (
        None if name is None else dataset[name].to_numpy().astype("datetime64[s]")
        for name in (run.reference, run.valid)
    )
    if end is not None and start is not None:
        if lead is not None and (end - start != lead).any():
            raise contradiction(source, run.period, run.valid, run.reference)
        lead = end - start
    elif start is None:
        start = end - lead
    starts, leads = np.broadcast_arrays(np.atleast_1d(start), np.atleast_1d(lead))
    if (leads < np.timedelta64(0, "s")).any():
        reason = f"its valid times ({run.valid}) are before the start ({run.reference})"
        raise FileError(source, reason, "Correct the start, or remove it")
    # leads of centuries do not fit in nanoseconds
    return in_nanoseconds(starts, run.reference or "time"), leads.astype("timedelta64[s]")
