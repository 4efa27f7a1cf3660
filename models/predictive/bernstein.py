"""A forecast whose quantile function is a Bernstein polynomial."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.models.predictive.base import independent_levels, probabilities
from ens10.models.predictive.quantiles import StoredAsQuantiles

# Between halvings by 6 the polynomial is nearly a line, so that Newton's steps double the digits.
# The error of the CRPS is the square of the root's.
_HALVINGS, _NEWTON = 6, 8


@dataclass(eq=False)
class Bernstein(StoredAsQuantiles):
    """Quantile function q(u) = sum_k a_k B_k(u) of degree d (Bremnes 2020).

    doi:10.1175/MWR-D-19-0227.1. B_k are the d + 1 Bernstein polynomials. The distribution has the
    support [a_0, a_d], and no density beyond it, so that it has no useful logarithmic score.

    Args:
        coefficients: a_0 to a_d, which do not fall, (N, d + 1, H, W), target units.

    Raises:
        ArgumentError: other dimensions, or a degree of 0.
    """

    coefficients: Tensor

    def __post_init__(self) -> None:
        if self.coefficients.ndim != 4 or self.coefficients.shape[1] < 2:
            shape = tuple(self.coefficients.shape)
            raise ArgumentError("coefficients", f"has shape {shape}, expected (N, d + 1, H, W)")

    @property
    def _degree(self) -> int:
        return self.coefficients.shape[1] - 1

    def crps(self, y: Tensor) -> Tensor:
        """CRPS in closed form behind the root u of q(u) = y, (N, H, W).

        2 int (1{v > u} - v) (q(v) - y) dv is sum_k (a_k - y) w_k(u). Its derivative by u is 0, so
        that the gradient by the coefficients is w and needs none of the root.
        """
        return self.twcrps(y, -math.inf, math.inf)

    def twcrps(self, y: Tensor, lower: float, upper: float) -> Tensor:
        """CRPS of q held between the thresholds, in closed form behind three roots."""
        held = y.clamp(lower, upper)
        zero = torch.zeros_like(y)
        with torch.no_grad():
            at = self._root(held)
            low = self._root(zero + lower) if math.isfinite(lower) else zero
            high = self._root(zero + upper) if math.isfinite(upper) else zero + 1
            weights = self._above(at, high) - self._first_moment(low, high)
        gaps = self.coefficients - held.unsqueeze(1)
        score = (gaps * weights).sum(1) * 2
        if math.isfinite(lower):
            score = score + (held - lower) * low.square()
        if math.isfinite(upper):
            score = score + (upper - held) * (1 - high).square()
        return score

    @property
    def mean(self) -> Tensor:
        """Mean of the coefficients."""
        return self.coefficients.mean(1)

    @property
    def std(self) -> Tensor:
        """Standard deviation, from the integrals of products of two Bernstein polynomials."""
        d = self._degree
        gram = torch.tensor(
            [
                [
                    math.comb(d, j) * math.comb(d, k) / (math.comb(2 * d, j + k) * (2 * d + 1))
                    for k in range(d + 1)
                ]
                for j in range(d + 1)
            ],
            dtype=torch.float64,
            device=self.coefficients.device,
        )
        a = (self.coefficients - self.mean.unsqueeze(1)).double()
        square = (a * torch.einsum("jk,nkhw->njhw", gram, a)).sum(1)
        return square.clamp(min=0).sqrt().to(self.coefficients.dtype)

    def cdf(self, y: Tensor) -> Tensor:
        """The root u of q(u) = y; 0 below the support, 1 above."""
        return self._root(y)

    def quantile(self, q: float | Tensor) -> Tensor:
        """The polynomial at `q`."""
        p = probabilities(q, self.coefficients)
        if p.ndim == 0:
            return self._at(p.expand(self.coefficients[:, 0].shape))
        return torch.stack([self.quantile(level) for level in p])

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws that are independent between grid points, (N, n, H, W)."""
        drawn = independent_levels(n, self.coefficients[:, 0], generator)
        return torch.stack([self._at(p.to(self.coefficients.dtype)) for p in drawn], dim=1)

    def _at(self, u: Tensor) -> Tensor:
        return polynomial(self.coefficients, u)

    def _root(self, y: Tensor) -> Tensor:
        """Where q is y: halvings, then Newton's steps held within the bracket."""
        d = self._degree
        # less y, so that large common parts go before rounding
        a = (self.coefficients - y.unsqueeze(1)).detach()
        slopes = d * (a[:, 1:] - a[:, :-1])
        u, low, high = torch.full_like(y, 0.5), torch.zeros_like(y), torch.ones_like(y)
        for n in range(_HALVINGS + _NEWTON):
            value = polynomial(a, u)
            low, high = torch.where(value < 0, u, low), torch.where(value > 0, u, high)
            middle = 0.5 * (low + high)
            if n < _HALVINGS:
                u = torch.where(value == 0, u, middle)
                continue
            slope = polynomial(slopes, u)
            step = u - value / torch.where(slope > 0, slope, 1)
            inside = (step >= low) & (step <= high) & (slope > 0)
            u = torch.where(inside | (value == 0), step, middle)
        u = torch.where(a[:, 0] > 0, 0, torch.where(a[:, -1] <= 0, 1, u))
        return torch.where(a.isnan().any(1), torch.nan, u)

    def _above(self, at: Tensor, high: Tensor) -> Tensor:
        """Integrals of B_k from `at` to `high`, (N, d + 1, H, W)."""
        d = self._degree
        beyond = basis(d + 1, at).cumsum(1) - basis(d + 1, high).cumsum(1)
        return beyond[:, : d + 1] / (d + 1)

    def _first_moment(self, low: Tensor, high: Tensor) -> Tensor:
        """Integrals of u B_k from `low` to `high`, (N, d + 1, H, W)."""
        d = self._degree
        beyond = basis(d + 2, low).cumsum(1) - basis(d + 2, high).cumsum(1)
        k = torch.arange(1, d + 2, device=low.device).to(low.dtype)[:, None, None]
        return beyond[:, 1 : d + 2] * k / ((d + 1) * (d + 2))


def polynomial(a: Tensor, u: Tensor) -> Tensor:
    """sum_k a_k B_k(u) of a (N, d + 1, H, W) at u (N, H, W), by a scheme of Horner's kind."""
    d, rest, power = a.shape[1] - 1, 1 - u, torch.ones_like(u)
    found = a[:, 0]
    for k in range(1, d + 1):
        power = power * u
        found = found * rest + (math.comb(d, k) * power) * a[:, k]
    return found


def basis(d: int, u: Tensor) -> Tensor:
    """The Bernstein polynomials of degree d at u (N, H, W), (N, d + 1, H, W)."""
    powers, rests = [torch.ones_like(u)], [torch.ones_like(u)]
    for _ in range(d):
        powers.append(powers[-1] * u)
        rests.append(rests[-1] * (1 - u))
    pairs = zip(powers, reversed(rests), strict=True)
    return torch.stack([math.comb(d, k) * x * y for k, (x, y) in enumerate(pairs)], dim=1)
