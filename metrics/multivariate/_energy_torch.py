"""The energy score of tensors, with an analytic gradient."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.metrics.multivariate._variables import flattened

Tensor = torch.Tensor


class _EnergyScore(torch.autograd.Function):
    """Energy scores of members less the observation, (members, variables, points)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        M = x.shape[0]
        ctx.save_for_backward(x)
        ctx.factor = factor
        spread = torch.zeros_like(x[0, 0])
        for i in range(M - 1):
            spread += _norm(x[i + 1 :] - x[i]).sum(dim=0).squeeze(0)
        return _norm(x).mean(dim=0).squeeze(0) - spread * (factor / M**2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        M = x.shape[0]
        by_x = _direction(x.clone()).div_(M)
        for i in range(M - 1):
            away = _direction(x[i + 1 :] - x[i]).mul_(ctx.factor / M**2)
            by_x[i + 1 :] -= away
            by_x[i] += away.sum(dim=0)
        return by_x.mul_(grad), None


def _norm(x: Tensor) -> Tensor:
    # `vector_norm` along an axis that is not the last is many times slower on the CPU
    return x.square().sum(dim=1, keepdim=True).sqrt_()


def _direction(x: Tensor) -> Tensor:
    """Normalise vectors in place; 0 where x is 0, which is a subgradient of the norm."""
    norm = _norm(x)
    return x.div_(torch.where(norm == 0, 1.0, norm))


def energy_of(x: Tensor, factor: float) -> Tensor:
    """Return energy scores (points) of (members, variables, points) less the observation."""
    needed = torch.is_grad_enabled() and x.requires_grad
    if x.device.type == "cpu" and not needed and x.dtype in (torch.float32, torch.float64):
        from ens10.metrics.multivariate.energy import energy_of as compiled

        return torch.from_numpy(compiled(x.detach().numpy(), factor))
    score: Tensor = _EnergyScore.apply(x, factor)  # type: ignore[no-untyped-call]
    return score


def energy_score(
    members: Tensor, y: Tensor, *, factor: float, variables: int, scale: Any
) -> Tensor:
    """Return the energy scores of tensors, core axes first."""
    x = members - y
    if scale is not None:
        weights = torch.as_tensor(scale).to(x)
        x = x * weights.reshape(*weights.shape, *(1,) * (x.ndim - 1 - variables))
    return energy_of(flattened(x, 1, variables), factor).reshape(x.shape[1 + variables :])
