"""Compiled sums over the points of one date: by zone, by grid point, by rank."""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS
from ens10.metrics._dispatch import Array

_RANDOM_BLOCK = 512  # random numbers per block
_LANES = 64  # partial sums of a row: the order of addition is that of the row alone
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@numba.njit(**OPTIONS)
def _row_sums(field, row_weights):  # type: ignore[no-untyped-def]
    """Return sum(weight * value), sum(weight) and the count of the points that are not NaN."""
    total, weight, count = 0.0, 0.0, 0.0
    lanes, counts = np.empty(_LANES), np.empty(_LANES)
    rows, columns = field.shape
    for row in range(rows):
        lanes[:], counts[:] = 0.0, 0.0
        for first in range(0, columns, _LANES):
            part = field[row, first : first + _LANES]
            for lane in range(part.size):
                value = np.float64(part[lane])
                lanes[lane] += value if value == value else 0.0
                counts[lane] += np.float64(value == value)
        n = counts.sum()
        total += row_weights[row] * lanes.sum()
        weight += row_weights[row] * n
        count += n
    return total, weight, int(count)


@numba.njit(**OPTIONS)
def _zone_sums(field, row_weights, zones, total, weight, count):  # type: ignore[no-untyped-def]
    rows, columns = field.shape
    for row in range(rows):
        for column in range(columns):
            value = np.float64(field[row, column])
            if value == value:
                zone = zones[row, column]
                total[zone] += row_weights[row] * value
                weight[zone] += row_weights[row]
                count[zone] += 1


def field_sums(
    field: Array, row_weights: Floats, zones: Ints | None = None, number: int = 1
) -> tuple[Floats, Floats, Ints]:
    """Return sum(weight * value), sum(weight) and the count of points that are not NaN, by zone.

    Args:
        field: shape (H, W).
        row_weights: shape (H,).
        zones: shape (H, W), the zone of each point from 0; None for one zone.
        number: number of zones.

    Returns:
        Three arrays of shape (number,), in float64 and int64.
    """
    if zones is None:
        sums = _row_sums(field, row_weights)
        return np.array(sums[:1]), np.array(sums[1:2]), np.array(sums[2:], np.int64)
    total, weight, count = np.zeros(number), np.zeros(number), np.zeros(number, np.int64)
    _zone_sums(field, row_weights, zones, total, weight, count)
    return total, weight, count


@numba.njit(**OPTIONS)
def add_map(field, total, count):  # type: ignore[no-untyped-def]
    """Add a field (H, W) to the sum (float64) and count (int64) at each point; skip NaN."""
    rows, columns = field.shape
    for row in range(rows):
        for column in range(columns):
            value = np.float64(field[row, column])
            present = value == value
            total[row, column] += value if present else 0.0
            count[row, column] += present


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
    bits = np.empty(_RANDOM_BLOCK, np.uint32)
    for first in range(0, below.size, _RANDOM_BLOCK):
        last = min(first + _RANDOM_BLOCK, below.size)
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
