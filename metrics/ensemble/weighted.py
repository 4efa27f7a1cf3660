"""CRPS of ensembles with member weights or missing members.

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
    there = ~(np.isnan(members) | np.isnan(weights)) if skip else np.ones((), bool)
    w = np.where(there, weights, 0).astype(members.dtype)
    x = np.where(there, members - y, 0)
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
