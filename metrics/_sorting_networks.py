"""Sorting networks: exchanges of two numbers whose order does not depend on the numbers."""

from functools import lru_cache

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS


@numba.njit(**OPTIONS)
def minmax(u, v):  # type: ignore[no-untyped-def]
    """Return the lower and the higher of two numbers; a NaN may be either."""
    return (u if u < v else v), (v if u < v else u)


@lru_cache(maxsize=64)
def exchanges(n: int) -> npt.NDArray[np.int64]:
    """Return Batcher's odd-even merge sort of n numbers (Knuth, TAOCP, 5.2.2 M).

    It has about n log2(n)^2 / 4 exchanges, more than the comparisons of a branching sort, but each
    is two vector instructions for 8 or 16 points.

    Returns:
        Shape (exchanges, 2): the positions of the lower and of the higher number, in order.
    """
    pairs = []
    p = 1 << max((n - 1).bit_length() - 1, 0)
    first = p
    while p > 0:
        q, r, d = first, 0, p
        while True:
            pairs += [(i, i + d) for i in range(n - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
