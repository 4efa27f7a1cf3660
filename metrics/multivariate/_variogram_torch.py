"""The variogram score of tensors, with an analytic gradient."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.metrics.multivariate._variables import flattened

Tensor = torch.Tensor


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
        from ens10.metrics.multivariate._variogram_loops import variogram_scores as compiled

        on_host = [a.detach().double().numpy() for a in (x, observed, weights)]
        computed = compiled(on_host[0], on_host[1], on_host[2], order, fair)
        score = torch.from_numpy(computed).to(x.dtype)
    else:
        score = _VariogramScore.apply(x, observed, weights, order, fair)  # type: ignore[no-untyped-call]
    return score.reshape(shape[variables:])
