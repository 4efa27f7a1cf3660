"""Compiled sums over the points of one date: by zone, and at each grid point over dates."""

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS
from ens10.metrics._dispatch import Array

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
    field: Array,
    row_weights: Floats,
    zones: Ints | None = None,
    number: int = 1,
    propagate: bool = False,
) -> tuple[Floats, Floats, Ints]:
    """Return sum(weight * value), sum(weight) and the count of points that are not NaN, by zone.

    Args:
        field: shape (H, W).
        row_weights: shape (H,).
        zones: shape (H, W), the zone of each point from 0; None for one zone.
        number: number of zones.
        propagate: True to return NaN sums of zones with a point that is NaN.

    Returns:
        Three arrays of shape (number,), in float64 and int64.
    """
    if zones is None:
        sums = _row_sums(field, row_weights)
        total, weight, count = np.array(sums[:1]), np.array(sums[1:2]), np.array(sums[2:], np.int64)
    else:
        total, weight, count = np.zeros(number), np.zeros(number), np.zeros(number, np.int64)
        _zone_sums(field, row_weights, zones, total, weight, count)
    if propagate:
        points = field.size if zones is None else np.bincount(zones.ravel(), minlength=number)
        total[count < points] = np.nan
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
