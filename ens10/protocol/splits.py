"""Which dates belong to which split: a protocol applied to the dates of data."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ens10.climate import years_of
from ens10.errors import ArgumentError, OverlapError, listing
from ens10.protocol.rules import Protocol, Years


@dataclass(frozen=True)
class Splits:
    """Positions of the dates of each split, and the years they come from.

    Attributes:
        years: of "train", "val", "test"; those of valid dates unless split by start.
        index: positions of the dates of each split, in time order.
        outside: positions of dates that belong to no split.
    """

    years: dict[str, list[int]]
    index: dict[str, npt.NDArray[np.int64]]
    outside: npt.NDArray[np.int64] = field(repr=False)


def split_dates(
    protocol: Protocol, time: npt.NDArray[np.datetime64], valid_time: npt.NDArray[np.datetime64]
) -> Splits:
    """Applies a protocol to dates, by the year of the valid date (or of the start, `split_by`).

    Years given as counts are taken from the years of the start dates, so that the one date that a
    lead time carries into the year after the data is in no split (2018-01-02 in ENS-10).

    Args:
        protocol: the protocol.
        time: shape (n,), start dates.
        valid_time: shape (n,), valid dates of the target.

    Raises:
        OverlapError: two splits share years.
        ArgumentError: a split has no dates.
    """
    own = years_of(valid_time if protocol.split_by == "valid" else time)
    held = set(years_of(valid_time).tolist()) & set(years_of(time).tolist())
    years = _years(protocol, sorted(held))
    _refuse_overlap(years, protocol.selects_on_test())
    index = {name: np.flatnonzero(np.isin(own, years[name])) for name in years}
    for name, positions in index.items():
        if years[name] and not positions.size:
            raise ArgumentError(
                f"protocol {protocol.name}",
                f"no {protocol.split_by} date of the data lies in the {name} years {years[name]}",
                f"The data have {own.min()} to {own.max()}",
            )
    used = np.concatenate(list(index.values()))
    outside = np.setdiff1d(np.arange(len(time)), used)
    return Splits(years, index, outside)


def _years(protocol: Protocol, held: list[int]) -> dict[str, list[int]]:
    left = list(held)
    test = _take(protocol.test, left)
    val = test if protocol.val == "test" else _take(protocol.val, left)
    train = left if protocol.train is None else protocol.train
    if not train:
        raise ArgumentError(
            f"protocol {protocol.name}",
            f"no years are left to train on: the data have {listing([str(y) for y in held])}; "
            f"the test split takes {len(test)} years, the validation split {len(val)}",
            "Use more years, or give the protocol's years",
        )
    return {"train": sorted(train), "val": sorted(val), "test": sorted(test)}


def _take(wanted: Years | str, left: list[int]) -> list[int]:
    """Explicit years, or the last few of those left (all if they are too few): taken away."""
    if isinstance(wanted, list):
        left[:] = [year for year in left if year not in wanted]
        return wanted
    first = max(len(left) - int(wanted), 0)
    taken = left[first:]
    del left[first:]
    return taken


def _refuse_overlap(years: dict[str, list[int]], select_on_test: bool) -> None:
    pairs = [("train", "val"), ("train", "test")]
    if not select_on_test:
        pairs.append(("val", "test"))
    for first, second in pairs:
        shared = sorted(set(years[first]) & set(years[second]))
        if shared:
            raise OverlapError(first, second, shared)
