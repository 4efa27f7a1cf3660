"""The scores on torch tensors, with gradients written out instead of traced.

Autograd through the closed forms gives NaN at sigma = 0 and keeps tens of intermediates.
"""

from itertools import combinations
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.errors import ArgumentError
from ens10.metrics._kernels_numpy import FAR, INV_SQRT_PI, SQRT_HALF, UNROLLED

Tensor = torch.Tensor


class _NormalCRPS(torch.autograd.Function):
    """CRPS of a normal from the distance d = y - mu and s = sigma, of one shape and dtype."""

    @staticmethod
    def forward(ctx: Any, d: Tensor, s: Tensor) -> Tensor:
        z = torch.where(s == 0, torch.sign(d) * FAR, d / s)
        by_d = torch.erf(z * SQRT_HALF)
        by_s = (2 * INV_SQRT_PI * SQRT_HALF) * torch.exp(-0.5 * z * z) - INV_SQRT_PI
        ctx.save_for_backward(by_d, by_s)
        score: Tensor = d * by_d + s * by_s  # homogeneous of degree 1
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        by_d, by_s = ctx.saved_tensors
        return grad * by_d, grad * by_s


class _EnsembleCRPS(torch.autograd.Function):
    """CRPS of members x minus the observation, members first; piecewise linear in x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        M = x.shape[0]
        unrolled = _spread_of_pairs if M <= UNROLLED else _spread_sorted
        spread, by_x = unrolled(x, ctx.needs_input_grad[0])
        if by_x is not None:
            ctx.save_for_backward(torch.sign(x) / M - by_x * (factor / M**2))
        return x.abs().mean(dim=0) - spread * (factor / M**2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (by_x,) = ctx.saved_tensors
        return grad * by_x, None


def _spread_of_pairs(x: Tensor, with_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """Sum over pairs of |x_i - x_j|, and its gradient: how many members are below less above."""
    total = torch.zeros_like(x[0])
    by_x = torch.zeros_like(x) if with_gradient else None
    for i, j in combinations(range(x.shape[0]), 2):
        gap = x[i] - x[j]
        total += gap.abs()
        if by_x is not None:
            side = gap.sign_()
            by_x[i] += side
            by_x[j] -= side
    return total, by_x


def _spread_sorted(x: Tensor, with_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """The same from order statistics: weights 2k - M + 1, handed back to their members."""
    M = x.shape[0]
    ranks = torch.arange(1 - M, M, 2, dtype=x.dtype, device=x.device)
    ordered, origin = torch.sort(x, dim=0)
    weights = ranks.view(-1, *[1] * (x.ndim - 1)).expand_as(x)
    total = (ordered * weights).sum(dim=0)
    return total, torch.empty_like(x).scatter_(0, origin, weights) if with_gradient else None


def crps_normal(mu: Any, sigma: Any, y: Any, *, check: bool) -> Tensor:
    """CRPS of normals; shapes broadcast. See `ens10.metrics.crps_normal`."""
    like = next(a for a in (mu, sigma, y) if isinstance(a, Tensor))
    mu, sigma, y = (_tensor(a, like) for a in (mu, sigma, y))
    d = y - mu
    dtype = torch.promote_types(d.dtype, sigma.dtype)
    if check:
        _check_sigma(sigma)
    shape = torch.broadcast_shapes(d.shape, sigma.shape)  # type: ignore[no-untyped-call]
    d, s = d.to(dtype).expand(shape), sigma.to(dtype).expand(shape)
    score: Tensor = _NormalCRPS.apply(d, s)  # type: ignore[no-untyped-call]
    return score


def crps_ensemble(members: Tensor, y: Any, factor: float, axis: int) -> Tensor:
    """CRPS of ensembles; `factor` is the a of the spread term. See `ens10.metrics`."""
    x = members.movedim(axis, 0) - _tensor(y, members)
    score: Tensor = _EnsembleCRPS.apply(x, factor)  # type: ignore[no-untyped-call]
    return score


def _tensor(value: Any, like: Tensor) -> Tensor:
    """Plain numbers take the dtype of the tensors; integer tensors become floating."""
    default = like.dtype if like.dtype.is_floating_point else torch.get_default_dtype()
    if not isinstance(value, Tensor):
        return torch.as_tensor(value, dtype=default, device=like.device)
    return value if value.dtype.is_floating_point else value.to(default)


def _check_sigma(sigma: Tensor) -> None:
    if bool((sigma < 0).any()):
        raise ArgumentError(
            "sigma",
            f"{int((sigma < 0).sum())} of {sigma.numel()} standard deviations are negative, "
            f"the lowest is {float(sigma.detach().min()):.6g}",
            "A standard deviation is 0 or more",
        )
