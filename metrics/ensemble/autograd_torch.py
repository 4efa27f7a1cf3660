"""The CRPS of ensembles and normals as functions of tensors, each with its gradient.

Compiled loops serve tensors on the CPU, torch's own operations other devices. Their backward
passes go over the members once more instead of keeping a gradient from the forward pass: large
tensors cost more to allocate than the loops take. Ensembles with weights or missing members are
traced by autograd.
"""

from itertools import combinations
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.metrics.ensemble._network import exchanges
from ens10.metrics.ensemble.weighted import fair_share

Tensor = torch.Tensor
UNROLLED = 16  # most members that are sorted and compared pair by pair


def _numpy(tensor: Tensor) -> Any:
    return tensor.detach().resolve_neg().numpy()


class CompiledEnsemble(torch.autograd.Function):
    """CRPS of members first, and of observations of the shape of the scores."""

    @staticmethod
    def forward(ctx: Any, members: Tensor, y: Tensor, factor: float) -> Tensor:
        """Return scores (...), from members (M, ...) and y (...)."""
        ctx.save_for_backward(members, y)
        ctx.factor = factor
        from ens10.metrics.ensemble import loops  # numba is imported where it is used

        return torch.from_numpy(loops.crps(_numpy(members), _numpy(y), factor))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """Gradients for members, y and factor."""
        members, y = ctx.saved_tensors
        from ens10.metrics.ensemble import loops

        gradients = loops.gradients(_numpy(members), _numpy(y), _numpy(grad), ctx.factor)
        by_members, by_y = (torch.from_numpy(a) for a in gradients)
        return by_members, by_y, None


class CompiledNormal(torch.autograd.Function):
    """CRPS of normals whose mu, sigma and y have one shape."""

    @staticmethod
    def forward(ctx: Any, mu: Tensor, sigma: Tensor, y: Tensor) -> Tensor:
        """Scores, from mu, sigma and y of one shape."""
        ctx.save_for_backward(mu, sigma, y)
        from ens10.metrics.ensemble import normal_loops

        score, _ = normal_loops.scores(*(_numpy(t) for t in (mu, sigma, y)))
        return torch.from_numpy(score)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Gradients for mu, sigma and y."""
        arrays = (_numpy(t) for t in (*ctx.saved_tensors, grad))
        from ens10.metrics.ensemble import normal_loops

        by_mu, by_sigma = (torch.from_numpy(a) for a in normal_loops.gradients(*arrays))
        return by_mu, by_sigma, -by_mu if ctx.needs_input_grad[2] else None


class EagerEnsemble(torch.autograd.Function):
    """CRPS of members first, and of observations of the shape of the scores."""

    @staticmethod
    def forward(ctx: Any, members: Tensor, y: Tensor, factor: float) -> Tensor:
        """Return scores (...), from members (M, ...) and y (...)."""
        ctx.save_for_backward(members, y)
        ctx.factor = factor
        M = members.shape[0]
        x = members - y
        distance = x[0].abs()
        for member in x[1:]:
            distance += member.abs()
        ordered = _sorted(x)
        spread = torch.zeros_like(distance)
        for k in range(M // 2):
            spread += (ordered[M - 1 - k] - ordered[k]).mul_(M - 1 - 2 * k)
        return distance.div_(M).sub_(spread.div_(M**2).mul_(factor))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """Gradients for members, y and factor."""
        members, y = ctx.saved_tensors
        M = members.shape[0]
        x = members - y
        by_x = _counts(x).mul_(-ctx.factor / M**2)
        for slope, member in zip(by_x, x, strict=True):
            slope.add_(member.sign_(), alpha=1 / M).mul_(grad)
        return by_x, -by_x.sum(dim=0) if ctx.needs_input_grad[1] else None, None


def _sorted(x: Tensor) -> Any:
    """Return order statistics; small ensembles are sorted in place with one spare field."""
    if x.shape[0] > UNROLLED:
        return torch.sort(x, dim=0).values
    rows, spare = list(x), torch.empty_like(x[0])
    for i, j in exchanges(x.shape[0]).tolist():
        torch.minimum(rows[i], rows[j], out=spare)
        torch.maximum(rows[i], rows[j], out=rows[j])
        rows[i], spare = spare, rows[i]
    return rows


def _counts(x: Tensor) -> Tensor:
    """Return for each member the number of members below it less that above; NaN is neither."""
    M = x.shape[0]
    if M > UNROLLED:
        ranks = torch.arange(1 - M, M, 2, dtype=x.dtype, device=x.device)
        weights = ranks.view(-1, *[1] * (x.ndim - 1)).expand_as(x)
        return torch.empty_like(x).scatter_(0, torch.argsort(x, dim=0), weights)
    counts, gap = torch.zeros_like(x), torch.empty_like(x[0])
    for i, j in combinations(range(M), 2):
        torch.sub(x[i], x[j], out=gap).sign_()
        counts[i] += gap
        counts[j] -= gap
    return counts


def crps_weighted(
    members: Tensor, y: Tensor, weights: Tensor | None, *, estimator: str, alpha: float, skip: bool
) -> Tensor:
    """CRPS of ensembles, members first, differentiable in members, observations and weights.

    The formula of `ens10.metrics.ensemble.weighted.crps_weighted` in torch's operations.
    """
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
