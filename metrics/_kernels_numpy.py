"""The CRPS of ensembles on numpy arrays: plain forms for few numbers, compiled loops for many.

Plain and compiled forms give the same bits.

A missing member has weight 0, and so has a member whose weight is missing; M equal members have
the weights 1 / M, so that one formula covers all. With weights w_i that sum to 1 the spread term is
1/2 sum_ij w_i w_j |x_i - x_j|, and in sorted order the sum of gap_k W_k (1 - W_k), where W_k is
the weight of the members below the gap: every term is positive, so nothing cancels.

The pairs i != j have the weight 1 - sum_i w_i^2 in all. Dividing by it makes the term unbiased for
weights that do not depend on the values, as for the variance with reliability weights; with equal
weights it is the factor M / (M - 1) of the fair score.
"""

import math
from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._dispatch import Array, uses_loops
from ens10.metrics._ops import NUMPY
from ens10.metrics._reduce import refuse_negative


def fair_share(estimator: str, alpha: float) -> float:
    """Return the share of the fair spread term: 0, 1 or alpha."""
    return {"plain": 0.0, "fair": 1.0}.get(estimator, alpha)


def crps_weighted(
    ops: Any, members: Any, y: Any, weights: Any, *, estimator: str, alpha: float, skip: bool
) -> Any:
    """Return the CRPS of ensembles with weights, or without members with NaN value or weight.

    Args:
        ops: functions of the arrays' library; tensors are differentiable in all arrays.
        members: (M, ...).
        y: (...).
        weights: weights that broadcast to members, of any scale; None for equal ones.
        estimator: "plain", "fair" or "almost_fair".
        alpha: share of the fair term in "almost_fair".
        skip: True to leave out members with NaN value or weight; otherwise the score is NaN.

    Returns:
        Scores, (...); NaN where no weight is left, or only one member's and the score is fair.
    """
    w = ops.full_like(members, 1.0) if weights is None else ops.cast(weights, members)
    w = ops.broadcast_to(w, members.shape)
    missing = ops.isnan(members) | ops.isnan(w)
    undefined = ops.isnan(y) if skip else ops.isnan(y) | missing.any(0)
    # zeros in place of every NaN: the gradient 0 of a point without a score times NaN is NaN
    w = ops.where(missing, 0.0, w)
    x = ops.where(missing | ops.isnan(y), 0.0, members - y)
    total = w.sum(0)
    w = w / ops.where(total > 0, total, 1.0)
    distance = (w * ops.abs(x)).sum(0)
    order = ops.argsort(x, 0)
    x, w = ops.take_along(x, order, 0), ops.take_along(w, order, 0)
    below = ops.cumsum(w, 0)[:-1]
    spread = ((x[1:] - x[:-1]) * below * (1 - below)).sum(0)
    undefined = undefined | ~(total > 0)
    share = fair_share(estimator, alpha)
    if share:
        pairs = 2 * (w[1:] * below).sum(0)  # 1 - sum w^2, without its cancellation
        undefined = undefined | ~(pairs > 0)
        spread = spread * (share / ops.where(pairs > 0, pairs, 1.0) + (1 - share))
    # last, so that a point without a score has no gradient instead of a NaN
    return ops.where(undefined, math.nan, distance - spread)


def owcrps_between(
    ops: Any, members: Any, y: Any, lower: Any, upper: Any, *, share: float, skip: bool
) -> Any:
    """Return the outcome-weighted CRPS for outcomes between thresholds."""
    inside, observed = (ops.cast((v >= lower) & (v <= upper), members) for v in (members, y))
    score = _outcome_weighted(ops, members - y, inside, observed, share, skip)
    return ops.where(ops.isnan(lower) | ops.isnan(upper), math.nan, score)


def owcrps_weighted(
    ops: Any, members: Any, y: Any, w: Any, y_weight: Any, *, check: bool, skip: bool
) -> Any:
    """Return the outcome-weighted CRPS for weights of members and of observations."""
    if check:
        refuse_negative(ops.detach(w), ops.detach(y_weight))
    return _outcome_weighted(ops, members - y, w, y_weight, 0.0, skip)


def _outcome_weighted(ops: Any, x: Any, w: Any, y_weight: Any, share: float, skip: bool) -> Any:
    """Return the outcome-weighted CRPS.

    Args:
        ops: functions of the arrays' library.
        x: members less the observation, (M, ...).
        w: weights of the members, (M, ...).
        y_weight: weight of the observation, (...).
        share: share of the fair factor: 0 is plain, 1 fair.
        skip: True to leave out members with NaN.
    """
    shape = np.broadcast_shapes(x.shape, w.shape)
    x, w = ops.broadcast_to(x, shape), ops.broadcast_to(w, shape)
    absent = ops.isnan(x)
    x = ops.where(absent | (w == 0) if skip else (w == 0) & ~absent, 0.0, x)
    if skip:
        w = ops.where(absent, 0.0, w)
    undefined = w.sum(0) <= (1 if share else 0)
    # Only ratios count: the greatest weight becomes 1, so that weights of 1 and 0 stay exact. No
    # division by 0 on the way to what is masked: its gradient would be NaN
    w = ops.where(undefined, 1.0, w / ops.where(undefined, 1.0, ops.amax(w, 0)))
    order = ops.argsort(x, 0)
    x, w = ops.take_along(x, order, 0), ops.take_along(w, order, 0)
    before = ops.cumsum(w, 0)
    total = before[-1]
    distance = (w * ops.abs(x)).sum(0) / total
    spread = (w * x * (2 * before - w - total)).sum(0) / total**2
    factor = share * total / (total - 1) + (1 - share) if share else 1.0
    return ops.where(undefined, math.nan, y_weight * (distance - factor * spread))


def check_weights(weights: Any) -> None:
    """Refuse negative weights of members; an array or a tensor.

    Raises:
        ArgumentError: some weight is below 0.
    """
    negative = np.zeros(()) if weights is None else weights < 0
    if bool(negative.any()):
        lowest = float(weights[negative].min())
        raise ArgumentError(
            "member_weights",
            f"{int(negative.sum())} are negative, the lowest is {lowest:.6g}",
            "A weight is 0 or more",
        )


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
        check_weights(weights)
        options: Any = {"estimator": estimator, "alpha": alpha, "skip": skip}
        weighted: Array = crps_weighted(NUMPY, members, y, weights, **options)
        return weighted
    if uses_loops(members):
        from ens10.metrics import _ensemble_loops as loops

        return loops.crps(members, y, factor)
    distance, spread = _plain_terms(members - y)
    with np.errstate(invalid="ignore"):
        return distance - members.dtype.type(factor) * spread


def _plain_terms(x: Array) -> tuple[Array, Array]:
    """Mean of |x_i| and 1 / M^2 times the sum over pairs of |x_i - x_j|.

    They are added member by member, as numpy's own sums depend on the memory layout.

    Args:
        x: members less the observation, (M, ...): centred, because sorted sums of large values
            cancel badly in float32.
    """
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
