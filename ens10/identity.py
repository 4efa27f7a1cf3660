"""What a field is: the kind of its values, and the time window that they describe.

Two fields are the same if parameter, class of kind, level, window, start and member agree. Units,
experiment version, edition, packing and centre are attributes: they may differ between fields of
one variable, and explain why a field occurs twice. GRIB messages (`ens10.grib.header`) and
variables of xarray (`ens10.source.windows`) are described in these terms.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from ens10.catalog import VARIABLES, names_of_kind
from ens10.channels import step_number
from ens10.errors import ArgumentError

HOUR = 3600  # seconds
Label = int | str  # of a member
# Texts of a window: the last is that of observations in tables, which cannot state it
SINCE_START, SINCE_PREVIOUS_STEP, OF_FORECAST = "since start", "previous step", "of the forecast"
SINCE_MIDNIGHT = "since 00 UTC"  # of truth alone: sums of a day so far, as in ERA5-Land


class FieldKind(StrEnum):
    """The class of a field's values. Control and perturbed forecasts are both members.

    A deterministic field is a forecast or analysis that belongs to no ensemble.
    """

    MEMBER = "member"
    DETERMINISTIC = "deterministic field"
    MEAN = "ensemble mean"
    SPREAD = "ensemble spread"
    QUANTILE = "quantile"
    PROBABILITY = "probability"
    DIFFERENCE = "difference"
    PARAMETER = "parameter of a distribution"
    OBSERVATION = "observation"
    OTHER = "other product"

    @property
    def is_forecast(self) -> bool:
        """True for members and deterministic fields, False for products of an ensemble."""
        return self in (FieldKind.MEMBER, FieldKind.DETERMINISTIC)


# Of a variable with fields of several of these kinds, only those of the first are read
KINDS_READ = (FieldKind.MEMBER, FieldKind.DETERMINISTIC, FieldKind.OBSERVATION)


PRESSURE_LEVELS = {"isobaricInhPa": 1, "isobaricInPa": 100}  # units of the level type in one hPa
_HEIGHTS = ("heightAboveGround", "height", "height_above_ground")
# Types of levels of the air, off pressure levels; the names of other fields tell their place
LEVELS_OF_AIR = (*_HEIGHTS, "heightAboveSea", "hybrid", "sigma", "theta", "potentialVorticity")


def level_in_name(name: str, level_type: str, level: float) -> str:
    """Return what a field's name needs to tell its level; "" on pressure levels.

    Variables on pressure levels are others at a height or at the ground: `u` at 80 m is `u_80m`.

    Args:
        name: of the variable.
        level_type: GRIB's, such as `hybrid`, or the name of a coordinate.
        level: in its units.

    Examples:
        >>> from ens10.identity import level_in_name
        >>> level_in_name("u", "heightAboveGround", 80), level_in_name("z", "surface", 0)
        ('_80m', '_surface')
        >>> level_in_name("u", "isobaricInhPa", 500), level_in_name("t2m", "surface", 0)
        ('', '')
    """
    is_upper = name in names_of_kind("pl") or (
        name not in VARIABLES and level_type in LEVELS_OF_AIR and f"{level:g}" not in name
    )
    if level_type in PRESSURE_LEVELS or not is_upper:
        return ""
    return (
        f"_{level:g}m"
        if level_type in _HEIGHTS
        else f"_{level_type}{f'{level:g}' if level else ''}"
    )


class Method(StrEnum):
    """How the values of a window were computed; the values are those of CF `cell_methods`."""

    POINT = "point"
    SUM = "sum"
    MEAN = "mean"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    RANGE = "range"
    STANDARD_DEVIATION = "standard_deviation"
    OTHER = "other"


class Window(NamedTuple):
    """The time that a field describes, in seconds since its start.

    Attributes:
        method: how its values were computed; a point has one time, `end`.
        begin: first second.
        end: last second.
    """

    method: Method
    begin: int
    end: int

    @classmethod
    def at(cls, time: int) -> "Window":
        """Return the window of a field that is valid at one time."""
        return cls(Method.POINT, time, time)

    @property
    def step(self) -> float:
        """The lead time of its end in hours, an integer if it is whole."""
        return step_number(self.end / HOUR)

    @property
    def hours(self) -> str:
        """Begin and end in words, such as "6-12"."""
        return f"{self.begin / HOUR:g}-{self.end / HOUR:g}"

    def __str__(self) -> str:
        is_point = self.method == Method.POINT
        return f"{self.step} h" if is_point else f"{self.method} of {self.hours} h"


class WindowIndex:
    """Finds the windows that together cover an interval of time.

    Args:
        windows: all that exist; their times may have any origin.
    """

    def __init__(self, windows: Iterable[Window]) -> None:
        self._by_begin: dict[int, list[tuple[int, int]]] = {}
        for n, window in enumerate(windows):
            if window.begin < window.end:
                self._by_begin.setdefault(window.begin, []).append((window.end, n))

    def cover(self, begin: int, end: int) -> list[int] | None:
        """Return the fewest windows that cover an interval without a gap or an overlap.

        Args:
            begin: of the interval, in seconds.
            end: of the interval.

        Returns:
            Positions of the windows, in the order of time; None if no windows cover it.
        """
        return self._paths(begin, end).get(end)

    def reach(self, begin: int, end: int) -> int:
        """Return the latest time up to which windows cover an interval."""
        return max(self._paths(begin, end))

    def _paths(self, begin: int, end: int) -> dict[int, list[int]]:
        """Return the windows that cover the interval from `begin` to each time that they reach."""
        paths: dict[int, list[int]] = {begin: []}
        times = [begin]
        for time in times:  # breadth first: the first path to a time is a shortest
            if time == end:
                break
            for window_end, n in self._by_begin.get(time, []):
                if window_end <= end and window_end not in paths:
                    paths[window_end] = [*paths[time], n]
                    times.append(window_end)
        return paths


def format_windows(windows: Iterable[Window]) -> str:
    """Return the text of windows as it is kept in the attribute `window`: "6 h", "6-12, 12-24 h".

    Sums since the start are "since start".
    """
    windows = list(windows)
    lengths = {window.end - window.begin for window in windows}
    if all(window.begin == 0 for window in windows):
        return SINCE_START
    if len(lengths) == 1:
        return f"{step_number(lengths.pop() / HOUR)} h"
    return ", ".join(window.hours for window in windows) + " h"


_LENGTH = re.compile(r"(\d+(?:\.\d+)?) ?(?:h|hr|hours?)")
_SPANS = re.compile(r"[\d.]+-[\d.]+(?:, [\d.]+-[\d.]+)* h")


def parse_windows(text: str, ends: Sequence[int], method: Method) -> list[Window]:
    """Return the windows of a text, see `format_windows`.

    Args:
        text: "since start", "previous step", a length such as "6 h", or spans "6-12, 12-24 h".
        ends: of the windows, in seconds since the start, ascending.
        method: of the windows.

    Raises:
        ArgumentError: another text, or spans without one of the ends.
    """
    text = text.strip().lower()
    if text == SINCE_START:
        begins = [0] * len(ends)
    elif text == SINCE_PREVIOUS_STEP:
        begins = [0, *ends[:-1]]
    elif match := _LENGTH.fullmatch(text):
        begins = [end - round(float(match[1]) * HOUR) if end else 0 for end in ends]
    else:
        begins = _begins_of_spans(text, ends)
    return [Window(method, begin, end) for begin, end in zip(begins, ends, strict=True)]


def _begins_of_spans(text: str, ends: Sequence[int]) -> list[int]:
    spans: Mapping[int, int] = {}
    if _SPANS.fullmatch(text):
        pairs = [span.strip().split("-") for span in text.removesuffix("h").split(",")]
        spans = {round(float(end) * HOUR): round(float(begin) * HOUR) for begin, end in pairs}
    if not spans or any(end and end not in spans for end in ends):
        raise ArgumentError(
            "window",
            f"{text!r} is no window of the lead times {[step_number(end / HOUR) for end in ends]}",
            f"Write '{SINCE_START}', '{SINCE_PREVIOUS_STEP}', '6 h' or '6-12, 12-24 h'",
        )
    return [spans.get(end, 0) for end in ends]


def member_labels(number: Any) -> list[Label]:
    """Return the labels of members: their texts if the data have such, otherwise their numbers.

    Args:
        number: DataArray of the numbers of members. Its attribute `labels`, if it has one, lists
            the texts of the members 1 to n.
    """
    numbers: list[Label] = number.to_numpy().tolist()
    texts = [str(text) for text in np.atleast_1d(number.attrs.get("labels", [])).tolist()]
    has_texts = len(set(texts)) == len(texts) and set(numbers) <= {*range(1, len(texts) + 1)}
    return [texts[int(n) - 1] for n in numbers] if has_texts and texts else numbers
