"""One rank's part of one epoch: which dates each buffer holds, made as they are needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from ens10.loader.kinds import Job
from ens10.loader.sampler import Even, order, share


@dataclass(frozen=True)
class Ranks:
    """Which part of the dates one process visits.

    Attributes:
        rank: of this process.
        world: number of processes.
        even: what makes ranks equal; see `ens10.loader.sampler.share`.
    """

    rank: int = 0
    world: int = 1
    even: Even | None = None

    def count(self, dates: int) -> int:
        """Number of dates that this rank visits of so many, repetitions included."""
        return sum(share(dates, self.rank, self.world, self.even))


class Epoch(Sequence[Job]):
    """The jobs of one rank in one epoch; a pure function of its arguments.

    Args:
        dates: positions of the split's dates in the samples.
        ranks: which part of them.
        batch_size: dates in a buffer.
        seed: of the shuffling.
        epoch: from 0.
        shuffle: False for the order of time.
    """

    def __init__(
        self,
        dates: npt.NDArray[np.int64],
        ranks: Ranks,
        batch_size: int,
        seed: int,
        epoch: int,
        shuffle: bool,
    ) -> None:
        self._size, self._seed = batch_size, (seed, epoch)

        def of_rank(rank: int) -> npt.NDArray[np.int64]:
            options = {"seed": seed, "epoch": epoch, "rank": rank, "world": ranks.world}
            return order(len(dates), shuffle=shuffle, **options)

        mine = of_rank(ranks.rank)
        kept, repeats = share(len(dates), ranks.rank, ranks.world, ranks.even)
        if repeats:
            again = mine if kept else of_rank(0)
            mine = np.concatenate([mine[:kept], again[:repeats]])
        self._visited = dates[mine[: kept + repeats]]
        self._repeated = np.arange(kept + repeats) >= kept
        self._first = 0

    def __len__(self) -> int:
        return -(-len(self._visited) // self._size) - self._first

    @overload
    def __getitem__(self, number: int) -> Job: ...
    @overload
    def __getitem__(self, number: slice) -> list[Job]: ...
    def __getitem__(self, number: int | slice) -> Job | list[Job]:
        """A job, or several."""
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        number += self._first
        held = slice(number * self._size, (number + 1) * self._size)
        return Job(number, self._visited[held], self._repeated[held], self._seed)

    def after(self, jobs: int) -> "Epoch":
        """The same without its first jobs, in place."""
        self._first = jobs
        return self
