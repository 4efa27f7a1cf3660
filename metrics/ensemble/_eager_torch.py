"""The ensemble CRPS in torch's own operations, on any device, with its analytic gradient."""

from itertools import combinations
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.metrics.ensemble._network import exchanges

Tensor = torch.Tensor
UNROLLED = 16  # most members that are sorted and compared pair by pair


class EagerEnsemble(torch.autograd.Function):
    """CRPS of members first, and of observations of the shape of the scores."""

    @staticmethod
    def forward(ctx: Any, members: Tensor, y: Tensor, factor: float) -> Tensor:
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
        members, y = ctx.saved_tensors
        M = members.shape[0]
        x = members - y
        by_x = _counts(x).mul_(-ctx.factor / M**2)
        for slope, member in zip(by_x, x, strict=True):
            slope.add_(member.sign_(), alpha=1 / M).mul_(grad)
        return by_x, -by_x.sum(dim=0) if ctx.needs_input_grad[1] else None, None


def _sorted(x: Tensor) -> Any:
    """Order statistics, in the memory of x and one field more where there are few."""
    if x.shape[0] > UNROLLED:
        return torch.sort(x, dim=0).values
    rows, spare = list(x), torch.empty_like(x[0])
    for i, j in exchanges(x.shape[0]).tolist():
        torch.minimum(rows[i], rows[j], out=spare)
        torch.maximum(rows[i], rows[j], out=rows[j])
        rows[i], spare = spare, rows[i]
    return rows


def _counts(x: Tensor) -> Tensor:
    """How many members are below less how many are above each; NaN is neither."""
    M = x.shape[0]
    if M > UNROLLED:
        ranks = torch.arange(1 - M, M, 2, dtype=x.dtype, device=x.device)
        weights = ranks.view(-1, *[1] * (x.ndim - 1)).expand_as(x)
        return torch.empty_like(x).scatter_(0, torch.argsort(x, dim=0), weights)
    found, gap = torch.zeros_like(x), torch.empty_like(x[0])
    for i, j in combinations(range(M), 2):
        torch.sub(x[i], x[j], out=gap).sign_()
        found[i] += gap
        found[j] -= gap
    return found
