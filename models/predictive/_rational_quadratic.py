"""Monotone rational-quadratic splines, the identity outside an interval.

Durkan et al. (2019), arXiv:1906.04032, eqs. 4-8. A spline of K pieces is given by its knots: x and
y (..., K + 1 along the second dimension), rising, with the same first and last value in both, and
slopes above 0 at the knots, 1 at both ends.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Piece(NamedTuple):
    """One piece of the spline at each point: its corner, size and slopes at both ends."""

    x: Tensor
    y: Tensor
    width: Tensor
    height: Tensor
    slope: Tensor
    next_slope: Tensor

    def value(self, share: Tensor) -> Tensor:
        """The value at x + share * width, of a share in [0, 1]."""
        s, rest = self.height / self.width, share * (1 - share)
        top = self.height * (s * share.square() + self.slope * rest)
        return self.y + top / (s + (self.next_slope + self.slope - 2 * s) * rest)

    def derivative(self, share: Tensor) -> Tensor:
        """Slope of the spline at x + share * width."""
        s, rest = self.height / self.width, share * (1 - share)
        top = self.next_slope * share.square() + 2 * s * rest + self.slope * (1 - share).square()
        below = s + (self.next_slope + self.slope - 2 * s) * rest
        return s.square() * top / below.square()

    def share(self, y: Tensor) -> Tensor:
        """The share at which the spline is y, within the piece; 0 or 1 outside."""
        s, up = self.height / self.width, (y - self.y).clamp(min=0)
        bent = self.next_slope + self.slope - 2 * s
        a = self.height * (s - self.slope) + up * bent
        b = self.height * self.slope - up * bent
        c = -s * up
        # the form of the root that does not cancel; b is positive where a is small
        root = (b.square() - 4 * a * c).clamp(min=0).sqrt()
        below = b + root
        return (-2 * c / torch.where(below > 0, below, 1)).clamp(0, 1)


class Spline(NamedTuple):
    """The knots, each (N, K + 1, H, W)."""

    x: Tensor
    y: Tensor
    slopes: Tensor

    def pieces(self) -> Piece:
        """All pieces, each part (N, K, H, W)."""
        x, y, slopes = self
        return Piece(
            x[:, :-1],
            y[:, :-1],
            x[:, 1:] - x[:, :-1],
            y[:, 1:] - y[:, :-1],
            slopes[:, :-1],
            slopes[:, 1:],
        )

    def piece_at(self, knots: Tensor, values: Tensor) -> Piece:
        """The piece that holds each of `values` (N, H, W) between `knots`, its parts (N, H, W)."""
        inner = knots[:, 1:-1] <= values.unsqueeze(1)
        place = inner.sum(1, keepdim=True)
        return Piece(*(part.gather(1, place).squeeze(1) for part in self.pieces()))

    def value(self, x: Tensor) -> Tensor:
        """The spline at x (N, H, W)."""
        piece = self.piece_at(self.x, x)
        share = ((x - piece.x) / piece.width).clamp(0, 1)
        outside = (x <= self.x[:, 0]) | (x >= self.x[:, -1])
        return torch.where(outside, x, piece.value(share))

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Where the spline is y (N, H, W), and its slope there."""
        piece = self.piece_at(self.y, y)
        share = piece.share(y)
        outside = (y <= self.y[:, 0]) | (y >= self.y[:, -1])
        x = torch.where(outside, y, piece.x + share * piece.width)
        return x, torch.where(outside, 1, piece.derivative(share))
