"""Closed forms on tensors, with analytic gradients instead of autograd.

Autograd through closed forms returns NaN at their limits and keeps tens of intermediate tensors;
here only the parameters and the observation are kept.
"""

from typing import Any

import torch
from scipy import special
from torch.autograd.function import once_differentiable

from ens10.metrics._dispatch import on_host

Tensor = torch.Tensor


class _TorchOps:
    exp, expm1, log, log1p, sqrt = torch.exp, torch.expm1, torch.log, torch.log1p, torch.sqrt
    abs, sign, full_like, isfinite = torch.abs, torch.sign, torch.full_like, torch.isfinite
    isnan, ndtri, logit = torch.isnan, torch.special.ndtri, torch.special.logit
    einsum, moveaxis, searchsorted = torch.einsum, torch.movedim, torch.searchsorted
    ceil, cumsum, broadcast_to = torch.ceil, torch.cumsum, torch.broadcast_to
    ndtr, log_ndtr, erf = torch.special.ndtr, torch.special.log_ndtr, torch.erf
    tanh, erfcx = torch.tanh, torch.special.erfcx
    expit = torch.sigmoid
    gammaln, digamma, gammainc = torch.lgamma, torch.digamma, torch.special.gammainc

    @staticmethod
    def any_true(condition: Any) -> bool:
        return condition.device.type != "cpu" or bool(condition.any())

    @staticmethod
    def softplus(x: Any) -> Any:
        # torch's own is x above 20, which is 2e-9 off
        return torch.clamp(x, min=0) + torch.log1p(torch.exp(-torch.abs(x)))

    @staticmethod
    def maximum(x: Any, y: Any) -> Any:
        return torch.clamp(x, min=y)

    @staticmethod
    def minimum(x: Any, y: Any) -> Any:
        return torch.clamp(x, max=y)

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Any:
        return torch.where(condition, x, y)

    @staticmethod
    def stdtrit(df: Any, p: Any) -> Any:
        """Return quantiles of Student's t distribution, by scipy on the host; no gradient."""
        quantile = special.stdtrit(on_host(torch.as_tensor(df)), on_host(p))
        return torch.as_tensor(quantile, dtype=p.dtype, device=p.device)

    @staticmethod
    def sort(x: Any, axis: int) -> Any:
        return torch.sort(x, dim=axis).values

    @staticmethod
    def stack(arrays: Any, axis: int) -> Any:
        return torch.stack(arrays, dim=axis)

    @staticmethod
    def concat(arrays: Any, axis: int) -> Any:
        return torch.cat(arrays, dim=axis)

    @staticmethod
    def take_along(x: Any, index: Any, axis: int) -> Any:
        return torch.take_along_dim(x, index, dim=axis)

    @staticmethod
    def cast(values: Any, like: Any) -> Any:
        return torch.as_tensor(values, dtype=like.dtype, device=like.device)

    @staticmethod
    def double_like(values: Any, like: Any) -> Any:
        return torch.as_tensor(values, dtype=torch.float64, device=like.device)

    @staticmethod
    def detach(x: Any) -> Any:
        return x.detach()

    @staticmethod
    def to_integers(x: Any) -> Any:
        return x.long()

    @staticmethod
    def draw_members(members: Any, n: int, generator: Any) -> Any:
        """Draw whole members of each date with replacement."""
        size, device = members.shape[-3], members.device
        shape = (*members.shape[:-3], n)
        indices = torch.randint(size, shape, generator=generator, device=device)
        return torch.take_along_dim(members, indices[..., None, None], dim=-3)

    @staticmethod
    def normal(shape: Any, like: Any, generator: Any) -> Any:
        """Return standard normal numbers in the dtype and on the device of an array."""
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)

    @staticmethod
    def random(shape: Any, like: Any, generator: Any, least: float) -> Any:
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64, device=like.device)
        return uniform.clamp(min=least)


TORCH: Any = _TorchOps


class _Evaluate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, formula: Any, *tensors: Tensor) -> Tensor:
        ctx.formula = formula
        ctx.save_for_backward(*tensors)
        value: Tensor = _apply_formula(formula, formula.value, tensors)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        partials = _apply_formula(ctx.formula, ctx.formula.partials, ctx.saved_tensors)
        return None, *(
            grad * p if needs_grad else None
            for p, needs_grad in zip(partials, ctx.needs_input_grad[1:], strict=True)
        )


class CompiledMixture(torch.autograd.Function):
    """CRPS of mixtures of normals on the CPU, components first; see `crps_normal_mixture`."""

    @staticmethod
    def forward(ctx: Any, mu: Tensor, sigma: Tensor, shares: Tensor, y: Tensor) -> Tensor:
        from ens10.metrics._mixture_loops import scores_and_gradients

        score, partials = scores_and_gradients(*(on_host(t) for t in (mu, sigma, shares, y)))
        ctx.save_for_backward(*(torch.from_numpy(p).to(mu.dtype) for p in partials))
        return torch.from_numpy(score).to(mu.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        # a score that is NaN and masked must not make the gradients NaN
        return tuple(torch.where(grad == 0, 0, grad * partial) for partial in ctx.saved_tensors)


def evaluate(formula: Any, *tensors: Tensor) -> Tensor:
    """Return the value of a formula for tensors that broadcast; differentiable in all of them."""
    shared = torch.broadcast_tensors(*tensors)  # type: ignore[no-untyped-call]
    value: Tensor = _Evaluate.apply(formula, *shared)  # type: ignore[no-untyped-call]
    return value


def _apply_formula(formula: Any, function: Any, tensors: tuple[Tensor, ...]) -> Any:
    """Apply a formula's function to tensors, and return its results in their dtype and device."""
    like = tensors[-1]
    if formula.on_host or (formula.double and like.device.type == "mps"):  # which has no float64
        result = formula.apply_to_numpy(function, *(on_host(t) for t in tensors))
    else:
        result = function(TORCH, *(t.double() if formula.double else t for t in tensors))
    if isinstance(result, tuple):
        return tuple(torch.as_tensor(m, dtype=like.dtype, device=like.device) for m in result)
    return torch.as_tensor(result, dtype=like.dtype, device=like.device)
