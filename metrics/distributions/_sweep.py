"""All pointwise scores of an ensemble in one compiled pass, without the interpreter lock.

Each number is computed from its own point only, so that results do not depend on which dates are
read together. Members are centred on the observation first and sorted by a sorting network
(Batcher 1968), many points at a time.
"""

import numba
import numpy as np

from ens10.compiled import OPTIONS
from ens10.metrics._dispatch import Array
from ens10.metrics._ensemble_loops import POINTS, merges_of, sort_rows

LANES = POINTS  # points processed together; the loops of `_ensemble_loops` are for that many


@numba.njit(**OPTIONS)
def _add_spread(rows, M, merges, spread):  # type: ignore[no-untyped-def]
    """Sort the rows of M members and add the sum over i < j of |x_i - x_j| to `spread`.

    With x_(m) in order, that is the sum over m of (2m - M + 1) x_(m).
    """
    sort_rows(rows, merges)
    for m in range(M):
        row, share = rows[m * LANES : (m + 1) * LANES], rows.dtype.type(2 * m - M + 1)
        for i in range(spread.size):
            spread[i] += share * row[i]


@numba.njit(**OPTIONS)
def sweep(members, y, merges, crps, fair, error, variance, below, equal):  # type: ignore[no-untyped-def]
    """Compute the scores of the points of one date.

    Args:
        members: shape (M, points), contiguous.
        y: shape (points,), of the same dtype.
        merges: sorting network of the groups of four members, `_ensemble_loops.merges_of(M)`.
        crps: output: the plain CRPS; shape (points,), like all further outputs.
        fair: output: the fair CRPS; NaN for one member.
        error: output: mean of the members less the observation.
        variance: output: unbiased variance of the members; NaN for one member.
        below: output, int32: number of members below the observation; -1 where one is missing.
        equal: output, int32: number of members equal to the observation.
    """
    M, points = members.shape
    kind = members.dtype.type
    rows = np.zeros((M + 3) // 4 * 4 * LANES, members.dtype)
    sums = np.empty((4, LANES), members.dtype)
    distance, total, square, spread = sums[0], sums[1], sums[2], sums[3]
    each, nan = kind(1.0) / kind(M), kind(np.nan)
    pairs = kind(1.0) / kind(M * (M - 1)) if M > 1 else nan
    freedom = kind(1.0) / kind(M - 1) if M > 1 else nan
    for first in range(0, points, LANES):
        n = min(LANES, points - first)
        sums[:] = 0.0
        rows[M * LANES :] = np.inf  # rows that fill the last group are sorted to the end
        under, same = below[first : first + n], equal[first : first + n]
        under[:], same[:] = 0, 0
        # Loops are kept short: those over many arrays at once do not become vector instructions.
        for m in range(M):
            row, values = rows[m * LANES : (m + 1) * LANES], members[m, first : first + n]
            observed = y[first : first + n]
            for i in range(n):
                d = values[i] - observed[i]
                row[i] = d
                distance[i] += abs(d)
                total[i] += d
            for i in range(n):
                under[i] += np.int32(row[i] < 0)
            for i in range(n):
                same[i] += np.int32(row[i] == 0)
        for m in range(M):
            row = rows[m * LANES : (m + 1) * LANES]
            for i in range(n):
                from_mean = row[i] - total[i] * each
                square[i] += from_mean * from_mean
        _add_spread(rows, M, merges, spread)
        for i in range(n):
            p = first + i
            valid = total[i] == total[i]
            gap = spread[i] if valid else nan
            crps[p] = distance[i] * each - each * each * gap
            fair[p] = distance[i] * each - pairs * gap
            error[p] = total[i] * each
            variance[p] = square[i] * freedom
            below[p] = below[p] if valid else -1


def scores_of_members(members: Array, y: Array) -> dict[str, Array]:
    """Return plain and fair CRPS, error of the mean, variance, and counts of members below, equal.

    Args:
        members: shape (M, ...), float32 or float64.
        y: shape (...).

    Returns:
        `crps`, `crps_fair`, `error`, `variance` of the members' dtype and `below`, `equal`
        (int32), each of shape (...). NaN (-1 for `below`) where a member or y is.
    """
    M, shape = members.shape[0], members.shape[1:]
    x = np.ascontiguousarray(members).reshape(M, -1)
    observed = np.ascontiguousarray(y, dtype=x.dtype).reshape(-1)
    results = {name: np.empty_like(observed) for name in ("crps", "crps_fair", "error", "variance")}
    results |= {name: np.empty(observed.size, np.int32) for name in ("below", "equal")}
    sweep(x, observed, merges_of(M), *results.values())
    return {name: values.reshape(shape) for name, values in results.items()}
