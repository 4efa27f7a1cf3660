"""The CRPS on torch tensors, with gradients written out instead of traced.

Autograd through the closed forms gives NaN at sigma = 0 and keeps tens of intermediates. There are
three ways, and the values choose: compiled loops for tensors on the CPU that are not small, torch's
own operations elsewhere, and plain formulas that a compiler can trace inside `torch.compile`.

The first two are autograd functions: differentiable once, and refused by the transforms of
`torch.func` (vmap, jvp, ...), which say so.
"""

from itertools import combinations
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.errors import ArgumentError
from ens10.metrics._kernels_numpy import FAR, INV_SQRT_PI, SMALL, SQRT_HALF
from ens10.metrics.ensemble.autograd_torch import (
    UNROLLED,
    CompiledEnsemble,
    CompiledNormal,
    EagerEnsemble,
    crps_weighted,
)
from ens10.metrics.ensemble.weighted import check_weights

Tensor = torch.Tensor
_PART = 2**15  # numbers
_HALF = (torch.float16, torch.bfloat16)


class EagerNormal(torch.autograd.Function):
    """CRPS of a normal whose mu, sigma and y have one shape and dtype."""

    @staticmethod
    def forward(ctx: Any, mu: Tensor, s: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(mu, s, y)
        if mu.numel() <= _PART or mu.device.type != "cpu":
            d = y - mu
            by_d, by_s = _partials(d, s)
            return torch.addcmul(d.mul_(by_d), s, by_s)  # homogeneous of degree 1
        score = torch.empty_like(mu, memory_format=torch.contiguous_format)
        for mu_, s_, y_, out in _parts(mu, s, y, score):
            d = y_ - mu_
            by_d, by_s = _partials(d, s_)
            torch.addcmul(d.mul_(by_d), s_, by_s, out=out)
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        mu, s, y = ctx.saved_tensors
        by_y, by_sigma = (
            torch.empty_like(grad, memory_format=torch.contiguous_format) for _ in "ys"
        )
        for mu_, s_, y_, grad_, out_y, out_s in _parts(mu, s, y, grad, by_y, by_sigma):
            by_d, by_s = _partials(y_ - mu_, s_)
            torch.mul(grad_, by_d, out=out_y)
            torch.mul(grad_, by_s, out=out_s)
        by_mu = -by_y if ctx.needs_input_grad[2] else by_y.neg_()
        return by_mu, by_sigma, by_y if ctx.needs_input_grad[2] else None


def _parts(*tensors: Tensor) -> Any:
    """Flatten tensors and cut them into pieces that fit the cache of a CPU; not on a GPU."""
    flat = [t.reshape(-1) for t in tensors]
    size = _PART if tensors[0].device.type == "cpu" else max(flat[0].numel(), 1)
    return zip(*(torch.split(t, size) for t in flat), strict=True)


def _partials(d: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Return the derivatives by y - mu and by sigma; finite, also where an input is NaN."""
    z = (d / s.abs()).nan_to_num_(0.0, FAR, -FAR).clamp_(-FAR, FAR)
    by_s = (z * z).mul_(-0.5).exp_().mul_(2 * INV_SQRT_PI * SQRT_HALF).sub_(INV_SQRT_PI)
    return z.mul_(SQRT_HALF).erf_(), by_s


def crps_normal(mu: Tensor, sigma: Tensor, y: Tensor, *, check: bool) -> Tensor:
    """Return the CRPS of normal distributions; the arrays have one dtype and broadcast."""
    if check:
        _check_sigma(sigma)
    shared = (mu, sigma, y)
    if not mu.shape == sigma.shape == y.shape:
        shared = torch.broadcast_tensors(*shared)  # type: ignore[no-untyped-call]
    if mu.dtype in _HALF:
        return crps_normal(*(t.float() for t in shared), check=False).to(mu.dtype)
    if torch.compiler.is_compiling():
        d = shared[2] - shared[0]
        with torch.no_grad():
            by_d, by_s = _partials(d, shared[1])
        traced: Tensor = d * by_d + shared[1] * by_s  # with the derivatives by_d, by_s (Euler)
        return traced
    function: Any = EagerNormal
    if shared[0].numel() >= SMALL and _compiled_here(shared[0]):
        function = CompiledNormal
    score: Tensor = function.apply(*shared)
    return score


def crps_ensemble(
    members: Tensor,
    y: Tensor,
    weights: Tensor | None = None,
    *,
    factor: float,
    estimator: str = "plain",
    alpha: float = 0.95,
    skip: bool = False,
) -> Tensor:
    """Return the CRPS of ensembles, with the member axis first.

    `factor` is the a of the spread term in `ens10.metrics.crps_ensemble`.
    """
    dtype = members.dtype
    if dtype in _HALF:
        members, y = members.float(), y.float()
        weights = None if weights is None else weights.float()
    if weights is not None:
        check_weights(weights.detach())
    if weights is not None or skip:
        score = crps_weighted(members, y, weights, estimator=estimator, alpha=alpha, skip=skip)
        return score.to(dtype)
    y = y.expand(members.shape[1:])
    if torch.compiler.is_compiling():
        return _traced(members - y, factor).to(dtype)
    function: Any = EagerEnsemble
    if _compiled_here(members):
        function = CompiledEnsemble
    crps: Tensor = function.apply(members, y, factor)
    return crps.to(dtype)


def _compiled_here(tensor: Tensor) -> bool:
    """Return True for large CPU tensors, which the compiled numpy loops compute faster."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    wide = tensor.dtype in (torch.float32, torch.float64)
    return plain and wide and tensor.device.type == "cpu" and tensor.numel() >= SMALL


def _traced(x: Tensor, factor: float) -> Tensor:
    """Return the score in operations that `torch.compile` can trace and differentiate."""
    M = x.shape[0]
    if M > UNROLLED:
        ranks = torch.arange(1 - M, M, 2, dtype=x.dtype, device=x.device)
        ordered = torch.sort(x, dim=0).values
        spread = (ordered * ranks.view(-1, *[1] * (x.ndim - 1))).sum(dim=0)
    else:
        spread = torch.zeros_like(x[0])
        for i, j in combinations(range(M), 2):
            spread = spread + (x[i] - x[j]).abs()
    return x.abs().mean(dim=0) - spread * (factor / M**2)


def _check_sigma(sigma: Tensor) -> None:
    if bool((sigma < 0).any()):
        raise ArgumentError(
            "sigma",
            f"{int((sigma < 0).sum())} of {sigma.numel()} standard deviations are negative, "
            f"the lowest is {float(sigma.detach().min()):.6g}",
            "A standard deviation is 0 or more",
        )
