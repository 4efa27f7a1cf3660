"""Losses: from a predictive distribution and the truth to one value at each grid point."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.metrics.distributions import Distribution


class Loss(nn.Module):
    """A loss at each point; the weighted mean over points is taken in one place, the step."""

    @abstractmethod
    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Loss of `forecast` against `target` (N, H, W), (N, H, W).

        Raises:
            ArgumentError: the forecast is of a kind that the loss is not defined for.
        """

    def evaluate(self, forecast: Distribution, target: Tensor, weights: Tensor) -> Tensor:  # noqa: ARG002
        """The loss, (N, H, W), where `weights` (N, H, W) are 0 at points without truth.

        Losses that look at whole fields leave these points out; others need not know them.
        """
        value: Tensor = self(forecast, target)
        return value


class CRPSLoss(Loss):
    """The CRPS of the forecast itself, in the target's units."""

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """CRPS at each point, (N, H, W)."""
        score: Tensor = forecast.crps(target)
        return score


class LogScoreLoss(Loss):
    """Minus the logarithm of the density at the truth, in nats (Good 1952).

    doi:10.1111/j.2517-6161.1952.tb00104.x. Ensembles and Bernstein quantile functions have no
    density and are refused. It has no bound: a truth far outside a forecast that is too sharp
    costs the square of its distance, so a smaller learning rate than with the CRPS may be needed.
    """

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Logarithmic score at each point, (N, H, W)."""
        score: Tensor = forecast.log_score(target)
        return score


class ThresholdCRPSLoss(Loss):
    """The threshold-weighted CRPS: outcomes beyond the thresholds count as the thresholds.

    Gneiting and Ranjan 2011, doi:10.1198/jbes.2010.08110; see `Distribution.twcrps`. The gradient
    is 0 where forecast and truth lie beyond a threshold altogether, so that the loss belongs
    beside the CRPS in a `SumLoss`.

    Args:
        lower: threshold in units of the target.
        upper: threshold in units of the target.

    Raises:
        ArgumentError: thresholds in the wrong order.
    """

    def __init__(self, lower: float = -math.inf, upper: float = math.inf) -> None:
        super().__init__()
        if not lower < upper:
            raise ArgumentError("lower", f"{lower} is not below upper, {upper}")
        self.lower, self.upper = lower, upper

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Threshold-weighted CRPS at each point, (N, H, W)."""
        score: Tensor = forecast.twcrps(target, self.lower, self.upper)
        return score


class SumLoss(Loss):
    """A weighted sum of losses, such as the almost fair CRPS and 0.1 of a spectral term.

    In a configuration:

        loss:
          class_path: ens10.models.SumLoss
          init_args:
            losses:
              - ens10.models.MembersCRPSLoss
              - class_path: ens10.models.SpectralCRPSLoss
                init_args: {estimator: almost_fair}
            factors: [1.0, 0.1]

    Args:
        losses: the terms.
        factors: of the terms; all 1 if None.

    Raises:
        ArgumentError: no terms, or factors that are not as many or not finite.
    """

    def __init__(self, losses: Sequence[Loss], factors: Sequence[float] | None = None) -> None:
        super().__init__()
        if not losses:
            raise ArgumentError("losses", "no loss is given", "Give at least one")
        chosen = [1.0] * len(losses) if factors is None else [float(f) for f in factors]
        if len(chosen) != len(losses) or not all(math.isfinite(f) for f in chosen):
            raise ArgumentError("factors", f"{chosen} for {len(losses)} losses")
        self.losses, self.factors = nn.ModuleList(losses), chosen

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Sum at each point, (N, H, W)."""
        terms = zip(self.factors, self.losses, strict=True)
        return sum((f * loss(forecast, target) for f, loss in terms), torch.zeros_like(target))

    def evaluate(self, forecast: Distribution, target: Tensor, weights: Tensor) -> Tensor:
        """Sum at each point, the terms told of the weights."""
        total = torch.zeros_like(target)
        for factor, loss in zip(self.factors, self.losses, strict=True):
            total = total + factor * cast("Loss", loss).evaluate(forecast, target, weights)
        return total
