"""Losses: from a predictive distribution and the truth to one value at each grid point."""

from abc import abstractmethod

from torch import Tensor, nn

from ens10.models.predictive import Predictive


class Loss(nn.Module):
    """A loss at each point; the weighted mean over points is taken in one place, the step."""

    @abstractmethod
    def forward(self, forecast: Predictive, target: Tensor) -> Tensor:
        """Loss of `forecast` against `target` (N, H, W), (N, H, W)."""


class CRPSLoss(Loss):
    """The CRPS of the forecast itself, in the target's units."""

    def forward(self, forecast: Predictive, target: Tensor) -> Tensor:
        """CRPS at each point, (N, H, W)."""
        return forecast.crps(target)
