"""Compiled selection of a weighted quantile."""

import numba
import numpy as np

from ens10.compiled import OPTIONS


@numba.njit(**OPTIONS)
def _digit_at(sums, below, level):  # type: ignore[no-untyped-def]
    """The first digit up to which more than `level` lies, and what lies before it.

    The last digit that occurs, should rounding leave the level out of reach.
    """
    total, digit, before = 0.0, -1, below
    for d in range(sums.size):
        if sums[d] > 0:
            digit, before = d, below + total
            total += sums[d]
            if below + total > level:
                break
    return digit, before


@numba.njit(**OPTIONS)
def _with_digit(keys, weights, shift, mask, digit):  # type: ignore[no-untyped-def]
    """The keys that have a digit, as (1, n), and their weights."""
    count = 0
    for r in range(keys.shape[0]):
        for p in range(keys.shape[1]):
            count += (keys[r, p] >> shift) & mask == digit
    kept, share, n = np.empty((1, count), keys.dtype), np.empty(count, weights.dtype), 0
    for r in range(keys.shape[0]):
        for p in range(keys.shape[1]):
            if (keys[r, p] >> shift) & mask == digit and weights[p] > 0:
                kept[0, n], share[n] = keys[r, p], weights[p]
                n += 1
    return kept[:, :n].copy(), share[:n].copy()


@numba.njit(**OPTIONS)
def select(keys, weights, level, bits, width):  # type: ignore[no-untyped-def]
    """The smallest key up to which the weights add up to more than `level`.

    A radix selection: the leading bits are counted first and only what shares them is looked at
    again.

    Args:
        keys: (n, P) integers, not negative.
        weights: (P,) of the keys in each row, not negative. Keys of weight 0 are as if they were
            not there; not all are.
        level: less than the sum of the weights.
        bits: of a key.
        width: bits looked at in one pass.
    """
    sums, below, mask = np.zeros(1 << width), 0.0, (1 << width) - 1
    for shift in range(bits - bits % width, -1, -width):
        sums[:] = 0
        for r in range(keys.shape[0]):
            for p in range(keys.shape[1]):
                sums[(keys[r, p] >> shift) & mask] += weights[p]
        digit, below = _digit_at(sums, below, level)
        keys, weights = _with_digit(keys, weights, shift, mask, digit)
    return keys[0, 0]
