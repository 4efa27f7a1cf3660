"""A forecast that is known at some quantiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from ens10.errors import ArgumentError, listing
from ens10.metrics import crps_quantiles
from ens10.models.predictive.base import Predictive, independent_levels, probabilities

# 1 % to 99 %: what is written of distributions whose form has no name in a store
LEVELS = tuple(percent / 100 for percent in range(1, 100))


class StoredAsQuantiles(Predictive):
    """A distribution of which a Dataset holds the quantiles at `LEVELS`, 1 % to 99 %.

    Scored from there (`ens10.metrics.score_states`), its CRPS is 0.05 to 0.08 % above that of the
    distribution itself: each level stands for its nearest probabilities, and the first and last
    quantile for the tails.
    """

    kind: ClassVar[str] = "quantiles"
    dims: ClassVar[tuple[str, ...]] = ("time", "quantile", "latitude", "longitude")
    long_names: ClassVar[Mapping[str, str]] = {"values": "quantiles of the forecast"}

    def variables(self) -> dict[str, Tensor]:
        """`values`, the quantiles at `LEVELS`, (N, 99, H, W)."""
        return {"values": self.quantile(torch.tensor(LEVELS, dtype=torch.float64)).transpose(0, 1)}

    def core_coordinates(self) -> dict[str, Sequence[float]]:
        """The probabilities of the quantiles."""
        return {"quantile": LEVELS}


@dataclass(eq=False)
class Quantiles(StoredAsQuantiles):
    """The distribution whose quantile function is linear between some levels.

    Beyond the outermost levels it is constant, so that the first and last value have the
    probabilities of the tails.

    Args:
        values: quantiles that do not fall along the second dimension, (N, Q, H, W), target units.
        levels: their probabilities, rising, inside (0, 1).

    Raises:
        ArgumentError: other dimensions, or levels that do not fit or do not rise.
    """

    values: Tensor
    levels: Sequence[float]

    def __post_init__(self) -> None:
        if self.values.ndim != 4 or self.values.shape[1] != len(self.levels):
            raise ArgumentError(
                "values",
                f"has shape {tuple(self.values.shape)}, expected (N, {len(self.levels)}, H, W)",
            )
        edges = [0.0, *self.levels, 1.0]
        if any(low >= high for low, high in pairwise(edges)):
            told = listing([f"{level:g}" for level in self.levels])
            raise ArgumentError("levels", f"{told} do not rise between 0 and 1")

    def variables(self) -> dict[str, Tensor]:
        """`values`."""
        return {"values": self.values}

    def core_coordinates(self) -> dict[str, Sequence[float]]:
        """The probabilities of the quantiles."""
        return {"quantile": self.levels}

    def crps(self, y: Tensor) -> Tensor:
        """CRPS of exactly this distribution (see `ens10.metrics.crps_quantiles`), (N, H, W)."""
        score: Tensor = crps_quantiles(
            self.values, y, levels=list(self.levels), quantile_dim=1, rule="linear"
        )
        return score

    @property
    def _shares(self) -> tuple[Tensor, Tensor]:
        """Widths of the probability between the levels, (Q - 1, 1, 1), and of both tails, (2,)."""
        p = torch.as_tensor(self.levels, dtype=self.values.dtype, device=self.values.device)
        return (p[1:] - p[:-1])[:, None, None], torch.stack([p[0], 1 - p[-1]])

    @property
    def mean(self) -> Tensor:
        """Integral of the quantile function."""
        between, (first, last) = self._shares
        inner = 0.5 * between * (self.values[:, 1:] + self.values[:, :-1])
        found: Tensor = inner.sum(1) + first * self.values[:, 0] + last * self.values[:, -1]
        return found

    @property
    def std(self) -> Tensor:
        """Standard deviation."""
        between, (first, last) = self._shares
        x = self.values - self.mean.unsqueeze(1)
        low, high = x[:, :-1], x[:, 1:]
        inner = between * (low * low + low * high + high * high) / 3
        square = inner.sum(1) + first * x[:, 0].square() + last * x[:, -1].square()
        found: Tensor = square.sqrt()
        return found

    def cdf(self, y: Tensor) -> Tensor:
        """Linear between the quantiles, 0 below and 1 from the last one on."""
        low, high = self.values[:, :-1], self.values[:, 1:]
        between, (first, _) = self._shares
        gap = high - low
        risen = ((y.unsqueeze(1) - low) / torch.where(gap > 0, gap, 1)).clamp(0, 1)
        risen = torch.where(gap > 0, risen, (y.unsqueeze(1) >= low).to(risen.dtype))
        share = first * (y >= self.values[:, 0]) + (between * risen).sum(1)
        share = torch.where(y >= self.values[:, -1], 1, share)
        found: Tensor = torch.where(self.values.isnan().any(1), torch.nan, share)
        return found

    def quantile(self, q: float | Tensor) -> Tensor:
        """Linear between the levels; the outermost values beyond them."""
        p = probabilities(q, self.values).double()
        levels = torch.as_tensor(self.levels, dtype=p.dtype, device=p.device)
        above = torch.searchsorted(levels, p).clamp(1, max(len(self.levels) - 1, 1))
        if len(self.levels) == 1:
            return self.values[:, 0].expand(*p.shape, -1, -1, -1)
        low, high = levels[above - 1], levels[above]
        share = ((p - low) / (high - low)).clamp(0, 1).to(self.values.dtype)
        ranked = self.values.transpose(0, 1)
        share = share.reshape(*p.shape, 1, 1, 1)
        found: Tensor = ranked[above - 1] + share * (ranked[above] - ranked[above - 1])
        return found

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws that are independent between grid points, (N, n, H, W)."""
        p = independent_levels(n, self.values[:, 0], generator).transpose(0, 1)
        levels = torch.as_tensor(self.levels, dtype=p.dtype, device=p.device)
        above = torch.searchsorted(levels, p.contiguous()).clamp(0, len(self.levels) - 1)
        below = (above - 1).clamp(min=0)
        gap = levels[above] - levels[below]
        share = ((p - levels[below]) / torch.where(gap > 0, gap, 1)).clamp(0, 1)
        low, high = self.values.gather(1, below), self.values.gather(1, above)
        found: Tensor = low + share.to(low.dtype) * (high - low)
        return found
