"""The part of the grid that this process computes, and its partition on every level of a network.

By default this is the whole grid. `ens10.models.parallel` sets another domain while samples are
split between processes. Layers that need neighbours or sums over the grid take them from the
domain, so that the same layer runs on the whole grid and on a part:

    domain = current()
    wide = domain.pad(fields, Sides(1, 1, 1, 1), Edges("replicate", "circular"))
    mean = domain.sum(fields.sum((-2, -1))) / math.prod(domain.shape(fields))

A module that is used so declares `splittable = True` in its class; others are refused when samples
are split (`ens10.models.parallel.supported_modules`).

`Domain` is the interface, `Whole` the whole grid, `Places` patches or points of it. `Cut` and
`Level` describe how rows or columns are divided between processes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ens10.errors import ArgumentError
from ens10.models.around import convolve_around
from ens10.models.extend import Edges, Sides, extend

__all__ = [
    "Cut",
    "Domain",
    "Edges",
    "Level",
    "Odd",
    "Places",
    "Sides",
    "Whole",
    "current",
    "parts_of",
    "use",
]


class Domain(ABC):
    """The part of the grid that this process holds.

    Fields are tensors (..., h, w) of this process's part, on any level of a network; maps are
    tensors (..., H, W) of the whole grid, such as parameters with a value at each point.

    Attributes:
        size: number of processes that hold parts of the same samples.
    """

    size: int = 1

    @property
    def is_split(self) -> bool:
        """True if several processes hold parts of the same samples."""
        return self.size > 1

    @abstractmethod
    def shape(self, fields: Tensor) -> tuple[int, int]:
        """Return rows and columns of the whole grid, on the network level of `fields`."""

    def map_shape(self, fields: Tensor) -> tuple[int, int]:
        """Return rows and columns of the maps that `part` and `of_samples` take for `fields`."""
        return self.shape(fields)

    @abstractmethod
    def origin(self, fields: Tensor) -> tuple[int, int]:
        """Return row and column in the whole grid, on its level, of the first point of `fields`."""

    @abstractmethod
    def part(self, grid_map: Tensor) -> Tensor:
        """Return this process's part of a map, differentiably; dimensions of length 1 stay."""

    def of_samples(self, grid_map: Tensor) -> Tensor:
        """Return the part of a map (..., H, W) for each sample, (..., N, h, w), differentiably.

        N is 1 where all samples are at the same place. Dimensions H and W of length 1 stay.
        """
        return self.part(grid_map).unsqueeze(-3)

    @abstractmethod
    def pad(self, fields: Tensor, sides: Sides, edges: Edges) -> Tensor:
        """Pad fields (N, C, h, w) by values of neighbouring parts or grid edges, differentiably."""

    @abstractmethod
    def convolve(
        self,
        fields: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        half: int,
        edges: Edges,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolve with `half` rows and columns of padding on each side, differentiably."""

    @abstractmethod
    def sum(self, parts: Tensor) -> Tensor:
        """Sum over all processes that hold parts of a sample (all-reduce), differentiably."""

    @abstractmethod
    def total(self, parts: Tensor) -> Tensor:
        """Sum over all processes that hold parts of a sample, without gradient."""


class Whole(Domain):
    """The whole grid, in one process."""

    def shape(self, fields: Tensor) -> tuple[int, int]:
        """Return the shape of the fields, which are the whole grid."""
        return fields.shape[-2], fields.shape[-1]

    def origin(self, fields: Tensor) -> tuple[int, int]:  # noqa: ARG002
        """Return (0, 0): the fields begin at the grid's first point."""
        return 0, 0

    def part(self, grid_map: Tensor) -> Tensor:
        """Return the map itself: the part is the whole grid."""
        return grid_map

    def pad(self, fields: Tensor, sides: Sides, edges: Edges) -> Tensor:
        """Pad the columns, then the rows, so that corners belong to the padded rows."""
        return extend(fields, sides, edges)

    def convolve(
        self,
        fields: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        half: int,
        edges: Edges,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolve; on a CPU, rows of zeros and periodic columns take no padded copy.

        On an H200 the small convolutions of `convolve_around` take longer than the copy: 24.5
        instead of 20.1 ms of the U-Net's step of four dates.
        """
        is_around = edges == ("zeros", "circular") and 0 < half <= fields.shape[-1]
        if is_around and stride == 1 and fields.device.type == "cpu":
            return convolve_around(fields, weight, bias, half, dilation, groups)
        rows, columns = (0 if edge == "zeros" else half for edge in edges)
        zeros = half - rows, half - columns
        padded = self.pad(fields, Sides(rows, rows, columns, columns), edges)
        return functional.conv2d(padded, weight, bias, stride, zeros, dilation, groups)

    def sum(self, parts: Tensor) -> Tensor:
        """Return the values themselves: there is one part."""
        return parts

    def total(self, parts: Tensor) -> Tensor:
        """Return the values without gradient: there is one part."""
        return parts.detach()


class Places(Whole):
    """Patches or points, each at a place of its own on the grid, in one process.

    Fields are (..., h, w) with the rows and columns of a patch, 1 x 1 for a point. Layers treat a
    patch as if it were the whole grid, but its columns are not periodic.

    Args:
        rows: (N,) first row of each patch.
        columns: (N,) first column; columns continue past the last one with the first.
        patch: rows and columns of the patches.
        grid: rows and columns of the whole grid.
    """

    def __init__(
        self, rows: Tensor, columns: Tensor, patch: tuple[int, int], grid: tuple[int, int]
    ) -> None:
        self.rows, self.columns, self.patch, self.grid = rows, columns, patch, grid

    def map_shape(self, fields: Tensor) -> tuple[int, int]:  # noqa: ARG002
        """Return the shape of the whole grid."""
        return self.grid

    def of_samples(self, grid_map: Tensor) -> Tensor:
        """Return the values of a map (..., H, W) in each patch, (..., N, h, w)."""
        if tuple(grid_map.shape[-2:]) == (1, 1):
            return grid_map.unsqueeze(-3)
        h, w = (torch.arange(length, device=grid_map.device) for length in self.patch)
        rows = self.rows.to(grid_map.device)[:, None, None] + h[:, None]
        columns = (self.columns.to(grid_map.device)[:, None, None] + w) % self.grid[1]
        return grid_map[..., rows, columns]

    def part(self, grid_map: Tensor) -> Tensor:
        """Return the map itself if it is a single value.

        Raises:
            ArgumentError: a map with a value at each grid point, of a layer that supports whole
                grids only.
        """
        if tuple(grid_map.shape[-2:]) == (1, 1):
            return grid_map
        raise ArgumentError(
            "kind",
            "a layer with values at each grid point takes neither patches nor points",
            "Set data.kind to fields or members",
        )

    def pad(self, fields: Tensor, sides: Sides, edges: Edges) -> Tensor:
        """Pad a patch at its own edges.

        Raises:
            ArgumentError: periodic columns, of a patch that does not go around the globe.
        """
        if edges.columns == "circular" and self.patch[1] < self.grid[1]:
            raise ArgumentError(
                "periodic_longitude",
                "the first and last column of a patch are no neighbours",
                "Set periodic_longitude of the network to false, or train on fields",
            )
        return super().pad(fields, sides, edges)


_current: Domain = Whole()


def current() -> Domain:
    """Return the domain of this process: the whole grid, or the one set by `use`."""
    return _current


@contextmanager
def use(domain: Domain) -> Iterator[Domain]:
    """Set the current domain for all threads, since backward passes run in threads of their own."""
    global _current
    previous, _current = _current, domain
    try:
        yield domain
    finally:
        _current = previous


Odd = Literal["dropped", "repeated"]  # the last row of an odd number when a network halves the grid


class Level(NamedTuple):
    """Rows or columns of one network level: a resolution of the grid, in one process.

    Attributes:
        total: number of rows (or columns) of the whole grid.
        start: first row of this process.
        size: number of rows of this process.
        least: smallest number of rows of any process, which limits the width of a halo.
        step: greatest common divisor of the first rows of all processes, which a stride must
            divide; 0 if there is only one process.
    """

    total: int
    start: int
    size: int
    least: int
    step: int = 0


def parts_of(total: int, parts: int, unit: int = 1) -> list[int]:
    """Return the bounds of the parts: the first index of each, and the end of the last.

    All bounds but the end are multiples of `unit`, so that halving a part needs no rows of another
    one. The largest part, which determines time and memory, is as small as possible. All parts but
    the last are equal, as chunks of an array are; or, if that would leave the last part empty,
    parts differ by at most one unit.

    Args:
        total: number of rows or columns.
        parts: number of processes.
        unit: rows or columns that stay together.

    Examples:
        >>> from ens10.models.domain import parts_of
        >>> parts_of(361, 4, unit=4)
        [0, 92, 184, 276, 361]

    Raises:
        ArgumentError: more parts than units.
    """
    units = total // unit  # the remainder goes to the last part
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
        starts = [-(-n * units // parts) for n in range(parts)]
    return [unit * start for start in starts] + [total]


class Cut:
    """The partition of the rows or of the columns between processes, on each network level.

    Args:
        total: rows or columns of the grid.
        parts: number of processes.
        index: number of this process, from 0.
        halvings: how often a network halves the grid.
        odd: treatment of the last row of an odd number when it is halved: dropped, or repeated.

    Attributes:
        unit: 2^halvings: parts begin at multiples of it.
        bounds: first row of each part, and the end of the last, on the grid of the data.
        levels: of this process, from the grid of the data to the coarsest.

    Examples:
        >>> from ens10.models.domain import Cut
        >>> rows = Cut(total=361, parts=2, index=1, halvings=2)
        >>> rows.bounds, rows.local_slice
        ([0, 180, 361], slice(180, 361, None))
        >>> [(level.total, level.start, level.size) for level in rows.levels]
        [(361, 180, 181), (180, 90, 90), (90, 45, 45)]

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
            end = bounds[-1] // 2 if odd == "dropped" else -(-bounds[-1] // 2)
            bounds = [start // 2 for start in bounds[:-1]] + [end]

    @property
    def local_slice(self) -> slice:
        """The rows or columns of this process, on the grid of the data."""
        return slice(self.bounds[self.index], self.bounds[self.index + 1])

    def of_size(self, size: int) -> Level:
        """Return the network level on which this process has `size` rows or columns.

        Raises:
            ArgumentError: there is none.
        """
        # unique: a part has at least one unit, so that each halving makes it smaller
        return self._level_of(size, [level.size for level in self.levels])

    def of_total(self, total: int) -> Level:
        """Return the network level on which the whole grid has `total` rows or columns.

        Raises:
            ArgumentError: there is none.
        """
        return self._level_of(total, [level.total for level in self.levels])

    def room(self, size: int) -> int:
        """Return the smallest part (`Level.least`) on the network level nearest to `size`.

        `size` is the number of rows or columns of this process. It may be one less than the
        level's: an upsampled field may lack the last row of an odd number.
        """
        if self.parts == 1:
            return size
        return min(self.levels, key=lambda level: abs(level.size - size)).least

    def _level_of(self, length: int, lengths: list[int]) -> Level:
        """Return the level whose entry in `lengths` is `length`; any length if not divided."""
        if self.parts == 1:
            return Level(length, 0, length, length)
        if length in lengths:
            return self.levels[lengths.index(length)]
        raise ArgumentError(
            "features",
            f"{length} rows or columns, but the levels of the network have "
            f"{', '.join(map(str, lengths))} in this process",
            "Set the network's `halvings` to the number of times that it halves the grid, and "
            "`odd` to what it does with the last of an odd number",
        )
