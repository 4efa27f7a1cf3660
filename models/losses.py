"""Losses: from a predictive distribution and the truth to one value at each grid point."""

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.models.predictive import Predictive


class Loss(nn.Module):
    """A loss at each point; the weighted mean over points is taken in one place, the step."""

    @abstractmethod
    def forward(
        self, forecast: Predictive, target: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Loss of `forecast` against `target` (N, H, W), (N, H, W).

        Args:
            forecast: N dates.
            target: truth, in units of the forecast.
            weights: those of the step, (N, H, W), 0 where there is no truth. Only losses that
                look at whole fields need them.

        Raises:
            ArgumentError: the forecast is of a kind that the loss is not defined for.
        """


class CRPSLoss(Loss):
    """The CRPS of the forecast itself, in the target's units."""

    def forward(
        self,
        forecast: Predictive,
        target: Tensor,
        weights: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """CRPS at each point, (N, H, W)."""
        return forecast.crps(target)


class LogScoreLoss(Loss):
    """Minus the logarithm of the density at the truth, in nats (Good 1952).

    doi:10.1111/j.2517-6161.1952.tb00104.x. Ensembles and Bernstein quantile functions have no
    density and are refused. It has no bound: a truth far outside a forecast that is too sharp
    costs the square of its distance, so a smaller learning rate than with the CRPS may be needed.
    """

    def forward(
        self,
        forecast: Predictive,
        target: Tensor,
        weights: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Logarithmic score at each point, (N, H, W)."""
        return forecast.log_score(target)


class ThresholdCRPSLoss(Loss):
    """The threshold-weighted CRPS: outcomes beyond the thresholds count as the thresholds.

    Gneiting and Ranjan 2011, doi:10.1198/jbes.2010.08110; see `Predictive.twcrps`. The gradient is
    0 where forecast and truth lie beyond a threshold altogether, so it belongs beside the CRPS in
    a `SumLoss`.

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

    def forward(
        self,
        forecast: Predictive,
        target: Tensor,
        weights: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Threshold-weighted CRPS at each point, (N, H, W)."""
        return forecast.twcrps(target, self.lower, self.upper)


class SumLoss(Loss):
    """A weighted sum of losses, such as the CRPS and 0.1 of a spectral term.

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

    def forward(
        self, forecast: Predictive, target: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Sum at each point, (N, H, W)."""
        total = torch.zeros_like(target)
        for factor, loss in zip(self.factors, self.losses, strict=True):
            total = total + factor * loss(forecast, target, weights)
        return total
