"""The dates of the training, validation and test splits of a protocol."""

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from ens10.climate import years_of
from ens10.errors import ArgumentError, OverlapError, listing
from ens10.protocol import Protocol, Years, kind_of_dates, period

Times = npt.NDArray[np.datetime64]
Positions = npt.NDArray[np.int64]
Index = dict[str, Positions]


@dataclass(frozen=True)
class Splits:
    """Positions of the dates of each split, and the years they come from.

    Attributes:
        years: years of "train", "val" and "test", of valid dates unless split by start.
        index: positions of the dates of each split, in time order.
        outside: positions of dates that belong to no split.
        gap: those of `outside` that were dropped from a split because their valid time is after
            the start of the first forecast of a later split; empty for splits by years.
    """

    years: dict[str, list[int]]
    index: Index
    outside: Positions = field(repr=False)
    gap: Positions = field(repr=False, default_factory=lambda: np.empty(0, np.int64))


def split_dates(protocol: Protocol, time: Times, valid_time: Times) -> Splits:
    """Split dates by a protocol, by their valid date (or their start, `split_by`).

    Counts of years refer to the years that have both start and valid dates. A date that is valid
    in the year after the data is thus in no split (2018-01-02 in ENS-10).

    Args:
        protocol: the protocol.
        time: shape (n,), start dates.
        valid_time: shape (n,), valid dates of the target.

    Raises:
        OverlapError: two splits share years or dates.
        ArgumentError: a split has no dates; or, except for splits by years, a split has dates after
            the first of a later one.
    """
    time, valid_time = time.astype("datetime64[s]"), valid_time.astype("datetime64[s]")
    dates = valid_time if protocol.split_by == "valid" else time
    gap = np.empty(0, np.int64)
    if protocol.kind_of_splits == "years":
        data_years = set(years_of(valid_time).tolist()) & set(years_of(time).tolist())
        years = _split_years(protocol, sorted(data_years))
        _refuse_overlap(years, protocol.selects_on_test())
        index = {name: np.flatnonzero(np.isin(years_of(dates), years[name])) for name in years}
    else:
        divide = _by_periods if protocol.kind_of_splits == "periods" else _by_shares
        index = divide(protocol, dates)
        if protocol.selects_on_test():
            index["val"] = index["test"]
        index = {name: index[name] for name in ("train", "val", "test")}
        _refuse_disorder(protocol, index, dates)
        index, gap = _without_gap(protocol, index, time, valid_time)
        years = {name: np.unique(years_of(dates[index[name]])).tolist() for name in index}
    for name, positions in index.items():
        if years[name] and not positions.size:
            place = f"the data lies in the {name} years {years[name]}"
            remedy = f"The data have {years_of(dates).min()} to {years_of(dates).max()}"
            raise _error(protocol, f"no {protocol.split_by} date of {place}", remedy)
    inside = np.concatenate(list(index.values()))
    outside = np.setdiff1d(np.arange(len(time)), inside)
    return Splits(years, index, outside, gap)


def _by_periods(protocol: Protocol, times: Times) -> Index:
    """Return the positions of the dates in the periods of each split.

    Without periods for training, the training dates are all before validation and test.
    """
    index = {}
    for name in ("test", "val", "train"):
        dates = getattr(protocol, name)
        texts = dates if isinstance(dates, list) else [dates]
        in_periods = np.zeros(times.size, np.bool_)
        for text in texts if kind_of_dates(dates) else []:
            begin, end = period(name, text)
            in_periods |= (times >= begin) & (times < end)
        if kind_of_dates(dates) and not in_periods.any():
            raise _no_dates_error(protocol, name, f"lies in {dates}", times)
        index[name] = np.flatnonzero(in_periods)
    if protocol.train is None:
        later = np.concatenate([index["val"], index["test"]])
        is_earlier = times < times[later].min() if later.size else np.ones(times.size, np.bool_)
        index["train"] = np.flatnonzero(is_earlier)
    return index


def _by_shares(protocol: Protocol, times: Times) -> Index:
    """Return the positions of the dates of each split, whose shares are counted from the end.

    Without a share for training, the training dates are all that remain.
    """
    order, index, share, last = np.argsort(times, kind="stable"), {}, 0.0, times.size
    for name in ("test", "val", "train"):
        dates = getattr(protocol, name)
        if name == "train" and dates is None:
            dates = 1 - share
        share += dates if isinstance(dates, float) else 0
        first = times.size - round(share * times.size)
        index[name] = np.sort(order[first:last])
        if isinstance(dates, float) and first == last:
            raise _no_dates_error(protocol, name, f"is left for a share of {dates:g}", times)
        last = first
    return index


def _later_positions(protocol: Protocol, index: Index) -> Index:
    """Return the positions in all splits after "train", and in all splits after "val"."""
    after = {"train": np.concatenate([index["val"], index["test"]])}
    return after if protocol.selects_on_test() else {**after, "val": index["test"]}


def _refuse_disorder(protocol: Protocol, index: Index, times: Times) -> None:
    """Refuse splits that share dates, and a split with dates after the first of a later split.

    Raises:
        OverlapError: two splits share dates.
        ArgumentError: the splits are not in the order train, val, test.
    """
    for name, later in _later_positions(protocol, index).items():
        for other in ("val", "test"):
            shared = np.intersect1d(index[name], index[other]) if other != name else later[:0]
            if shared.size:
                raise OverlapError(name, other, [str(date)[:13] for date in times[shared]])
        if later.size and index[name].size and times[index[name]].max() > times[later].min():
            ends = f"{str(times[index[name]].max())[:13]}, but a later split begins with"
            reason = f"the {name} split has dates up to {ends} {str(times[later].min())[:13]}"
            order = "Order the splits in time: train, val, test"
            raise _error(protocol, reason, f"{order}; only splits by years may be in another order")


def _without_gap(
    protocol: Protocol, index: Index, time: Times, valid_time: Times
) -> tuple[Index, Positions]:
    """Drop dates whose truth was not available when the first forecast of a later split started.

    Returns:
        The splits without these dates, and the positions of the dropped dates.
    """
    result, gaps = dict(index), [np.empty(0, np.int64)]
    for name, later in _later_positions(protocol, index).items():
        if later.size and index[name].size:
            is_available = valid_time[index[name]] <= time[later].min()
            result[name] = index[name][is_available]
            gaps.append(index[name][~is_available])
            if not is_available.any():
                raise _no_dates_error(
                    protocol, name, "is known when the first forecast of a later split starts",
                    valid_time,
                )  # fmt: skip
    if not result["train"].size:
        raise _no_dates_error(protocol, "train", "is left", valid_time)
    return result, np.concatenate(gaps)


def _no_dates_error(protocol: Protocol, name: str, reason: str, times: Times) -> ArgumentError:
    ends = f"{str(times.min())[:13]} to {str(times.max())[:13]}" if times.size else "no dates"
    reason = f"no {protocol.split_by} date of the {name} split {reason}"
    remedy = f"The data have {ends} ({times.size} dates)"
    return _error(protocol, reason, remedy)


def _error(protocol: Protocol, reason: str, remedy: str) -> ArgumentError:
    return ArgumentError(f"protocol {protocol.name}", reason, remedy)


def _split_years(protocol: Protocol, data_years: list[int]) -> dict[str, list[int]]:
    """Return the years of each split: those of the protocol, or its counts from the end."""
    remaining_years = list(data_years)
    test = _take_years(cast("Years", protocol.test), remaining_years)
    val = test
    if protocol.val != "test":
        val = _take_years(cast("Years", protocol.val), remaining_years)
    train = remaining_years if protocol.train is None else cast("list[int]", protocol.train)
    if not train:
        counts = f"the test split takes {len(test)} years, the validation split {len(val)}"
        reason = f"the data have {listing([str(y) for y in data_years])}; {counts}"
        remedy = "Use more years, or give the protocol's years"
        raise _error(protocol, f"no years are left to train on: {reason}", remedy)
    return {"train": sorted(train), "val": sorted(val), "test": sorted(test)}


def _take_years(years: Years | str, remaining_years: list[int]) -> list[int]:
    """Return explicit years, or the last `years` of `remaining_years`, and remove them from it."""
    if isinstance(years, list):
        remaining_years[:] = [year for year in remaining_years if year not in years]
        return years
    first = max(len(remaining_years) - int(years), 0)
    last_years = remaining_years[first:]
    del remaining_years[first:]
    return last_years


def _refuse_overlap(years: dict[str, list[int]], select_on_test: bool) -> None:
    pairs = [("train", "val"), ("train", "test")]
    if not select_on_test:
        pairs.append(("val", "test"))
    for first, second in pairs:
        shared = sorted(set(years[first]) & set(years[second]))
        if shared:
            raise OverlapError(first, second, shared)
