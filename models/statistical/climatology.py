"""Climatology: the distribution of past truth at each grid point."""

import torch
from torch import Tensor

from ens10.loader.batch import Batch
from ens10.metrics.distributions import Normal
from ens10.models.statistical.base import (
    StatisticalMethod,
    nothing_collected,
    require_same_grid,
)


class Climatology(StatisticalMethod):
    """A normal distribution with the mean and deviation (n - 1) of the training truth.

    Per grid point, over all training dates, without annual cycle. A point with no valid truth has a
    NaN forecast; one with a single date has sigma 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mu: Tensor
        self.sigma: Tensor
        self.register_buffer("mu", torch.zeros(0, 0))
        self.register_buffer("sigma", torch.zeros(0, 0))
        self._state: tuple[Tensor, Tensor, Tensor] | None = None

    def collect(self, batch: Batch) -> None:
        """Merge the batch into count, mean and sum of squares (Chan et al. 1983), float64."""
        valid = batch["weights"].cpu() > 0
        truth = batch["target"].to("cpu", torch.float64)
        count = valid.sum(0).double()
        mean = torch.where(valid, truth, 0).sum(0) / count.clamp(min=1)
        squares = torch.where(valid, truth - mean, 0).square().sum(0)
        if self._state is not None:
            old_count, old_mean, old_squares = self._state
            total = (old_count + count).clamp(min=1)
            gap = mean - old_mean
            mean = old_mean + gap * count / total
            squares = old_squares + squares + gap.square() * old_count * count / total
            count = old_count + count
        self._state = (count, mean, squares)

    def solve(self) -> None:
        """Compute mean and standard deviation."""
        if self._state is None:
            raise nothing_collected(self)
        count, mean, squares = self._state
        sigma = (squares / (count - 1).clamp(min=1)).sqrt()
        empty = count == 0
        self.mu = mean.masked_fill(empty, torch.nan).to(self.mu)
        self.sigma = sigma.masked_fill(empty, torch.nan).to(self.sigma)
        self.solved.fill_(True)
        self._state = None

    def forward(self, batch: Batch) -> Normal:
        """Return the same distribution for every date of the batch."""
        self._require_solved()
        require_same_grid(self, self.mu, batch)
        count = batch["raw_mean"].shape[0]
        return Normal(
            self.mu.expand(count, -1, -1).contiguous(),
            self.sigma.expand(count, -1, -1).contiguous(),
        )
