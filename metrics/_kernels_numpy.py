"""The CRPS on numpy arrays: plain forms for few numbers, compiled loops for many.

Plain and compiled forms of ensembles give the same bits. Those of the normal differ by rounding:
by at most 2e-6 of the mean score in single and 1e-14 in double precision.

A missing member has weight 0, and so has a member whose weight is missing; M equal members have
the weights 1 / M, so that one formula covers all. With weights w_i that sum to 1 the spread term is
1/2 sum_ij w_i w_j |x_i - x_j|, and in sorted order the sum of gap_k W_k (1 - W_k), where W_k is
the weight of the members below the gap: every term is positive, so nothing cancels.

The pairs i != j have the weight 1 - sum_i w_i^2 in all. Dividing by it makes the term unbiased for
weights that do not depend on the values, as for the variance with reliability weights; with equal
weights it is the factor M / (M - 1) of the fair score.
"""

from typing import Any

import numpy as np
from scipy.special import erf

from ens10.errors import ArgumentError
from ens10.metrics._dispatch import Array


def fair_share(estimator: str, alpha: float) -> float:
    """Return the share of the fair spread term: 0, 1 or alpha."""
    return {"plain": 0.0, "fair": 1.0}.get(estimator, alpha)


def crps_weighted(
    members: Array, y: Array, weights: Any, *, estimator: str, alpha: float, skip: bool
) -> Array:
    """Return the CRPS of ensembles with weights, or without members with NaN value or weight.

    Args:
        members: (M, ...).
        y: (...).
        weights: weights that broadcast to members, of any scale; None for equal ones.
        estimator: "plain", "fair" or "almost_fair".
        alpha: share of the fair term in "almost_fair".
        skip: True to leave out members with NaN value or weight; otherwise the score is NaN.

    Returns:
        Scores, (...); NaN where no weight is left, or only one member's and the score is fair.
    """
    if weights is not None:
        check_weights(weights)
    weights = np.ones((), members.dtype) if weights is None else weights
    present = ~(np.isnan(members) | np.isnan(weights)) if skip else np.ones((), bool)
    w = np.where(present, weights, 0).astype(members.dtype)
    x = np.where(present, members - y, 0)
    w = np.broadcast_to(w, x.shape)
    total = w.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        w = w / np.where(total > 0, total, np.nan)
        distance = (w * np.abs(x)).sum(axis=0)
        order = np.argsort(x, axis=0)
        x, w = np.take_along_axis(x, order, axis=0), np.take_along_axis(w, order, axis=0)
        below = np.cumsum(w, axis=0)[:-1]
        spread = (np.diff(x, axis=0) * below * (1 - below)).sum(axis=0)
        share = members.dtype.type(fair_share(estimator, alpha))
        if share:
            pairs = 2 * (w[1:] * below).sum(axis=0)  # 1 - sum w^2, without its cancellation
            spread = spread * (share / np.where(pairs > 0, pairs, np.nan) + (1 - share))
    score: Array = (distance - spread).astype(members.dtype)
    return score


def check_weights(weights: Any) -> None:
    """Refuse negative weights of members; an array or a tensor.

    Raises:
        ArgumentError: some weight is below 0.
    """
    negative = weights < 0
    if bool(negative.any()):
        lowest = float(weights[negative].min())
        raise ArgumentError(
            "member_weights",
            f"{int(negative.sum())} are negative, the lowest is {lowest:.6g}",
            "A weight is 0 or more",
        )


SQRT_HALF = 0.5**0.5
INV_SQRT_PI = np.pi**-0.5
FAR = 1e3  # a z at which Phi is 0 or 1 in every dtype, and whose square is finite
SMALL = 2**15  # numbers: fewer take numpy about a millisecond, and nobody waits for a compiler
COMPILED = (np.dtype(np.float32), np.dtype(np.float64))


def crps_normal(mu: Array, sigma: Array, y: Array, *, check: bool = True) -> Array:
    """Return the CRPS of normal distributions; the arrays have one dtype and broadcast."""
    if mu.dtype == np.float16:
        wide = [a.astype(np.float32) for a in (mu, sigma, y)]
        return crps_normal(*wide, check=check).astype(np.float16)
    shape = np.broadcast_shapes(mu.shape, sigma.shape, y.shape)
    mu, s, y = (np.broadcast_to(a, shape) for a in (mu, sigma, y))
    if mu.dtype in COMPILED and mu.size >= SMALL:
        from ens10.metrics import _normal_loops as normal_loops

        score, negative = normal_loops.scores(mu, s, y)
        if check and negative:
            check_sigma(sigma)
        return score
    if check:
        check_sigma(sigma)
    d = y - mu
    z = standardise(d, s)
    # C is homogeneous of degree 1 in (d, s): it is d dC/dd + s dC/ds, also at s = 0.
    with np.errstate(over="ignore", under="ignore"):
        by_s = (2 * INV_SQRT_PI * SQRT_HALF) * np.exp(-0.5 * z * z) - INV_SQRT_PI
    plain: Array = d * erf(z * SQRT_HALF) + s * by_s
    return plain


def standardise(d: Array, s: Array) -> Array:
    """Return d / s; where s is 0, its limit: +-`FAR`, or 0 if d is 0 too."""
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


def crps_ensemble(
    members: Array,
    y: Array,
    weights: Any = None,
    *,
    factor: float,
    estimator: str = "plain",
    alpha: float = 0.95,
    skip: bool = False,
) -> Array:
    """Return the CRPS of ensembles, with the member axis first.

    `factor` is the a of the spread term in `ens10.metrics.crps_ensemble`. It is not used with
    `weights`, or with `skip` where a member is missing.
    """
    if members.dtype == np.float16:
        wide = (members.astype(np.float32), y.astype(np.float32), weights)
        score = crps_ensemble(
            *wide, factor=factor, estimator=estimator, alpha=alpha, skip=skip
        )  # fmt: skip
        return score.astype(np.float16)
    if weights is not None or (skip and np.isnan(members).any()):
        return crps_weighted(members, y, weights, estimator=estimator, alpha=alpha, skip=skip)
    if members.dtype in COMPILED and members.size >= SMALL:
        from ens10.metrics import _ensemble_loops as loops

        return loops.crps(members, y, factor)
    distance, spread = _plain_terms(members - y)
    with np.errstate(invalid="ignore"):
        return distance - members.dtype.type(factor) * spread


def crps_terms(x: Array) -> tuple[Array, Array]:
    """Mean of |x_i| and 1 / M^2 times the sum over pairs of |x_i - x_j|.

    Args:
        x: members less the observation, (M, ...): centred, because sorted sums of large values
            cancel badly in float32.
    """
    if x.dtype in COMPILED and x.size >= SMALL:
        from ens10.metrics import _ensemble_loops as loops

        return loops.terms(x, np.zeros((), x.dtype))
    return _plain_terms(x)


def _plain_terms(x: Array) -> tuple[Array, Array]:
    """Add the terms member by member, as numpy's own sums depend on the memory layout."""
    M = x.shape[0]
    distance: Array = np.abs(x[0])
    for member in x[1:]:
        distance = distance + np.abs(member)
    sorted_x = np.sort(x, axis=0)
    spread: Array = np.zeros_like(distance)
    with np.errstate(invalid="ignore"):  # of infinite members, as in the compiled loops
        for k in range(M // 2):  # the sum of (2k - M + 1) x_(k), in pairs so that less cancels
            spread = spread + (sorted_x[M - 1 - k] - sorted_x[k]) * x.dtype.type(M - 1 - 2 * k)
    return distance / x.dtype.type(M), spread / x.dtype.type(M**2)
