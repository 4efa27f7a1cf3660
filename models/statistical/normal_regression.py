"""Minimum-CRPS fits of normal regressions, for many independent problems at once.

Model of each problem: r ~ N(alpha + beta u, gamma^2 + delta^2 v), with all data standardised to
order one. Gneiting et al. (2005), doi:10.1175/MWR2904.1, is the method; the solver is a damped
Newton method with the exact gradient and Hessian:

    d CRPS / d mu = 1 - 2 Phi(z),    d CRPS / d sigma = 2 phi(z) - 1/sqrt(pi),
    second derivatives in (mu, sigma) = 2 phi(z) / sigma * [[1, z], [z, z^2]],  z = (r - mu) / sigma

and, since the fit is not convex in (gamma, delta), eigenvalues taken by their magnitude, so that
every step goes downhill.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_SQRT_PI = math.sqrt(math.pi)
_VARIANCE_FLOOR = 1e-8  # in standardised units: keeps z finite where both terms vanish
_PREDICTED_GAIN = 1e-12  # relative to the score: converged
_ARMIJO = 1e-4
_HALVINGS = 30


@dataclass
class Block:
    """Some of the samples of P problems, float64, each tensor (P, K).

    Args:
        r: what is predicted.
        u: predictor of its mean.
        v: predictor of its variance, at least 0.
        w: weights; over all blocks of a problem they sum to 1, or all are 0.
    """

    r: Tensor
    u: Tensor
    v: Tensor
    w: Tensor

    def select(self, problems: Tensor) -> "Block":
        """The same samples of some of the problems."""
        return Block(self.r[problems], self.u[problems], self.v[problems], self.w[problems])


def score(theta: Tensor, blocks: Sequence[Block]) -> tuple[Tensor, Tensor, Tensor]:
    """Mean CRPS with gradient and Hessian.

    Args:
        theta: (P, 4): alpha, beta, gamma, delta.
        blocks: the samples.

    Returns:
        Score (P,), gradient (P, 4) and Hessian (P, 4, 4) in theta.
    """
    value = theta.new_zeros(len(theta))
    gradient, hessian = theta.new_zeros(theta.shape), theta.new_zeros(*theta.shape, 4)
    for block in blocks:
        parts = _score_of_block(theta, block)
        value, gradient, hessian = value + parts[0], gradient + parts[1], hessian + parts[2]
    return value, gradient, hessian


def _score_of_block(theta: Tensor, block: Block) -> tuple[Tensor, Tensor, Tensor]:
    u, v, w = block.u, block.v, block.w
    alpha, beta, gamma, delta = (column.unsqueeze(1) for column in theta.unbind(1))
    sigma = (gamma**2 + delta**2 * v + _VARIANCE_FLOOR).sqrt()
    z = (block.r - alpha - beta * u) / sigma
    phi = torch.exp(-0.5 * z * z) * (1 / math.sqrt(2 * math.pi))
    by_mu = 1 - 2 * torch.special.ndtr(z)
    by_sigma = 2 * phi - 1 / _SQRT_PI
    value = (w * sigma * (by_sigma - z * by_mu)).sum(1)

    s_gamma, s_delta = gamma / sigma, delta * v / sigma  # derivatives of sigma
    pull, push = w * by_mu, w * by_sigma
    gradient = torch.stack(
        [pull.sum(1), (pull * u).sum(1), (push * s_gamma).sum(1), (push * s_delta).sum(1)], 1
    )
    # rows of the residual's derivative: the curvature is the rank-one product of [1, z] with itself
    slopes = torch.stack([torch.ones_like(u), u, z * s_gamma, z * s_delta], 1)
    curvature = (2 * w * phi / sigma).unsqueeze(1)
    hessian = (slopes * curvature) @ slopes.transpose(1, 2)
    bend = push / sigma
    hessian[:, 2, 2] += (bend * (1 - s_gamma**2)).sum(1)
    hessian[:, 3, 3] += (bend * (v - s_delta**2)).sum(1)
    cross = (bend * s_gamma * s_delta).sum(1)
    hessian[:, 2, 3] -= cross
    hessian[:, 3, 2] -= cross
    return value, gradient, hessian


def minimise(theta: Tensor, blocks: Sequence[Block], max_iterations: int = 60) -> Tensor:
    """The parameters of least mean CRPS, from a starting point.

    Args:
        theta: (P, 4), the start: alpha, beta, gamma, delta. A gamma or delta of exactly 0 stays 0.
        blocks: the samples of the P problems.
        max_iterations: most Newton steps.

    Returns:
        (P, 4), gamma and delta made positive.
    """
    result = theta.clone()
    active = torch.arange(len(theta))
    value, gradient, hessian = score(theta, blocks)
    for _ in range(max_iterations):
        step = _downhill(gradient, hessian)
        gain = -(gradient * step).sum(1)
        open_ = gain > _PREDICTED_GAIN * value
        if not bool(open_.any()):
            break
        if not bool(open_.all()):  # the finished problems cost nothing further
            active, theta, value = active[open_], theta[open_], value[open_]
            step, gain = step[open_], gain[open_]
            blocks = [block.select(open_) for block in blocks]
        theta, value, gradient, hessian = _line_search(theta, value, step, gain, blocks)
        result[active] = theta
    result[:, 2:] = result[:, 2:].abs()
    return result


def _downhill(gradient: Tensor, hessian: Tensor) -> Tensor:
    """Newton step with the eigenvalues' magnitudes, at least 1e-9 of the largest."""
    values, vectors = torch.linalg.eigh(hessian)
    magnitude = values.abs()
    least = 1e-9 * magnitude.amax(1, keepdim=True) + 1e-300
    along = (vectors.transpose(1, 2) @ gradient.unsqueeze(2)).squeeze(2)
    along = along / magnitude.maximum(least)
    step: Tensor = (vectors @ along.unsqueeze(2)).squeeze(2)
    return -step


def _line_search(
    theta: Tensor, value: Tensor, step: Tensor, gain: Tensor, blocks: Sequence[Block]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Halves the step of each problem until its score falls enough; none left: no step."""
    length = torch.ones_like(value)
    for _ in range(_HALVINGS):
        trial = theta + length.unsqueeze(1) * step
        new = score(trial, blocks)
        # a rounding error of slack: near the optimum the fall is below what the sum resolves
        enough = new[0] <= value - _ARMIJO * length * gain + 1e-15 * value
        if bool(enough.all()):
            return trial, *new
        length = torch.where(enough, length, length / 2)
    length = torch.where(enough, length, 0)
    trial = theta + length.unsqueeze(1) * step
    return trial, *score(trial, blocks)
