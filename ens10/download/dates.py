"""Start dates as they are asked for, and the hours that their forecasts are valid at."""

import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta

from ens10.catalog import MODEL_YEAR, month_days
from ens10.errors import ArgumentError

_REMEDY = "Write all, dates such as 0104 (4 January), or ranges such as 0101-0331"


def start_days(dates: str | Iterable[str]) -> tuple[str, ...]:
    """The start dates asked for, as MMDD in the order of the calendar, each once.

    Args:
        dates: "all", a date as MMDD (or written out, 2018-01-04), a range MMDD-MMDD (both ends
            included, which need not be start dates themselves), several of these separated by
            commas, or an iterable of them.

    Raises:
        ArgumentError: no date, a date that is none of the calendar or of ENS-10, or a range that
            holds no start date.
    """
    texts = [dates] if isinstance(dates, str) else list(dates)
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    if not words:
        raise ArgumentError("dates", "none given", _REMEDY)
    found: set[str] = set()
    for word in words:
        found.update(_days_of(word))
    return tuple(sorted(found))


def _days_of(word: str) -> list[str]:
    known = month_days()
    if word == "all":
        return list(known)
    written_out = re.fullmatch(rf"{MODEL_YEAR}-(\d\d)-(\d\d)", word)
    if written_out:
        word = "".join(written_out.groups())
    first, dash, last = word.partition("-")
    start = _calendar_day(first, word)
    if not dash:
        if first not in known:
            near = sorted(known, key=lambda day: abs(_calendar_day(day, day) - start))[:2]
            raise ArgumentError(
                "dates",
                f"{word!r} is no start date of ENS-10, which starts on the Mondays and Thursdays "
                f"of {MODEL_YEAR}; did you mean {' or '.join(sorted(near))}?",
                _REMEDY,
            )
        return [first]
    end = _calendar_day(last, word)
    days = [day for day in known if start <= _calendar_day(day, day) <= end]
    if not days:
        reason = "ends before it begins" if end < start else "holds no start date of ENS-10"
        raise ArgumentError("dates", f"the range {word!r} {reason}", _REMEDY)
    return days


def _calendar_day(text: str, word: str) -> timedelta:
    """MMDD as the time since the beginning of the year."""
    try:
        if not (len(text) == 4 and text.isascii() and text.isdigit()):
            raise ValueError(text)
        return date(MODEL_YEAR, int(text[:2]), int(text[2:])) - date(MODEL_YEAR, 1, 1)
    except ValueError as error:
        raise ArgumentError(
            "dates", f"{word!r} is no month and day of {MODEL_YEAR}", _REMEDY
        ) from error


def valid_hours(
    days: Sequence[str], years: Sequence[int], steps: Sequence[int]
) -> tuple[datetime, ...]:
    """The hours (UTC) that forecasts are valid at, rising, each once.

    Args:
        days: start dates as MMDD; forecasts start at 00 UTC.
        years: hindcast years.
        steps: lead times in hours.
    """
    starts = [datetime(year, int(day[:2]), int(day[2:])) for year in years for day in days]
    return tuple(sorted({start + timedelta(hours=step) for start in starts for step in steps}))
