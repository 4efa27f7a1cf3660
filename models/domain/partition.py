"""How the rows or columns of a grid are cut between processes, on every level of a network."""

import math
from itertools import pairwise
from typing import Literal, NamedTuple

from ens10.errors import ArgumentError

Odd = Literal["dropped", "repeated"]


class Level(NamedTuple):
    """One level of a network, seen by one process.

    Attributes:
        total: rows (or columns) of the whole grid.
        start: first one of this process.
        size: how many it has.
        least: fewest that any process has.
        step: largest number of which all processes' first ones are multiples; 0 for any number.
    """

    total: int
    start: int
    size: int
    least: int
    step: int = 0


def parts_of(total: int, parts: int, unit: int = 1) -> list[int]:
    """Where parts begin, and the end of the last: as many bounds as parts, and one.

    All bounds but the end are multiples of `unit`, so that halving a part never looks at another
    one, and every part has at least a unit. The largest part is as small as it can be: it
    determines time and memory. Where that leaves something for each, parts are equal but for the
    last, as chunks of an array are; otherwise they differ by one unit.

    Args:
        total: rows or columns.
        parts: processes.
        unit: see above.

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
        index: of this process, from 0.
        halvings: how often a network halves the grid.
        odd: what becomes of the last of an odd number when it is halved: dropped, or repeated.

    Raises:
        ArgumentError: more parts than fit, see `parts_of`.
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
        """The level on which this process has `size` rows or columns.

        Raises:
            ArgumentError: there is none.
        """
        # a part has at least a unit, so that no two levels have the same size
        return self._level(size, [level.size for level in self.levels])

    def of_total(self, total: int) -> Level:
        """The level on which the whole grid has `total` rows or columns.

        Raises:
            ArgumentError: there is none.
        """
        return self._level(total, [level.total for level in self.levels])

    def room(self, size: int) -> int:
        """Fewest rows or columns that any process has on the level of about `size` here.

        An upsampled field may lack the last one of an odd number.
        """
        if self.parts == 1:
            return size
        return min(self.levels, key=lambda level: abs(level.size - size)).least

    def _level(self, length: int, known: list[int]) -> Level:
        """The level whose entry of `known` is `length`; any, where nothing is split."""
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
