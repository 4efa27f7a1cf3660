"""The normal distribution at each grid point."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.metrics import crps_normal, families, twcrps_normal
from ens10.models.predictive.base import FIELD, Predictive, probabilities


@dataclass(eq=False)
class Normal(Predictive):
    """Normal distribution at each grid point, independent between points.

    Args:
        mu: mean, (N, H, W), target units.
        sigma: standard deviation, at least 0, (N, H, W), target units. At 0 the distribution is
            the value `mu` itself.
        positive: whether the maker guarantees that no sigma is negative, so that `crps` need not
            look (on a GPU a look waits for all work before it).

    Raises:
        ArgumentError: the shapes differ.
    """

    kind: ClassVar[str] = "normal"
    dims: ClassVar[tuple[str, ...]] = FIELD
    long_names: ClassVar[Mapping[str, str]] = {
        "mu": "mean of the forecast",
        "sigma": "its standard deviation",
    }

    mu: Tensor
    sigma: Tensor
    positive: bool = False

    def __post_init__(self) -> None:
        if self.mu.shape != self.sigma.shape:
            shapes = f"{tuple(self.sigma.shape)}, mu {tuple(self.mu.shape)}"
            raise ArgumentError("sigma", f"has shape {shapes}")

    def variables(self) -> dict[str, Tensor]:
        """`mu` and `sigma`."""
        return {"mu": self.mu, "sigma": self.sigma}

    def crps(self, y: Tensor) -> Tensor:
        """Closed-form CRPS (see `ens10.metrics.crps_normal`), (N, H, W).

        Raises:
            ArgumentError: a negative sigma.
        """
        score: Tensor = crps_normal(self.mu, self.sigma, y, check=not self.positive)
        return score

    def log_score(self, y: Tensor) -> Tensor:
        """Minus the logarithm of the density; sigma has to be above 0."""
        score: Tensor = families.log_score("normal", self.variables(), y, check=not self.positive)
        return score

    def twcrps(self, y: Tensor, lower: float, upper: float) -> Tensor:
        """In closed form, see `ens10.metrics.twcrps_normal`."""
        check = not self.positive
        score: Tensor = twcrps_normal(self.mu, self.sigma, y, lower=lower, upper=upper, check=check)
        return score

    @property
    def mean(self) -> Tensor:
        """`mu`."""
        return self.mu

    @property
    def std(self) -> Tensor:
        """`sigma`."""
        return self.sigma

    def cdf(self, y: Tensor) -> Tensor:
        """Phi((y - mu) / sigma); a step at `mu` where sigma is 0."""
        spread = self.sigma > 0
        z = (y - self.mu) / torch.where(spread, self.sigma, 1)
        return torch.where(spread, torch.special.ndtr(z), (z >= 0).to(z.dtype))

    def quantile(self, q: float | Tensor) -> Tensor:
        """The value mu + sigma * Phi^-1(q)."""
        z = torch.special.ndtri(probabilities(q, self.mu))
        shift = z.reshape(*z.shape, 1, 1, 1) * self.sigma
        # at sigma = 0 an infinite z would give NaN
        return self.mu + torch.where(self.sigma > 0, shift, 0)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws that are independent between grid points, (N, n, H, W)."""
        count, *grid = self.mu.shape
        noise = torch.randn(
            (count, n, *grid), generator=generator, dtype=self.mu.dtype, device=self.mu.device
        )
        return self.mu.unsqueeze(1) + self.sigma.unsqueeze(1) * noise
