"""Heads: from a network's output to a predictive distribution."""

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Distribution, Normal


class Head(nn.Module):
    """Maps the output of a network to a predictive distribution.

    Attributes:
        out_channels: number of channels that the network must output.
        takes_members: True if it takes the outputs of each member, (N, M, out_channels, H, W).
    """

    out_channels: int
    takes_members: bool = False

    @abstractmethod
    def forward(self, outputs: Tensor, batch: Batch) -> Distribution:
        """Return the forecast from `outputs` (N, out_channels, H, W) and the raw ensemble."""


class ResidualNormalHead(Head):
    """A normal distribution as a residual on the raw ensemble (Ashkboos et al. 2022).

    mu = m + s * o0 and sigma = s * exp(o1), where m is the mean and s the standard deviation of
    the raw ensemble at that point and date: an output of 0 is the raw ensemble.

    s is at least `floor`, so that a raw spread of 0 gives a positive sigma and the network can
    still correct the point. o1 is clamped to [-7, 7], so that sigma stays within a factor of about
    1100 of s and exp never overflows; outside this range o1 gets no gradient. Where the raw
    ensemble is NaN the forecast is NaN, and the network gets no gradient from there.

    Args:
        floor: smallest s, in units of the target, e.g. 0.001 K. Choose a smaller one for a target
            whose spread is itself that small, such as precipitation in m.

    Examples:
        >>> import torch
        >>> from ens10.models import ResidualNormalHead
        >>> raw = {"raw_mean": torch.full((1, 1, 1), 280.0), "raw_std": torch.full((1, 1, 1), 2.0)}
        >>> forecast = ResidualNormalHead()(torch.ones(1, 2, 1, 1), raw)  # o0 = o1 = 1
        >>> forecast.mu.item(), round(forecast.sigma.item(), 3)
        (282.0, 5.437)

    Raises:
        ArgumentError: a floor that is not positive.
    """

    out_channels = 2
    max_log_scale = 7.0

    def __init__(self, floor: float = 1e-3) -> None:
        super().__init__()
        self.floor = checked_floor(floor)

    def forward(self, outputs: Tensor, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W) from outputs (N, 2, H, W)."""
        raw = RawEnsemble.of(batch, self.floor)
        return Normal(*raw.moved(outputs, self.max_log_scale), positive=True)


class RawEnsemble(NamedTuple):
    """Mean and spread (N, H, W) of the raw ensemble, and the mask of missing points."""

    mean: Tensor
    spread: Tensor
    missing: Tensor

    @classmethod
    def of(cls, batch: Batch, floor: float) -> "RawEnsemble":
        """Return the raw mean and standard deviation of a batch, the latter at least `floor`."""
        return cls.of_moments(batch["raw_mean"], batch["raw_std"], floor)

    @classmethod
    def of_moments(cls, mean: Tensor, std: Tensor, floor: float) -> "RawEnsemble":
        """Return mean and spread; spread at least `floor`, and 1 where a moment is not finite."""
        missing = ~(mean.isfinite() & std.isfinite())
        return cls(mean, torch.where(missing, 1, std).clamp(min=floor), missing)

    def moved(self, outputs: Tensor, most: float) -> tuple[Tensor, Tensor]:
        """Return location mean + spread * o0 and scale spread * exp(o1), o1 clamped to +-`most`.

        Args:
            outputs: (N, 2, H, W).
            most: bound of o1.

        Returns:
            (N, H, W) each, masked.
        """
        # float32 also under mixed precision: half precision cannot represent Z500
        shift, log_scale = outputs.to(self.mean.dtype).unbind(1)
        mu = self.mean + self.spread * shift
        sigma = self.spread * log_scale.clamp(-most, most).exp()
        return self.masked(mu), self.masked(sigma)

    def masked(self, values: Tensor) -> Tensor:
        """Return values (N, H, W) or (N, K, H, W), NaN and without gradient where missing."""
        where = self.missing if values.ndim == self.missing.ndim else self.missing.unsqueeze(1)
        return values.masked_fill(where, torch.nan)


def checked_floor(floor: float) -> float:
    """Return the floor of the raw spread if it is valid.

    Raises:
        ArgumentError: it is not positive.
    """
    if not floor > 0:
        raise ArgumentError("floor", f"{floor} is not positive", "Pass a number in target units")
    return floor
