"""Climatology: the distribution of past truth at a grid point, of all dates or by season."""

import torch
from torch import Tensor

from ens10.loader.batch import Batch
from ens10.metrics.distributions import Normal
from ens10.models.statistical.base import StatisticalMethod, nothing_collected, require_same_grid
from ens10.models.statistical.harmonics import CycleSums, annual_cycle, check_harmonics


class Climatology(StatisticalMethod):
    """A normal distribution with the mean and deviation (n - 1) of the training truth.

    Per grid point, over all training dates, without annual cycle. A point with no valid truth has a
    NaN forecast; one with a single date has sigma 0.
    """

    may_be_nan = ("mu", "sigma")

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


_LEAST_SHARE = 0.1  # of the year's mean variance: a cycle of few harmonics may dip below 0


class SeasonalClimatology(StatisticalMethod):
    """A normal distribution of the training truth at each grid point for the time of year.

    Mean and variance follow harmonics of the year: the truth, and then its squared deviation, is
    regressed on them by least squares. The variance is at least a tenth of its mean over the
    training dates. A point with fewer than three dates per coefficient has a constant mean and
    variance, one without any a NaN forecast.

    Until `solve` it uses 16 (6 H + 3) bytes for each grid point, whatever the number of
    dates.

    Args:
        harmonics: number H of harmonics of mean and variance; 0 is `Climatology`.

    Raises:
        ArgumentError: a negative number of harmonics.
    """

    may_be_nan = ("mean_cycle", "variance_cycle")

    def __init__(self, harmonics: int = 2) -> None:
        super().__init__()
        check_harmonics(harmonics)
        self.harmonics = harmonics
        self.mean_cycle: Tensor
        self.variance_cycle: Tensor
        self.register_buffer("mean_cycle", torch.zeros(1 + 2 * harmonics, 0, 0))
        self.register_buffer("variance_cycle", torch.zeros(1 + 2 * harmonics, 0, 0))
        self._sums: CycleSums | None = None

    def collect(self, batch: Batch) -> None:
        """Add the truth of the batch to the sums."""
        if self._sums is None:
            self._sums = CycleSums(self.harmonics)
        self._sums.add(batch["target"], batch["weights"] > 0, batch["dates"])

    def solve(self) -> None:
        """Compute the cycles of mean and variance."""
        if self._sums is None:
            raise nothing_collected(self)
        mean, variance, _ = self._sums.finish()
        self.mean_cycle = mean.to(self.mean_cycle)
        self.variance_cycle = variance.to(self.variance_cycle)
        self.solved.fill_(True)
        self._sums = None

    def forward(self, batch: Batch) -> Normal:
        """Return the climatology of the batch's times of year, mu and sigma (N, H, W)."""
        self._require_solved()
        require_same_grid(self, self.mean_cycle, batch)
        cycle = annual_cycle(batch["dates"], self.harmonics).to(self.mean_cycle)
        mu = torch.einsum("nk,khw->nhw", cycle, self.mean_cycle)
        variance = torch.einsum("nk,khw->nhw", cycle, self.variance_cycle)
        least = (_LEAST_SHARE * self.variance_cycle[0]).clamp(min=0)
        sigma = variance.maximum(least).sqrt()
        return Normal(mu, sigma.masked_fill(mu.isnan(), torch.nan))
