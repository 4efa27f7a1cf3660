"""What a protocol fixes, and which values it may have."""

import re
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from ens10.climate import Epsilon
from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import Weighting

Split = Literal["train", "val", "test"]
SplitBy = Literal["valid", "start"]
NormaliseOn = Literal["train", "all"]
Years = list[int] | int
EfiMethod = Literal["exact", "ecmwf", "ens10-paper"]
_LEVELS = {"ecmwf": 101, "ens10-paper": 21}  # what these methods are defined for
_NAME = re.compile(r"[\w.-]+")  # it becomes part of the names of folders


@dataclass(frozen=True)
class EfiRules:
    """How the extreme forecast index, and so the EECRPS, is made.

    Attributes:
        method: "exact", "ecmwf" or "ens10-paper"; see `ens10.metrics.efi`.
        levels: evenly spaced quantile levels of the model climate, from 0 to 1.
        years: of the climate: "train" for the training years without the one judged, or how many
            years that end with the one judged, which is among them.
        window: start dates of the calendar that make up the climate of one, itself in the middle.
        round: whether that window reaches over New Year.

    Raises:
        UnknownNameError: a choice that is not known.
        ArgumentError: numbers out of range; levels that the method is not defined for.
    """

    method: EfiMethod = "exact"
    levels: int = 101
    years: Literal["train"] | int = "train"
    window: int = 9
    round: bool = True

    def __post_init__(self) -> None:
        check_known("efi.method", self.method, get_args(EfiMethod))
        check_number("efi.levels", self.levels, 2)
        needed = _LEVELS.get(self.method, self.levels)
        if self.levels != needed:
            reason = f"{self.levels}, but the method {self.method} is one of {needed} levels"
            raise ArgumentError("efi.levels", reason, "Change one of the two")
        if isinstance(self.years, str):
            check_known("efi.years", self.years, ("train",))
        else:
            check_number("efi.years", self.years, 1)
        check_number("efi.window", self.window, 1)
        if self.window % 2 == 0:
            raise ArgumentError("efi.window", f"{self.window} dates have no middle", "Give 9, say")
        check_type("efi.round", self.round, bool, "true or false")


@dataclass(frozen=True)
class Protocol:
    """How data are split, normalised, weighted and judged; what is left out is that of `clean`.

    Attributes:
        name: for messages, tables and folders.
        test: years of the test split, or how many to take from the end of the data.
        val: years of the validation split, which selects the best epoch, or how many to take
            before the test years; "test" selects on the test split, as the authors did.
        train: years of the training split; None for all that are left.
        normalise_on: "train" or "all": the years that give the normalisation statistics.
        epsilon: how small deviations are kept from blowing up; see `ens10.climate.normaliser`.
        masks: whether variables with gaps (sst over land) get a mask channel.
        weighting: area weights of loss and scores: "cell", "cos" or "none".
        unbiased: ensemble standard deviation with n - 1 (True) or n.
        split_by: whose year decides the split of a date: "valid" or "start".
        fair_crps: whether the fair CRPS of members is told beside the plain one.
        members: sizes of the ensemble that tables are made for, counted from the first member.
        efi: how extremes are weighted.

    Raises:
        UnknownNameError: a choice that is not known.
        ArgumentError: a number out of range, years twice, or a name that no folder can have.
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
    split_by: SplitBy = "valid"
    fair_crps: bool = True
    members: list[int] = field(default_factory=lambda: [5, 10])
    efi: EfiRules = field(default_factory=EfiRules)

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and _NAME.fullmatch(self.name)):
            raise ArgumentError("name", f"{self.name!r}", "Use letters, digits, '.', '_' and '-'")
        check_known("normalise_on", self.normalise_on, get_args(NormaliseOn))
        check_known("epsilon", self.epsilon, get_args(Epsilon))
        check_known("weighting", self.weighting, get_args(Weighting))
        check_known("split_by", self.split_by, get_args(SplitBy))
        for switch in ("masks", "unbiased", "fair_crps"):
            check_type(switch, getattr(self, switch), bool, "true or false")
        check_type("efi", self.efi, EfiRules, "a mapping")
        check_type("members", self.members, list, "a list of numbers such as [5, 10]")
        for size in self.members or [0]:
            check_number("members", size, 2)
        _check_splits(self.test, self.val, self.train)

    def selects_on_test(self) -> bool:
        """Whether the best epoch is that of the test years."""
        return self.val == "test"


def names_of(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass."""
    return tuple(one.name for one in fields(kind))


def check_known(argument: str, choice: object, known: tuple[str, ...]) -> None:
    """Refuses a choice that is not known."""
    if choice not in known:
        raise UnknownNameError(argument, choice, known)


def check_type(argument: str, value: object, kind: type[Any], wanted: str) -> None:
    """Refuses what is of another type."""
    if not isinstance(value, kind):
        raise ArgumentError(argument, f"{value!r} is not {wanted}", "Mend it")


def check_number(argument: str, value: object, least: int) -> None:
    """Refuses what is no whole number, or a small one."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(argument, f"{value!r} is no whole number", f"Give {least} or more")
    if value < least:
        raise ArgumentError(argument, f"{value} is too few", f"Give {least} or more")


def _check_splits(test: object, val: object, train: object) -> None:
    for argument, years in (("test", test), ("val", val), ("train", train)):
        if isinstance(years, list):
            _check_years(argument, years)
        elif argument == "train":
            check_type(argument, years, type(None), "a list of years, nor null for all others")
        elif argument == "val" and isinstance(years, str):
            check_known(argument, years, ("test",))
        elif isinstance(years, int) and years < 0:
            raise ArgumentError(argument, f"{years} years cannot be taken", "Give 0 or more")
        else:
            check_number(argument, years, 0)


def _check_years(argument: str, years: list[Any]) -> None:
    for year in years:
        check_number(argument, year, 1)
    twice = sorted({year for year in years if years.count(year) > 1})
    if twice:
        raise ArgumentError(argument, f"gives {twice[0]} twice", "Give each year once")
