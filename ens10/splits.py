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

    Counts of years are counted in the years of the start dates, so that a date that is valid in
    the year after the data is not in any split (2018-01-02 in ENS-10).

    Args:
        protocol: the protocol.
        time: shape (n,), start dates.
        valid_time: shape (n,), valid dates of the target.

    Raises:
        OverlapError: two splits share years or dates.
        ArgumentError: a split has no dates, or comes after a later one.
    """
    time, valid_time = time.astype("datetime64[s]"), valid_time.astype("datetime64[s]")
    own = valid_time if protocol.split_by == "valid" else time
    gap = np.empty(0, np.int64)
    if protocol.kind_of_splits == "years":
        data_years = set(years_of(valid_time).tolist()) & set(years_of(time).tolist())
        years = _years(protocol, sorted(data_years))
        _refuse_overlap(years, protocol.selects_on_test())
        index = {name: np.flatnonzero(np.isin(years_of(own), years[name])) for name in years}
    else:
        by = _by_periods if protocol.kind_of_splits == "periods" else _by_shares
        index = by(protocol, own)
        _refuse_disorder(protocol, index, own)
        index, gap = _without_gap(protocol, index, time, valid_time)
        years = {name: np.unique(years_of(own[index[name]])).tolist() for name in index}
    for name, positions in index.items():
        if years[name] and not positions.size:
            raise ArgumentError(
                f"protocol {protocol.name}",
                f"no {protocol.split_by} date of the data lies in the {name} years {years[name]}",
                f"The data have {years_of(own).min()} to {years_of(own).max()}",
            )
    used = np.concatenate(list(index.values()))
    outside = np.setdiff1d(np.arange(len(time)), used)
    return Splits(years, index, outside, gap)


def _by_periods(protocol: Protocol, own: Times) -> Index:
    """Return positions of the dates in the periods of each split."""
    index = {}
    for name in ("test", "val", "train"):
        dates = getattr(protocol, name)
        texts = dates if isinstance(dates, list) else [dates]
        chosen = np.zeros(own.size, np.bool_)
        for text in texts if kind_of_dates(dates) else []:
            begin, end = period(name, text)
            chosen |= (own >= begin) & (own < end)
        if kind_of_dates(dates) and not chosen.any():
            raise _no_dates(protocol, name, f"lies in {dates}", own)
        index[name] = np.flatnonzero(chosen)
    if protocol.selects_on_test():
        index["val"] = index["test"]
    if protocol.train is None:
        later = np.concatenate([index["val"], index["test"]])
        before = own < own[later].min() if later.size else np.ones(own.size, np.bool_)
        index["train"] = np.flatnonzero(before)
    return {name: index[name] for name in ("train", "val", "test")}


def _by_shares(protocol: Protocol, own: Times) -> Index:
    """Return positions of the dates of each split, counted from the last date."""
    order, index, share, last = np.argsort(own, kind="stable"), {}, 0.0, own.size
    for name in ("test", "val", "train"):
        dates = getattr(protocol, name)
        if name == "train" and dates is None:
            dates = 1 - share
        share += dates if isinstance(dates, float) else 0
        first = own.size - round(share * own.size)
        index[name] = np.sort(order[first:last])
        if isinstance(dates, float) and first == last:
            raise _no_dates(protocol, name, f"is left for a share of {dates:g}", own)
        last = first
    if protocol.selects_on_test():
        index["val"] = index["test"]
    return {name: index[name] for name in ("train", "val", "test")}


def _later(protocol: Protocol, index: Index) -> Index:
    """Return the positions of all splits after "train" and after "val"."""
    after = {"train": np.concatenate([index["val"], index["test"]])}
    return after if protocol.selects_on_test() else {**after, "val": index["test"]}


def _refuse_disorder(protocol: Protocol, index: Index, own: Times) -> None:
    """Refuse splits that share dates, and a split with dates after the first of a later one."""
    for name, later in _later(protocol, index).items():
        for other in ("val", "test"):
            shared = np.intersect1d(index[name], index[other]) if other != name else later[:0]
            if shared.size:
                raise OverlapError(name, other, [str(date)[:13] for date in own[shared]])
        if later.size and index[name].size and own[index[name]].max() > own[later].min():
            raise ArgumentError(
                f"protocol {protocol.name}",
                f"the {name} split has dates up to {str(own[index[name]].max())[:13]}, but a later "
                f"split begins with {str(own[later].min())[:13]}",
                "Order the splits in time: train, val, test; only splits by years may be in "
                "another order",
            )


def _without_gap(
    protocol: Protocol, index: Index, time: Times, valid_time: Times
) -> tuple[Index, Positions]:
    """Drop dates whose truth was not available when the first later forecast started."""
    kept, gap = dict(index), [np.empty(0, np.int64)]
    for name, later in _later(protocol, index).items():
        if later.size and index[name].size:
            known = valid_time[index[name]] <= time[later].min()
            kept[name] = index[name][known]
            gap.append(index[name][~known])
            if not known.any():
                raise _no_dates(
                    protocol, name, "is known when the first forecast of a later split starts",
                    valid_time,
                )  # fmt: skip
    if not kept["train"].size:
        raise _no_dates(protocol, "train", "is left", valid_time)
    return kept, np.concatenate(gap)


def _no_dates(protocol: Protocol, name: str, reason: str, own: Times) -> ArgumentError:
    ends = f"{str(own.min())[:13]} to {str(own.max())[:13]}" if own.size else "no dates"
    return ArgumentError(
        f"protocol {protocol.name}",
        f"no {protocol.split_by} date of the {name} split {reason}",
        f"The data have {ends} ({own.size} dates)",
    )


def _years(protocol: Protocol, data_years: list[int]) -> dict[str, list[int]]:
    left = list(data_years)
    test = _take(cast("Years", protocol.test), left)
    val = test if protocol.val == "test" else _take(cast("Years", protocol.val), left)
    train = left if protocol.train is None else cast("list[int]", protocol.train)
    if not train:
        raise ArgumentError(
            f"protocol {protocol.name}",
            "no years are left to train on: the data have "
            f"{listing([str(y) for y in data_years])}; "
            f"the test split takes {len(test)} years, the validation split {len(val)}",
            "Use more years, or give the protocol's years",
        )
    return {"train": sorted(train), "val": sorted(val), "test": sorted(test)}


def _take(years: Years | str, left: list[int]) -> list[int]:
    """Return explicit years, or the last `years` of those left, and remove them from `left`."""
    if isinstance(years, list):
        left[:] = [year for year in left if year not in years]
        return years
    first = max(len(left) - int(years), 0)
    chosen = left[first:]
    del left[first:]
    return chosen


def _refuse_overlap(years: dict[str, list[int]], select_on_test: bool) -> None:
    pairs = [("train", "val"), ("train", "test")]
    if not select_on_test:
        pairs.append(("val", "test"))
    for first, second in pairs:
        shared = sorted(set(years[first]) & set(years[second]))
        if shared:
            raise OverlapError(first, second, shared)
