"""Truth of sums and means, computed for exactly the time windows of the forecasts.

Forecasts of precipitation are sums since the start, or over the window that their attribute
`window` states. Truth may be sums or mean rates of one hour (ERA5), of three or six hours, or of a
day; the attribute `window` (or `accumulation`) states which. Without it, hourly truth is that of
the hour before its time. Other truth must then be of the forecasts' own starts and steps, or GRIB
analyses at the valid dates, as synthetic worlds have them.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.catalog import ACCUMULATED
from ens10.errors import ArgumentError, DataNote
from ens10.identity import (
    HOUR,
    OF_FORECAST,
    SINCE_MIDNIGHT,
    SINCE_PREVIOUS_STEP,
    SINCE_START,
    Method,
    Window,
    WindowIndex,
    parse_windows,
)
from ens10.source.names import TRUTH_OPTION
from ens10.source.units import amount_of_rate
from ens10.source.windows import as_amount, in_seconds, method_of, stated_window

Seconds = npt.NDArray[np.int64]
_GRID = ("latitude", "longitude")
_DAY = 24 * HOUR
_WET = 1e-5  # m, of an amount that is not the rounding of a packed field
_WET_HOURS = 12  # that tell sums of the day so far from sums of one hour
_LATE = 10**9  # seconds; later than any window is long


@dataclass(frozen=True)
class TruthSum:
    """How the truth of one variable is computed from its windows.

    Attributes:
        name: of the variable.
        places: by date and step, positions of the windows and their factors; None if a part is
            missing. Positions count along time, or row by row over (time, step).
        gaps: the first missing part in words, by date and step.
        field: the truth, in the unit of an amount.
        is_amount: True for precipitation, whose negative rounding is set to 0.
    """

    name: str
    places: list[list[list[tuple[int, float]] | None]]
    gaps: dict[tuple[int, int], str]
    field: xr.DataArray
    is_amount: bool

    @property
    def has_windows(self) -> npt.NDArray[np.bool_]:
        """Which dates and steps have all parts, shape (time, step)."""
        return np.array([[one is not None for one in row] for row in self.places], dtype=bool)

    def compute(self, times: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]) -> xr.Dataset:
        """Return the truth of some dates and steps, lazily, over (time, step, ...); NaN at gaps."""
        bare = self.field.drop_vars([c for c in self.field.coords if c not in (*_GRID, "level")])
        parts = [self._step(bare, [self.places[i][j] for i in times]) for j in steps.tolist()]
        result = xr.concat(parts, "step", coords="minimal", compat="override")
        return result.assign_attrs(self.field.attrs).to_dataset(name=self.name)

    def _step(
        self, bare: xr.DataArray, places: Sequence[list[tuple[int, float]] | None]
    ) -> xr.DataArray:
        """Return the sums of one step over the dates."""
        rows = [one or [] for one in places]
        parts = np.array(list(zip_longest(*rows, fillvalue=(0, 0.0))))  # (part, date, 2)
        if parts.size:
            index, factors = (xr.DataArray(values, dims=("time", "part")) for values in parts.T)
            selected = chunk_by_date(at_positions(bare, index.astype(np.int64)))
            selected = selected.clip(min=0) if self.is_amount else selected
            is_plain = bool((factors == 1.0).all())
            products = selected if is_plain else (selected * factors).where(factors != 0.0, 0.0)
            total = products.sum("part", skipna=False)
        else:
            dry = bare.isel({d: 0 for d in ("time", "step") if d in bare.dims}) * 0.0
            total = dry.fillna(0.0).expand_dims(time=len(places))
        is_complete = xr.DataArray([one is not None for one in places], dims="time")
        return total.where(is_complete)


def sums_of_truth(
    forecasts: xr.Dataset, truth: xr.Dataset, source: str, *, analyses: bool
) -> list[TruthSum]:
    """Return how the truth of variables with a time window is computed.

    Args:
        forecasts: with `valid_time` over (time, step).
        truth: over (time, ...) or (time, step, ...).
        source: where the truth comes from, for errors.
        analyses: True if the truth has step 0 alone, as GRIB analyses do.

    Returns:
        One for each variable whose truth is not taken as it is.

    Raises:
        ArgumentError: the window of the truth is unknown, or lead times are not in hours.
        FileError: the truth is a rate at one time.
    """
    names = [
        str(n)
        for n in truth.data_vars
        if n in ACCUMULATED or _is_windowed(forecasts, n) or _is_windowed(truth, n)
    ]
    sums = [_sum_of(name, forecasts, truth, source, analyses) for name in names]
    return [one for one in sums if one is not None]


def _is_windowed(forecasts: xr.Dataset, name: Any) -> bool:
    return name in forecasts and stated_window(forecasts[name]) is not None


def _sum_of(
    name: str, forecasts: xr.Dataset, truth: xr.Dataset, source: str, analyses: bool
) -> TruthSum | None:
    field, is_amount = truth[name], name in ACCUMULATED
    text = stated_window(field)
    if text == OF_FORECAST:
        text = _window_of_table(name, forecasts, truth)
    if not (is_amount or _is_windowed(forecasts, name)):
        reason = f"{name} is of the window {text}, that of the forecasts is at one time"
        raise ArgumentError("truth", reason, "Pass the values at the valid times")
    rate = amount_of_rate(str(field.attrs.get("units", ""))) if is_amount else None
    if text is None and analyses and not (_is_hourly(truth) or _is_windowed(forecasts, name)):
        return None
    if _is_taken_as_it_is(name, forecasts, truth, text, rate is not None):
        return None
    if text is None and not (is_amount and _is_hourly(truth)):
        raise _unknown_window_error(name, forecasts)
    if str(forecasts["step"].attrs.get("units", "h")) != "h":
        reason = f"precipitation of every hour, or another window of {name}, and lead times that "
        raise ArgumentError("truth", f"{reason}are not in hours", "Use lead times in hours")
    if rate is not None:
        field = as_amount(field, rate, source)
    method = Method.SUM if is_amount else method_of(forecasts[name]) or Method.OTHER
    plan = _plan(field, forecasts, _windows_of(truth, text or "1 h"), method, rate is not None)
    if text is None:
        _refuse_sums_of_the_day(plan, seconds_of(times_of_truth(truth)).ravel())
    return plan


def _window_of_table(name: str, forecasts: xr.Dataset, truth: xr.Dataset) -> str | None:
    """Return the window of observations in a table, which cannot state it.

    Observations of every hour are sums of one hour (None). Others are those of the forecasts.

    Raises:
        ArgumentError: the forecasts have several windows, and the table has no lead times.
    """
    if "step" in truth.dims or _is_hourly(truth):
        return None
    ends = in_seconds(forecasts["step"].to_numpy())
    stated = stated_window(forecasts[name]) if name in forecasts else None
    windows = [w for w in parse_windows(stated or SINCE_START, ends, Method.SUM) if w.end]
    lengths = {window.end - window.begin for window in windows}
    if len(lengths) > 1:
        raise ArgumentError(
            "truth",
            f"a table gives one {name} at a time, and forecasts of several lead times need "
            "sums of several windows",
            "Add the column step, or prepare one lead time with --steps",
        )
    note = f"{name} of the table is taken to be of the window of the forecasts"
    warnings.warn(note, DataNote, stacklevel=2)
    return f"{lengths.pop() / HOUR:g} h" if lengths else SINCE_START


def _is_taken_as_it_is(
    name: str, forecasts: xr.Dataset, truth: xr.Dataset, text: str | None, is_rate: bool
) -> bool:
    """Return True if the truth is known to be of the forecasts' window already."""
    if text == SINCE_START and "step" not in truth.dims:
        return True
    if text is not None or is_rate or _is_hourly(truth) or _is_windowed(forecasts, name):
        return False
    starts = forecasts.indexes["time"]
    return "step" in truth.dims and bool(truth.indexes["time"].isin(starts).all())


def _is_hourly(truth: xr.Dataset) -> bool:
    available = np.unique(seconds_of(times_of_truth(truth)))
    return available.size > 1 and bool(np.median(np.diff(available)) == HOUR)


def _unknown_window_error(name: str, forecasts: xr.Dataset) -> ArgumentError:
    window = stated_window(forecasts[name]) or f"sum {SINCE_START}"
    if name not in ACCUMULATED:
        reason = f"{name} is not known to be of the window of the forecasts ({window})"
        raise ArgumentError("truth", reason, "Set its attribute window to a length such as '24 h'")
    return ArgumentError(
        "truth",
        f"{name} is not known to be of the window of the forecasts ({window}): in ERA5 it is the "
        "sum of one hour",
        f"Pass the fields of every hour, which are added up, or set the attribute window of {name} "
        f"to '{SINCE_START}' or to a length such as '24 h'",
    )


def _refuse_sums_of_the_day(plan: TruthSum, times: Seconds) -> None:
    """Refuse hourly amounts that look like sums since 00 UTC, as those of ERA5-Land.

    Hourly sums decrease after each shower; sums of the day so far decrease after 00 UTC alone. The
    hours of the first date are compared, of data in memory those of all dates.

    Raises:
        ArgumentError: no amount decreases within a day, and all do after 00 UTC.
    """
    paths = [path for row in plan.places for path in row if path]
    if not plan.field.variable._in_memory:
        paths = paths[:1]
    used = np.unique([n + k for path in paths for n, _ in path for k in (0, 1)])
    used = used[used < times.size].astype(np.int64)
    hours = at_positions(plan.field, xr.DataArray(used, dims="hour")).transpose("hour", ...)
    values = hours.to_numpy()
    is_next = np.diff(times[used]) == HOUR
    is_midnight = times[used][:-1] % _DAY == 0
    is_wet = values[:-1] > _WET
    falls = values[1:] < values[:-1] - _WET / 10
    within, after = is_next & ~is_midnight, is_next & is_midnight
    many = is_wet[within].sum() >= _WET_HOURS and is_wet[after].any()
    if many and not falls[within].any() and falls[after][is_wet[after]].all():
        raise ArgumentError(
            "truth",
            f"{plan.name} of every hour never decreases before 00 UTC and always after it, as sums "
            "since 00 UTC do (ERA5-Land)",
            f"State `accumulation: {{{plan.name}: since 00 UTC}}` in {TRUTH_OPTION} FILE, or, if "
            "these are sums of one hour, `1 h`",
        )


def _windows_of(truth: xr.Dataset, text: str) -> tuple[Seconds, Seconds]:
    """Return begin and end of the truth's windows in seconds since 1970, row by row."""
    ends = seconds_of(times_of_truth(truth))
    if "step" in truth.dims:
        starts = seconds_of(truth["time"])[:, None]
        leads = parse_windows(text, in_seconds(truth["step"].to_numpy()), Method.SUM)
        begins, ends = (
            (starts + np.array([getattr(lead, side) for lead in leads])).ravel()
            for side in ("begin", "end")
        )
        return begins, ends
    if text == SINCE_MIDNIGHT:
        return (ends - 1) // _DAY * _DAY, ends
    if text == SINCE_PREVIOUS_STEP:
        return np.concatenate([ends[:1], ends[:-1]]), ends
    (one,) = parse_windows(text, [_LATE], Method.SUM)
    return ends - (one.end - one.begin), ends


def _plan(
    field: xr.DataArray,
    forecasts: xr.Dataset,
    windows: tuple[Seconds, Seconds],
    method: Method,
    is_rate: bool,
) -> TruthSum:
    """Find the truth's windows that make up each window of the forecasts."""
    name = str(field.name)
    text = stated_window(forecasts[name]) if name in forecasts else None
    leads = parse_windows(text or SINCE_START, in_seconds(forecasts["step"].to_numpy()), method)
    starts, (begins, ends) = seconds_of(forecasts["time"]), windows
    # the truth may be hourly for a century, of which the forecasts need some years
    is_near = ends > starts.min() + min(lead.begin for lead in leads)
    is_near &= begins < starts.max() + max(lead.end for lead in leads)
    near = np.flatnonzero(is_near)
    spans = zip(begins[near].tolist(), ends[near].tolist(), strict=True)
    index = WindowIndex(Window(Method.SUM, begin, end) for begin, end in spans)
    places: list[list[list[tuple[int, float]] | None]] = []
    gaps = {}
    for i, start in enumerate(starts.tolist()):
        places.append([])
        for j, lead in enumerate(leads):
            path = index.cover(start + lead.begin, start + lead.end)
            if path is None or (method not in (Method.SUM, Method.MEAN) and len(path) > 1):
                first = index.reach(start + lead.begin, start + lead.end)
                gaps[i, j] = f": no {name} after {str(np.datetime64(first, 's'))[:16]}"
                places[-1].append(None)
                continue
            path = near[path].tolist()
            lengths = [float(ends[n] - begins[n]) for n in path]
            factors = [1.0] * len(path)
            if is_rate or method == Method.MEAN:
                total = 1.0 if is_rate else sum(lengths)
                factors = [length / total for length in lengths]
            places[-1].append(list(zip(path, factors, strict=True)))
    return TruthSum(name, places, gaps, field, method == Method.SUM)


def times_of_truth(truth: xr.Dataset) -> xr.DataArray:
    """Return the valid times of the truth's fields, over (time,) or (time, step)."""
    return truth["valid_time" if "valid_time" in truth.coords else "time"]


def seconds_of(times: xr.DataArray) -> npt.NDArray[np.int64]:
    """Return dates as seconds since 1970."""
    return times.to_numpy().astype("datetime64[s]").astype(np.int64)


def at_positions(data: Any, index: xr.DataArray) -> Any:
    """Return fields of truth at positions along time, or row by row over (time, step)."""
    if "step" not in data.dims:
        return data.isel(time=index)
    return data.isel(time=index // data.sizes["step"], step=index % data.sizes["step"])


def chunk_by_date(field: xr.DataArray) -> xr.DataArray:
    """Chunk a lazy field by date; a field in memory is unchanged."""
    if field.variable._in_memory:  # public attributes show this for dask arrays only
        return field
    return field.chunk({"time": 1})
