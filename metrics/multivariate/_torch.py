"""Multivariate scores of tensors, with analytic gradients."""

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


class _VariogramScore(torch.autograd.Function):
    """Scores of (members, variables, points) and (variables, points), by the pairs of each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, pairs: Tensor, order: float, fair: bool) -> Tensor:
        ctx.save_for_backward(x, y, pairs)
        ctx.order, ctx.fair = order, fair
        M = x.shape[0]
        score = torch.zeros_like(y[0])
        for k in range(1, x.shape[1]):
            away, mean = _away(x, y, k, order)
            value = mean.square()
            if fair:
                value = value - (away - mean).square().sum(dim=0) / (M * (M - 1))
            score += (pairs[k, :k, None] * value).sum(dim=0)
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        x, y, pairs = ctx.saved_tensors
        M, order = x.shape[0], ctx.order
        by_x, by_y = torch.zeros_like(x), torch.zeros_like(y)
        for k in range(1, x.shape[1]):
            away, mean = _away(x, y, k, order)
            scale = 2 * pairs[k, :k, None] * grad
            by_away = mean.expand_as(away) / M
            if ctx.fair:
                by_away = by_away - (away - mean) / (M * (M - 1))
            part = scale * by_away * _slope(x[:, :k] - x[:, k : k + 1], order)
            by_x[:, :k] += part
            by_x[:, k] -= part.sum(dim=1)
            part = scale * mean * _slope(y[:k] - y[k], order)
            by_y[:k] -= part
            by_y[k] += part.sum(dim=0)
        return by_x, by_y, None, None, None


def _away(x: Tensor, y: Tensor, k: int, order: float) -> tuple[Tensor, Tensor]:
    """Return the members' mean |x_k - x_l|^p less that of y, for variable k and all l < k."""
    truth = (y[:k] - y[k]).abs().pow(order)
    away = (x[:, :k] - x[:, k : k + 1]).abs().pow(order) - truth
    return away, away.mean(dim=0)


def _slope(gap: Tensor, order: float) -> Tensor:
    """Return the derivative of |gap|^order, 0 where the gap is 0."""
    size = gap.abs().clamp_(min=torch.finfo(gap.dtype).tiny)
    return size.pow_(order - 1).mul_(order).mul_(gap.sign())


def variogram_score(
    members: Tensor, y: Tensor, *, variables: int, order: float, fair: bool, pairs: Any
) -> Tensor:
    """Return the variogram scores of tensors, core axes first."""
    shape = torch.broadcast_shapes(members.shape[1:], y.shape)  # type: ignore[no-untyped-call]
    x = flattened(members.expand(members.shape[0], *shape), 1, variables)
    observed = flattened(y.expand(shape), 0, variables)
    weights = torch.as_tensor(pairs).to(x)
    needed = torch.is_grad_enabled() and (x.requires_grad or observed.requires_grad)
    if x.device.type == "cpu" and not needed:
        from ens10.metrics.multivariate._loops import variogram_scores as compiled

        on_host = [a.detach().double().numpy() for a in (x, observed, weights)]
        computed = compiled(on_host[0], on_host[1], on_host[2], order, fair)
        score = torch.from_numpy(computed).to(x.dtype)
    else:
        score = _VariogramScore.apply(x, observed, weights, order, fair)  # type: ignore[no-untyped-call]
    return score.reshape(shape[variables:])


def spectral_crps(members: Tensor, y: Tensor, *, factor: float, waves: Any) -> Tensor:
    """Return the spectral CRPS of tensors, core axes first."""
    x = members - y
    waved = torch.fft.rfft(x, dim=1, norm="forward")
    M, n = waved.shape[:2]
    parts = torch.stack([waved.real, waved.imag], dim=1).reshape(M, 2, -1)
    score = energy_of(parts, factor).reshape(n, -1)
    weights = torch.as_tensor(waves).to(score)
    return (weights[:, None] * score).sum(dim=0).reshape(x.shape[2:])
