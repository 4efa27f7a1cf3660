"""Multivariate scores of tensors, with analytic gradients.

Arrays have the core axes first: members (members, variables, points), observations (variables,
points). Forward and backward pass are loops over members or variables whose steps are computed
again in the backward pass: stored differences of all pairs would take memory that grows with the
square of their number.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.metrics.multivariate._variables import flatten

Tensor = torch.Tensor


class _EnergyScore(torch.autograd.Function):
    """Energy scores (points) of members less the observation (members, variables, points)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        M = x.shape[0]
        ctx.save_for_backward(x)
        ctx.factor = factor
        spread = torch.zeros_like(x[0, 0])  # sum over pairs i < j of |x_j - x_i|
        for i in range(M - 1):
            spread += _norm(x[i + 1 :] - x[i]).sum(dim=0).squeeze(0)
        return _norm(x).mean(dim=0).squeeze(0) - spread * (factor / M**2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        M = x.shape[0]
        grad_x = _normalise_(x.clone()).div_(M)
        for i in range(M - 1):
            pairs = _normalise_(x[i + 1 :] - x[i]).mul_(ctx.factor / M**2)
            grad_x[i + 1 :] -= pairs
            grad_x[i] += pairs.sum(dim=0)
        return grad_x.mul_(grad), None


def _norm(x: Tensor) -> Tensor:
    """Return the Euclidean norm over the variables: (n, variables, points) -> (n, 1, points)."""
    # `vector_norm` along an axis that is not the last is many times slower on the CPU
    return x.square().sum(dim=1, keepdim=True).sqrt_()


def _normalise_(x: Tensor) -> Tensor:
    """Divide vectors by their norm in place; 0 where x is 0, which is a subgradient of the norm."""
    norm = _norm(x)
    return x.div_(torch.where(norm == 0, 1.0, norm))


def energy_of(x: Tensor, factor: float) -> Tensor:
    """Return energy scores (points) of (members, variables, points) less the observation."""
    with_gradient = torch.is_grad_enabled() and x.requires_grad
    if x.device.type == "cpu" and not with_gradient and x.dtype in (torch.float32, torch.float64):
        from ens10.metrics.multivariate.energy import energy_of as compiled

        return torch.from_numpy(compiled(x.detach().numpy(), factor))
    score: Tensor = _EnergyScore.apply(x, factor)  # type: ignore[no-untyped-call]
    return score


def energy_score_of_tensors(
    members: Tensor, y: Tensor, *, factor: float, variables: int, scale: Any
) -> Tensor:
    """Return the energy scores of tensors, core axes first."""
    x = members - y
    if scale is not None:
        weights = torch.as_tensor(scale).to(x)
        x = x * weights.reshape(*weights.shape, *(1,) * (x.ndim - 1 - variables))
    return energy_of(flatten(x, 1, variables), factor).reshape(x.shape[1 + variables :])


class _VariogramScore(torch.autograd.Function):
    """Variogram scores (points) of members x and observations y, with weights of pairs.

    With d_i = |x_ik - x_il|^p - |y_k - y_l|^p, a pair k, l of variables contributes the square of
    the members' mean of d. The expectation of that square exceeds the square of the expectation by
    the variance of the mean, which sum_i (d_i - mean)^2 / (M (M - 1)) estimates and "fair"
    subtracts.

    The loops run over k; l < k is an axis of the arrays. `pairs` (variables, variables) holds
    w_kl + w_lk, since both orders of a pair contribute the same.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, pairs: Tensor, order: float, fair: bool) -> Tensor:
        ctx.save_for_backward(x, y, pairs)
        ctx.order, ctx.fair = order, fair
        M = x.shape[0]
        score = torch.zeros_like(y[0])
        for k in range(1, x.shape[1]):
            d, mean = _variogram_errors(x, y, k, order)  # (members, k, points), (k, points)
            value = mean.square()
            if fair:
                value = value - (d - mean).square().sum(dim=0) / (M * (M - 1))
            score += (pairs[k, :k, None] * value).sum(dim=0)
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        x, y, pairs = ctx.saved_tensors
        M, order = x.shape[0], ctx.order
        grad_x, grad_y = torch.zeros_like(x), torch.zeros_like(y)
        for k in range(1, x.shape[1]):
            d, mean = _variogram_errors(x, y, k, order)
            scale = 2 * pairs[k, :k, None] * grad
            # half of the derivative of a pair's value by d; `mean` alone depends on y
            by_d = mean.expand_as(d) / M
            if ctx.fair:
                by_d = by_d - (d - mean) / (M * (M - 1))
            # (members, k, points)
            by_x = scale * by_d * _slope(x[:, :k] - x[:, k : k + 1], order)
            grad_x[:, :k] += by_x
            grad_x[:, k] -= by_x.sum(dim=1)
            by_y = scale * mean * _slope(y[:k] - y[k], order)  # (k, points)
            grad_y[:k] -= by_y
            grad_y[k] += by_y.sum(dim=0)
        return grad_x, grad_y, None, None, None


def _variogram_errors(x: Tensor, y: Tensor, k: int, order: float) -> tuple[Tensor, Tensor]:
    """Return |x_ik - x_il|^p - |y_k - y_l|^p of variable k and all l < k.

    Returns:
        Errors of the members (members, k, points), and their mean over the members (k, points).
    """
    of_y = (y[:k] - y[k]).abs().pow(order)
    d = (x[:, :k] - x[:, k : k + 1]).abs().pow(order) - of_y
    return d, d.mean(dim=0)


def _slope(difference: Tensor, order: float) -> Tensor:
    """Return the derivative of |difference|^order, 0 where the difference is 0."""
    # without the clamp 0^(order - 1) is infinite for orders below 1, and times the sign 0 NaN
    size = difference.abs().clamp_(min=torch.finfo(difference.dtype).tiny)
    return size.pow_(order - 1).mul_(order).mul_(difference.sign())


def variogram_score_of_tensors(
    members: Tensor, y: Tensor, *, variables: int, order: float, fair: bool, pairs: Any
) -> Tensor:
    """Return the variogram scores of tensors, core axes first.

    Args:
        members: (members, variable axes, point axes).
        y: (variable axes, point axes); point axes may be missing.
        variables: number of variable axes.
        order: exponent p of the differences.
        fair: True to subtract the sampling variance of the members.
        pairs: weights w_kl + w_lk, (variables, variables).

    Returns:
        Scores over the point axes.
    """
    shape = torch.broadcast_shapes(members.shape[1:], y.shape)  # type: ignore[no-untyped-call]
    x = flatten(members.expand(members.shape[0], *shape), 1, variables)
    observations = flatten(y.expand(shape), 0, variables)
    weights = torch.as_tensor(pairs).to(x)
    with_gradient = torch.is_grad_enabled() and (x.requires_grad or observations.requires_grad)
    if x.device.type == "cpu" and not with_gradient:
        from ens10.metrics.multivariate._loops import variogram_scores as compiled

        a, b, c = (array.detach().double().numpy() for array in (x, observations, weights))
        score = torch.from_numpy(compiled(a, b, c, order, fair)).to(x.dtype)
    else:
        score = _VariogramScore.apply(x, observations, weights, order, fair)  # type: ignore[no-untyped-call]
    return score.reshape(shape[variables:])


def spectral_crps_of_tensors(members: Tensor, y: Tensor, *, factor: float, waves: Any) -> Tensor:
    """Return the spectral CRPS of tensors, core axes first."""
    x = members - y
    coefficients = torch.fft.rfft(x, dim=1, norm="forward")
    M, n = coefficients.shape[:2]
    # each wave is a vector of two variables, for which the energy score is a CRPS in the plane
    parts = torch.stack([coefficients.real, coefficients.imag], dim=1).reshape(M, 2, -1)
    score = energy_of(parts, factor).reshape(n, -1)
    weights = torch.as_tensor(waves).to(score)
    return (weights[:, None] * score).sum(dim=0).reshape(x.shape[2:])
