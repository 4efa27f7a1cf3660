"""What every predictive distribution offers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import xarray as xr
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.metrics import crps_ensemble

FIELD = ("time", "latitude", "longitude")
_DRAWN = 100  # quantiles that stand for a distribution


class Predictive(ABC):
    """What every model returns: a distribution of the target at each date and grid point.

    Attributes:
        kind: what its variables are, "normal", "ensemble", "quantiles" or "family".
        dims: dimension names of its variables.
        long_names: of its variables, in words.
        unitless: the variables that do not have the target's unit.
    """

    kind: ClassVar[str]
    dims: ClassVar[tuple[str, ...]]
    long_names: ClassVar[Mapping[str, str]] = {}
    unitless: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def variables(self) -> dict[str, Tensor]:
        """The tensors that a Dataset of the distribution holds, by their names there."""

    @abstractmethod
    def crps(self, y: Tensor) -> Tensor:
        """Continuous ranked probability score against `y` (N, H, W), target units, (N, H, W)."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """Expectation, (N, H, W)."""

    @property
    @abstractmethod
    def std(self) -> Tensor:
        """Standard deviation, (N, H, W)."""

    @abstractmethod
    def cdf(self, y: Tensor) -> Tensor:
        """Probability of a value of at most `y` (N, H, W), (N, H, W)."""

    @abstractmethod
    def quantile(self, q: float | Tensor) -> Tensor:
        """The smallest value whose cdf reaches `q`.

        Args:
            q: one probability, or a vector (Q,) of them.

        Returns:
            (N, H, W), or (Q, N, H, W) for a vector.

        Raises:
            ArgumentError: a probability outside [0, 1], or a tensor of more than one dimension.
        """

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """`n` random draws for each date, (N, n, H, W)."""

    def log_score(self, y: Tensor) -> Tensor:  # noqa: ARG002
        """Minus the logarithm of the density at `y` (N, H, W), nats, (N, H, W).

        Raises:
            ArgumentError: the distribution has no density.
        """
        raise ArgumentError(
            "loss",
            f"{type(self).__name__} forecasts have no density for a logarithmic score",
            "Train on the CRPS, or choose a head with a density, such as ResidualNormalHead",
        )

    def twcrps(self, y: Tensor, lower: float, upper: float) -> Tensor:
        """CRPS of outcomes between thresholds, those beyond counted as the threshold, (N, H, W).

        The integral of (F(z) - 1{y <= z})^2 over z from `lower` to `upper`. Here, for want of a
        closed form, that of the distribution's quantiles at the levels (k - 1/2) / 100, which are
        scored as an ensemble.
        """
        levels = (torch.arange(_DRAWN, dtype=torch.float64) + 0.5) / _DRAWN
        held = self.quantile(levels).clamp(lower, upper)
        score: Tensor = crps_ensemble(held, y.clamp(lower, upper), estimator="plain", member_dim=0)
        return score

    def attributes(self) -> dict[str, str]:
        """The attributes of its Dataset: `forecast_kind`, by which it is scored."""
        return {"forecast_kind": self.kind}

    def core_coordinates(self) -> dict[str, Sequence[float]]:
        """Coordinates of the dimensions beside time, latitude and longitude."""
        return {}

    def to_dataset(self, coords: Mapping[str, Any], units: str) -> xr.Dataset:
        """The forecast as a Dataset with dimensions time, (one of its own,) latitude, longitude.

        Args:
            coords: as for `xarray.Dataset`: `time` (start dates), `valid_time` as
                `("time", dates)`, the scalar `step`, `latitude`, `longitude`, and for an ensemble
                optionally `number` (default 1 to M).
            units: units of the target variable.

        Raises:
            ArgumentError: a coordinate is missing or has another length than its dimension.
        """
        missing = [d for d in (*FIELD, "step", "valid_time") if d not in coords]
        if missing:
            raise ArgumentError("coords", f"{', '.join(missing)} missing")
        named = {
            name: (self.dims, value.detach().cpu().numpy(), {"units": self.units_of(name, units)})
            for name, value in self.variables().items()
        }
        own: dict[str, Any] = {
            name: list(values) for name, values in self.core_coordinates().items()
        }
        try:
            return xr.Dataset(named, coords={**own, **coords}, attrs=self.attributes())
        except ValueError as error:
            raise ArgumentError("coords", f"do not fit the forecast: {error}") from error

    def units_of(self, name: str, units: str) -> str:
        """The units of one of its variables, if the target has `units`."""
        return "1" if name in self.unitless else units


def probabilities(q: float | Tensor, like: Tensor) -> Tensor:
    """Probabilities in the dtype and on the device of `like`.

    Raises:
        ArgumentError: a probability outside [0, 1], or a tensor of more than one dimension.
    """
    p = torch.as_tensor(q, dtype=like.dtype, device=like.device)
    if p.ndim > 1 or not bool(((p >= 0) & (p <= 1)).all()):
        raise ArgumentError("q", f"{q} is no probability or vector of probabilities in [0, 1]")
    return p


def independent_levels(
    n: int, like: Tensor, generator: torch.Generator | None, least: float = 2.0**-54
) -> Tensor:
    """Evenly drawn probabilities, independent between grid points, float64, (n, *like.shape).

    Args:
        n: how many for each point.
        like: a field (N, H, W).
        generator: of random numbers.
        least: above 0, which would be drawn as minus infinity.
    """
    shape = (n, *like.shape)
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device=like.device)
    return drawn.clamp(min=least)
