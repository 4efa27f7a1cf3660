"""Protocols: years of the training, validation and test splits, and other rules of an experiment.

`paper` is the protocol of the ENS-10 authors, traps included; `clean` avoids the traps. Both are
YAML files (`experiments/protocols/`); the path of another YAML file works wherever their names do.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ens10.climate import Epsilon, years_of
from ens10.errors import (
    ArgumentError,
    Ens10Error,
    FileError,
    OverlapError,
    UnknownNameError,
    listing,
)
from ens10.grid import Weighting
from ens10.untrusted import parse_yaml

Split = Literal["train", "val", "test"]
SplitBy = Literal["valid", "start"]
NormaliseOn = Literal["train", "all"]
Years = list[int] | int
EfiMethod = Literal["exact", "ecmwf", "ens10-paper"]
_LEVELS = {"ecmwf": 101, "ens10-paper": 21}  # what these methods are defined for
_NAME = re.compile(r"[\w.-]+")  # it becomes part of the names of folders


@dataclass(frozen=True)
class EfiRules:
    """Rules of the extreme forecast index (EFI), and so of the EECRPS.

    Attributes:
        method: "exact", "ecmwf" or "ens10-paper"; see `ens10.metrics.efi`.
        levels: number of evenly spaced quantile levels of the model climate, from 0 to 1.
        years: climate years: "train" for the training years without the judged year, or the number
            of years up to and including the judged year.
        window: number of calendar dates, centred on the start date, that form its climate.
        round: True if that window crosses New Year.

    Raises:
        UnknownNameError: an unknown choice.
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
            raise ArgumentError(
                "efi.window", f"{self.window} dates have no middle", "Use an odd number, such as 9"
            )
        check_type("efi.round", self.round, bool, "true or false")


@dataclass(frozen=True)
class Protocol:
    """Rules of splits, normalisation, weights and scores; the defaults are those of `clean`.

    Attributes:
        name: name in messages, tables and folders.
        test: years of the test split, or their number from the end of the data.
        val: years of the validation split, which selects the best epoch, or their number before
            the test years; "test" selects on the test split, as the authors did.
        train: years of the training split; None for all remaining years.
        normalise_on: "train" or "all": the years of the normalisation statistics.
        epsilon: lower limit of standard deviations in the normalisation, "relative" or "paper";
            see `ens10.climate.normaliser`.
        masks: True to add a mask channel for variables with gaps (sst over land).
        weighting: area weights of loss and scores: "cell", "cos" or "none".
        unbiased: ensemble standard deviation with n - 1 (True) or n.
        split_by: date whose year decides the split: "valid" or "start".
        fair_crps: True to report the fair CRPS of members in addition to the plain one.
        members: ensemble sizes in tables, counted from the first member.
        efi: rules of the EFI, which weights extremes.

    Raises:
        UnknownNameError: an unknown choice.
        ArgumentError: a number out of range, duplicate years, or an invalid name.
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
        """Return True if the best epoch is selected on the test years."""
        return self.val == "test"


def names_of(kind: type[Any]) -> tuple[str, ...]:
    """Return the field names of a dataclass."""
    return tuple(one.name for one in fields(kind))


def check_known(argument: str, choice: object, choices: tuple[str, ...]) -> None:
    """Refuse an unknown choice."""
    if choice not in choices:
        raise UnknownNameError(argument, choice, choices)


def check_type(argument: str, value: object, kind: type[Any], expected: str) -> None:
    """Refuse a value of another type."""
    if not isinstance(value, kind):
        raise ArgumentError(argument, f"{value!r} is not {expected}", "Correct it")


def check_number(argument: str, value: object, least: int) -> None:
    """Refuse a value that is not a whole number, or is less than `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(argument, f"{value!r} is not a whole number", f"Use {least} or more")
    if value < least:
        raise ArgumentError(argument, f"{value} is too few", f"Use {least} or more")


def _check_splits(test: object, val: object, train: object) -> None:
    for argument, years in (("test", test), ("val", val), ("train", train)):
        if isinstance(years, list):
            _check_years(argument, years)
        elif argument == "train":
            check_type(argument, years, type(None), "a list of years, nor null for all others")
        elif argument == "val" and isinstance(years, str):
            check_known(argument, years, ("test",))
        elif isinstance(years, int) and years < 0:
            raise ArgumentError(argument, f"{years} years are not possible", "Use 0 or more")
        else:
            check_number(argument, years, 0)


def _check_years(argument: str, years: list[Any]) -> None:
    for year in years:
        check_number(argument, year, 1)
    twice = sorted({year for year in years if years.count(year) > 1})
    if twice:
        raise ArgumentError(argument, f"{twice[0]} occurs twice", "Name each year once")


# Package data of the experiments, read as files: nothing there is imported.
_FOLDER = Path(__file__).parent / "experiments" / "protocols"
_ENDINGS = (".yaml", ".yml")


def protocol_names() -> tuple[str, ...]:
    """Return the names of the protocols of the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def protocol_of(protocol: str | Path | Mapping[str, Any] | Protocol) -> Protocol:
    """Return a protocol from its name, a YAML file, a mapping of fields, or a `Protocol`.

    Args:
        protocol: "clean" or "paper", a path that ends with .yaml, fields by name, or a `Protocol`.

    Examples:
        >>> from ens10.protocol import protocol_of
        >>> paper = protocol_of("paper")
        >>> paper.test, paper.val, paper.weighting
        (2, 'test', 'none')

    Raises:
        UnknownNameError: no such protocol, field or choice.
        ArgumentError: an invalid value; the message names the field.
        FileError: no such file, or its content is not a mapping.
    """
    if isinstance(protocol, Protocol):
        return protocol
    if isinstance(protocol, Mapping):
        return _made(protocol, "protocol")
    text = str(protocol)
    if text.lstrip().startswith("{"):  # a mapping on the command line
        return _made(_parsed(text, "protocol"), "protocol")
    if text.endswith(_ENDINGS):
        return _of_user(Path(text))
    if text not in protocol_names():
        raise UnknownNameError("protocol", text, [*protocol_names(), "the path of a YAML file"])
    return _of_package(text)


def content_of(protocol: Protocol) -> dict[str, Any]:
    """Return all fields by name, as in a YAML file; the inverse of `protocol_of`."""
    return asdict(protocol)


def reference_of(protocol: str | Path | Mapping[str, Any] | Protocol) -> str | dict[str, Any]:
    """Return the name of a protocol of the package, or the content of any other, for records."""
    rules = protocol_of(protocol)
    packaged = rules.name in protocol_names() and rules == protocol_of(rules.name)
    return rules.name if packaged else content_of(rules)


@cache
def _of_package(name: str) -> Protocol:
    path = _FOLDER / f"{name}.yaml"
    return _made(_parsed(path.read_text(encoding="utf-8"), path), str(path))


def _of_user(path: Path) -> Protocol:
    """Read a protocol from a file, whose stem is the default name; refuse names of the package."""
    if not path.is_file():
        names = ", ".join(protocol_names())
        raise FileError(path, "no such file", f"Pass the path of a protocol, or one of {names}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(path, f"cannot be read ({error})", "Pass a YAML file") from error
    content = {"name": path.stem, **_parsed(text, path)}
    protocol = _made(content, str(path))
    if protocol.name in protocol_names() and protocol != _of_package(protocol.name):
        reason = f"name: {protocol.name!r} is another protocol"
        raise FileError(path, reason, "Choose another name, by `name:` or the name of the file")
    return protocol


def _parsed(text: str, where: Path | str) -> dict[str, Any]:
    try:
        content: Any = parse_yaml(text)
    except ValueError as error:
        raise _wrong(where, f"not valid YAML ({error})") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise _wrong(where, "not a mapping of fields to values")
    return content


def _wrong(where: Path | str, reason: str) -> Ens10Error:
    remedy = "Write for example `test: [2016, 2017]`"
    if isinstance(where, Path):
        return FileError(where, reason, remedy)
    return ArgumentError(where, reason, remedy)


def _made(content: Mapping[str, Any], where: str) -> Protocol:
    """Build a protocol from fields by name; errors name their source."""
    _check_fields(content, names_of(Protocol), where)
    fields = dict(content)
    try:
        efi = fields.get("efi", {})
        if isinstance(efi, Mapping):
            _check_fields(efi, names_of(EfiRules), f"efi of {where}")
            fields["efi"] = EfiRules(**efi)
        return Protocol(**fields)
    except UnknownNameError as error:
        if error.argument.endswith(where):
            raise
        raise UnknownNameError(f"{error.argument} of {where}", error.name, error.known) from error
    except ArgumentError as error:
        raise ArgumentError(where, str(error).removesuffix(".")) from error


def _check_fields(content: Mapping[str, Any], fields: tuple[str, ...], where: str) -> None:
    for key in content:
        if key not in fields:
            raise UnknownNameError(f"field of {where}", key, fields)


@dataclass(frozen=True)
class Splits:
    """Positions of the dates of each split, and the years they come from.

    Attributes:
        years: years of "train", "val" and "test", of valid dates unless split by start.
        index: positions of the dates of each split, in time order.
        outside: positions of dates that belong to no split.
    """

    years: dict[str, list[int]]
    index: dict[str, npt.NDArray[np.int64]]
    outside: npt.NDArray[np.int64] = field(repr=False)


def split_dates(
    protocol: Protocol, time: npt.NDArray[np.datetime64], valid_time: npt.NDArray[np.datetime64]
) -> Splits:
    """Split dates by a protocol, by the year of the valid date (or of the start, `split_by`).

    Counts of years are counted in the years of the start dates, so that a date that is valid in
    the year after the data is not in any split (2018-01-02 in ENS-10).

    Args:
        protocol: the protocol.
        time: shape (n,), start dates.
        valid_time: shape (n,), valid dates of the target.

    Raises:
        OverlapError: two splits share years.
        ArgumentError: a split has no dates.
    """
    own = years_of(valid_time if protocol.split_by == "valid" else time)
    data_years = set(years_of(valid_time).tolist()) & set(years_of(time).tolist())
    years = _years(protocol, sorted(data_years))
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


def _years(protocol: Protocol, data_years: list[int]) -> dict[str, list[int]]:
    left = list(data_years)
    test = _take(protocol.test, left)
    val = test if protocol.val == "test" else _take(protocol.val, left)
    train = left if protocol.train is None else protocol.train
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
