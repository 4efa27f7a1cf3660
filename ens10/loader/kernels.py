"""Compiled loops over fields, with the interpreter lock released."""

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS

Floats = npt.NDArray[np.float32]
_TILE = 64  # points that are turned at once: all their features fit in the nearest cache


@numba.njit(**OPTIONS)
def _pair(truth, raw_mean, row_weights, weights):  # type: ignore[no-untyped-def]
    rows, columns = truth.shape
    for row in range(rows):
        for column in range(columns):
            valid = np.isfinite(truth[row, column]) and np.isfinite(raw_mean[row, column])
            weights[row, column] = row_weights[row] if valid else np.float32(0)
            if not valid:
                truth[row, column] = np.float32(0)


@numba.njit(**OPTIONS)
def _turn(source, first, places, out):  # type: ignore[no-untyped-def]
    features, points = source.shape
    for begin in range(0, points, _TILE):
        end = min(begin + _TILE, points)
        for feature in range(features):
            for point in range(begin, end):
                out[places[first + point], feature] = source[feature, point]


@numba.njit(**OPTIONS)
def _standardise(values, mean, scale, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        value = (values[i] - mean[i]) / scale[i]
        out[i] = value if abs(value) < np.inf else np.float32(0)  # False for NaN, too


def standardise(values: Floats, mean: Floats, scale: Floats, out: Floats) -> None:
    """Write (values - mean) / scale, and 0 where that is NaN or infinite.

    An infinite value is a gap, as it is to masks and statistics: the largest number in its place
    would be finite, and the loss of a network finite and senseless.

    Args:
        values: any shape, contiguous.
        mean: of the same size, contiguous.
        scale: like `mean`.
        out: like `values`, which it may be.
    """
    _standardise(values.reshape(-1), mean.reshape(-1), scale.reshape(-1), out.reshape(-1))


def pair(truth: Floats, raw_mean: Floats, row_weights: Floats, weights: Floats) -> None:
    """Weights of a date's points, and 0 in place of truth where there is nothing to compare.

    Args:
        truth: shape (H, W), changed in place.
        raw_mean: shape (H, W).
        row_weights: shape (H,).
        weights: shape (H, W), written.
    """
    _pair(truth, raw_mean, row_weights, weights)


def turn(source: Floats, first: int, places: npt.NDArray[np.int64], out: Floats) -> None:
    """Writes the features of each point side by side, at the point's place.

    Args:
        source: shape (features, points), the fields of one date.
        first: position in `places` of the first point.
        places: row of `out` for each point of all dates.
        out: shape (rows, features).
    """
    _turn(source, first, places, out)
