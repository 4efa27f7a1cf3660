"""The order in which dates are visited: a pure function, so that any epoch can be repeated."""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError, UnknownNameError

Even = Literal["drop", "pad"]


def order(
    count: int, *, seed: int, epoch: int, shuffle: bool, rank: int = 0, world: int = 1
) -> npt.NDArray[np.int64]:
    """Positions that one rank visits in one epoch.

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
    """How many dates of its order a rank visits, and how many it repeats besides.

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
    mine = len(range(rank, count, world))
    if even == "drop":
        if count and count < world:
            reason = f"{count} dates are too few for {world} processes"
            raise ArgumentError("even", reason, 'Use fewer processes, or "pad"')
        return count // world, 0
    return mine, (-(-count // world) - mine if even == "pad" else 0)
