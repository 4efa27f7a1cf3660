"""Fits of normal regressions by least CRPS or largest likelihood, many problems at once.

Model of each problem: r ~ N(alpha + beta u, gamma^2 + delta^2 v), with all data standardised to
order one. Gneiting et al. (2005), doi:10.1175/MWR2904.1, is the method; the solver is a damped
Newton method (`ens10.models.statistical.newton`) with the exact gradient and Hessian:

    d CRPS / d mu = 1 - 2 Phi(z),    d CRPS / d sigma = 2 phi(z) - 1/sqrt(pi),
    second derivatives in (mu, sigma) = 2 phi(z) / sigma * [[1, z], [z, z^2]],  z = (r - mu) / sigma

of the CRPS, and of the negative log likelihood log sigma + z^2 / 2 (without its constant)

    d / d mu = -z / sigma,    d / d sigma = (1 - z^2) / sigma,
    second derivatives = 1 / sigma^2 * [[1, 2 z], [2 z, 3 z^2 - 1]]

and, since the fit is not convex in (gamma, delta), eigenvalues taken by their magnitude, so that
every step goes downhill.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from ens10.models.statistical import newton
from ens10.models.statistical.newton import Evaluation, Floats
from ens10.models.statistical.spool import map_blocks

_SQRT_PI = math.sqrt(math.pi)
_VARIANCE_FLOOR = 1e-8  # in standardised units: keeps z finite where both terms vanish


@dataclass
class Block:
    """A block of samples of P problems, each array (P, K).

    Args:
        r: predictand.
        u: predictor of its mean.
        v: predictor of its variance, at least 0.
        w: weights; over all blocks of a problem they sum to 1, or all are 0.
    """

    r: Floats
    u: Floats
    v: Floats
    w: Floats

    def select(self, mask: npt.NDArray[np.bool_]) -> "Block":
        """Return the samples of the problems for which `mask` (P,) is True."""
        return Block(self.r[mask], self.u[mask], self.v[mask], self.w[mask])

    def mean(self, values: Floats) -> Floats:
        """Return this block's contribution to the weighted mean of values (P, K), (P, 1)."""
        return np.asarray((self.w * values).sum(1, keepdims=True))


class Samples:
    """All samples of P problems in blocks, which are computed whenever they are used.

    A single block is computed once. Memory holds as many blocks as dask has threads.

    Args:
        makers: functions that return the blocks.
        likelihood: True to score by the negative log likelihood instead of the CRPS.
    """

    def __init__(self, makers: Sequence[Callable[[], Block]], likelihood: bool = False) -> None:
        self.makers, self.likelihood = list(makers), likelihood
        if len(self.makers) == 1:
            block = self.makers[0]()
            self.makers = [lambda: block]

    def map(self, change: Callable[[Block], Block]) -> "Samples":
        """Apply a function to each block, lazily."""
        makers = [lambda maker=maker: change(maker()) for maker in self.makers]
        return Samples(makers, self.likelihood)

    def select(self, mask: npt.NDArray[np.bool_]) -> "Samples":
        """Return the problems for which `mask` (P,) is True."""
        return self.map(lambda block: block.select(mask))

    def sum(self, function: Callable[[Block], Floats]) -> Floats:
        """Sum a function of the blocks, in their order."""
        return np.asarray(np.sum(map_blocks(lambda maker: function(maker()), self.makers), axis=0))

    def evaluate(self, theta: Floats) -> Evaluation:
        """Return the mean score of each problem, its gradient and its Hessian.

        Args:
            theta: (P, 4): alpha, beta, gamma, delta.

        Returns:
            Score (P,), gradient (P, 4) and Hessian (P, 4, 4) in theta.
        """
        sums = self.sum(lambda block: _evaluate_block(theta, block, self.likelihood))
        return sums[:, 0], sums[:, 1:5], sums[:, 5:].reshape(-1, 4, 4)


def _evaluate_block(theta: Floats, block: Block, likelihood: bool) -> Floats:
    """Return a block's score, gradient and Hessian as the columns of an array (P, 21)."""
    u, v, w = block.u, block.v, block.w
    alpha, beta, gamma, delta = (theta[:, i, None] for i in range(4))
    sigma = np.sqrt(gamma**2 + delta**2 * v + _VARIANCE_FLOOR)
    z = (block.r - alpha - beta * u) / sigma
    if likelihood:
        by_mu, by_sigma = -z / sigma, (1 - z * z) / sigma
        value = (w * (np.log(sigma) + 0.5 * z * z)).sum(1)
        curvature, tilt = w / sigma**2, 2 * z
    else:
        phi = np.exp(-0.5 * z * z) * (1 / math.sqrt(2 * math.pi))
        by_mu = 1 - 2 * special.ndtr(z)
        by_sigma = 2 * phi - 1 / _SQRT_PI
        value = (w * sigma * (by_sigma - z * by_mu)).sum(1)
        curvature, tilt = 2 * w * phi / sigma, z

    s_gamma, s_delta = gamma / sigma, delta * v / sigma  # derivatives of sigma
    pull, push = w * by_mu, w * by_sigma
    gradient = [pull.sum(1), (pull * u).sum(1), (push * s_gamma).sum(1), (push * s_delta).sum(1)]
    # rows of the residual's derivative: the curvature is the rank-one product of [1, tilt] with
    # itself, from which 1 + z^2 is subtracted for the likelihood: 3 z^2 - 1 = (2 z)^2 - (1 + z^2)
    slopes = np.stack([np.ones_like(u), u, tilt * s_gamma, tilt * s_delta], 1)
    hessian = (slopes * curvature[:, None]) @ slopes.swapaxes(1, 2)
    if likelihood:
        of_sigma = np.stack([s_gamma, s_delta], 1)
        excess = curvature * (1 + z * z)
        hessian[:, 2:, 2:] -= (of_sigma * excess[:, None]) @ of_sigma.swapaxes(1, 2)
    bend = push / sigma
    hessian[:, 2, 2] += (bend * (1 - s_gamma**2)).sum(1)
    hessian[:, 3, 3] += (bend * (v - s_delta**2)).sum(1)
    cross = (bend * s_gamma * s_delta).sum(1)
    hessian[:, 2, 3] -= cross
    hessian[:, 3, 2] -= cross
    return np.concatenate([np.stack([value, *gradient], 1), hessian.reshape(-1, 16)], 1)


def minimise(theta: Floats, samples: Samples) -> Floats:
    """Return the parameters of least mean score, from a starting point.

    Args:
        theta: (P, 4), the start: alpha, beta, gamma, delta. A gamma or delta of exactly 0 stays 0.
        samples: of the P problems.

    Returns:
        (P, 4), gamma and delta made positive.
    """
    result = newton.minimise(theta, samples)
    result[:, 2:] = np.abs(result[:, 2:])
    return result
