"""Valid times of forecasts, and time axes in "months since" a date.

Months have no fixed length, so general readers refuse "months since" unless the calendar has months
of 30 days ("360_day" or "360"). Here they are months of the standard calendar, even if the file
names another one: a whole number is the same day of another month, a half the middle of the month.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.source.names import NAMES_OPTION, TRUTH_OPTION, Names

_MONTHS_SINCE = re.compile(
    r"\s*months?\s+since\s+(\d{1,4})-(\d{1,2})(?:-(\d{1,2}))?"
    r"(?:[T\s]+(\d{1,2})(?::(\d{1,2}))?(?::(\d{1,2}))?(?:\.0*)?)?\s*(?:Z|UTC|[+-]00:?00)?\s*",
    re.IGNORECASE,
)
_SINCE = " since "
STORED_DATES = "1678 to 2262-04-11, the dates that can be stored"
Decoding = bool | Mapping[str, bool]


def reference_date(units: object) -> np.datetime64 | None:
    """Return the reference date of units "months since ..."; None for other units."""
    match = _MONTHS_SINCE.fullmatch(str(units))
    if match is None:
        return None
    year, month, day, *time = (int(part or 0) for part in match.groups())
    hour, minute, second = time
    text = f"{year:04d}-{month:02d}-{day or 1:02d}T{hour:02d}:{minute:02d}:{second:02d}"
    try:
        return np.datetime64(text, "s")
    except ValueError:  # 30 February, say
        return None


def open_with_times(
    open_dataset: Callable[[Decoding], xr.Dataset], source: Path | str
) -> xr.Dataset:
    """Open a dataset with all times decoded but those in months; `with_month_times` decodes these.

    Args:
        open_dataset: opens the dataset with a value of xarray's option `decode_times`.
        source: path of the dataset, for errors.

    Raises:
        FileError: times in units that are neither a fixed length nor months.
    """
    try:
        dataset = open_dataset(True)
        units = {name: field.encoding.get("units") for name, field in dataset.variables.items()}
        objects = {name for name, field in dataset.variables.items() if field.dtype == object}
        months = [name for name in objects if reference_date(units[name]) is not None]
        if not months:
            return dataset
    except ValueError as error:
        fields = open_dataset(False).variables
        units = {name: field.attrs.get("units") for name, field in fields.items()}
        time_names = [str(name) for name in fields if _SINCE in str(units[name])]
        months = [name for name in time_names if reference_date(units[name]) is not None]
        if not time_names:
            raise
        if not months:
            raise _unreadable_error(time_names, fields, source) from error
    try:
        return open_dataset({str(name): False for name in months})
    except ValueError as error:
        others = [str(n) for n in units if _SINCE in str(units[n]) and n not in months]
        raise _unreadable_error(others, open_dataset(False).variables, source) from error


def _unreadable_error(
    names: list[str], fields: Mapping[object, xr.Variable], source: Path | str
) -> FileError:
    descriptions = [
        f"{name} in {fields[name].attrs.get('units')!r} "
        f"(calendar {fields[name].attrs.get('calendar', 'standard')!r})"
        for name in names
    ]
    units = "units such as 'hours since 1900-01-01' of the standard calendar"
    remedy = f"Write them in {units}, within {STORED_DATES}"
    return FileError(source, f"times that cannot be read: {', '.join(descriptions)}", remedy)


def with_month_times(dataset: xr.Dataset) -> xr.Dataset:
    """Convert numbers in "months since" a date to dates.

    Args:
        dataset: with undecoded times in months; NaN becomes NaT.
    """
    dates = {}
    for name, field in dataset.variables.items():
        start = reference_date(field.attrs.get("units"))
        if start is None or field.dtype.kind not in "iuf":
            continue
        months = field.to_numpy().astype(np.float64)
        valid = np.isfinite(months)
        time = after_months(np.array(start), np.where(valid, months, 0.0))
        time = in_nanoseconds(time, str(name))
        attributes = {key: v for key, v in field.attrs.items() if key not in ("units", "calendar")}
        dates[name] = (field.dims, np.where(valid, time, np.datetime64("NaT")), attributes)
    coordinates = {name: value for name, value in dates.items() if name in dataset.coords}
    others = {name: value for name, value in dates.items() if name not in coordinates}
    return dataset.assign_coords(coordinates).assign(others) if dates else dataset


def with_starts_of_hindcasts(dataset: xr.Dataset, source: Path | str) -> xr.Dataset:
    """Return hindcasts over the model's run (`time`) and `year` as forecasts over start dates.

    That is the layout of EUPPBench, where the last year is the one before the run. The starts are
    computed from `valid_time` if the dataset has it, otherwise from the numbers of the years.

    Args:
        dataset: with names of this package; unchanged if it has no dimension `year`.
        source: where it comes from, for errors.

    Raises:
        MissingDataError: `valid_time` is missing, and the years are not 1, 2, ... n.
    """
    if not {"time", "year"} <= set(dataset.dims):
        return dataset
    valid = dataset["valid_time"] if "valid_time" in dataset.variables else None
    if valid is not None and "year" in valid.dims:
        starts = valid.transpose("time", "year", ...)
        if "step" in valid.dims:
            lead = dataset["step"].to_numpy()[0]
            hours = lead if lead.dtype.kind == "m" else np.timedelta64(round(3600 * lead), "s")
            starts = starts.isel(step=0) - hours
        dates = starts.to_numpy()
    else:
        count = dataset.sizes["year"]
        years = np.arange(1, count + 1)
        if not np.array_equal(dataset.coords.get("year", years), years):
            remedy = f"Add valid_time over (time, year, step), or pass all years, 1 to {count}"
            raise MissingDataError(source, ["the start dates of the years"], remedy)
        month_offsets = 12 * (years - count - 1)
        dates = after_months(dataset["time"].to_numpy()[:, None], month_offsets[None, :])
    bare = dataset.drop_vars(["valid_time", "year"], errors="ignore")
    by_year = enumerate(in_nanoseconds(dates, "time").T)
    parts = [bare.isel(year=n).assign_coords(time=starts_of_year) for n, starts_of_year in by_year]
    hindcasts: xr.Dataset = xr.concat(
        parts, "time", data_vars="minimal", coords="minimal", compat="override", join="override"
    )
    return hindcasts


_HOURS = {
    **dict.fromkeys(("h", "hr", "hour", "hours"), 1),
    **dict.fromkeys(("d", "day", "days"), 24),
    **dict.fromkeys(("min", "minute", "minutes"), 1 / 60),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1 / 3600),
}
_MONTHS = ("month", "months")
_NO_UNITS = ("", "1", "unitless", "unknown", "none")


def contradiction(source: object, lead: object, valid: object, start: object) -> FileError:
    """Return the error of a lead time that is not the valid time less the start."""
    reason = f"the lead times ({lead}) are not the valid times ({valid}) less the starts ({start})"
    return FileError(str(source), reason, "Correct one of them, or remove the wrong one")


def with_valid_time(dataset: xr.Dataset, names: Names) -> xr.Dataset:
    """Add the coordinate `valid_time`, over (time, step) or (time,).

    Raises:
        ArgumentError: the dataset's own `valid_time` is no date over time and step.
        FileError: it is not the start and the step in hours.
    """
    dims = [d for d in ("time", "step") if d in dataset.dims]
    if "valid_time" in dataset.coords:
        valid = dataset["valid_time"].to_numpy()
        valid_dims = dataset["valid_time"].dims
        indices = [slice(None) if d in valid_dims else None for d in dims]
        if set(valid_dims) <= set(dims) and np.issubdtype(valid.dtype, np.datetime64):
            order = [valid_dims.index(d) for d in dims if d in valid_dims]
            valid = valid.transpose(order)[tuple(indices)]
        else:
            remedy = f"Map it with {NAMES_OPTION} FILE, that of the truth with {TRUTH_OPTION} FILE"
            raise ArgumentError("valid_time", "expected dates over time and step", remedy)
    elif "step" in dataset.dims:
        valid = _valid_times(dataset["time"].to_numpy(), dataset, names)
    else:
        valid = dataset["time"].to_numpy()
    shape = [dataset.sizes[d] for d in dims]
    valid = np.broadcast_to(in_nanoseconds(valid, "valid_time"), shape)
    if "valid_time" in dataset.coords and dims == ["time", "step"] and _is_in_hours(dataset, names):
        implied = _valid_times(dataset["time"].to_numpy(), dataset, names)
        if (np.isfinite(valid) & (valid.astype("datetime64[s]") != implied)).any():
            source = dataset.encoding.get("source", "the dataset")
            raise contradiction(source, "step", "valid_time", "time")
    result = dataset.assign_coords(valid_time=(dims, valid))
    if "step" in dims:
        steps = dataset["step"].to_numpy()
        result = result.assign_coords(step=("step", steps, {"units": _step_units(dataset, names)}))
    return result


def in_nanoseconds(dates: npt.NDArray[Any], argument: str) -> npt.NDArray[np.datetime64]:
    """Convert dates to nanoseconds, in which stores and xarray count.

    Raises:
        ArgumentError: a date before 1678 or after 2262-04-11, which nanoseconds cannot express.
    """
    converted = dates.astype("datetime64[ns]")
    wrapped = converted.astype("datetime64[s]") != dates.astype("datetime64[s]")
    if wrapped.any():
        first = str(dates.astype("datetime64[s]")[wrapped][0])[:13]
        reason = f"{first} lies outside {STORED_DATES}"
        raise ArgumentError(argument, reason, "Select earlier dates or shorter lead times")
    result: npt.NDArray[np.datetime64] = converted
    return result


def _is_in_hours(dataset: xr.Dataset, names: Names) -> bool:
    return _step_units(dataset, names) == "h" and "step" in dataset.coords


def _step_units(dataset: xr.Dataset, names: Names) -> str:
    return str(dataset["step"].attrs.get("units", names.step_units))


def with_step_numbers(dataset: xr.Dataset, names: Names, source: Path | str) -> xr.Dataset:
    """Convert `step` to hours or months, integers if all are whole.

    Args:
        dataset: with the coordinate `step`: durations, or numbers in hours, days or months.
        names: with `step_units`, for steps without units.
        source: path of the dataset, for errors.

    Raises:
        ArgumentError: other units.
    """
    values, units = lead_times(dataset["step"], names, source)
    return dataset.assign_coords(step=("step", values, {"units": units}))


def lead_times(
    coordinate: xr.DataArray, names: Names, source: Path | str
) -> tuple[npt.NDArray[Any], str]:
    """Return lead times in hours or months, integers if all are whole, and their units.

    Args:
        coordinate: durations, or numbers in hours, minutes, seconds, days or months.
        names: with `step_units`, for numbers without units.
        source: path of the dataset, for errors.

    Raises:
        ArgumentError: other units.
    """
    step = coordinate.to_numpy()
    if step.dtype.kind in "iu":
        step = step.astype(np.int64)  # 10 days are too many hours for 8 bits
    text = str(coordinate.attrs.get("units", "")).strip().lower()
    units = "h"
    if np.issubdtype(step.dtype, np.timedelta64):
        step = step / np.timedelta64(1, "h")
    elif text in _HOURS:
        step = step * _HOURS[text]
    elif text in _MONTHS:
        units = "months"
    elif text in _NO_UNITS:
        units = names.step_units
    else:
        remedy = "Write them in hours, days or months, and their attribute units accordingly"
        raise ArgumentError("step", f"the lead times of {source} are in {text!r}", remedy)
    if step.dtype == np.float32:
        step = np.round(step.astype(np.float64), 6)  # 0.1 as it is written
    integers = step.round().astype(np.int64)
    return (integers if np.array_equal(integers, step) else step), units


def _valid_times(
    start: npt.NDArray[Any], dataset: xr.Dataset, names: Names
) -> npt.NDArray[np.datetime64]:
    lead = dataset["step"].to_numpy() - names.first_step
    start = start.astype("datetime64[s]")[:, None]
    if _step_units(dataset, names) == "months":
        return after_months(start, lead[None, :])
    seconds = np.round(lead * 3600.0).astype("timedelta64[s]")
    valid: npt.NDArray[np.datetime64] = start + seconds
    return valid


def after_months(start: npt.NDArray[Any], months: npt.ArrayLike) -> npt.NDArray[np.datetime64]:
    """Add calendar months to dates.

    Whole months keep the day and the hour; a day that the month lacks becomes its last day: 31
    January + 1 is 28 or 29 February. Fractions are interpolated linearly between whole months, so
    that half a month after the first of a month is its middle: 1 November + 0.5 is 16 November
    00 UTC, 1 February 2001 + 0.5 is 15 February 00 UTC.

    Args:
        start: dates.
        months: of any sign, such as 2.5; broadcast against `start`.

    Returns:
        Dates to the second.

    Examples:
        >>> import numpy as np
        >>> from ens10.source.times import after_months
        >>> str(after_months(np.array("2001-01-31", "M8[s]"), 1))
        '2001-02-28T00:00:00'
    """
    start = start.astype("datetime64[s]")
    whole_months = np.floor(months)
    fraction = np.asarray(months) - whole_months
    begin = _after_whole_months(start, whole_months)
    if not fraction.any():
        return begin
    length = (_after_whole_months(start, whole_months + 1) - begin).astype(np.float64)
    dates: npt.NDArray[np.datetime64]
    dates = begin + np.round(fraction * length).astype("timedelta64[s]")
    return dates


def _after_whole_months(
    start: npt.NDArray[np.datetime64], months: npt.NDArray[Any]
) -> npt.NDArray[np.datetime64]:
    first = start.astype("datetime64[M]")
    time_in_month = start - first.astype(start.dtype)  # day and hour within the month
    valid = first + months.astype(np.int64).astype("timedelta64[M]")
    length = (valid + 1).astype("datetime64[D]") - valid.astype("datetime64[D]")
    days = np.minimum(time_in_month.astype("timedelta64[D]"), length - 1)
    dates: npt.NDArray[np.datetime64] = valid.astype("datetime64[s]") + days
    dates += time_in_month - time_in_month.astype("timedelta64[D]")
    return dates
