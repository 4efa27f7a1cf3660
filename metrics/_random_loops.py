"""Compiled random numbers of points, and counts of ranks that are drawn with them."""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS

_BLOCK = 512  # random numbers per block
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
# Typed constants: numba makes a float of an unsigned and a signed number.
_ONE, _TWO = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_A, _B, _C, _DROPPED_BITS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(41)


@numba.njit(**OPTIONS)
def to_uniform(keys, out):  # type: ignore[no-untyped-def]
    """Convert keys to uniform numbers inside (0, 1) of 23 bits, which float32 holds exactly.

    Args:
        keys: (points,) uint64.
        out: output, (points,), float32 or float64.
    """
    for p in range(keys.size):
        z = keys[p]
        z = (z ^ (z >> _A)) * _ONE
        z = (z ^ (z >> _B)) * _TWO
        z = z ^ (z >> _C)
        out[p] = (np.float64(np.int64(z >> _DROPPED_BITS)) + 0.5) * 2.0**-23


@numba.njit(**OPTIONS)
def _random_bits(n, key):  # type: ignore[no-untyped-def]
    """Return 32 random bits for index n and a key, by a low-bias bijection (Wellons 2018)."""
    # numba widens 32-bit results, so each step is cut again.
    z = np.uint32(n * np.uint32(0x9E3779B9) + key)
    z = np.uint32((z ^ (z >> np.uint32(16))) * np.uint32(0x7FEB352D))
    z = np.uint32((z ^ (z >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(z ^ (z >> np.uint32(16)))


@numba.njit(**OPTIONS)
def _count_ranks(below, equal, tie_key, key, edges, rank_count, pit_count):  # type: ignore[no-untyped-def]
    bins = pit_count.size
    unit = 1.0 / 4294967296.0
    bits = np.empty(_BLOCK, np.uint32)
    for first in range(0, below.size, _BLOCK):
        last = min(first + _BLOCK, below.size)
        for i in range(last - first):
            bits[i] = _random_bits(np.uint32(first + i), key)
        for n in range(first, last):
            rank = below[n]
            if rank < 0:
                continue
            if equal[n] > 0:
                tie = np.float64(_random_bits(np.uint32(n), tie_key)) * unit
                rank += int(tie * (equal[n] + 1))
            rank_count[rank] += 1
            within = np.float64(bits[n - first]) * unit
            value = edges[rank] + within * (edges[rank + 1] - edges[rank])
            pit_count[min(int(value * bins), bins - 1)] += 1


def rank_counts(
    below: npt.NDArray[np.int32],
    equal: npt.NDArray[np.int32],
    edges: Floats,
    bins: int,
    key: np.uint64,
) -> tuple[Ints, Ints]:
    """Count ranks, and PIT values drawn uniformly within each rank.

    The random numbers depend only on the key and the position of the point.

    Args:
        below: number of the L sorted values below the observation, at each point; -1 for points
            that are left out.
        equal: number of values equal to the observation, which takes one of their ranks at random.
        edges: shape (L + 2,), probabilities at which the ranks begin and end, from 0 to 1.
        bins: number of bins of the PIT histogram.
        key: random key of the date, as `date_key` returns it.

    Returns:
        Shapes (L + 1,) and (bins,).
    """
    ranks, values = np.zeros(edges.size - 1, np.int64), np.zeros(bins, np.int64)
    keys = np.array([key >> np.uint64(32), key & np.uint64(0xFFFFFFFF)], np.uint32)
    _count_ranks(below.ravel(), equal.ravel(), keys[0], keys[1], edges, ranks, values)
    return ranks, values


def date_key(seed: int, *labels: Any) -> np.uint64:
    """Return a random key that depends only on the seed and the integer labels of a date."""
    # Dates before 1970 are negative, which a seed must not be.
    entropy = [seed, *(int(label) % 2**63 for label in labels)]
    key: np.uint64 = np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]
    return key
