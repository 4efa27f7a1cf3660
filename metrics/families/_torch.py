"""Formulas on tensors, with the gradients that they write out instead of traced ones.

Autograd through closed forms gives NaN at their limits and keeps tens of intermediates; here only
the parameters and the observation are kept.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.metrics._dispatch import on_host

Tensor = torch.Tensor


class _TorchOps:
    exp, expm1, log, log1p, sqrt = torch.exp, torch.expm1, torch.log, torch.log1p, torch.sqrt
    abs, sign, full_like, isfinite = torch.abs, torch.sign, torch.full_like, torch.isfinite
    ndtr, log_ndtr, erf = torch.special.ndtr, torch.special.log_ndtr, torch.erf
    tanh, erfcx = torch.tanh, torch.special.erfcx
    expit = torch.sigmoid
    gammaln, digamma, gammainc = torch.lgamma, torch.digamma, torch.special.gammainc

    @staticmethod
    def some(condition: Any) -> bool:
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


TORCH: Any = _TorchOps


class _Evaluate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, formula: Any, *tensors: Tensor) -> Tensor:
        ctx.formula = formula
        ctx.save_for_backward(*tensors)
        value: Tensor = _computed(formula, formula.value, tensors)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        partials = _computed(ctx.formula, ctx.formula.partials, ctx.saved_tensors)
        return None, *(
            grad * p if needed else None
            for p, needed in zip(partials, ctx.needs_input_grad[1:], strict=True)
        )


def evaluate(formula: Any, *tensors: Tensor) -> Tensor:
    """A formula's value of tensors that broadcast; differentiable in all of them."""
    shared = torch.broadcast_tensors(*tensors)  # type: ignore[no-untyped-call]
    value: Tensor = _Evaluate.apply(formula, *shared)  # type: ignore[no-untyped-call]
    return value


def _computed(formula: Any, function: Any, tensors: tuple[Tensor, ...]) -> Any:
    """What a formula's function makes of tensors, in their dtype and on their device."""
    like = tensors[-1]
    if formula.on_host or (formula.double and like.device.type == "mps"):  # which has no float64
        made = formula.on_arrays(function, *(on_host(t) for t in tensors))
    else:
        made = function(TORCH, *(t.double() if formula.double else t for t in tensors))
    if isinstance(made, tuple):
        return tuple(torch.as_tensor(m, dtype=like.dtype, device=like.device) for m in made)
    return torch.as_tensor(made, dtype=like.dtype, device=like.device)


class _Bernstein(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, y: Tensor, check: bool) -> Tensor:
        from ens10.metrics.families.bernstein import value_and_slopes

        value, by_a, by_y = map(a.new_tensor, value_and_slopes(on_host(a), on_host(y), check))
        ctx.save_for_backward(by_a, by_y)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_a, by_y = ctx.saved_tensors
        return grad * by_a, grad * by_y, None


def bernstein(a: Tensor, y: Tensor, check: bool) -> Tensor:
    """CRPS of Bernstein quantile functions, coefficients first; computed on the host."""
    shape = torch.broadcast_shapes(a.shape[1:], y.shape)  # type: ignore[no-untyped-call]
    wide = a.expand(a.shape[0], *shape), y.expand(shape)
    value: Tensor = _Bernstein.apply(*wide, check)  # type: ignore[no-untyped-call]
    return value
