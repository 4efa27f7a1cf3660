"""Times in "months since" a date, as seasonal archives write them, such as the IRI data library.

Months have no fixed length, so that general readers refuse them unless the calendar has months of
30 days ("360_day", or just "360"). Here they are months of the real calendar, whatever calendar the
file names: a whole number is the same day of another month, a half is the middle of the month; see
`ens10.source.validtime.after_months`.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from ens10.errors import FileError
from ens10.source.validtime import after_months

_MONTHS_SINCE = re.compile(
    r"\s*months?\s+since\s+(\d{1,4})-(\d{1,2})(?:-(\d{1,2}))?"
    r"(?:[T\s]+(\d{1,2})(?::(\d{1,2}))?(?::(\d{1,2}))?(?:\.0*)?)?\s*(?:Z|UTC|[+-]00:?00)?\s*",
    re.IGNORECASE,
)
_SINCE = " since "
Decoding = bool | Mapping[str, bool]


def reference_date(units: object) -> np.datetime64 | None:
    """The date that units such as "months since 1960-01-01" count from; None for other units."""
    found = _MONTHS_SINCE.fullmatch(str(units))
    if found is None:
        return None
    year, month, day, *time = (int(part or 0) for part in found.groups())
    hour, minute, second = time
    text = f"{year:04d}-{month:02d}-{day or 1:02d}T{hour:02d}:{minute:02d}:{second:02d}"
    try:
        return np.datetime64(text, "s")
    except ValueError:  # 30 February, say
        return None


def opened(open_with: Callable[[Decoding], xr.Dataset], source: Path | str) -> xr.Dataset:
    """Decode all times of a dataset except those in months; `with_month_times` decodes these.

    Args:
        open_with: opens it, given what xarray calls `decode_times`.
        source: where it comes from, for errors.

    Raises:
        FileError: times in units that are neither a fixed length nor months.
    """
    try:
        dataset = open_with(True)
        units = {name: field.encoding.get("units") for name, field in dataset.variables.items()}
        held = {name for name, field in dataset.variables.items() if field.dtype == object}
        months = [name for name in held if reference_date(units[name]) is not None]
        if not months:
            return dataset
    except ValueError as error:
        fields = open_with(False).variables
        units = {name: field.attrs.get("units") for name, field in fields.items()}
        since = [str(name) for name in fields if _SINCE in str(units[name])]
        months = [name for name in since if reference_date(units[name]) is not None]
        if not since:
            raise
        if not months:
            raise _unreadable(since, fields, source) from error
    try:
        return open_with({str(name): False for name in months})
    except ValueError as error:
        others = [str(n) for n in units if _SINCE in str(units[n]) and n not in months]
        raise _unreadable(others, open_with(False).variables, source) from error


def _unreadable(
    names: list[str], fields: Mapping[object, xr.Variable], source: Path | str
) -> FileError:
    about = [
        f"{name} in {fields[name].attrs.get('units')!r} "
        f"(calendar {fields[name].attrs.get('calendar', 'standard')!r})"
        for name in names
    ]
    return FileError(
        source,
        f"times that cannot be read: {', '.join(about)}",
        "Write them in units such as 'hours since 1900-01-01' of the standard calendar",
    )


def with_month_times(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with numbers in "months since" a date as dates.

    Args:
        dataset: with times as in the file, where they are in months; NaN becomes NaT.
    """
    dates = {}
    for name, field in dataset.variables.items():
        start = reference_date(field.attrs.get("units"))
        if start is None or field.dtype.kind not in "iuf":
            continue
        months = field.to_numpy().astype(np.float64)
        there = np.isfinite(months)
        when = after_months(np.array(start), np.where(there, months, 0.0)).astype("datetime64[ns]")
        kept = {key: v for key, v in field.attrs.items() if key not in ("units", "calendar")}
        dates[name] = (field.dims, np.where(there, when, np.datetime64("NaT")), kept)
    coordinates = {name: value for name, value in dates.items() if name in dataset.coords}
    others = {name: value for name, value in dates.items() if name not in coordinates}
    return dataset.assign_coords(coordinates).assign(others) if dates else dataset
