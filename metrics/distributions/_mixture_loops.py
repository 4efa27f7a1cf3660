"""Compiled CRPS of mixtures of normal distributions and its gradients, in vector instructions.

The score is 1/2 sum_ij w_i w_j (A_i + A_j - A_ij), where A = |d| + s a(d / s) is the mean distance
E|d + s Z| and a(z) = 2 phi(z) - |z| erfc(|z| / sqrt(2)): see `crps_normal_mixture`. The
derivatives of A are erf(d / (s sqrt(2))) with respect to d and 2 phi(d / s) with respect to s, so
one exponential and one polynomial give a term and its derivatives. All is computed in double
precision.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import FUSED, INLINED, exp, horner
from ens10.metrics._ensemble_loops import contiguous
from ens10.metrics.distributions._normal_loops import ERFC_DOUBLE

Array = npt.NDArray[np.float64]

_BLOCK = 128  # points processed together; the numbers of their components fit the L1 cache
_FAR = 26.0  # |d| / (s sqrt(2)) beyond which exp(-t^2) is negligible against 1
_PEAK = float((2 / np.pi) ** 0.5)  # 2 phi(0)
_ROOT_2, _ROOT_HALF = float(2**0.5), float(0.5**0.5)


@numba.njit(**INLINED)
def _excess(size, s):  # type: ignore[no-untyped-def]
    """Return E|d + s Z| - |d|, erfc(t) and 2 phi(|d| / s), where t = |d| / (s sqrt(2)).

    t is at most 26, so that s = 0 or an infinite distance gives an excess of 0, not NaN.
    """
    t = size / s * _ROOT_HALF
    t = t if t < _FAR else _FAR
    w = 3.0 / (t + 3.0)  # the polynomial's argument, see `_normal_loops`
    e = exp(-t * t)
    outside = horner(ERFC_DOUBLE, w) * w * e
    return s * (_PEAK * e - _ROOT_2 * t * outside), outside, _PEAK * e


@numba.njit(**FUSED)
def _set_distances(d, s, excess, side, density):  # type: ignore[no-untyped-def]
    """Set E|d + s Z| - |d| and the derivatives of E|d + s Z| with respect to d and s."""
    for p in range(d.size):
        excess[p], outside, density[p] = _excess(abs(d[p]), s[p])
        sign = 1.0 if d[p] > 0 else 0.0
        sign = -1.0 if d[p] < 0 else sign
        side[p] = sign * (1.0 - outside)


@numba.njit(**FUSED)
def _add_pair(d, s, w, excess, total, by_mu, by_sigma, by_w, i, j):  # type: ignore[no-untyped-def]
    """Add w_i w_j (A_i + A_j - A_ij) to `total`, and its derivatives to the gradients.

    It is the sum of the terms (i, j) and (j, i) of the score, with the factor 1/2.
    """
    di, dj, si, sj, wi, wj, ei, ej = d[i], d[j], s[i], s[j], w[i], w[j], excess[i], excess[j]
    mi, mj, gi, gj, ui, uj = by_mu[i], by_mu[j], by_sigma[i], by_sigma[j], by_w[i], by_w[j]
    for p in range(total.size):
        larger = max(si[p], sj[p])
        ratio = min(si[p], sj[p]) / larger if larger > 0 else 0.0
        pair_sigma = larger * np.sqrt(1.0 + ratio * ratio)
        difference = di[p] - dj[p]
        gap, outside, density = _excess(abs(difference), pair_sigma)
        nearer = min(abs(di[p]), abs(dj[p]))
        shared = 2.0 * nearer if (di[p] > 0) == (dj[p] > 0) else 0.0
        term = shared + ei[p] + ej[p] - gap
        product = wi[p] * wj[p]
        total[p] += product * term
        sign = 1.0 if difference > 0 else 0.0
        sign = -1.0 if difference < 0 else sign
        slope = product * sign * (1.0 - outside)
        mi[p] -= slope
        mj[p] += slope
        by_pair_sigma = product * density / pair_sigma if pair_sigma > 0 else 0.0
        gi[p] -= by_pair_sigma * si[p]
        gj[p] -= by_pair_sigma * sj[p]
        ui[p] += wj[p] * term
        uj[p] += wi[p] * term


@numba.njit(**FUSED)
def _scores_and_gradients(mu, sigma, w, y, score, by_mu, by_sigma, by_w, by_y):  # type: ignore[no-untyped-def]
    """Compute the scores (P,) and their derivatives from components (K, P) and y (P,)."""
    K, points = mu.shape
    d, excess = np.empty((K, _BLOCK)), np.empty((K, _BLOCK))
    side, density = np.empty((K, _BLOCK)), np.empty((K, _BLOCK))
    weight_sum = np.empty(_BLOCK)
    for first in range(0, points, _BLOCK):
        n = min(_BLOCK, points - first)
        at = slice(first, first + n)
        s, shares = sigma[:, at], w[:, at]
        total, share_sum, of_y = score[at], weight_sum[:n], by_y[at]
        of_mu, of_sigma, of_w = by_mu[:, at], by_sigma[:, at], by_w[:, at]
        total[:], share_sum[:], of_y[:] = 0.0, 0.0, 0.0
        for i in range(K):
            row, value = d[i, :n], mu[i, at]
            for p in range(n):
                row[p] = value[p] - y[first + p]
                share_sum[p] += shares[i, p]
            _set_distances(row, s[i], excess[i, :n], side[i, :n], density[i, :n])
        for i in range(K):
            # the pair of a component with itself
            for p in range(n):
                self_term = abs(d[i, p]) + excess[i, p] - 0.5 * _ROOT_2 * _PEAK * s[i, p]
                square = shares[i, p] * shares[i, p]
                total[p] += square * self_term
                slope = shares[i, p] * share_sum[p] * side[i, p]
                of_mu[i, p] = slope
                of_y[p] -= slope
                of_sigma[i, p] = shares[i, p] * share_sum[p] * density[i, p]
                of_sigma[i, p] -= square * _ROOT_HALF * _PEAK
                of_w[i, p] = 2.0 * shares[i, p] * self_term
        for i in range(K):
            for j in range(i + 1, K):
                _add_pair(d[:, :n], s, shares, excess[:, :n], total, of_mu, of_sigma, of_w, i, j)


def scores_and_gradients(
    mu: Any, sigma: Any, component_weights: Any, y: Any
) -> tuple[Array, tuple[Array, Array, Array, Array]]:
    """Return the CRPS of mixtures of normals and its derivatives by all arguments.

    Args:
        mu: means, (K, ...).
        sigma: standard deviations, 0 or more, same shape.
        component_weights: (K, ...), same shape.
        y: observations, (...).

    Returns:
        The scores (...), and the derivatives by mu, sigma, weights (K, ...) and y (...), float64.
    """
    shape = np.shape(mu)
    wide = [
        contiguous(np.asarray(value, np.float64)).reshape(shape[0], -1)
        for value in (mu, sigma, component_weights)
    ]
    observed = contiguous(np.asarray(y, np.float64)).reshape(-1)
    score, by_y = np.empty(observed.shape), np.empty(observed.shape)
    partials = [np.empty(wide[0].shape) for _ in wide]
    _scores_and_gradients(*wide, observed, score, *partials, by_y)
    outer = shape[1:]
    by_mu, by_sigma, by_weights = (values.reshape(shape) for values in partials)
    return score.reshape(outer), (by_mu, by_sigma, by_weights, by_y.reshape(outer))
