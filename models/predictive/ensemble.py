"""The ensemble: members as the forecast."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, get_args

import torch
from torch import Tensor

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import Estimator, crps_ensemble
from ens10.models.predictive.base import Predictive, probabilities


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

    def twcrps(self, y: Tensor, lower: float, upper: float) -> Tensor:
        """Of the members held between the thresholds, by the chosen estimator."""
        held = Ensemble(self.members.clamp(lower, upper), self.estimator)
        return held.crps(y.clamp(lower, upper))

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
        p = probabilities(q, self.members).double()
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

    def core_coordinates(self) -> dict[str, Sequence[float]]:
        """Members numbered from 1."""
        return {"number": range(1, self.members.shape[1] + 1)}
