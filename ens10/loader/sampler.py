"""The order in which dates are visited: a pure function, so that any epoch can be repeated."""

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError


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
