"""Rows of the inspection table, the statistics of their fields, and the phrases of their status."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS
from ens10.errors import FileError
from ens10.source.units import check_range

_MAX_EXAMPLES = 20  # places named in a status; more are only counted

T = TypeVar("T")


class Examples(Generic[T]):
    """The first few of many items, and the number of all.

    Memory is bounded, however much of a file is damaged.

    Attributes:
        items: the first items.
    """

    def __init__(self) -> None:
        self.items: list[T] = []
        self._count = 0

    def add(self, item: T, times: int = 1) -> None:
        """Add an item, counted `times` times."""
        self._count += times
        if len(self.items) < _MAX_EXAMPLES:
            self.items.append(item)

    def __len__(self) -> int:
        return self._count


@dataclass
class Row:
    """One row of the inspection table: a variable on one level, or a file that cannot be read.

    Attributes:
        name: cfgrib's name, or the file's.
        level: such as "surface" or "500 hPa".
        dates: number of start dates.
        first_date: first start date.
        last_date: last start date.
        steps: lead times.
        members: number of members.
        missing: number of missing fields, of all dates x steps x members.
        minimum: of all values, in `units`.
        mean: of all finite values, in `units`, without area weights.
        maximum: of all values, in `units`.
        units: of the values.
        grid: size and edges in words, such as "361 x 720, 90 to -90 N, 0 to 359.5 E".
        status: "ok", or what is wrong, where, and what to do.
        note: further information.
    """

    name: str
    level: str = ""
    dates: int = 0
    first_date: str = ""
    last_date: str = ""
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


class FieldStatistics:
    """Running minimum, mean and maximum of the fields of one row, and its faulty fields.

    Args:
        name: of the variable; values are compared with its plausible range if the catalogue has it.

    Attributes:
        empty_fields: places of fields without any value.
        range_errors: errors about values outside the plausible range.
        read_errors: errors about fields that cannot be read.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._count, self._sum = 0, 0.0
        self._minimum, self._maximum = np.inf, -np.inf
        self.empty_fields: Examples[str] = Examples()
        self.range_errors: Examples[FileError] = Examples()
        self.read_errors: Examples[FileError] = Examples()

    def add(self, values: npt.NDArray[np.float32], where: str) -> None:
        """Add the values of one field.

        Args:
            values: of any shape; NaN is a missing value.
            where: file and place in it, for messages.
        """
        flat = np.ascontiguousarray(values).reshape(-1)
        present, finite, total, low, high = _statistics(flat)
        if not present:
            self.empty_fields.add(where)
            return
        self._count += finite
        self._sum += total
        self._minimum, self._maximum = min(self._minimum, low), max(self._maximum, high)
        try:
            check_range(self.name, low, high, where)
        except FileError as error:
            self.range_errors.add(error)

    def fill(self, row: Row) -> Row:
        """Write minimum, mean and maximum to a row, and return it."""
        if self._minimum <= self._maximum:
            row.minimum, row.maximum = self._minimum, self._maximum
            row.mean = self._sum / self._count if self._count else np.nan
        return row

    def problems(self) -> list[str]:
        """Return descriptions of unreadable fields and implausible values."""
        return [format_errors(errors) for errors in (self.read_errors, self.range_errors) if errors]


@numba.njit(**OPTIONS)
def _statistics(values):  # type: ignore[no-untyped-def]
    """Return the number of values, of finite ones, their sum, and minimum and maximum of all.

    One pass: five numpy reductions would read a field from memory five times.
    """
    present, finite, total = 0, 0, 0.0
    low, high = np.inf, -np.inf
    for value in values:
        if np.isnan(value):
            continue
        present += 1
        low, high = min(low, value), max(high, value)
        if np.isfinite(value):
            finite += 1
            total += value
    return present, finite, total, low, high


def format_errors(errors: Examples[FileError]) -> str:
    """Format the first error in full, and the number of others."""
    more = len(errors) - 1
    return str(errors.items[0]) + (f" (And {more} more like it.)" if more else "")


def format_places(places: Sequence[str] | Examples[str]) -> str:
    """Format the first places, and the number of others."""
    first = places.items if isinstance(places, Examples) else places[:_MAX_EXAMPLES]
    more = len(places) - len(first)
    return "; ".join(first) + (f"; and {more} more" if more > 0 else "")


def format_count(n: int, noun: str) -> str:
    """Format a count, such as "1 field" and "2 fields"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def format_status(problems: Sequence[str]) -> str:
    """Join the descriptions of problems to one line; "ok" if there are none."""
    return " ".join(p if p.endswith((".", ")")) else f"{p}." for p in problems) or "ok"
