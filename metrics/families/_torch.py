"""Formulas on tensors, with the gradients that they write out instead of traced ones.

Autograd through closed forms gives NaN at their limits and keeps tens of intermediates; here only
the parameters and the observation are kept.
"""

from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from ens10.metrics.families._ops import NUMPY

Tensor = torch.Tensor


class _TorchOps:
    exp, expm1, log, log1p, sqrt = torch.exp, torch.expm1, torch.log, torch.log1p, torch.sqrt
    abs, sign, full_like, isfinite = torch.abs, torch.sign, torch.full_like, torch.isfinite
    ndtr, log_ndtr, erf = torch.special.ndtr, torch.special.log_ndtr, torch.erf
    expit, softplus = torch.sigmoid, torch.nn.functional.softplus
    gammaln, digamma, gammainc = torch.lgamma, torch.digamma, torch.special.gammainc

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
        if not formula.on_host:
            value: Tensor = formula.value(TORCH, *tensors)
            return value
        return _like(tensors[-1], _hosted(formula.value, tensors))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        formula, tensors = ctx.formula, ctx.saved_tensors
        if formula.on_host:
            made = _hosted(formula.partials, tensors)
            partials = tuple(_like(tensors[-1], p) for p in made)
        else:
            partials = formula.partials(TORCH, *tensors)
        return None, *(grad * p for p in partials)


def evaluate(formula: Any, *tensors: Tensor) -> Tensor:
    """A formula's value of tensors that broadcast; differentiable in all of them."""
    shared = torch.broadcast_tensors(*tensors)  # type: ignore[no-untyped-call]
    value: Tensor = _Evaluate.apply(formula, *shared)  # type: ignore[no-untyped-call]
    return value


def _hosted(function: Any, tensors: tuple[Tensor, ...]) -> Any:
    with np.errstate(all="ignore"):
        return function(NUMPY, *(t.detach().cpu().numpy() for t in tensors))


def _like(tensor: Tensor, values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=tensor.dtype, device=tensor.device)
