"""Predictive distributions of the location-scale families, bounded or not."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import xarray as xr
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.metrics import families
from ens10.models.predictive import Predictive, _probabilities
from ens10.models.statistical.crps_terms import check_family, is_bounded


@dataclass(eq=False)
class FamilyForecast(Predictive):
    """A distribution of one family at each grid point, independent between points.

    Args:
        family: "logistic", "truncated_normal", "censored_normal", "truncated_logistic",
            "censored_logistic" or "normal".
        mu: location of the distribution without bounds, (N, H, W), target units.
        sigma: its scale, above 0, (N, H, W), target units.
        lower: lower bound of a bounded family, target units.
        upper: upper bound.

    Raises:
        UnknownNameError: another family.
        ArgumentError: the shapes differ.
    """

    kind: ClassVar[str] = "family"
    dims: ClassVar[tuple[str, ...]] = ("time", "latitude", "longitude")

    family: str
    mu: Tensor
    sigma: Tensor
    lower: float = -math.inf
    upper: float = math.inf

    def __post_init__(self) -> None:
        check_family(self.family)
        if self.mu.shape != self.sigma.shape:
            shapes = f"{tuple(self.sigma.shape)}, mu {tuple(self.mu.shape)}"
            raise ArgumentError("sigma", f"has shape {shapes}")

    def variables(self) -> dict[str, Tensor]:
        """`mu` and `sigma`, and `lower` and `upper` of bounded families."""
        found = {"mu": self.mu, "sigma": self.sigma}
        if is_bounded(self.family):
            bounds = {"lower": self.lower, "upper": self.upper}
            found |= {name: torch.full_like(self.mu, value) for name, value in bounds.items()}
        return found

    def to_dataset(self, coords: Mapping[str, Any], units: str) -> xr.Dataset:
        """As `Predictive.to_dataset`, with the attribute `family`."""
        return super().to_dataset(coords, units).assign_attrs(family=self.family)

    def crps(self, y: Tensor) -> Tensor:
        """Closed-form CRPS (see `ens10.metrics.families`), (N, H, W)."""
        score: Tensor = families.crps(self.family, self.variables(), y)
        return score

    @property
    def mean(self) -> Tensor:
        """Expectation, which bounds move away from `mu`."""
        found: Tensor = families.mean(self.family, self.variables())
        return found

    @property
    def std(self) -> Tensor:
        """Standard deviation."""
        found: Tensor = families.variance(self.family, self.variables())
        return found.sqrt()

    def cdf(self, y: Tensor) -> Tensor:
        """Probability of a value of at most `y`."""
        found: Tensor = families.pit_interval(self.family, self.variables(), y)[1]
        return found

    def quantile(self, q: float | Tensor) -> Tensor:
        """By the inverse of the distribution without bounds."""
        p = _probabilities(q, self.mu)
        return self._at(p.reshape(*p.shape, 1, 1, 1).expand(*p.shape, *self.mu.shape))

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws that are independent between grid points, (N, n, H, W)."""
        shape = (n, *self.mu.shape)
        p = torch.rand(shape, generator=generator, dtype=torch.float64, device=self.mu.device)
        return self._at(p.clamp(min=2.0**-54)).transpose(0, 1)  # a 0 would be drawn as -inf

    def _at(self, p: Tensor) -> Tensor:
        """Quantiles of probabilities (..., N, H, W)."""
        p, mu, sigma = p.double(), self.mu.double(), self.sigma.double()
        logistic = self.family.endswith("logistic")
        if self.family.startswith("truncated"):
            low, high = (self._standard_cdf((x - mu) / sigma) for x in (self.lower, self.upper))
            p = low + p * (high - low)
        z = torch.logit(p) if logistic else torch.special.ndtri(p)
        found = mu + sigma * z
        if is_bounded(self.family):
            found = found.clamp(self.lower, self.upper)
        return found.to(self.mu.dtype)

    def _standard_cdf(self, z: Tensor) -> Tensor:
        logistic = self.family.endswith("logistic")
        return torch.sigmoid(z) if logistic else torch.special.ndtr(z)
