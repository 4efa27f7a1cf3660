"""What is asked for of the fields that a set of files holds."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.grib import Meaning, MessageList

_DATE = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d)?)?)?")
HECTOPASCAL = {"isobaricInhPa": 1, "isobaricInPa": 100}  # units of the level type in one hPa


def level_of(meaning: Meaning) -> float | None:
    """The level in hPa, None off pressure levels."""
    units = HECTOPASCAL.get(meaning.level_type)
    return None if units is None else meaning.level / units


@dataclass(frozen=True)
class MessageSelection:
    """The fields asked for; None asks for all.

    Attributes:
        variables: cfgrib's names, or GRIB short names.
        levels: in hPa; fields off pressure levels are not concerned.
        steps: hours.
        numbers: members; a message that names no member is member 0.
        dates: start dates as ISO dates, years or months, or FIRST:LAST, both included.
    """

    variables: Sequence[str] | None = None
    levels: Sequence[float] | None = None
    steps: Sequence[float] | None = None
    numbers: Sequence[int] | None = None
    dates: Sequence[str | date | np.datetime64] | None = None

    def of(self, messages: MessageList) -> MessageList:
        """The messages asked for.

        Raises:
            UnknownNameError: something asked for is in none of the messages.
            ArgumentError: an empty list, a date that is none, or levels of surface fields alone.
            MissingDataError: each thing asked for is there, but no message has all of them.
        """
        if all(asked is None for asked in vars(self).values()):
            return messages
        for name, asked in vars(self).items():
            if asked is not None and not len(asked):
                raise ArgumentError(name, "nothing is asked for", "Leave it out to ask for all")
        kept = self._by_variable(messages)
        held = kept.meanings
        ids = kept.records["meaning"]
        keep = np.ones(len(kept), dtype=bool)
        if self.levels is not None:
            levels = [level_of(meaning) for meaning in held]
            known = sorted({level for level in levels if level is not None})
            if not known:
                reason = "no variable asked for lies on pressure levels"
                raise ArgumentError("levels", reason, "Leave the levels out")
            asked_levels = _checked("levels", [float(level) for level in self.levels], known)
            keep &= np.array([level is None or level in asked_levels for level in levels])[ids]
        if self.steps is not None:
            steps = [meaning.step for meaning in held]
            asked_steps = _checked("steps", self.steps, sorted(set(steps)))
            keep &= np.isin(steps, list(asked_steps))[ids]
        if self.numbers is not None:
            numbers = np.maximum(kept.records["number"], 0)
            asked_numbers = _checked("members", self.numbers, np.unique(numbers).tolist())
            keep &= np.isin(numbers, list(asked_numbers))
        if self.dates is not None:
            keep &= _at_dates(kept.records["time"], self.dates)
        if not keep.any():
            what = "a field with the variables, levels, steps, members and dates asked for"
            raise MissingDataError(messages.paths[0].parent, [what], "Ask for less at a time")
        return kept.take(keep)

    def _by_variable(self, messages: MessageList) -> MessageList:
        if self.variables is None:
            return messages
        names = {meaning.name: meaning.name for meaning in messages.meanings}
        aliases = {meaning.short_name: meaning.name for meaning in messages.meanings} | names
        for name in self.variables:
            if name not in aliases:
                raise UnknownNameError("variables", name, sorted(names))
        asked = {aliases[name] for name in self.variables}
        of_meaning = np.array([meaning.name in asked for meaning in messages.meanings])
        return messages.take(of_meaning[messages.records["meaning"]])


def _checked(argument: str, asked: Iterable[Any], known: Sequence[Any]) -> set[Any]:
    wanted = set(asked)
    for value in sorted(wanted):
        if value not in known:
            raise UnknownNameError(argument, value, [f"{one:g}" for one in known])
    return wanted


def _at_dates(
    seconds: npt.NDArray[np.int64], dates: Sequence[str | date | np.datetime64]
) -> npt.NDArray[np.bool_]:
    known, which = np.unique(seconds, return_inverse=True)
    keep = np.zeros(len(known), dtype=bool)
    # a datetime64 is written to the second, dates are told apart by the hour
    written = [asked if isinstance(asked, str) else str(asked)[:13] for asked in dates]
    keep[chosen_dates(known.astype("datetime64[s]"), written)] = True
    return keep[which]


def chosen_dates(times: npt.NDArray[np.datetime64], wanted: Sequence[str]) -> list[int]:
    """Places of the start dates wanted; ISO dates compare as text, whatever part is given.

    Args:
        times: shape (time,).
        wanted: ISO dates, years or months, or FIRST:LAST, both included.

    Raises:
        ArgumentError: no date, or the range is empty.
        UnknownNameError: no start date is meant.
    """
    starts = [str(time)[:19] for time in times]
    chosen: set[int] = set()
    for item in wanted:
        first, colon, last = item.partition(":")
        last = last if colon else first
        if not all(_DATE.fullmatch(end) for end in (first, last)):
            remedy = "Write 2016-01-04, 2016-01, 2016, or FIRST:LAST"
            raise ArgumentError("dates", f"{item!r} is no date", remedy)
        found = [
            n
            for n, start in enumerate(starts)
            if start[: len(first)] >= first and start[: len(last)] <= last
        ]
        if not found:
            raise UnknownNameError("dates", item, [start[:10] for start in starts])
        chosen.update(found)
    return sorted(chosen)
