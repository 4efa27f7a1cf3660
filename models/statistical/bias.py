"""Bias map: the ensemble corrected by its mean error at each grid point and time of year."""

import torch
from torch import Tensor

from ens10.loader.batch import Batch
from ens10.metrics import Estimator
from ens10.metrics.distributions import Distribution, Ensemble, Normal
from ens10.models.statistical.base import (
    StatisticalMethod,
    members_of,
    nothing_collected,
    require_same_grid,
)
from ens10.models.statistical.harmonics import CycleSums, annual_cycle, check_harmonics


class BiasMap(StatisticalMethod):
    """The raw ensemble less its mean error, which follows an annual cycle; the spread is kept.

    The error, truth minus ensemble mean, is regressed at each grid point on the harmonics of the
    time of year by least squares. A point with fewer than three dates per coefficient has a
    constant correction, one without any date none.

    Until `solve` it uses 16 (6 H + 3) bytes for each grid point, whatever the number of
    dates.

    Args:
        harmonics: number H of harmonics of the annual cycle; 0 for a constant.
        members: True to shift the members and forecast an ensemble; otherwise a normal distribution
            with the raw standard deviation.
        estimator: estimator of the ensemble's CRPS.

    Raises:
        ArgumentError: a negative number of harmonics.
    """

    def __init__(
        self, harmonics: int = 1, members: bool = False, estimator: Estimator = "plain"
    ) -> None:
        super().__init__()
        check_harmonics(harmonics)
        self.harmonics, self.members, self.estimator = harmonics, members, estimator
        self.coefficients: Tensor
        self.register_buffer("coefficients", torch.zeros(1 + 2 * harmonics, 0, 0))
        self._sums: CycleSums | None = None

    def collect(self, batch: Batch) -> None:
        """Add the errors of the batch to the sums."""
        if self._sums is None:
            self._sums = CycleSums(self.harmonics)
        error = batch["target"].double() - batch["raw_mean"].double()
        self._sums.add(error, batch["weights"] > 0, batch["dates"])

    def solve(self) -> None:
        """Compute the correction."""
        if self._sums is None:
            raise nothing_collected(self)
        mean, _, count = self._sums.finish()
        mean[:, count == 0] = 0
        self.coefficients = mean.to(self.coefficients)
        self.solved.fill_(True)
        self._sums = None

    def correction(self, batch: Batch) -> Tensor:
        """Return the correction of the ensemble, (N, H, W), in units of the target."""
        self._require_solved()
        require_same_grid(self, self.coefficients, batch)
        cycle = annual_cycle(batch["dates"], self.harmonics).to(self.coefficients)
        return torch.einsum("nk,khw->nhw", cycle, self.coefficients)

    def forward(self, batch: Batch) -> Distribution:
        """Return a normal with the raw spread, or the shifted members.

        Raises:
            ArgumentError: `members` is True and the batch has none.
        """
        correction = self.correction(batch)
        if not self.members:
            return Normal(batch["raw_mean"] + correction, batch["raw_std"])
        return Ensemble(members_of(self, batch) + correction.unsqueeze(1), self.estimator)
