"""Closed forms on tensors, with analytic gradients instead of autograd.

Autograd through closed forms returns NaN at their limits and keeps tens of intermediate tensors;
here only the parameters and the observation are kept.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.metrics._dispatch import on_host, uses_loops
from ens10.metrics._ops_torch import TORCH
from ens10.metrics.distributions.formula import KERNELS

Tensor = torch.Tensor
_HALF = (torch.float16, torch.bfloat16)


class _Evaluate(torch.autograd.Function):
    """A kernel with its partials as gradients.

    Where the score is NaN the partials may be, too; they count as 0, so that a mean that leaves
    such points out trains on the others.
    """

    @staticmethod
    def forward(ctx: Any, kernel: Any, *tensors: Tensor) -> Tensor:
        ctx.kernel = kernel
        ctx.save_for_backward(*tensors)
        if kernel.loop and uses_loops(tensors[0]):
            return torch.from_numpy(kernel.loops.scores(*map(_as_numpy, tensors)))
        value: Tensor = _apply_to_tensors(kernel, kernel.value, tensors)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, *_gradients(ctx.kernel, ctx.saved_tensors, grad, ctx.needs_input_grad[1:])


class _EvaluateInGraph(torch.autograd.Function):
    """A kernel that `torch.compile` cannot trace, as operators of its graph; see `_Evaluate`."""

    @staticmethod
    def forward(ctx: Any, kernel: Any, *tensors: Tensor) -> Tensor:
        ctx.key = kernel.key
        ctx.save_for_backward(*tensors)
        value: Tensor = _opaque_value(list(tensors), kernel.key)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        needs = ctx.needs_input_grad[1:]
        found = _opaque_gradients(grad, list(ctx.saved_tensors), list(needs), ctx.key)
        return None, *(g if needed else None for g, needed in zip(found, needs, strict=True))


def _gradients(
    kernel: Any, tensors: Sequence[Tensor], grad: Tensor, needs: Sequence[bool]
) -> list[Tensor | None]:
    """Return the gradients of a kernel's value by the tensors that need one."""
    if kernel.loop and uses_loops(tensors[0]):
        arrays = map(_as_numpy, (*tensors, grad))
        gradients = kernel.loops.gradients(*arrays, needed=tuple(needs))
        return [None if g is None else torch.from_numpy(g) for g in gradients]
    partials = _partials(kernel, tuple(tensors))
    return [
        grad * (p if kernel.traceable else _without_nan(p)) if needs_grad else None
        for p, needs_grad in zip(partials, needs, strict=True)
    ]


# what `torch.compile` does not look into: numpy, scipy and autograd within a gradient
@torch.library.custom_op("ens10::kernel_value", mutates_args=())
def _opaque_value(tensors: list[Tensor], key: int) -> Tensor:
    # a copy: it may be one of the tensors, and not contiguous, as a graph expects
    value: Tensor = _Evaluate.apply(KERNELS[key], *tensors)  # type: ignore[no-untyped-call]
    return value.clone(memory_format=torch.contiguous_format)


@_opaque_value.register_fake
def _(tensors: list[Tensor], key: int) -> Tensor:  # noqa: ARG001
    return tensors[-1].new_empty(tensors[-1].shape)


@torch.library.custom_op("ens10::kernel_gradients", mutates_args=())
def _opaque_gradients(
    grad: Tensor, tensors: list[Tensor], needs: list[bool], key: int
) -> list[Tensor]:
    gradients = _gradients(KERNELS[key], tensors, grad, needs)
    none, contiguous = grad.new_empty(0), torch.contiguous_format
    return [(none if one is None else one).clone(memory_format=contiguous) for one in gradients]


@_opaque_gradients.register_fake
def _(grad: Tensor, tensors: list[Tensor], needs: list[bool], key: int) -> list[Tensor]:  # noqa: ARG001
    return [grad.new_empty(t.shape if n else 0) for t, n in zip(tensors, needs, strict=True)]


class CompiledMixture(torch.autograd.Function):
    """CRPS of mixtures of normals on the CPU, components first; see `crps_normal_mixture`."""

    @staticmethod
    def forward(ctx: Any, mu: Tensor, sigma: Tensor, shares: Tensor, y: Tensor) -> Tensor:
        from ens10.metrics.distributions._mixture_loops import scores_and_gradients

        score, partials = scores_and_gradients(*(on_host(t) for t in (mu, sigma, shares, y)))
        ctx.save_for_backward(*(torch.from_numpy(p).to(mu.dtype) for p in partials))
        return torch.from_numpy(score).to(mu.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        # a score that is NaN and masked must not make the gradients NaN
        return tuple(torch.where(grad == 0, 0, grad * partial) for partial in ctx.saved_tensors)


def evaluate(kernel: Any, *tensors: Tensor) -> Tensor:
    """Return the value of a kernel for tensors that broadcast; differentiable in all of them."""
    shape, dtype = tensors[0].shape, tensors[0].dtype
    for tensor in tensors:
        if tensor.shape != shape:
            tensors = torch.broadcast_tensors(*tensors)  # type: ignore[no-untyped-call]
            break
    if dtype in _HALF and not kernel.double:
        return evaluate(kernel, *(t.float() for t in tensors)).to(dtype)
    value: Tensor
    if not torch.compiler.is_compiling():
        value = _Evaluate.apply(kernel, *tensors)  # type: ignore[no-untyped-call]
    elif kernel.traceable:
        value = kernel.value(TORCH, *tensors)
    else:
        value = _EvaluateInGraph.apply(kernel, *tensors)  # type: ignore[no-untyped-call]
    return value


def _without_nan(partial: Tensor) -> Tensor:
    return partial.nan_to_num(0.0, math.inf, -math.inf)


def _partials(kernel: Any, tensors: tuple[Tensor, ...]) -> Any:
    """Return the derivatives of a kernel, by its own function or by autograd."""
    if kernel.partials is not None:
        return _apply_to_tensors(kernel, kernel.partials, tensors)
    like = tensors[-1]
    wide = [t.cpu() if like.device.type == "mps" else t for t in tensors]  # which has no float64
    leaves = [(t.double() if kernel.double else t).detach().requires_grad_() for t in wide]
    with torch.enable_grad():
        total = kernel.value(TORCH, *leaves).sum()
    partials = torch.autograd.grad(total, leaves, materialize_grads=True)
    return [p.to(like.device, like.dtype) for p in partials]


def _as_numpy(tensor: Tensor) -> Any:
    return tensor.detach().resolve_neg().numpy()


def _apply_to_tensors(kernel: Any, function: Any, tensors: tuple[Tensor, ...]) -> Any:
    """Apply a kernel's function to tensors, and return its results in their dtype and device."""
    like = tensors[-1]
    is_there = like.device.type == "cpu"
    needs_host = kernel.on_host and (is_there or not kernel.takes_tensors)
    if needs_host or (kernel.double and like.device.type == "mps"):  # which has no float64
        arrays = map(on_host, tensors) if is_there else on_host(torch.stack(tensors))  # one wait
        result = kernel.apply_to_numpy(function, *arrays)
    else:
        result = function(TORCH, *([t.double() for t in tensors] if kernel.double else tensors))
    if isinstance(result, tuple):
        return tuple(torch.as_tensor(m, dtype=like.dtype, device=like.device) for m in result)
    return torch.as_tensor(result, dtype=like.dtype, device=like.device)
