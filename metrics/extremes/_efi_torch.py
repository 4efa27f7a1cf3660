"""The exact EFI on tensors, with its gradient written out."""

import math
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.errors import ArgumentError

Tensor = torch.Tensor


class _ExactEFI(torch.autograd.Function):
    """Exact EFI of members (..., M) with quantiles (..., K), their levels and 1 - levels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, q: Tensor, below: Tensor, above: Tensor, M: Tensor) -> Tensor:
        places = torch.searchsorted(q, x)  # the number of quantiles below
        upper = places.clamp(1, q.shape[-1] - 1)
        b, a = q.gather(-1, upper), q.gather(-1, upper - 1)
        slope = (below[upper] - below[upper - 1]) / (b - a)
        inside = (places > 0) & (places < q.shape[-1])
        last = (places - 1).clamp(min=0)
        u = torch.where(inside, below[upper - 1] + (x - a) * slope, below[last])
        v = torch.where(inside, above[upper] + (b - x) * slope, above[last])
        present = ~x.isnan()
        angle = torch.atan2(u.sqrt(), v.sqrt()).masked_fill(~present, 0.0)
        factor = 4 / (math.pi * M)
        if ctx.needs_input_grad[0]:
            steep = inside & present & (u > 0) & (v > 0)
            by_x = 0.5 * slope / (u.sqrt() * v.sqrt())
            ctx.save_for_backward(by_x.masked_fill(~steep, 0.0) * factor[..., None])
        return factor * angle.sum(dim=-1) - 1

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (by_x,) = ctx.saved_tensors
        return grad[..., None] * by_x, None, None, None, None


def exact(members: Tensor, climate: Tensor, *, levels: Any, skip: bool, check: bool) -> Tensor:
    """Return the exact EFI of members (M, ...) with climate quantiles (K, ...)."""
    if climate.requires_grad:
        raise ArgumentError("climate", "the index has no gradient for its climate", "Detach it")
    missing = climate.isnan().all(dim=0)
    if check:
        _check(climate, missing)
    loops = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
        members.shape[1:], climate.shape[1:]
    )
    x = members.expand(-1, *loops).movedim(0, -1).contiguous()
    q = climate.expand(-1, *loops).movedim(0, -1).contiguous()
    p = torch.as_tensor(levels, dtype=torch.float64, device=x.device)
    below, above = p.to(x.dtype), (1 - p).to(x.dtype)
    present_count = (~x.isnan()).sum(dim=-1)
    valid = ~missing.expand(loops) & (present_count > 0 if skip else present_count == x.shape[-1])
    count = present_count.clamp(min=1).to(x.dtype)
    score: Tensor = _ExactEFI.apply(x, q, below, above, count)  # type: ignore[no-untyped-call]
    return score.masked_fill(~valid, math.nan)


def _check(climate: Tensor, missing: Tensor) -> None:
    if bool((climate.isnan().any(dim=0) & ~missing).any()):
        raise ArgumentError(
            "climate", "NaN among the quantiles of a point", "All or none of a point may be missing"
        )
    if bool((climate.diff(dim=0) < 0).any()):
        raise ArgumentError("climate", "quantiles that do not ascend", "Sort them, by level")
