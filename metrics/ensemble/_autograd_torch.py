"""The compiled loops as functions of tensors on the CPU: no copies, one analytic gradient.

The backward pass goes over the members once more instead of keeping a gradient from the forward
one: large tensors cost more to allocate than the loops take. Results lie in memory of numpy, which
asks for large pages.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.metrics.ensemble import _compiled, _normal_compiled, _slopes

Tensor = torch.Tensor


def _numpy(tensor: Tensor) -> Any:
    return tensor.detach().resolve_neg().numpy()


class CompiledEnsemble(torch.autograd.Function):
    """CRPS of members first, and of observations of the shape of the scores."""

    @staticmethod
    def forward(ctx: Any, members: Tensor, y: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(members, y)
        ctx.factor = factor
        return torch.from_numpy(_compiled.scores(_numpy(members), _numpy(y), factor))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        members, y = ctx.saved_tensors
        found = _slopes.gradients(_numpy(members), _numpy(y), _numpy(grad), ctx.factor)
        by_members, by_y = (torch.from_numpy(a) for a in found)
        return by_members, by_y, None


class CompiledNormal(torch.autograd.Function):
    """CRPS of normals whose mu, sigma and y have one shape."""

    @staticmethod
    def forward(ctx: Any, mu: Tensor, sigma: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(mu, sigma, y)
        score, _ = _normal_compiled.scores(*(_numpy(t) for t in (mu, sigma, y)))
        return torch.from_numpy(score)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        given = (_numpy(t) for t in (*ctx.saved_tensors, grad))
        by_mu, by_sigma = (torch.from_numpy(a) for a in _normal_compiled.gradients(*given))
        return by_mu, by_sigma, -by_mu if ctx.needs_input_grad[2] else None
