"""Contingency tables at each threshold of probability; the relative operating characteristic."""

import numpy as np
import xarray as xr

from ens10.metrics.events.decomposition import check_sums, table


def contingency_tables(sums: xr.Dataset) -> xr.Dataset:
    """Hits, misses, false alarms and correct negatives, if one warns from each probability on.

    For yes-or-no forecasts (sums with `members=1` of probabilities 0 and 1) the table is the one
    at the threshold 1.

    Args:
        sums: of `event_sums`, merged at will.

    Returns:
        A Dataset of the four sums of weights over `threshold` and the dimensions of `sums`
        without `bin`. A threshold is the lower edge of a bin or a probability: one warns where
        the forecast is that or more; at the last one, infinity, never.

    Raises:
        ArgumentError: not the sums of `event_sums`.
    """
    check_sums(sums)
    events, others = sums["event"], sums["weight"] - sums["event"]
    tables = {
        "hits": _from_each_on(events),
        "misses": _before_each(events),
        "false_alarms": _from_each_on(others),
        "correct_negatives": _before_each(others),
    }
    return table(tables, {"bins": sums.attrs["bins"]})


def roc_curve(sums: xr.Dataset) -> xr.Dataset:
    """Hit rate against false alarm rate, and the area below (Mason 1982).

    The area is by trapezoids. It equals the probability that an event had a higher forecast than
    a non-event, ties counting half (Mann and Whitney), if all probabilities of a bin are equal:
    with `members`, `digits` or "unique" bins. Wider bins make it smaller.

    Args:
        sums: of `event_sums`, merged at will.

    Returns:
        A Dataset of `hit_rate` and `false_alarm_rate` over `threshold` (see
        `contingency_tables`) and the dimensions of `sums` without `bin`, and `area` without
        `threshold`; NaN where the event happened always or never.

    Raises:
        ArgumentError: not the sums of `event_sums`.
    """
    tables = contingency_tables(sums)
    hit_rate, false_alarm_rate = rates(tables)
    first, second = slice(None, -1), slice(1, None)
    width = _at(false_alarm_rate, first) - _at(false_alarm_rate, second)
    height = (_at(hit_rate, first) + _at(hit_rate, second)) / 2
    found = {
        "hit_rate": hit_rate,
        "false_alarm_rate": false_alarm_rate,
        "area": (width * height).sum("threshold", skipna=False),
    }
    return table(found, tables.attrs)


def rates(tables: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """Hit rate and false alarm rate of `contingency_tables`; NaN where 0 is divided by 0."""
    events = tables["hits"] + tables["misses"]
    others = tables["false_alarms"] + tables["correct_negatives"]
    hit_rate = tables["hits"] / events.where(events > 0)
    return hit_rate, tables["false_alarms"] / others.where(others > 0)


def _from_each_on(part: xr.DataArray) -> xr.DataArray:
    """Sums from each bin to the last, and 0 at the end, over thresholds."""
    back = slice(None, None, -1)
    sums = part.isel(bin=back).cumsum("bin", skipna=False).isel(bin=back)
    return _over_thresholds(sums.pad(bin=(0, 1), constant_values=0.0), part)


def _before_each(part: xr.DataArray) -> xr.DataArray:
    """Sums of the bins before each one, and of all at the end, over thresholds."""
    sums = part.cumsum("bin", skipna=False)
    return _over_thresholds(sums.pad(bin=(1, 0), constant_values=0.0), part)


def _over_thresholds(sums: xr.DataArray, part: xr.DataArray) -> xr.DataArray:
    edges = np.append(part["bin"].to_numpy(), np.inf)
    bare = sums.drop_vars(["bin", "bin_upper"], errors="ignore").rename(bin="threshold")
    return bare.assign_coords(threshold=edges)


def _at(array: xr.DataArray, part: slice) -> xr.DataArray:
    return array.isel(threshold=part).drop_vars("threshold")
