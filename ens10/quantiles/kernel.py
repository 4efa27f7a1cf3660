"""Quantiles of many members at many points: sorted in blocks that fit the cache."""

from collections.abc import Sequence

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS

_POINTS = 512  # sorted at a time: 1530 members of so many points are 3 MB


def quantiles_of(
    members: Sequence[npt.NDArray[np.float32]], levels: npt.NDArray[np.float64]
) -> npt.NDArray[np.float32]:
    """Quantiles over all members at every point.

    They are numpy's "linear" ones (type 7 of Hyndman and Fan, 1996, doi:10.2307/2684934), computed
    in float64 and rounded once. NaN members are left out; a point without any other is NaN.

    Args:
        members: arrays of shape (members, points), which together are the sample.
        levels: shape (quantiles,), in [0, 1].

    Returns:
        Shape (quantiles, points).
    """
    total, points = sum(len(part) for part in members), members[0].shape[1]
    out = np.empty((levels.size, points), np.float32)
    block = np.empty((min(_POINTS, points), total), np.float32)
    for first in range(0, points, _POINTS):
        last = min(first + _POINTS, points)
        held, begin = block[: last - first], 0
        for part in members:
            held[:, begin : begin + len(part)] = part[:, first:last].T
            begin += len(part)
        held.sort(axis=1)  # NaN goes last
        _pick(held, levels, out[:, first:last])
    return out


@numba.njit(**OPTIONS)
def _pick(ordered, levels, out):  # type: ignore[no-untyped-def]
    for point in range(ordered.shape[0]):
        count = ordered.shape[1]
        while count > 0 and np.isnan(ordered[point, count - 1]):
            count -= 1
        for n in range(levels.size):
            if count == 0:
                out[n, point] = np.nan
                continue
            place = levels[n] * (count - 1)
            below = int(place)
            share = place - below
            low = np.float64(ordered[point, below])
            high = np.float64(ordered[point, min(below + 1, count - 1)])
            # From the nearer end, as numpy does: rises with the level and meets both ends.
            if share >= 0.5:
                out[n, point] = np.float32(high - (high - low) * (1.0 - share))
            else:
                out[n, point] = np.float32(low + (high - low) * share)
