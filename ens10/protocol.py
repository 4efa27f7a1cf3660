"""Which years train, validate and test a model, and what else a protocol fixes.

`paper` is the protocol of the ENS-10 authors, traps included; `clean` avoids the traps. Splits are
by the year of the target's valid date.
"""

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ens10.climate import Epsilon, years_of
from ens10.errors import ArgumentError, OverlapError, UnknownNameError, listing
from ens10.grid import Weighting

Split = Literal["train", "val", "test"]
NormaliseOn = Literal["train", "all"]
Years = list[int] | int


@dataclass(frozen=True)
class Protocol:
    """How data are split, normalised and weighted.

    Attributes:
        name: for messages and tables.
        test: years of the test split, or how many to take from the end of the data.
        val: years of the validation split, or how many to take before the test years; "test"
            selects models on the test split, as the authors did.
        train: years of the training split; None for all that are left.
        normalise_on: "train" or "all": the years that give the normalisation statistics.
        epsilon: how small deviations are kept from blowing up; see `ens10.climate.normaliser`.
        masks: whether variables with gaps (sst over land) get a mask channel.
        weighting: area weights: "cell", "cos" or "none".
        unbiased: ensemble standard deviation with n - 1 (True) or n.

    Raises:
        UnknownNameError: a choice that is not known.
        ArgumentError: a negative number of years.
    """

    name: str = "custom"
    test: Years = 2
    val: Years | Literal["test"] = 1
    train: list[int] | None = None
    normalise_on: NormaliseOn = "train"
    epsilon: Epsilon = "relative"
    masks: bool = True
    weighting: Weighting = "cell"
    unbiased: bool = True

    def __post_init__(self) -> None:
        choices: dict[str, tuple[str, tuple[str, ...]]] = {
            "normalise_on": (self.normalise_on, get_args(NormaliseOn)),
            "epsilon": (self.epsilon, get_args(Epsilon)),
            "weighting": (self.weighting, get_args(Weighting)),
        }
        if isinstance(self.val, str):
            choices["val"] = (self.val, ("test",))
        for argument, (choice, known) in choices.items():
            if choice not in known:
                raise UnknownNameError(argument, choice, known)
        for argument, years in (("test", self.test), ("val", self.val)):
            if isinstance(years, int) and years < 0:
                raise ArgumentError(argument, f"{years} years cannot be taken", "Give 0 or more")


PROTOCOLS = {
    "clean": Protocol(name="clean"),
    "paper": Protocol(
        name="paper",
        val="test",
        normalise_on="all",
        epsilon="paper",
        masks=False,
        weighting="none",
        unbiased=False,
    ),
}


@dataclass(frozen=True)
class Splits:
    """Positions of the dates of each split, and the years they come from.

    Attributes:
        years: valid years of "train", "val", "test".
        index: positions of the dates of each split, in time order.
        outside: positions of dates that belong to no split.
    """

    years: dict[str, list[int]]
    index: dict[str, npt.NDArray[np.int64]]
    outside: npt.NDArray[np.int64] = field(repr=False)


def protocol_of(protocol: str | Protocol) -> Protocol:
    """A protocol by its name, or itself.

    Raises:
        UnknownNameError: no such protocol.
    """
    if isinstance(protocol, Protocol):
        return protocol
    if protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    return PROTOCOLS[protocol]


def split_dates(
    protocol: Protocol, time: npt.NDArray[np.datetime64], valid_time: npt.NDArray[np.datetime64]
) -> Splits:
    """Applies a protocol to dates.

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
    valid_year = years_of(valid_time)
    years = _years(protocol, sorted(set(valid_year.tolist()) & set(years_of(time).tolist())))
    _refuse_overlap(years, protocol.val == "test")
    index = {name: np.flatnonzero(np.isin(valid_year, years[name])) for name in years}
    for name, positions in index.items():
        if years[name] and not positions.size:
            held = f"{valid_year.min()} to {valid_year.max()}"
            raise ArgumentError(
                f"protocol {protocol.name}",
                f"no valid date of the data lies in the {name} years {years[name]}",
                f"The data have {held}",
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
