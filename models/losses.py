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
    """A loss at each point; the training step takes the weighted mean over points."""

    @abstractmethod
    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Return the loss of `forecast` against `target` (N, H, W) at each point, (N, H, W).

        Raises:
            ArgumentError: the forecast is of a kind that the loss is not defined for.
        """

    def evaluate(self, forecast: Distribution, target: Tensor, weights: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss, (N, H, W); points with `weights` (N, H, W) of 0 have no truth.

        Losses of whole fields leave these points out; other losses ignore the weights.
        """
        value: Tensor = self(forecast, target)
        return value


class CRPSLoss(Loss):
    """The CRPS of the forecast itself, in the target's units.

    Examples:
        >>> import torch
        >>> from ens10.metrics.distributions.normal import Normal
        >>> from ens10.models import CRPSLoss
        >>> forecast = Normal(torch.full((1, 1, 1), 280.0), torch.ones(1, 1, 1))
        >>> round(CRPSLoss()(forecast, torch.full((1, 1, 1), 280.0)).item(), 4)
        0.2337
    """

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Return the CRPS at each point, (N, H, W)."""
        score: Tensor = forecast.crps(target)
        return score


class LogScoreLoss(Loss):
    """Minus the logarithm of the density at the truth, in nats (Good 1952).

    doi:10.1111/j.2517-6161.1952.tb00104.x. Ensembles and Bernstein quantile functions have no
    density and are refused. It is unbounded: a truth far outside an overconfident forecast costs
    its squared distance, so a smaller learning rate than with the CRPS may be needed.
    """

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Return the logarithmic score at each point, (N, H, W)."""
        score: Tensor = forecast.log_score(target)
        return score


class ThresholdCRPSLoss(Loss):
    """The threshold-weighted CRPS: outcomes beyond the thresholds count as the thresholds.

    Gneiting and Ranjan 2011, doi:10.1198/jbes.2010.08110; see `Distribution.twcrps`. The gradient
    is 0 where forecast and truth lie entirely beyond a threshold: combine this loss with the CRPS
    in a `SumLoss`.

    Args:
        lower: values below count as this threshold, in units of the target.
        upper: values above count as this threshold, in units of the target.

    Raises:
        ArgumentError: thresholds in the wrong order.
    """

    def __init__(self, lower: float = -math.inf, upper: float = math.inf) -> None:
        super().__init__()
        if not lower < upper:
            raise ArgumentError("lower", f"{lower} is not below upper, {upper}")
        self.lower, self.upper = lower, upper

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Return the threshold-weighted CRPS at each point, (N, H, W)."""
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
        factors: weights of the terms; all 1 if None.

    Raises:
        ArgumentError: no terms, or factors that are not finite or of another number than the terms.
    """

    def __init__(self, losses: Sequence[Loss], factors: Sequence[float] | None = None) -> None:
        super().__init__()
        if not losses:
            raise ArgumentError("losses", "no loss is given", "Choose at least one")
        chosen = [1.0] * len(losses) if factors is None else [float(f) for f in factors]
        if len(chosen) != len(losses) or not all(math.isfinite(f) for f in chosen):
            raise ArgumentError("factors", f"{chosen} for {len(losses)} losses")
        self.losses, self.factors = nn.ModuleList(losses), chosen

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Return the weighted sum of the losses at each point, (N, H, W)."""
        terms = zip(self.factors, self.losses, strict=True)
        return sum((f * loss(forecast, target) for f, loss in terms), torch.zeros_like(target))

    def evaluate(self, forecast: Distribution, target: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted sum of the losses at each point, (N, H, W)."""
        total = torch.zeros_like(target)
        for factor, loss in zip(self.factors, self.losses, strict=True):
            total = total + factor * cast("Loss", loss).evaluate(forecast, target, weights)
        return total
