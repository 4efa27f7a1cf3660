"""The part of the data that one process reads: its dates, and its rows and columns of the grid."""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.loader.content import Arrays, Content
from ens10.loader.kinds import Fields, Kind, Scratch, Slabs, Specification, length, specification
from ens10.loader.samples import Samples

Bounds = tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """The part of one process.

    Processes of the same rank hold parts of the same samples, and get the same dates in the same
    order.

    Attributes:
        rank: data-parallel rank: which dates, from 0.
        world: data-parallel world: between how many ranks the dates are shared out.
        rows: own rows of the grid, without a step.
        columns: own columns.
        bounds: where the parts of all processes begin, and the end of the last: of the rows, and
            of the columns; ((0, 180, 361), (0, 720)) for two parts of 361 x 720 points.

    Raises:
        ArgumentError: rows or columns that are none of the parts.
    """

    rank: int
    world: int
    rows: slice
    columns: slice
    bounds: tuple[Bounds, Bounds]

    def __post_init__(self) -> None:
        named = (("rows", self.rows), ("columns", self.columns))
        for (name, own), bounds in zip(named, self.bounds, strict=True):
            if (own.start, own.stop) not in pairwise(bounds):
                raise ArgumentError(name, f"{own} is no part between {bounds}")

    def __hash__(self) -> int:
        # slices have none before Python 3.12
        return hash((self.rank, self.world, self.rows.start, self.columns.start, self.bounds))

    @property
    def parts(self) -> int:
        """Number of processes that hold parts of the same samples."""
        return math.prod(len(bounds) - 1 for bounds in self.bounds)

    @property
    def whole(self) -> bool:
        """Whether the grid is not split."""
        return self.parts == 1

    @property
    def first(self) -> bool:
        """Whether this is the first part: the process that writes what has no place on the grid."""
        return (self.rows.start, self.columns.start) == (0, 0)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the whole grid."""
        return self.bounds[0][-1], self.bounds[1][-1]

    @property
    def chunks(self) -> tuple[int, int]:
        """Largest chunks of rows and columns none of which lies in two parts.

        The end of the last part need not be a multiple: chunks at the end of an array are cut.
        """
        rows, columns = (math.gcd(*bounds[:-1]) or bounds[-1] for bounds in self.bounds)
        return rows, columns

    def kind(self, kind: Kind) -> Kind:
        """What the batches of this process are made of, where those of the run would be `kind`.

        Raises:
            ArgumentError: the grid is split, and batches are not of whole fields.
        """
        if self.whole:
            return kind
        if not isinstance(kind, Fields) or isinstance(kind, Slabs):
            raise ArgumentError(
                "kind",
                f"{type(kind).__name__.lower()} are not split between {self.parts} processes",
                "Set data.kind to fields or members, or lat and lon of the strategy to 1",
            )
        return Part(self, features=kind.features)


@dataclass(frozen=True)
class Part(Fields):
    """The rows and columns of a share, of every field; bytes of other rows are not read.

    Rows are read whole, and a share's columns cut from them: a row is a few kB.

    Attributes:
        share: whose.
    """

    share: Share
    _scratch: Scratch = field(default_factory=Scratch, init=False, repr=False, compare=False)

    def rows(self, samples: Samples) -> slice:
        """The rows of the share.

        Raises:
            ArgumentError: the share is one of another grid.
        """
        grid = len(samples.latitude), len(samples.longitude)
        if grid != self.share.grid:
            raise ArgumentError(
                "data", f"a grid of {grid} (rows, columns), but {self.share.grid} was split"
            )
        return self.share.rows

    def arrays(self, content: Content, dates: int) -> Specification:
        """Shape and type of each array of a buffer for this number of dates."""
        shapes = content.shapes(length(self.rows(content.samples)))
        width = length(self.share.columns)
        return specification({key: (*s[:-1], width) for key, s in shapes.items()}, dates)

    def read(self, date: int, content: Content, out: Arrays, rows: slice) -> int:
        """Reads the part of one date, and returns the bytes read."""
        if length(self.share.columns) == self.share.grid[1]:
            return content.read(date, out, rows)
        held = self._scratch.arrays(content.shapes(length(rows)))
        count = content.read(date, held, rows)
        for key, values in held.items():
            np.copyto(out[key], values[..., self.share.columns])
        return count


def whole_share(grid: tuple[int, int], rank: int = 0, world: int = 1) -> Share:
    """A share with all points of a grid (rows, columns)."""
    rows, columns = grid
    return Share(rank, world, slice(0, rows), slice(0, columns), ((0, rows), (0, columns)))


def share_of(trainer: Any, grid: tuple[int, int]) -> Share:
    """The share of this process of a trainer.

    Args:
        trainer: of Lightning, or None. Its strategy may have a method `share(grid)`; if not, the
            grid is not split.
        grid: rows and columns.
    """
    if trainer is None:
        return whole_share(grid)
    given = getattr(trainer.strategy, "share", None)
    if callable(given):
        share: Share = given(grid)
        return share
    return whole_share(grid, trainer.global_rank, trainer.world_size)
