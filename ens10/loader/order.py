"""The order in which dates are visited, each process's share of it, and the position in it.

The order is a pure function of seed and epoch, so that any epoch can be repeated and an iteration
resumes from its saved position.
"""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError, UnknownNameError
from ens10.loader.batch_layouts import (
    Fields,
    Job,
    Kind,
    Scratch,
    Slabs,
    Specification,
    length,
    specification,
)
from ens10.loader.content import Arrays, Content
from ens10.loader.samples import Samples

Even = Literal["drop", "pad"]


def order(
    count: int, *, seed: int, epoch: int, shuffle: bool, rank: int = 0, world: int = 1
) -> npt.NDArray[np.int64]:
    """Return the positions that one rank visits in one epoch.

    The ranks' positions are disjoint and together complete.

    Args:
        count: number of dates.
        seed: of the shuffling.
        epoch: from 0; each epoch has its own permutation.
        shuffle: False for the order of time.
        rank: of this process, from 0.
        world: number of processes.

    Raises:
        ArgumentError: a rank that is not in the world.
    """
    if not 0 <= rank < world:
        raise ArgumentError("rank", f"{rank} is not among {world} processes")
    if not shuffle:
        return np.arange(rank, count, world)
    return np.random.default_rng([seed, epoch]).permutation(count)[rank::world]


def share(count: int, rank: int, world: int, even: Even | None) -> tuple[int, int]:
    """Return how many dates of its order a rank visits, and how many it repeats.

    Training in step needs as many batches on every rank. "drop" leaves out the last dates of the
    epoch's order, fewer than there are ranks and others in each epoch. "pad" lets some ranks
    repeat one date, which is given no weight: each date then counts exactly once. None leaves
    ranks unequal by one date.

    Raises:
        UnknownNameError: another policy.
        ArgumentError: nothing would be left.
    """
    if even is not None and even not in get_args(Even):
        raise UnknownNameError("even", even, get_args(Even))
    visits = len(range(rank, count, world))
    if even == "drop":
        if count and count < world:
            reason = f"{count} dates are too few for {world} processes"
            raise ArgumentError("even", reason, 'Use fewer processes, or "pad"')
        return count // world, 0
    return visits, (-(-count // world) - visits if even == "pad" else 0)


@dataclass(frozen=True)
class Ranks:
    """Rank, number of processes and the policy that gives ranks equal numbers of dates.

    Attributes:
        rank: of this process.
        world: number of processes.
        even: "drop", "pad" or None; see `ens10.loader.order.share`.
    """

    rank: int = 0
    world: int = 1
    even: Even | None = None

    def count(self, dates: int) -> int:
        """Return how many of `dates` dates this rank visits, including repetitions."""
        return sum(share(dates, self.rank, self.world, self.even))


def jobs_of_epoch(
    dates: npt.NDArray[np.int64], ranks: Ranks, batch_size: int, seed: int, epoch: int,
    shuffle: bool,
) -> list[Job]:  # fmt: skip
    """Return the jobs of one rank in one epoch; a pure function of its arguments.

    Args:
        dates: positions of the split's dates in the samples.
        ranks: rank of the process, which visits a part of the dates.
        batch_size: dates in a buffer.
        seed: of the shuffling.
        epoch: from 0.
        shuffle: False for the order of time.
    """

    def of_rank(rank: int) -> npt.NDArray[np.int64]:
        options = {"seed": seed, "epoch": epoch, "rank": rank, "world": ranks.world}
        return order(len(dates), shuffle=shuffle, **options)

    positions = of_rank(ranks.rank)
    visits, repeats = share(len(dates), ranks.rank, ranks.world, ranks.even)
    if repeats:
        repeat_positions = positions if visits else of_rank(0)
        positions = np.concatenate([positions[:visits], repeat_positions[:repeats]])
    visited = dates[positions[: visits + repeats]]
    is_repeat = np.arange(visits + repeats) >= visits
    spans = [slice(n, n + batch_size) for n in range(0, len(visited), batch_size)]
    return [Job(n, visited[s], is_repeat[s], (seed, epoch)) for n, s in enumerate(spans)]


@dataclass
class IterationProgress:
    """Progress of one iteration: its epoch, and the number of batches yielded so far.

    Attributes:
        epoch: of the iteration.
        batches: number of batches yielded so far.
    """

    epoch: int
    batches: int


class Position:
    """Progress of the latest iteration, and saved progress from which the next one resumes.

    Args:
        length: batches of an epoch.
        seed: of the order.
        dates: of the split.
        batch_size: dates in a batch.
        world: number of processes.
    """

    def __init__(self, length: int, seed: int, dates: int, batch_size: int, world: int) -> None:
        self.epoch, self._length = 0, length
        self._order = {"seed": seed, "dates": dates, "batch_size": batch_size, "world": world}
        self._current = IterationProgress(0, 0)
        self._next: IterationProgress | None = None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; drop a position loaded for another epoch."""
        self.epoch = epoch
        if self._next is not None and self._next.epoch != epoch:
            self._next = None

    def begin(self) -> IterationProgress:
        """Begin an iteration at the loaded position, which is used once, or at the start."""
        loaded_progress, self._next = self._next, None
        self._current = loaded_progress or IterationProgress(self.epoch, 0)
        return self._current

    def state_dict(self) -> dict[str, int]:
        """Return the position as numbers."""
        progress = self._next or self._current
        place = {"epoch": progress.epoch, "batches": progress.batches}
        return {**place, "length": self._length, **self._order}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Load a saved position.

        Raises:
            ArgumentError: it was saved in mid-epoch, with another seed, batch size or number of
                dates or processes.
        """
        differences = {k: state[k] for k, value in self._order.items() if state[k] != value}
        if differences and 0 < state["batches"] < state["length"]:
            saved_order = ", ".join(f"{name} {value}" for name, value in differences.items())
            current_order = ", ".join(f"{name} {self._order[name]}" for name in differences)
            reason = f"it was saved {state['batches']} batches into an epoch with {saved_order}"
            remedy = "Go on with the same settings, or from a checkpoint of an epoch's end"
            raise ArgumentError("state", f"{reason}, not {current_order}", remedy)
        self.epoch = state["epoch"]
        self._next = None if differences else IterationProgress(state["epoch"], state["batches"])


Bounds = tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """The dates, rows and columns that one process reads.

    Processes of the same rank hold parts of the same samples, and get the same dates in the same
    order.

    Attributes:
        rank: data-parallel rank: which dates, from 0.
        world: data-parallel world: between how many ranks the dates are shared out.
        rows: rows of this process, without a step.
        columns: columns of this process.
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
        axes = (("rows", self.rows), ("columns", self.columns))
        for (name, span), bounds in zip(axes, self.bounds, strict=True):
            if (span.start, span.stop) not in pairwise(bounds):
                raise ArgumentError(name, f"{span} is not a part between {bounds}")

    def __hash__(self) -> int:
        # slices have none before Python 3.12
        return hash((self.rank, self.world, self.rows.start, self.columns.start, self.bounds))

    @property
    def parts(self) -> int:
        """Number of processes that hold parts of the same samples."""
        return math.prod(len(bounds) - 1 for bounds in self.bounds)

    @property
    def is_full_grid(self) -> bool:
        """True if the grid is not split."""
        return self.parts == 1

    @property
    def first(self) -> bool:
        """True for the first part, whose process writes arrays without rows and columns."""
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
        """Return the layout of this process's batches, given the run's layout `kind`.

        Raises:
            ArgumentError: the grid is split, and batches are not of whole fields.
        """
        if self.is_full_grid:
            return kind
        if not isinstance(kind, Fields) or isinstance(kind, Slabs):
            reason = f"{type(kind).__name__.lower()} are not split between {self.parts} processes"
            remedy = "Set data.kind to fields or members, or lat and lon of the strategy to 1"
            raise ArgumentError("kind", reason, remedy)
        return GridPart(self, features=kind.features)


@dataclass(frozen=True)
class GridPart(Fields):
    """The rows and columns of a share, of every field; bytes of other rows are not read.

    Full rows are read, and the share's columns are cut from them: a row is a few kB.

    Attributes:
        share: of this process.
    """

    share: Share
    _scratch: Scratch = field(default_factory=Scratch, init=False, repr=False, compare=False)

    def rows(self, samples: Samples) -> slice:
        """Return the rows of the share.

        Raises:
            ArgumentError: the share is one of another grid.
        """
        grid = len(samples.latitude), len(samples.longitude)
        if grid != self.share.grid:
            reason = f"a grid of {grid} (rows, columns), but {self.share.grid} was split"
            raise ArgumentError("data", reason)
        return self.share.rows

    def arrays(self, content: Content, dates: int) -> Specification:
        """Return shape and type of each array of a buffer for `dates` dates."""
        shapes = content.shapes(length(self.rows(content.samples)))
        width = length(self.share.columns)
        parts = {key: (*s[:-1], width) for key, s in shapes.items()}
        return specification(parts, dates, content.samples)

    def read(self, date: int, content: Content, out: Arrays, rows: slice) -> int:
        """Read the part of one date, and return the bytes read."""
        if length(self.share.columns) == self.share.grid[1]:
            return content.read(date, out, rows)
        scratch = self._scratch.arrays(content.shapes(length(rows)))
        count = content.read(date, scratch, rows)
        for key, values in scratch.items():
            np.copyto(out[key], values[..., self.share.columns])
        return count


def full_share(grid: tuple[int, int], rank: int = 0, world: int = 1) -> Share:
    """Return a share with all points of a grid (rows, columns)."""
    rows, columns = grid
    return Share(rank, world, slice(0, rows), slice(0, columns), ((0, rows), (0, columns)))


def share_of(trainer: Any, grid: tuple[int, int]) -> Share:
    """Return the share of this process of a trainer.

    Args:
        trainer: of Lightning, or None. Its strategy may have a method `share(grid)`; if not, the
            grid is not split.
        grid: rows and columns.
    """
    if trainer is None:
        return full_share(grid)
    share_method = getattr(trainer.strategy, "share", None)
    if callable(share_method):
        share: Share = share_method(grid)
        return share
    return full_share(grid, trainer.global_rank, trainer.world_size)
