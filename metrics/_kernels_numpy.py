"""The scores on numpy arrays: the formulas that every other library is held to."""

from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import erf

from ens10.errors import ArgumentError
from ens10.metrics._dispatch import Array, common_dtype

SQRT_HALF = 0.5**0.5
INV_SQRT_PI = np.pi**-0.5
FAR = 1e3  # a z at which the normal distribution is 0 or 1 in every dtype, its square finite
UNROLLED = 16  # most members for which all pairs are cheaper than a sort


def crps_normal(mu: Any, sigma: Any, y: Any, *, check: bool = True) -> Array:
    """CRPS of normals; shapes broadcast. See `ens10.metrics.crps_normal`."""
    dtype = common_dtype(mu, sigma, y)
    mu, sigma, y = (np.asarray(a, dtype=dtype) for a in (mu, sigma, y))
    if check:
        check_sigma(sigma)
    d, s = np.broadcast_arrays(y - mu, sigma)
    z = standardised(d, s)
    # C is homogeneous of degree 1 in (d, s): it is d dC/dd + s dC/ds, also at s = 0.
    with np.errstate(over="ignore", under="ignore"):
        by_s = (2 * INV_SQRT_PI * SQRT_HALF) * np.exp(-0.5 * z * z) - INV_SQRT_PI
    score: Array = d * erf(z * SQRT_HALF) + s * by_s
    return score


def standardised(d: Array, s: Array) -> Array:
    """The distance in units of s; where s is 0 its limit, far outside, or 0 if d is 0 too."""
    z: Array = np.asarray(np.sign(d) * FAR, dtype=d.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        np.divide(d, s, out=z, where=s != 0)
    return z


def check_sigma(sigma: Array) -> None:
    """Refuse negative standard deviations.

    Raises:
        ArgumentError: some sigma is below 0.
    """
    negative = sigma < 0
    if negative.any():
        raise ArgumentError(
            "sigma",
            f"{int(negative.sum())} of {sigma.size} standard deviations are negative, "
            f"the lowest is {float(sigma[negative].min()):.6g}",
            "A standard deviation is 0 or more",
        )


def crps_ensemble(members: Any, y: Any, factor: float, axis: int) -> Array:
    """CRPS of ensembles; `factor` is the a of the spread term. See `crps.crps_ensemble`."""
    dtype = common_dtype(members, y)
    x = np.moveaxis(np.asarray(members, dtype=dtype), axis, 0) - np.asarray(y, dtype=dtype)
    distance, spread = crps_terms(x)
    return distance - dtype.type(factor) * spread


def crps_terms(x: Array) -> tuple[Array, Array]:
    """Mean of |x_i| and 1 / M^2 times the sum over pairs of |x_i - x_j|.

    Args:
        x: members less the observation, (M, ...): centred, because sorted sums of large values
            cancel badly in float32.
    """
    M = x.shape[0]
    spread = _spread_of_pairs(x) if M <= UNROLLED else _spread_sorted(x)
    # Member by member: numpy's own sums round differently for other memory layouts, and so
    # for other chunks.
    distance: Array = np.abs(x[0])
    for member in x[1:]:
        distance = distance + np.abs(member)
    return distance / x.dtype.type(M), spread / x.dtype.type(M**2)


def _spread_of_pairs(x: Array) -> Array:
    """Sum over pairs i < j of |x_i - x_j|, members first."""
    total: Array = np.zeros(x.shape[1:], dtype=x.dtype)
    gap = np.empty_like(total)
    for i, j in combinations(range(x.shape[0]), 2):
        np.subtract(x[i], x[j], out=gap)
        np.abs(gap, out=gap)
        total += gap
    return total


def _spread_sorted(x: Array) -> Array:
    """The same from order statistics: the sum of (2k - M + 1) x_(k) over k = 0 .. M-1."""
    M = x.shape[0]
    total: Array = np.zeros(x.shape[1:], dtype=x.dtype)
    for k, member in enumerate(np.sort(x, axis=0)):
        total += member * x.dtype.type(2 * k - M + 1)
    return total
