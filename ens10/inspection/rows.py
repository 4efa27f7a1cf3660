"""One row of the table, and the running sums behind it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS
from ens10.errors import FileError
from ens10.source.ranges import check_range

_MOST = 20  # places named in a status; more are counted

T = TypeVar("T")


class Few(Generic[T]):
    """The first of many things, and how many they are: memory does not grow with damage."""

    def __init__(self) -> None:
        self.first: list[T] = []
        self._count = 0

    def add(self, thing: T, times: int = 1) -> None:
        """Counts one more, or several that are told as one."""
        self._count += times
        if len(self.first) < _MOST:
            self.first.append(thing)

    def __len__(self) -> int:
        return self._count


@dataclass
class Row:
    """One variable on one level, or (with a problem) one file that cannot be read.

    Attributes:
        name: cfgrib's name, or the file's.
        level: such as "surface" or "500 hPa".
        dates: number of start dates.
        first: first start date.
        last: last one.
        steps: lead times.
        members: number of members.
        missing: fields that lack, of all dates x steps x members.
        minimum: of all values.
        mean: of all finite values, unweighted.
        maximum: of all values.
        units: of the values.
        grid: in words.
        status: "ok", or what is wrong, where, and what to do.
        note: what else there is to know.
    """

    name: str
    level: str = ""
    dates: int = 0
    first: str = ""
    last: str = ""
    steps: Sequence[Any] = field(default_factory=list)
    members: int = 0
    missing: int = 0
    minimum: float = np.nan
    mean: float = np.nan
    maximum: float = np.nan
    units: str = ""
    grid: str = ""
    status: str = "ok"
    note: str = ""


class Moments:
    """Running count, sum, minimum and maximum of the fields of one row, and what is odd in them.

    Args:
        name: of the variable, whose range is known if the catalogue has it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.count, self.total = 0, 0.0
        self.minimum, self.maximum = np.inf, -np.inf
        self.empty: Few[str] = Few()
        self.odd: Few[FileError] = Few()
        self.wrong: Few[FileError] = Few()

    def add(self, values: npt.NDArray[np.float32], where: str) -> None:
        """Counts one field.

        Args:
            values: of any shape.
            where: file and place in it, for messages.
        """
        flat = np.ascontiguousarray(values).reshape(-1)
        held, finite, total, low, high = _sweep(flat)
        if not held:
            self.empty.add(where)
            return
        self.count += finite
        self.total += total
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
        try:
            check_range(self.name, low, high, where)
        except FileError as error:
            self.odd.add(error)

    def into(self, row: Row) -> Row:
        """The row with the numbers."""
        if self.minimum <= self.maximum:
            row.minimum, row.maximum = self.minimum, self.maximum
            row.mean = self.total / self.count if self.count else np.nan
        return row

    def problems(self) -> list[str]:
        """What is wrong with the values: not to be read, or not possible."""
        found = [first_of(self.wrong)] if self.wrong else []
        return [*found, first_of(self.odd)] if self.odd else found


@numba.njit(**OPTIONS)
def _sweep(values):  # type: ignore[no-untyped-def]
    """Values that are there, finite ones, their sum, minimum and maximum of all."""
    held, finite, total = 0, 0, 0.0
    low, high = np.inf, -np.inf
    for value in values:
        if np.isnan(value):
            continue
        held += 1
        low, high = min(low, value), max(high, value)
        if np.isfinite(value):
            finite += 1
            total += value
    return held, finite, total, low, high


def first_of(errors: Few[FileError]) -> str:
    """The first error in full, and how many others there are."""
    more = len(errors) - 1
    return str(errors.first[0]) + (f" (And {more} more like it.)" if more else "")


def few(places: Sequence[str] | Few[str]) -> str:
    """The first places, and how many others there are."""
    first = places.first if isinstance(places, Few) else places[:_MOST]
    more = len(places) - len(first)
    return "; ".join(first) + (f"; and {more} more" if more > 0 else "")


def counted(n: int, what: str) -> str:
    """Such as "1 field" and "2 fields"."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def status_of(problems: Sequence[str]) -> str:
    """The problems in one line, "ok" if there are none."""
    return " ".join(p if p.endswith((".", ")")) else f"{p}." for p in problems) or "ok"
