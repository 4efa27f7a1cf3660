"""Ensemble copula coupling: members from any marginal forecast, in the order of the raw members."""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ens10.errors import ArgumentError, UnknownNameError
from ens10.loader.batch import Batch
from ens10.metrics import Estimator
from ens10.metrics.distributions import Distribution, Ensemble
from ens10.models.statistical.base import StatisticalMethod, no_members

Variant = Literal["quantile", "random"]
_LEAST_LEVEL = 1e-6  # a random level of 0 would be drawn as -inf


class Coupled(StatisticalMethod):
    """A marginal method whose forecast is turned into members with the ranks of a template.

    Args:
        marginal: the method of the forecast at each point.
        variant: "quantile": the levels (k - 1/2) / M, which have the least plain CRPS (Brocker
            2012, doi:10.1002/qj.1891); "random": M random levels, drawn for each date and used at
            all points, so that they add no noise in space.
        seed: seed of random levels and of the order of equal ranks.
        estimator: estimator of the forecast's CRPS.

    Raises:
        UnknownNameError: another variant.
    """

    def __init__(
        self,
        marginal: StatisticalMethod,
        variant: Variant = "quantile",
        seed: int = 0,
        estimator: Estimator = "plain",
    ) -> None:
        super().__init__()
        check_variant(variant)
        self.marginal, self.variant, self.seed = marginal, variant, seed
        self.estimator = estimator

    @property
    def fitted_parameters(self) -> int:
        """Those of the marginal method."""
        return self.marginal.fitted_parameters

    def collect(self, batch: Batch) -> None:
        """Pass the batch to the marginal method."""
        self.marginal.collect(batch)

    def solve(self) -> None:
        """Solve the marginal method."""
        self.marginal.solve()
        self.solved.fill_(True)

    def _members(self, batch: Batch, template: Tensor) -> Ensemble:
        forecast: Distribution = self.marginal(batch)
        return couple(forecast, template, batch["dates"], self.variant, self.seed, self.estimator)


class ECC(Coupled):
    """Ensemble copula coupling: members in the order of the raw members at each point.

    Schefzik et al. (2013), doi:10.1214/13-STS443. Each member keeps its rank in the raw ensemble,
    and so the raw ensemble's spatial patterns. There are as many members as in the batch. `couple`
    does the same for the forecast of any model. The arguments are those of `Coupled`.
    """

    def forward(self, batch: Batch) -> Ensemble:
        """Return members (N, M, H, W) in the order of the raw members.

        Raises:
            ArgumentError: the batch has no members.
        """
        self._require_solved()
        if "members" not in batch:
            raise no_members(self)
        return self._members(batch, batch["members"])


def couple(
    forecast: Distribution,
    template: Tensor,
    dates: Tensor,
    variant: Variant = "quantile",
    seed: int = 0,
    estimator: Estimator = "plain",
) -> Ensemble:
    """Draw members from a marginal forecast, with the ranks of a template.

    Args:
        forecast: distributions of N dates.
        template: (N, M, H, W) fields whose order at each point the members take.
        dates: (N,) valid dates in seconds; results do not depend on the batch.
        variant: "quantile" or "random", see `Coupled`.
        seed: seed of random levels and of the order of equal template values.
        estimator: estimator of the members' CRPS.

    Raises:
        UnknownNameError: another variant.
        ArgumentError: a template of other than four dimensions or of other dates.
    """
    check_variant(variant)
    if template.ndim != 4 or len(template) != len(dates):
        raise ArgumentError(
            "template", f"has shape {tuple(template.shape)}, expected ({len(dates)}, M, H, W)"
        )
    size = template.shape[1]
    if variant == "quantile":
        levels = (torch.arange(size, dtype=torch.float64) + 0.5) / size
        values = forecast.quantile(levels.to(template.device)).transpose(0, 1)
    else:
        values = _at_random_levels(forecast, size, dates, seed)
    ranked = values.sort(1).values
    return Ensemble(ranked.gather(1, ranks(template, dates, seed)), estimator)


def ranks(template: Tensor, dates: Tensor, seed: int) -> Tensor:
    """Return the rank of each member at each point, from 0; NaN ranks highest.

    Ties are broken by a random order of the members, drawn for each date and used at all points.

    Args:
        template: (N, M, H, W).
        dates: (N,) seconds.
        seed: seed of the random orders.

    Examples:
        >>> import torch
        >>> from ens10.models.statistical.coupling import ranks
        >>> template = torch.tensor([3.0, 1.0, 2.0]).reshape(1, 3, 1, 1)
        >>> ranks(template, torch.tensor([0]), seed=0).flatten().tolist()
        [2, 0, 1]
    """
    size = template.shape[1]
    drawn = _for_dates(lambda random: random.permutation(size), dates, seed, "ties")
    order = drawn.to(template.device)[:, :, None, None].expand_as(template)
    shuffled = template.gather(1, order).argsort(dim=1, stable=True).argsort(dim=1)
    return torch.empty_like(shuffled).scatter_(1, order, shuffled)


def check_variant(variant: str) -> None:
    """Reject an unknown variant.

    Raises:
        UnknownNameError: another variant than "quantile" or "random".
    """
    if variant not in get_args(Variant):
        raise UnknownNameError("variant", variant, get_args(Variant))


def generator_of(date: int, seed: int, purpose: str) -> np.random.Generator:
    """Return a random generator that depends on date and seed only, not on the batch."""
    return np.random.default_rng([seed, date % 2**63, *purpose.encode()])


def _at_random_levels(forecast: Distribution, size: int, dates: Tensor, seed: int) -> Tensor:
    levels = _for_dates(lambda random: random.random(size), dates, seed, "levels")
    levels = levels.clamp(_LEAST_LEVEL, 1 - _LEAST_LEVEL).to(forecast.mean.device)
    return torch.stack([forecast.quantile(level)[:, n] for n, level in enumerate(levels)])


def _for_dates(
    draw: Callable[[np.random.Generator], np.ndarray], dates: Tensor, seed: int, purpose: str
) -> Tensor:
    draws = [draw(generator_of(int(date), seed, purpose)) for date in dates.tolist()]
    return torch.from_numpy(np.stack(draws))
