"""Time windows of variables: sums of precipitation since the start, from whatever a file has.

A file may have sums since the start (ECMWF), sums of intervals (GEFS, ERA5), or mean rates since
the step before (kg m-2 s-1). The attribute `window` of a variable states which: "since start",
"previous step", a length such as "6 h", or spans "6-12, 12-24 h"; `accumulation` is an alias.
Without it, precipitation is the sum since the start, and a rate the mean since the step before.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from ens10.catalog import ACCUMULATED, VARIABLES
from ens10.errors import FileError
from ens10.grib.header import METHODS
from ens10.identity import (
    HOUR,
    SINCE_PREVIOUS_STEP,
    SINCE_START,
    Method,
    Window,
    WindowIndex,
    format_windows,
    parse_windows,
)
from ens10.source.names import recognise_dimensions, recognise_variables
from ens10.source.units import amount_of_rate

_ATTRIBUTES = ("window", "accumulation")


class Recipe(NamedTuple):
    """How the field of a step is computed from the fields of a variable's windows.

    Attributes:
        window: of the result.
        parts: position of each window, and its factor; the result is the sum of the products, and 0
            if there are none.
    """

    window: Window
    parts: tuple[tuple[int, float], ...]

    @property
    def is_copy(self) -> bool:
        """True if the result is the field of one window, unchanged."""
        return len(self.parts) == 1 and self.parts[0][1] == 1.0


def recipes(
    name: str, windows: Sequence[Window], ends: Sequence[int], *, join: bool = True
) -> list[Recipe | None]:
    """Return how the field of each step is computed.

    Precipitation becomes the sum since the start at all steps, or, if the windows do not cover the
    time from the start to each step, the sum over the longest window that ends there. At the start
    itself it is zero, with or without a window. Other variables keep the longest window.

    Args:
        name: of the variable.
        windows: of the variable's fields.
        ends: lead times of the steps, in seconds.
        join: False for truth, whose shortest windows are kept to be summed later.

    Returns:
        A recipe for each step; None where no window ends.
    """
    is_amount = name in ACCUMULATED
    by_end: dict[int, int] = {}
    for n, window in enumerate(windows):
        other = by_end.setdefault(window.end, n)
        longer = window.begin < windows[other].begin
        if longer == join and window.begin != windows[other].begin:
            by_end[window.end] = n
    index = WindowIndex(windows)
    paths = {end: index.cover(0, end) for end in ends if end in by_end} if join else {}
    if not is_amount or not join or None in paths.values():
        paths = {end: [by_end[end]] for end in ends if end in by_end}
    result: list[Recipe | None] = []
    for end in ends:
        path = paths.get(end)
        if is_amount and end == 0:
            path = [by_end[0]] if 0 in by_end else []
        if path is None:
            result.append(None)
            continue
        begin = windows[path[0]].begin if path else 0
        method = windows[path[0]].method if path and not is_amount else Method.SUM
        parts = tuple((n, _factor(windows[n], is_amount)) for n in path)
        result.append(Recipe(Window(method, begin, end), parts))
    return result


def _factor(window: Window, is_amount: bool) -> float:
    """Return the seconds of a window whose field is a mean rate, 1 for other fields."""
    is_rate = is_amount and window.method == Method.MEAN and window.begin < window.end
    return float(window.end - window.begin) if is_rate else 1.0


def window_text(recipes: Sequence[Recipe | None]) -> str:
    """Return the attribute `window` of fields that were computed by recipes."""
    windows = [recipe.window for recipe in recipes if recipe is not None]
    return format_windows([window for window in windows if window.end] or windows)


def method_of(field: xr.DataArray) -> Method | None:
    """Return how values were computed over time; None if it is not stated.

    CF `cell_methods` states it, or the attribute that cfgrib writes.
    """
    text = str(field.attrs.get("cell_methods", ""))
    for part in text.split("time:")[1:]:
        word = part.split()[0] if part.split() else ""
        if word in set(Method):
            return Method(word)
    return METHODS.get(str(field.attrs.get("GRIB_stepType")))


def with_methods_in_names(dataset: xr.Dataset, mapped: Collection[str]) -> xr.Dataset:
    """Return a dataset whose means and extremes over time have the method in their names.

    As in GRIB, the daily maximum of `t2m` is `t2m_maximum`.

    Args:
        dataset: with our names.
        mapped: our names that a mapping of the user gave, which are kept.
    """
    table = {}
    for name, field in dataset.data_vars.items():
        method, is_rate = method_of(field), amount_of_rate(str(field.attrs.get("units", "")))
        usual = {None, Method.POINT}
        if name in ACCUMULATED:
            usual |= {Method.MEAN if is_rate else Method.SUM}
        if name in VARIABLES and name not in mapped and method not in usual:
            table[name] = f"{name}_{method}"
    return dataset.rename({old: new for old, new in table.items() if new not in dataset})


def stated_window(field: xr.DataArray) -> str | None:
    """Return the window that the attributes of a variable state, None if they state none."""
    return next((str(field.attrs[key]) for key in _ATTRIBUTES if key in field.attrs), None)


def in_seconds(steps: Any) -> list[int]:
    """Return lead times in hours as whole seconds."""
    return [int(s) for s in np.rint(np.asarray(steps, np.float64) * HOUR).tolist()]


def with_windows_of_bounds(dataset: xr.Dataset, source: Path | str) -> xr.Dataset:
    """Set the attribute `window` of sums, means and extremes whose times have CF bounds.

    Without `cell_methods`, CF takes amounts such as precipitation for sums over the bounds, and
    other values for those of the time itself.

    Args:
        dataset: with the names of its file.
        source: where it comes from, for errors.

    Raises:
        FileError: the times of a sum are not the ends of their bounds.
    """
    windows: dict[str, xr.DataArray] = {}
    ours = recognise_variables(dataset.rename(recognise_dimensions(dataset)))
    for name, field in dataset.data_vars.items():
        is_amount = ours.get(str(name), name) in ACCUMULATED and method_of(field) is None
        if method_of(field) in (None, Method.POINT) and not is_amount:
            continue
        if stated_window(field) is not None:
            continue
        for coordinate in field.coords.values():
            bounds = coordinate.attrs.get("bounds")
            if bounds in dataset and coordinate.dtype.kind in "mM":
                text = _text_of_bounds(coordinate, dataset[bounds], _reference(dataset), source)
                windows[str(name)] = field.assign_attrs(window=text)
    return dataset.assign(windows)


def _reference(dataset: xr.Dataset) -> Any:
    """Return the only start of a run, by its CF standard name; None if there is none."""
    starts = [
        variable.to_numpy()
        for name, variable in dataset.variables.items()
        if variable.attrs.get("standard_name", name) == "forecast_reference_time"
    ]
    return starts[0] if len(starts) == 1 and starts[0].ndim == 0 else None


def _text_of_bounds(
    coordinate: xr.DataArray, bounds: xr.DataArray, reference: Any, source: Path | str
) -> str:
    begin, end = np.moveaxis(bounds.to_numpy(), -1, 0)
    lengths = np.unique(np.atleast_1d(end - begin) / np.timedelta64(1, "h"))
    if not np.array_equal(end, coordinate.to_numpy()):
        raise FileError(
            source,
            f"the values of {coordinate.name} are not the ends of their bounds",
            "Write them as the ends of the time windows",
        )
    if lengths.size == 1:
        return f"{lengths[0]:g} h"
    if coordinate.dtype.kind == "M" and np.unique(begin).size == 1:
        return SINCE_START
    if coordinate.dtype.kind == "M" and reference is None:
        reason = f"the bounds of {coordinate.name} have different lengths, and no start is stated"
        raise FileError(source, reason, "Add forecast_reference_time")
    start = reference if coordinate.dtype.kind == "M" else np.timedelta64(0, "h")
    first, last = (np.atleast_1d((ends - start) / np.timedelta64(1, "h")) for ends in (begin, end))
    return ", ".join(f"{b:g}-{e:g}" for b, e in zip(first, last, strict=True)) + " h"


def with_sums(dataset: xr.Dataset, source: Path | str) -> xr.Dataset:
    """Return forecasts whose precipitation is the sum since the start where the windows allow it.

    Args:
        dataset: with `step` in hours; other datasets are unchanged.
        source: where it comes from, for errors.

    Raises:
        FileError: precipitation is a rate at one time, not over a window.
        ArgumentError: the attribute `window` cannot be read.
    """
    if "step" not in dataset.dims or str(dataset["step"].attrs.get("units", "h")) != "h":
        return dataset
    amounts = [n for n, f in dataset.data_vars.items() if n in ACCUMULATED and "step" in f.dims]
    return dataset.assign({name: _sum_since_start(dataset[name], source) for name in amounts})


def _sum_since_start(field: xr.DataArray, source: Path | str) -> xr.DataArray:
    text, rate = stated_window(field), amount_of_rate(str(field.attrs.get("units", "")))
    ends = in_seconds(field["step"].to_numpy())
    if rate is not None:
        field = as_amount(field, rate, source)
    elif text is None or text == SINCE_START:
        return _zero_at_start(field, ends)
    method = Method.SUM if rate is None else Method.MEAN
    windows = parse_windows(text or SINCE_PREVIOUS_STEP, ends, method)
    plan = recipes(str(field.name), windows, ends)
    if 0 not in ends and all(recipe is not None and recipe.is_copy for recipe in plan):
        result = field
    else:
        parts = [_compute(field, recipe) for recipe in plan if recipe is not None]
        result = xr.concat(parts, "step", coords="minimal", compat="override")
        result = result.assign_coords(step=field["step"]).transpose(*field.dims)
    bare = {k: v for k, v in field.attrs.items() if k not in _ATTRIBUTES}
    result.attrs = {**bare, "window": window_text(plan)}
    return result


def as_amount(field: xr.DataArray, rate: tuple[str, float], source: Path | str) -> xr.DataArray:
    """Return a mean rate in the unit of its amount per second.

    Args:
        field: the rate.
        rate: unit of the amount, and seconds in the rate's unit of time.
        source: where it comes from, for errors.

    Raises:
        FileError: it is a rate at one time.
    """
    if method_of(field) == Method.POINT:
        raise FileError(
            source,
            f"{field.name} is a rate at one time, which gives no sum of a window",
            "Leave it out with --variables, or use sums or mean rates",
        )
    unit, seconds = rate
    words = ("units", "standard_name", "long_name", "cell_methods")
    attributes = {k: v for k, v in field.attrs.items() if k not in words}
    result = field if seconds == 1.0 else field.astype(np.float64) / seconds
    return result.drop_attrs(deep=False).assign_attrs({**attributes, "units": unit})


def _compute(field: xr.DataArray, recipe: Recipe) -> xr.DataArray:
    """Return the field of one step, float32, summed in float64."""
    if recipe.window.end == 0:  # whatever the file has there, which may be missing
        return xr.zeros_like(field.isel(step=0, drop=True), dtype=np.float32)
    places, factors = zip(*recipe.parts, strict=True)
    parts = field.isel(step=list(places)).astype(np.float64)
    weights = xr.DataArray(np.array(factors), dims="step")
    return (parts * weights).sum("step", skipna=False).astype(np.float32)


def _zero_at_start(field: xr.DataArray, ends: Sequence[int]) -> xr.DataArray:
    """Replace missing values at the start by 0: nothing has fallen yet."""
    if 0 not in ends:
        return field
    later = xr.DataArray(np.array(ends) != 0, dims="step")
    return field.where(later | field.notnull(), np.float32(0))
