"""The raw ensemble as a forecast, and the distribution with its mean and spread."""

import math
from typing import Literal

from ens10.loader.batch import Batch
from ens10.metrics import Estimator
from ens10.metrics.distributions import Distribution, Ensemble
from ens10.metrics.distributions.registry import from_moments
from ens10.models.statistical.base import StatisticalMethod, members_of
from ens10.models.statistical.score_terms import check_bounds
from ens10.protocol import check_known

_Family = Literal["normal", "truncated_normal", "censored_normal"]


class _Unfitted(StatisticalMethod):
    """A method without coefficients."""

    takes_new_points = True

    def __init__(self) -> None:
        super().__init__()
        self.solved.fill_(True)

    def collect(self, batch: Batch) -> None:
        """Do nothing: there is nothing to collect."""

    def solve(self) -> None:
        """Do nothing: there is nothing to solve."""


class Raw(_Unfitted):
    """The raw ensemble itself, without any correction.

    Args:
        estimator: estimator of the ensemble CRPS, "plain", "fair" or "almost_fair".
    """

    def __init__(self, estimator: Estimator = "plain") -> None:
        super().__init__()
        self.estimator = estimator

    def forward(self, batch: Batch) -> Ensemble:
        """Return the members of the batch.

        Raises:
            ArgumentError: the batch has no members.
        """
        return Ensemble(members_of(self, batch), self.estimator)


class RawNormal(_Unfitted):
    """The normal distribution with mean and spread of the raw ensemble: a gain without any fit.

    The scale is the standard deviation of the members that the batch has: with divisor n - 1, or n
    under the protocol `paper`. A truncated or censored normal has them as its location and scale,
    that is, as moments before bounds.

    Args:
        family: "normal", "truncated_normal" (for wind speed) or "censored_normal" (for
            precipitation).
        lower: lower bound of a truncated or censored normal, target units.
        upper: upper bound.

    Raises:
        UnknownNameError: another family.
        ArgumentError: bounds that are not in order, or of a family without.
    """

    def __init__(
        self, family: _Family = "normal", lower: float = -math.inf, upper: float = math.inf
    ) -> None:
        super().__init__()
        check_known("family", family, ("normal", "truncated_normal", "censored_normal"))
        check_bounds(family, lower, upper)
        self.family, self.lower, self.upper = family, lower, upper

    def forward(self, batch: Batch) -> Distribution:
        """Return the distribution, location and scale (N, H, W)."""
        moments = batch["raw_mean"], batch["raw_std"]
        return from_moments(self.family, *moments, lower=self.lower, upper=self.upper)
