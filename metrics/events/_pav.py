"""Isotonic regression by pooling adjacent violators, compiled."""

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS

Array = npt.NDArray[np.float64]


def isotonic(total: Array, weight: Array) -> Array:
    """The rising sequences that are nearest to total / weight in weighted squares.

    Each value is the mean of a run of points whose own means do not rise (Ayer et al. 1955;
    de Leeuw et al. 2009, doi:10.18637/jss.v032.i05); one pass over the points.

    Args:
        total: sums of weight times value, (..., points).
        weight: sums of weights, 0 or more, of the same shape.

    Returns:
        The fit, (..., points); NaN at points without weight that lie between two runs, and
        everywhere where a sum is NaN.
    """
    shape = np.shape(total)
    rows = [np.ascontiguousarray(a, np.float64).reshape(-1, shape[-1]) for a in (total, weight)]
    out = np.full(rows[0].shape, np.nan)
    _pool(rows[0], rows[1], out)
    return out.reshape(shape)


@numba.njit(**OPTIONS)
def _pool(total, weight, out):  # type: ignore[no-untyped-def]
    n = total.shape[1]
    sums, weights = np.empty(n), np.empty(n)
    first, last = np.empty(n, np.int64), np.empty(n, np.int64)
    for row in range(total.shape[0]):
        if np.isnan(total[row]).any() or np.isnan(weight[row]).any():
            continue
        top = -1
        for i in range(n):
            if weight[row, i] <= 0:
                continue
            top += 1
            sums[top], weights[top] = total[row, i], weight[row, i]
            first[top], last[top] = i, i
            # means compared without dividing
            while top > 0 and sums[top - 1] * weights[top] >= sums[top] * weights[top - 1]:
                sums[top - 1] += sums[top]
                weights[top - 1] += weights[top]
                last[top - 1] = last[top]
                top -= 1
        for block in range(top + 1):
            out[row, first[block] : last[block] + 1] = sums[block] / weights[block]
