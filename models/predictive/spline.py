"""A forecast that is a monotone spline of a normal distribution."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.models.predictive._rational_quadratic import Piece, Spline
from ens10.models.predictive.base import independent_levels, probabilities
from ens10.models.predictive.quantiles import StoredAsQuantiles

_NODES = 8  # of Gauss in each piece, and once more in that of the observation
_INV_SQRT_2PI = 1 / math.sqrt(math.tau)


@dataclass(eq=False)
class SplineFlow(StoredAsQuantiles):
    """The distribution of mu + sigma T(Z), Z standard normal (Durkan et al. 2019).

    arXiv:1906.04032. T is a monotone rational-quadratic spline of K pieces, the identity outside
    its first and last knot; density and quantiles are exact. The mean, the standard deviation and
    the CRPS are the normal's, exact, and a correction by the integral of T(z) - z over the pieces,
    by Gauss's rule with 8 nodes in each. With `SplineHead`'s outputs drawn from N(0, 0.5^2) its
    error is below 1e-5 of sigma, from N(0, 1) below 1e-3, and 0.03 with all at their limits.

    Args:
        mu: location, (N, H, W), target units.
        sigma: scale, above 0, (N, H, W), target units.
        x: knots of z, rising, (N, K + 1, H, W).
        y: values of T there, rising, the same as x at both ends.
        slopes: of T there, above 0, and 1 at both ends.

    Raises:
        ArgumentError: shapes that differ.
    """

    mu: Tensor
    sigma: Tensor
    x: Tensor
    y: Tensor
    slopes: Tensor

    def __post_init__(self) -> None:
        if not self.x.shape == self.y.shape == self.slopes.shape:
            raise ArgumentError("x", f"has shape {tuple(self.x.shape)}, y {tuple(self.y.shape)}")
        if self.mu.shape != self.sigma.shape:
            shapes = f"{tuple(self.sigma.shape)}, mu {tuple(self.mu.shape)}"
            raise ArgumentError("sigma", f"has shape {shapes}")

    @property
    def _spline(self) -> Spline:
        return Spline(self.x, self.y, self.slopes)

    def crps(self, y: Tensor) -> Tensor:
        """CRPS, (N, H, W): that of the normal at T's inverse, and an integral over the pieces.

        With t = (y - mu) / sigma and T(u) = t it is sigma times 2 phi(u) + t (2 Phi(u) - 1) -
        1 / sqrt(pi) + 2 int (1{z > u} - Phi(z)) (T(z) - z) phi(z) dz. Its derivative by u is 0.
        """
        t = (y - self.mu) / self.sigma
        with torch.no_grad():
            u, _ = self._spline.inverse(t)
        inside = self._spline.piece_at(self.x, u)
        after = (self.x[:, :-1] > inside.x.unsqueeze(1)).to(u.dtype)

        def signed(z: Tensor, bend: Tensor) -> Tensor:
            product: Tensor = (after - torch.special.ndtr(z)) * bend
            return product

        normal = 2 * _density(u) + t * torch.erf(u / math.sqrt(2)) - 1 / math.sqrt(math.pi)
        score: Tensor = self.sigma * (normal + 2 * (self._integral(signed) + _rest(inside, u)))
        return score

    def log_score(self, y: Tensor) -> Tensor:
        """Minus the logarithm of the density, exact, nats, (N, H, W)."""
        z, slope = self._spline.inverse((y - self.mu) / self.sigma)
        return 0.5 * z.square() + 0.5 * math.log(math.tau) + slope.log() + self.sigma.log()

    @property
    def mean(self) -> Tensor:
        """Expectation, by quadrature."""
        return self.mu + self.sigma * self._integral(lambda _, bend: bend)

    @property
    def std(self) -> Tensor:
        """Standard deviation, by quadrature."""
        square = (
            1
            + self._integral(lambda z, bend: (2 * z + bend) * bend)
            - self._integral(lambda _, bend: bend).square()
        )
        return self.sigma * square.clamp(min=0).sqrt()

    def cdf(self, y: Tensor) -> Tensor:
        """Phi of T's inverse."""
        found: Tensor = torch.special.ndtr(self._spline.inverse((y - self.mu) / self.sigma)[0])
        return found

    def quantile(self, q: float | Tensor) -> Tensor:
        """The value mu + sigma T(Phi^-1(q))."""
        z = torch.special.ndtri(probabilities(q, self.mu).double()).to(self.mu.dtype)
        if z.ndim == 0:
            return self._at(z.expand(self.mu.shape))
        return torch.stack([self._at(one.expand(self.mu.shape)) for one in z])

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws that are independent between grid points, (N, n, H, W)."""
        p = independent_levels(n, self.mu, generator)
        drawn = [self._at(torch.special.ndtri(one).to(self.mu.dtype)) for one in p]
        return torch.stack(drawn, dim=1)

    def _at(self, z: Tensor) -> Tensor:
        # T is the identity at infinity too, where the pieces would give NaN
        return self.mu + self.sigma * self._spline.value(z)

    def _integral(self, of: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Integral of of(z, T(z) - z) phi(z) over the pieces, (N, H, W)."""
        pieces, total = self._spline.pieces(), torch.zeros_like(self.mu)
        for node, weight in zip(*_gauss(), strict=True):
            share = torch.full_like(pieces.x, node)
            z = pieces.x + node * pieces.width
            bend = pieces.value(share) - z
            total = total + weight * (of(z, bend) * _density(z) * pieces.width).sum(1)
        return total


def _rest(piece: Piece, u: Tensor) -> Tensor:
    """Integral of (T(z) - z) phi(z) from u to the end of its piece, (N, H, W)."""
    start, total = ((u - piece.x) / piece.width).clamp(0, 1), torch.zeros_like(u)
    for node, weight in zip(*_gauss(), strict=True):
        share = start + node * (1 - start)
        z = piece.x + share * piece.width
        bend = (piece.value(share) - z) * _density(z)
        total = total + weight * bend * piece.width * (1 - start)
    return total


def _gauss() -> tuple[list[float], list[float]]:
    """Nodes and weights of Gauss's rule on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (0.5 * nodes + 0.5).tolist(), (0.5 * weights).tolist()


def _density(z: Tensor) -> Tensor:
    return _INV_SQRT_2PI * (-0.5 * z.square()).exp()
