"""Partition of a grid's rows or columns between processes, on every level of a network."""

import math
from itertools import pairwise
from typing import Literal, NamedTuple

from ens10.errors import ArgumentError

Odd = Literal["dropped", "repeated"]


class Level(NamedTuple):
    """Rows or columns of one network level in one process.

    Attributes:
        total: number of rows (or columns) of the whole grid.
        start: first row of this process.
        size: number of rows of this process.
        least: fewest rows of any process.
        step: greatest common divisor of the first rows of all processes; 0 if all are 0.
    """

    total: int
    start: int
    size: int
    least: int
    step: int = 0


def parts_of(total: int, parts: int, unit: int = 1) -> list[int]:
    """Return the bounds of the parts: the first index of each, and the end of the last.

    All bounds but the end are multiples of `unit`, so that halving a part needs no rows of another
    one, and every part has at least one unit. The largest part, which determines time and memory,
    is as small as possible. If no part is empty then, all parts but the last are equal, as chunks
    of an array are; otherwise they differ by one unit.

    Args:
        total: number of rows or columns.
        parts: number of processes.
        unit: rows or columns that stay together.

    Examples:
        >>> from ens10.models.domain.partition import parts_of
        >>> parts_of(361, 4, unit=4)
        [0, 92, 184, 276, 361]

    Raises:
        ArgumentError: more parts than units.
    """
    units = total // unit  # what is left over goes to the last part
    if not 1 <= parts <= units:
        raise ArgumentError(
            "parts",
            f"{total} rows or columns in units of {unit} cannot be cut into {parts} parts",
            f"Use at most {units}, or a network with fewer levels",
        )
    largest = -(-units // parts)
    if largest * (parts - 1) < units:
        starts = [largest * n for n in range(parts)]
    else:
        starts = [n * units // parts + (n * units % parts > 0) for n in range(parts)]
    return [unit * start for start in starts] + [total]


class Cut:
    """One dimension of the grid, cut into parts.

    Args:
        total: rows or columns of the grid.
        parts: processes.
        index: number of this process, from 0.
        halvings: how often a network halves the grid.
        odd: treatment of the last row of an odd number when it is halved: dropped, or repeated.

    Raises:
        ArgumentError: more parts than units of 2^halvings rows or columns.
    """

    def __init__(
        self, total: int, parts: int, index: int, halvings: int = 0, odd: Odd = "dropped"
    ) -> None:
        self.parts, self.index, self.unit = parts, index, 2**halvings
        self.bounds = parts_of(total, parts, self.unit)
        self.levels: list[Level] = []
        bounds = self.bounds
        for _ in range(halvings + 1):
            sizes = [end - start for start, end in pairwise(bounds)]
            step = math.gcd(*bounds[:-1])
            self.levels.append(Level(bounds[-1], bounds[index], sizes[index], min(sizes), step))
            last = bounds[-1] // 2 if odd == "dropped" else -(-bounds[-1] // 2)
            bounds = [start // 2 for start in bounds[:-1]] + [last]

    @property
    def own(self) -> slice:
        """The rows or columns of this process."""
        return slice(self.bounds[self.index], self.bounds[self.index + 1])

    def of_size(self, size: int) -> Level:
        """Return the network level on which this process has `size` rows or columns.

        Raises:
            ArgumentError: there is none.
        """
        # a part has at least a unit, so that no two levels have the same size
        return self._level(size, [level.size for level in self.levels])

    def of_total(self, total: int) -> Level:
        """Return the network level on which the whole grid has `total` rows or columns.

        Raises:
            ArgumentError: there is none.
        """
        return self._level(total, [level.total for level in self.levels])

    def room(self, size: int) -> int:
        """Return the fewest rows or columns of any process on the level with about `size` here.

        An upsampled field may lack the last one of an odd number.
        """
        if self.parts == 1:
            return size
        return min(self.levels, key=lambda level: abs(level.size - size)).least

    def _level(self, length: int, known: list[int]) -> Level:
        """Return the level whose entry of `lengths` is `length`; any length if nothing is split."""
        if self.parts == 1:
            return Level(length, 0, length, length)
        if length in known:
            return self.levels[known.index(length)]
        raise ArgumentError(
            "features",
            f"{length} rows or columns, but the levels of the network have "
            f"{', '.join(map(str, known))} in this process",
            "Set the network's `halvings` to the number of times that it halves the grid, and "
            "`odd` to what it does with the last of an odd number",
        )
