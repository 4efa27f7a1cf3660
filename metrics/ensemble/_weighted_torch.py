"""Ensembles with weights or missing members on tensors: the formula, traced by autograd.

It is `_weighted` in torch's operations; differentiable in members, observations and weights.
"""

import torch

from ens10.metrics.ensemble._weighted import fair_share

Tensor = torch.Tensor


def crps_weighted(
    members: Tensor, y: Tensor, weights: Tensor | None, *, estimator: str, alpha: float, skip: bool
) -> Tensor:
    """CRPS of ensembles, members first; see `ens10.metrics.ensemble._weighted.crps_weighted`."""
    w = torch.ones_like(members) if weights is None else weights.expand_as(members)
    missing = members.isnan() | w.isnan()
    undefined = y.isnan() if skip else y.isnan() | missing.any(dim=0)
    # zeros in place of every NaN: the gradient 0 of a point without a score times NaN is NaN
    gap = missing | y.isnan()
    w, x = w.masked_fill(missing, 0.0), (members - y).masked_fill(gap, 0.0)
    total = w.sum(dim=0)
    w = w / torch.where(total > 0, total, 1.0)
    distance = (w * x.abs()).sum(dim=0)
    ordered, order = torch.sort(x, dim=0)
    w = w.gather(0, order)
    below = w.cumsum(dim=0)[:-1]
    spread = (ordered.diff(dim=0) * below * (1 - below)).sum(dim=0)
    undefined = undefined | ~(total > 0)
    share = fair_share(estimator, alpha)
    if share:
        pairs = 2 * (w[1:] * below).sum(dim=0)  # 1 - sum w^2, without its cancellation
        undefined = undefined | ~(pairs > 0)
        spread = spread * (share / torch.where(pairs > 0, pairs, 1.0) + (1 - share))
    # filled in last, so that a point without a score has no gradient instead of a NaN
    return (distance - spread).masked_fill(undefined, torch.nan)
