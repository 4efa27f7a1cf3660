"""The raw ensemble as a forecast: the reference of every table."""

from ens10.loader.batch import Batch
from ens10.metrics import Estimator
from ens10.metrics.distributions import Ensemble
from ens10.models.statistical.base import StatisticalMethod, members_of


class Raw(StatisticalMethod):
    """The raw ensemble itself, without any correction.

    Args:
        estimator: estimator of the ensemble CRPS, "plain", "fair" or "almost_fair".
    """

    takes_new_points = True

    def __init__(self, estimator: Estimator = "plain") -> None:
        super().__init__()
        self.estimator = estimator
        self.solved.fill_(True)

    def collect(self, batch: Batch) -> None:
        """Do nothing: there is nothing to collect."""

    def solve(self) -> None:
        """Do nothing: there is nothing to solve."""

    def forward(self, batch: Batch) -> Ensemble:
        """Return the members of the batch.

        Raises:
            ArgumentError: the batch has no members.
        """
        return Ensemble(members_of(self, batch), self.estimator)
