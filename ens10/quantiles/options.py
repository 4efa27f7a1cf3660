"""Options of a model climate, and the start dates that form the climate of another date.

The calendar consists of the month-days of the data, sorted. The window counts dates of the
calendar, not days. The `efi` section of a protocol sets the years, the number of dates in the
window, and whether the window crosses New Year. The judged year is that of the forecast under
evaluation.

Training years (`clean`): dates that are valid, at the step concerned, in a training year. If the
judged year is a climate year, it is left out, with all dates that start within half a year of the
judged date (the same winter, where the window crosses New Year).

A number of years (19 in `paper`): the years that end with the judged year, which is included, as
in the work of the ENS-10 authors. Their files lack 31 December, so that they lost two test dates;
here these are included.

With `round: true` (`clean`) the window of 1 January extends into December, unless the calendar
has a gap over New Year. Otherwise (`paper`) it is cut at both ends of the year.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ens10.channels import step_number
from ens10.climate import years_of
from ens10.errors import ArgumentError
from ens10.protocol import Protocol, check_window, protocol_names, protocol_of
from ens10.splits import split_dates

_STEP = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class ClimateOptions:
    """The model-climate quantiles to keep: every channel at every step.

    Attributes:
        channels: such as "t2m" or "z500".
        steps: lead times in the units of the store.
        levels: number of evenly spaced quantile levels from 0 to 1; None for the protocol's (101,
            or the authors' 21 in `paper`).
        window: number of calendar dates, centred on the start date, that form its climate.
        protocol: name of a protocol, or a `Protocol`; see `ens10.quantiles.options`.

    Raises:
        ArgumentError: no channel or step, an even window, fewer than two levels.
        UnknownNameError: no such protocol.
    """

    channels: tuple[str, ...]
    steps: tuple[float, ...]
    levels: int | None = None
    window: int = 9
    protocol: str | Protocol = "clean"

    def __post_init__(self) -> None:
        if not (self.channels and self.steps):
            raise ArgumentError("climate", "no channel or no step", "Write for example t2m@48")
        quantile_levels(self.levels, self.protocol)
        check_window(self.window)


def parse_climate(
    words: Sequence[str],
    *,
    levels: int | None = None,
    window: int | None = None,
    protocol: str | Protocol = "clean",
) -> ClimateOptions:
    """Parse words such as "t2m@48" or "z500@24,48"; None takes the protocol's value.

    Raises:
        ArgumentError: another form, channels at different steps, or an option out of range.
        UnknownNameError: no such protocol.
    """
    steps_of: dict[str, list[float]] = {}
    for word in words:
        channel, _, steps = word.partition("@")
        parts = steps.split(",")
        if not channel or not all(_STEP.fullmatch(part) for part in parts):
            reason = f"{word!r} is not of the form CHANNEL@STEP"
            raise ArgumentError("climate", reason, "Write t2m@48")
        steps_of.setdefault(channel, []).extend(step_number(part) for part in parts)
    lead_times = {channel: tuple(sorted(set(steps))) for channel, steps in steps_of.items()}
    if len(set(lead_times.values())) > 1:
        text = "; ".join(f"{name} at {', '.join(map(str, s))}" for name, s in lead_times.items())
        reason = f"different steps: {text}"
        raise ArgumentError("climate", reason, "Use the same steps for all channels")
    common = next(iter(lead_times.values()), ())
    rules = protocol_of(protocol)
    reference = protocol if protocol in protocol_names() else rules  # not the path of a file
    return ClimateOptions(tuple(lead_times), common, levels, window or rules.efi.window, reference)


def quantile_levels(levels: int | None, protocol: str | Protocol) -> npt.NDArray[np.float64]:
    """Return evenly spaced levels from 0 to 1; None for the number of the protocol.

    Raises:
        ArgumentError: fewer than two.
        UnknownNameError: no such protocol.
    """
    count = protocol_of(protocol).efi.levels if levels is None else levels
    if count < 2:
        reason = f"{count} quantile levels are too few"
        raise ArgumentError("levels", reason, "Pass 2 or more, such as 101")
    return np.linspace(0.0, 1.0, count)


ANY_YEAR = 0  # judged year of one climate for all years outside the climate years
_HALF_A_YEAR = np.timedelta64(183, "D")
_ANY_LEAP_YEAR = 2000
Dates = npt.NDArray[np.datetime64]


def month_days_of(time: Dates) -> list[str]:
    """Return the month-day of each date, as MMDD."""
    return [text[5:7] + text[8:10] for text in np.datetime_as_string(time, unit="D")]


@dataclass(frozen=True)
class ClimateDates:
    """The dates of a dataset, and the selection of those that form a climate.

    Attributes:
        time: shape (n,), start dates.
        valid_time: shape (n,), their valid dates at one step.
        protocol: its `efi` rules select the years.
        window: number of calendar dates, odd.
    """

    time: Dates
    valid_time: Dates
    protocol: Protocol
    window: int = 9

    @cached_property
    def month_days(self) -> npt.NDArray[np.str_]:
        """Return the month-day of each date; shape (n,)."""
        return np.array(month_days_of(self.time))

    @cached_property
    def calendar(self) -> list[str]:
        """Return the month-days of the data, sorted."""
        return sorted(set(self.month_days.tolist()))

    @cached_property
    def is_training(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the dates that are valid in the training years; shape (n,)."""
        is_training = np.zeros(self.time.size, np.bool_)
        is_training[split_dates(self.protocol, self.time, self.valid_time).index["train"]] = True
        return is_training

    @property
    def rolling_years(self) -> int | None:
        """Return the number of climate years up to the judged year; None for training years."""
        years = self.protocol.efi.years
        return years if isinstance(years, int) else None

    def window_days(self, month_day: str) -> list[str]:
        """Return the month-days of the window around a month-day of the calendar, in order.

        Raises:
            ArgumentError: the calendar does not have it.
        """
        calendar = self.calendar
        if month_day not in calendar:
            remedy = f"It has {len(calendar)} month-days from {calendar[0]} to {calendar[-1]}"
            raise ArgumentError("dates", f"no date of the data starts on {month_day}", remedy)
        half, centre, count = self.window // 2, calendar.index(month_day), len(calendar)
        if not (self.protocol.efi.round and _is_round(calendar)):
            return calendar[max(centre - half, 0) : centre + half + 1]
        if self.window >= count:
            return calendar
        return [calendar[(centre + n) % count] for n in range(-half, half + 1)]

    def eligible(self, judged_year: int = ANY_YEAR) -> npt.NDArray[np.bool_]:
        """Return a mask of the dates in the climate years; shape (n,).

        Args:
            judged_year: valid year of the judged date; needed if the climate years depend on it.
        """
        if self.rolling_years is None or judged_year == ANY_YEAR:
            return self.is_training
        years = years_of(self.time)
        first = judged_year - self.rolling_years
        is_eligible: npt.NDArray[np.bool_] = (years > first) & (years <= judged_year)
        return is_eligible

    def judged_years(self) -> list[int]:
        """Return the years of the test split that need separate climates; [0] for one climate."""
        if self.rolling_years is None:
            return [ANY_YEAR]
        return list(split_dates(self.protocol, self.time, self.valid_time).years["test"])

    def positions(self, month_day: str, eligible: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Return positions of eligible dates in the window around a month-day, in time order."""
        near = np.isin(self.month_days, self.window_days(month_day))
        return np.flatnonzero(near & eligible)

    def climate_dates(self, start: np.datetime64, valid: np.datetime64) -> npt.NDArray[np.int64]:
        """Return positions of the dates that form the climate of one start date.

        Args:
            start: the judged start date; its month-day is in the calendar.
            valid: its valid date.

        Raises:
            ArgumentError: the calendar lacks its month-day, or no date is left.
        """
        year = int(years_of(np.array([valid]))[0])
        eligible = self.eligible(year)
        valid_years = years_of(self.valid_time)
        if self.rolling_years is None and year in valid_years[eligible]:
            is_distant = np.abs(self.time - start) > _HALF_A_YEAR
            eligible = eligible & (valid_years != year) & is_distant
        positions = self.positions(month_days_of(np.array([start]))[0], eligible)
        if not positions.size:
            reason = f"no climate year is left for {str(start)[:10]}"
            raise ArgumentError("dates", reason, "Use more years")
        return positions


def _is_round(calendar: list[str]) -> bool:
    """Return True if the gap over New Year is not longer than other gaps of the calendar."""
    days = [date(_ANY_LEAP_YEAR, int(d[:2]), int(d[2:])).toordinal() for d in calendar]
    over_new_year = days[0] + 366 - days[-1]
    return len(days) == 1 or over_new_year <= 2 * int(np.diff(days).max())
