"""Pool-adjacent-violators for one grid point, compiled."""

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS

Floats = npt.NDArray[np.float64]


@numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
def falling_fit(
    values: Floats, weights: Floats, fitted: Floats, mean: Floats, mass: Floats, size: Floats
) -> None:
    """Write to `fitted` the non-increasing sequence nearest to `values` (weighted least squares).

    Args:
        values: (N,).
        weights: (N,), above 0.
        fitted: (N,), written.
        mean: (N,) work space: mean of each block of equal fitted values.
        mass: (N,) work space: its weight.
        size: (N,) work space: its length.
    """
    blocks = 0
    for i in range(len(values)):
        mean[blocks], mass[blocks], size[blocks] = values[i], weights[i], 1.0
        blocks += 1
        while blocks > 1 and mean[blocks - 2] <= mean[blocks - 1]:
            total = mass[blocks - 2] + mass[blocks - 1]
            both = mean[blocks - 2] * mass[blocks - 2] + mean[blocks - 1] * mass[blocks - 1]
            mean[blocks - 2] = both / total
            mass[blocks - 2] = total
            size[blocks - 2] += size[blocks - 1]
            blocks -= 1
    place = 0
    for b in range(blocks):
        for _ in range(int(size[b])):
            fitted[place] = mean[b]
            place += 1


@numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
def step_functions(x: Floats, y: Floats, thresholds: Floats, nodes: Floats) -> Floats:
    """Fit isotonic distributional regression of y on x: return P(Y <= t) at nodes, (T, G).

    Args:
        x: (N,), rising; equal values are one.
        y: (N,).
        thresholds: (T,).
        nodes: (G,) values of x; between those of the data it is linear, beyond them constant.
    """
    count = len(x)
    where, start = np.empty(count), np.empty(count + 1, np.int64)
    groups = 0
    for i in range(count):
        if i == 0 or x[i] > x[i - 1]:
            where[groups], start[groups] = x[i], i
            groups += 1
    start[groups] = count
    where = where[:groups]
    weights = (start[1 : groups + 1] - start[:groups]).astype(np.float64)
    values, fitted = np.empty(groups), np.empty(groups)
    mean, mass, size = np.empty(groups), np.empty(groups), np.empty(groups)
    probabilities = np.empty((len(thresholds), len(nodes)))
    for j in range(len(thresholds)):
        for k in range(groups):
            below = 0
            for i in range(start[k], start[k + 1]):
                below += y[i] <= thresholds[j]
            values[k] = below / weights[k]
        falling_fit(values, weights, fitted, mean, mass, size)
        probabilities[j] = np.interp(nodes, where, fitted)
    return probabilities
