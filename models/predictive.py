"""Predictive distributions at each grid point: one small interface, Normal and Ensemble.

Arrays are torch tensors in the target's units; N dates, M members, H rows, W columns.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import torch
import xarray as xr
from torch import Tensor

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import Estimator, crps_ensemble, crps_normal

_FIELD = ("time", "latitude", "longitude")


class Predictive(ABC):
    """What every model returns: a distribution of the target at each date and grid point.

    Attributes:
        kind: the `forecast_kind` of its Dataset.
        dims: dimension names of its variables.
    """

    kind: ClassVar[str]
    dims: ClassVar[tuple[str, ...]]

    @abstractmethod
    def variables(self) -> dict[str, Tensor]:
        """The tensors that define the distribution, by the names they have in a Dataset."""

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

    def to_dataset(self, coords: Mapping[str, Any], units: str) -> xr.Dataset:
        """The forecast as a Dataset with dimensions time, (number,) latitude, longitude.

        Args:
            coords: as for `xarray.Dataset`: `time` (start dates), `valid_time` as
                `("time", dates)`, the scalar `step`, `latitude`, `longitude`, and for an ensemble
                optionally `number` (default 1 to M).
            units: units of the target variable.

        Raises:
            ArgumentError: a coordinate is missing or has another length than its dimension.
        """
        missing = [d for d in (*_FIELD, "step", "valid_time") if d not in coords]
        if missing:
            raise ArgumentError("coords", f"{', '.join(missing)} missing")
        arrays = {name: value.detach().cpu().numpy() for name, value in self.variables().items()}
        named = {name: (self.dims, array, {"units": units}) for name, array in arrays.items()}
        try:
            return xr.Dataset(named, coords=coords, attrs={"forecast_kind": self.kind})
        except ValueError as error:
            raise ArgumentError("coords", f"do not fit the forecast: {error}") from error


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
    dims: ClassVar[tuple[str, ...]] = _FIELD

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
        z = torch.special.ndtri(_probabilities(q, self.mu))
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


@dataclass(eq=False)
class Ensemble(Predictive):
    """The empirical distribution of M members.

    Args:
        members: (N, M, H, W), target units.
        estimator: of `crps`: "plain" scores the members as the forecast that they are; "fair" and
            "almost_fair" the distribution that they are drawn from (see `ens10.metrics`).

    Raises:
        ArgumentError: `members` has other than four dimensions.
        UnknownNameError: another estimator.
    """

    kind: ClassVar[str] = "ensemble"
    dims: ClassVar[tuple[str, ...]] = ("time", "number", "latitude", "longitude")

    members: Tensor
    estimator: Estimator = "plain"

    def __post_init__(self) -> None:
        if self.members.ndim != 4:
            shape = tuple(self.members.shape)
            raise ArgumentError("members", f"has shape {shape}, expected (N, M, H, W)")
        if self.estimator not in get_args(Estimator):
            raise UnknownNameError("estimator", self.estimator, get_args(Estimator))

    def variables(self) -> dict[str, Tensor]:
        """`members`."""
        return {"members": self.members}

    def crps(self, y: Tensor) -> Tensor:
        """Ensemble CRPS by the chosen estimator, (N, H, W)."""
        score: Tensor = crps_ensemble(self.members, y, estimator=self.estimator, member_dim=1)
        return score

    @property
    def mean(self) -> Tensor:
        """Mean of the members."""
        return self.members.mean(dim=1)

    @property
    def std(self) -> Tensor:
        """Unbiased standard deviation of the members (n - 1); NaN for a single member."""
        if self.members.shape[1] == 1:
            return torch.full_like(self.members[:, 0], torch.nan)
        return self.members.std(dim=1)

    def cdf(self, y: Tensor) -> Tensor:
        """Share of the members that are at most `y`; NaN where a member is."""
        share = (self.members <= y.unsqueeze(1)).to(self.members.dtype).mean(dim=1)
        return torch.where(self.members.isnan().any(dim=1), torch.nan, share)

    def quantile(self, q: float | Tensor) -> Tensor:
        """The member of rank ceil(q M), the inverse of the step function `cdf`."""
        p = _probabilities(q, self.members).double()
        size = self.members.shape[1]
        # the small number: 0.7 * 10 may come out just above 7
        rank = torch.ceil(p * size - 1e-6).long().clamp(1, size) - 1
        ranked = self.members.sort(dim=1).values.transpose(0, 1)
        return ranked[rank]

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Whole members drawn with replacement, which keeps their pattern in space."""
        count, size = self.members.shape[:2]
        device = self.members.device
        drawn = torch.randint(size, (count, n), generator=generator, device=device)
        return self.members[torch.arange(count, device=device)[:, None], drawn]

    def to_dataset(self, coords: Mapping[str, Any], units: str) -> xr.Dataset:
        """As `Predictive.to_dataset`, with the members numbered from 1 unless `coords` does."""
        numbers = range(1, self.members.shape[1] + 1)
        return super().to_dataset({"number": list(numbers), **coords}, units)


def _probabilities(q: float | Tensor, like: Tensor) -> Tensor:
    p = torch.as_tensor(q, dtype=like.dtype, device=like.device)
    if p.ndim > 1 or not bool(((p >= 0) & (p <= 1)).all()):
        raise ArgumentError("q", f"{q} is no probability or vector of probabilities in [0, 1]")
    return p
