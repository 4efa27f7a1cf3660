"""Protocols: dates of the training, validation and test splits, and other rules of an experiment.

`paper` is the protocol of the ENS-10 authors, traps included; `clean` avoids the traps. Both are
YAML files (`experiments/protocols/`); the path of another YAML file works wherever their names do.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ens10.climate import Epsilon
from ens10.errors import ArgumentError, Ens10Error, FileError, UnknownNameError
from ens10.grid import Weighting
from ens10.untrusted import parse_yaml

Split = Literal["train", "val", "test"]
SplitBy = Literal["valid", "start"]
NormaliseOn = Literal["train", "all"]
Years = list[int] | int
Dates = Years | float | str | list[str]  # of a split: years, a share of the dates, or periods
SplitKind = Literal["years", "periods", "shares"]
EfiMethod = Literal["exact", "ecmwf", "ens10-paper"]
_LEVELS = {"ecmwf": 101, "ens10-paper": 21}  # what these methods are defined for
_NAME = re.compile(r"\w[\w.-]{0,99}")  # it becomes part of the names of folders
_DAY = r"\d{4}(?:-\d\d(?:-\d\d(?:T\d\d)?)?)?"
_PERIOD = re.compile(f"({_DAY})/({_DAY})")
_PERIOD_EXAMPLE = "a period such as 1998-01-01/2014-12-31"
_MAX_SUM = 1 + 1e-9  # 0.7 + 0.2 + 0.1 is above 1 in floating point


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
        levels = _LEVELS.get(self.method, self.levels)
        if self.levels != levels:
            reason = f"{self.levels}, but the method {self.method} is one of {levels} levels"
            raise ArgumentError("efi.levels", reason, "Change one of the two")
        if isinstance(self.years, str):
            check_known("efi.years", self.years, ("train",))
        else:
            check_number("efi.years", self.years, 1)
        check_number("efi.window", self.window, 1)
        check_window(self.window, "efi.window")
        check_type("efi.round", self.round, bool, "true or false")


@dataclass(frozen=True)
class Protocol:
    """Rules of splits, normalisation, weights and scores; the defaults are those of `clean`.

    The splits are given in one of three ways, the same for all: as years; as periods
    "FIRST/LAST" or lists of them, both ends included, each an ISO date, month or year; or as shares
    of the dates in time order (0.2), counted from the end. Of periods and shares, training comes
    before validation, and validation before test; dates whose truth was not yet available when the
    first forecast of a later split started are dropped (`Splits.gap`).

    Attributes:
        name: name in messages, tables and folders.
        test: dates of the test split; a whole number is a number of years from the end of the data.
        val: dates of the validation split, which selects the best epoch; a whole number is a number
            of years before the test years; "test" selects on the test split, as the authors did.
        train: dates of the training split; None for all that remain.
        normalise_on: "train" or "all": the splits whose dates the normalisation statistics are of.
        epsilon: lower limit of standard deviations in the normalisation, "relative" or "paper";
            see `ens10.climate.normaliser`.
        masks: True to add a mask channel for variables with gaps (sst over land).
        weighting: area weights of loss and scores: "cell", "cos" or "none".
        unbiased: ensemble standard deviation with n - 1 (True) or n.
        split_by: date that decides the split: "valid" or "start".
        fair_crps: True to report the fair CRPS of members in addition to the plain one.
        members: ensemble sizes in tables, counted from the first member.
        efi: rules of the EFI, which weights extremes.

    Raises:
        UnknownNameError: an unknown choice.
        ArgumentError: a number out of range, duplicate years, an invalid period or name, or splits
            that are given in different ways.
    """

    name: str = "custom"
    test: Dates = 2
    val: Dates = 1
    train: list[int] | float | str | list[str] | None = None
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
            remedy = "Use letters, digits, '.', '_' and '-', at most 100, the first no '.' or '-'"
            raise ArgumentError("name", f"{str(self.name)[:100]!r}", remedy)
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
        """Return True if the best epoch is selected on the test split."""
        return self.val == "test"

    @property
    def kind_of_splits(self) -> SplitKind:
        """The form of the dates of the splits: "years", "periods" or "shares"."""
        kinds = (kind_of_dates(dates) for dates in (self.test, self.val, self.train))
        return next((kind for kind in kinds if kind), "years")


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


def check_window(window: int, argument: str = "window") -> None:
    """Refuse a window of dates that has no middle.

    Raises:
        ArgumentError: it is even or less than 1.
    """
    if window < 1 or window % 2 == 0:
        reason = f"{window} dates have no middle"
        raise ArgumentError(argument, reason, "Pass an odd number, such as 9")


def _check_splits(test: object, val: object, train: object) -> None:
    splits = {"test": test, "val": val, "train": train}
    for argument, dates in splits.items():
        if argument == "val" and isinstance(dates, str) and "/" not in dates:
            check_known(argument, dates, ("test",))
        elif kind_of_dates(dates) == "periods":
            for text in dates if isinstance(dates, list) else [dates]:
                period(argument, text)
        elif isinstance(dates, list):
            _check_years(argument, dates)
        elif isinstance(dates, float):
            _check_share(argument, dates)
        elif argument == "train":
            expected = "a list of years, periods or a share of the dates, nor null for all others"
            check_type(argument, dates, type(None), expected)
        elif isinstance(dates, int) and dates < 0:
            raise ArgumentError(argument, f"{dates} years are not possible", "Use 0 or more")
        else:
            check_number(argument, dates, 0)
    _check_kinds(splits)
    shares = [dates for dates in splits.values() if isinstance(dates, float)]
    if sum(shares) > _MAX_SUM:
        reason = f"{' + '.join(map(str, shares))} is more than all dates"
        raise ArgumentError("test, val, train", reason, "Use less")


def kind_of_dates(dates: object) -> SplitKind | None:
    """Return the form of the dates of a split; None for dates that fit every form."""
    if dates in (None, "test", 0):
        return None
    if isinstance(dates, float):
        return "shares"
    texts = dates if isinstance(dates, list) else [dates]
    return "periods" if any(isinstance(text, str) for text in texts) else "years"


def _check_kinds(splits: Mapping[str, object]) -> None:
    kinds = {name: kind for name, dates in splits.items() if (kind := kind_of_dates(dates))}
    if len(set(kinds.values())) > 1:
        texts = [f"{name} is given in {kind} ({splits[name]})" for name, kind in kinds.items()]
        ways = ", ".join(texts)
        remedy = "Give all in years, all in periods, or all in shares"
        raise ArgumentError("test, val, train", ways, remedy)


def _check_share(argument: str, share: float) -> None:
    if not 0 < share < 1:
        reason = f"{share} is not a whole number of years, nor a share of the dates"
        raise ArgumentError(argument, reason, "Use a whole number, or one between 0 and 1")


def period(argument: str, text: object) -> tuple[np.datetime64, np.datetime64]:
    """Return begin and end of a period; the end is the first moment after it.

    Args:
        argument: name for messages.
        text: "FIRST/LAST", both included, each an ISO date, hour, month or year.

    Examples:
        >>> from ens10.protocol import period
        >>> [str(end) for end in period("test", "2016-03/2016-12-31")]
        ['2016-03-01T00:00:00', '2017-01-01T00:00:00']

    Raises:
        ArgumentError: not a period, or one that ends before it begins.
    """
    match = _PERIOD.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ArgumentError(argument, f"{str(text)!r} is not {_PERIOD_EXAMPLE}", "Correct it")
    try:
        first, last = (np.datetime64(end) for end in match.groups())
    except ValueError as error:
        reason = f"{text!r} has a date that does not exist ({error})"
        raise ArgumentError(argument, reason) from error
    begin, end = (moment.astype("datetime64[s]") for moment in (first, last + 1))
    if end <= begin:
        raise ArgumentError(argument, f"{text!r} ends before it begins", "Swap the two dates")
    return begin, end


def _check_years(argument: str, years: list[Any]) -> None:
    for year in years:
        check_number(argument, year, 1)
    duplicates = sorted(year for year, count in Counter(years).items() if count > 1)
    if duplicates:
        raise ArgumentError(argument, f"{duplicates[0]} occurs twice", "Name each year once")


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
        return _build(protocol, "protocol")
    text = str(protocol)
    if text.lstrip().startswith("{"):  # a mapping on the command line
        return _build(_parse(text, "protocol"), "protocol")
    if text.endswith(_ENDINGS):
        return _read_protocol(Path(text))
    if text not in protocol_names():
        raise UnknownNameError("protocol", text, [*protocol_names(), "the path of a YAML file"])
    return _packaged_protocol(text)


def content_of(protocol: Protocol) -> dict[str, Any]:
    """Return all fields by name, as in a YAML file; the inverse of `protocol_of`."""
    return asdict(protocol)


def reference_of(protocol: str | Path | Mapping[str, Any] | Protocol) -> str | dict[str, Any]:
    """Return the name of a protocol of the package, or the content of any other, for records."""
    rules = protocol_of(protocol)
    packaged = rules.name in protocol_names() and rules == protocol_of(rules.name)
    return rules.name if packaged else content_of(rules)


@cache
def _packaged_protocol(name: str) -> Protocol:
    path = _FOLDER / f"{name}.yaml"
    return _build(_parse(path.read_text(encoding="utf-8"), path), str(path))


def _read_protocol(path: Path) -> Protocol:
    """Read a protocol from a file, whose stem is the default name; refuse names of the package."""
    if not path.is_file():
        names = ", ".join(protocol_names())
        raise FileError(path, "no such file", f"Pass the path of a protocol, or one of {names}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(path, f"cannot be read ({error})", "Pass a YAML file") from error
    content = {"name": path.stem, **_parse(text, path)}
    protocol = _build(content, str(path))
    if protocol.name in protocol_names() and protocol != _packaged_protocol(protocol.name):
        reason = f"name: {protocol.name!r} is another protocol"
        raise FileError(path, reason, "Choose another name, by `name:` or the name of the file")
    return protocol


def _parse(text: str, source: Path | str) -> dict[str, Any]:
    try:
        content: Any = parse_yaml(text)
    except ValueError as error:
        raise _content_error(source, f"not valid YAML ({error})") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise _content_error(source, "not a mapping of fields to values")
    return content


def _content_error(source: Path | str, reason: str) -> Ens10Error:
    remedy = "Write for example `test: [2016, 2017]`"
    if isinstance(source, Path):
        return FileError(source, reason, remedy)
    return ArgumentError(source, reason, remedy)


def _build(content: Mapping[str, Any], source: str) -> Protocol:
    """Build a protocol from fields by name; errors name their source."""
    _check_fields(content, names_of(Protocol), source)
    fields = dict(content)
    try:
        efi = fields.get("efi", {})
        if isinstance(efi, Mapping):
            _check_fields(efi, names_of(EfiRules), f"efi of {source}")
            fields["efi"] = EfiRules(**efi)
        return Protocol(**fields)
    except UnknownNameError as error:
        if error.argument.endswith(source):
            raise
        raise UnknownNameError(f"{error.argument} of {source}", error.name, error.known) from error
    except ArgumentError as error:
        raise ArgumentError(source, str(error).removesuffix(".")) from error


def _check_fields(content: Mapping[str, Any], fields: tuple[str, ...], source: str) -> None:
    for key in content:
        if key not in fields:
            raise UnknownNameError(f"field of {source}", key, fields)
