"""Which start dates, and which ERA5 fields, valid hours and grid spacing to download."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from ens10.catalog import ACCUMULATED, LEVELS_HPA, MODEL_YEAR, VARIABLES, month_days
from ens10.channels import resolve, split
from ens10.errors import ArgumentError

# The same names in ARCO-ERA5 and in the requests of the Climate Data Store.
ERA5_NAMES = {
    "sst": "sea_surface_temperature", "tcw": "total_column_water",
    "tcwv": "total_column_water_vapour", "msl": "mean_sea_level_pressure",
    "tcc": "total_cloud_cover", "u10": "10m_u_component_of_wind", "v10": "10m_v_component_of_wind",
    "t2m": "2m_temperature", "skt": "skin_temperature", "z": "geopotential", "t": "temperature",
    "u": "u_component_of_wind", "v": "v_component_of_wind", "q": "specific_humidity",
    "w": "vertical_velocity", "d": "divergence",
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """Selected fields of ERA5: hours, variables, levels and grid spacing.

    Attributes:
        hours: valid hours (UTC), ascending.
        surface: variables at the surface, by our names.
        upper: variables on levels.
        levels: hPa, of every variable on levels.
        spacing: degrees between grid points.
    """

    hours: tuple[datetime, ...]
    surface: tuple[str, ...]
    upper: tuple[str, ...]
    levels: tuple[int, ...]
    spacing: float

    @property
    def variables(self) -> tuple[str, ...]:
        """All variables, by our names."""
        return self.surface + self.upper

    @property
    def field_count(self) -> int:
        """Number of fields of each hour."""
        return len(self.surface) + len(self.upper) * len(self.levels)


def choose(hours: Sequence[datetime], fields: Sequence[str], spacing: float) -> Choice:
    """Select the fields of ERA5 that contain some channels.

    Every variable on levels is selected at each of the levels, since ERA5 is stored so and a
    dataset is rectangular: z500 and t850 give z and t at 500 and 850 hPa.

    Args:
        hours: valid hours.
        fields: channels such as t2m, 2t, z500 or t_850.
        spacing: degrees between grid points.

    Raises:
        UnknownNameError: a channel that ENS-10 does not have.
        ArgumentError: a channel that cannot be truth, or a spacing that is not positive.
    """
    if not spacing > 0:
        raise ArgumentError("spacing", f"{spacing:g} degrees make no grid", "Give 0.5 or 0.25")
    channels = [name for name, v in VARIABLES.items() if v.kind == "sfc"]
    channels += [f"{n}_{h}" for n, v in VARIABLES.items() if v.kind == "pl" for h in LEVELS_HPA]
    pairs = [split(resolve(channel, channels, "fields")) for channel in fields]
    for name, _ in pairs:
        if name in ACCUMULATED:
            sums = "is the sum of one hour, and that of the forecasts is the sum since the start"
            remedy = "Leave it out, and pass a store of hourly fields to ens10 prepare --truth"
            reason = f"{name} of ERA5 {sums}: every hour would be needed"
            raise ArgumentError("fields", reason, remedy)
    names = {name for name, _ in pairs}
    chosen = [v for v in VARIABLES.values() if v.name in names]
    surface, upper = (tuple(v.name for v in chosen if v.kind == kind) for kind in ("sfc", "pl"))
    levels = tuple(sorted({level for _, level in pairs if level is not None}))
    return Choice(tuple(hours), surface, upper, levels, spacing)


_REMEDY = "Write all, dates such as 0104 (4 January), or ranges such as 0101-0331"


def start_days(dates: str | Iterable[str]) -> tuple[str, ...]:
    """Return start dates as MMDD, in the order of the calendar, each once.

    Args:
        dates: "all", a date as MMDD (or written out, 2018-01-04), a range MMDD-MMDD (both ends
            included, which need not be start dates themselves), several of these separated by
            commas, or an iterable of them.

    Raises:
        ArgumentError: no date, a date that is not in the calendar or not a start date of ENS-10, or
            a range without start dates.
    """
    texts = [dates] if isinstance(dates, str) else list(dates)
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    if not words:
        raise ArgumentError("dates", "none given", _REMEDY)
    days: set[str] = set()
    for word in words:
        days.update(_days_of(word))
    return tuple(sorted(days))


def _days_of(word: str) -> list[str]:
    all_days = month_days()
    if word == "all":
        return list(all_days)
    match = re.fullmatch(rf"{MODEL_YEAR}-(\d\d)-(\d\d)", word)
    if match:
        word = "".join(match.groups())
    first, dash, last = word.partition("-")
    start = _calendar_day(first, word)
    if not dash:
        if first not in all_days:
            nearest = sorted(all_days, key=lambda day: abs(_calendar_day(day, day) - start))[:2]
            reason = (
                f"{word!r} is no start date of ENS-10, which starts on the Mondays and Thursdays "
                f"of {MODEL_YEAR}; did you mean {' or '.join(sorted(nearest))}?"
            )
            raise ArgumentError("dates", reason, _REMEDY)
        return [first]
    end = _calendar_day(last, word)
    days = [day for day in all_days if start <= _calendar_day(day, day) <= end]
    if not days:
        reason = "ends before it begins" if end < start else "holds no start date of ENS-10"
        raise ArgumentError("dates", f"the range {word!r} {reason}", _REMEDY)
    return days


def _calendar_day(text: str, word: str) -> timedelta:
    """Return the day MMDD as the time since the beginning of the year."""
    try:
        if not (len(text) == 4 and text.isascii() and text.isdigit()):
            raise ValueError(text)
        return date(MODEL_YEAR, int(text[:2]), int(text[2:])) - date(MODEL_YEAR, 1, 1)
    except ValueError as error:
        reason = f"{word!r} is no month and day of {MODEL_YEAR}"
        raise ArgumentError("dates", reason, _REMEDY) from error


def valid_hours(
    days: Sequence[str], years: Sequence[int], steps: Sequence[int]
) -> tuple[datetime, ...]:
    """Return the valid times (UTC) of forecasts, ascending, each once.

    Args:
        days: start dates as MMDD; forecasts start at 00 UTC.
        years: hindcast years.
        steps: lead times in hours.
    """
    starts = [datetime(year, int(day[:2]), int(day[2:])) for year in years for day in days]
    return tuple(sorted({start + timedelta(hours=step) for start in starts for step in steps}))
