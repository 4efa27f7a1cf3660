"""EMOS at each grid point with an annual cycle, drawn to the coefficients of all points."""

import math

import numpy as np
import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Distribution, Normal
from ens10.metrics.distributions.registry import location_scale
from ens10.models.domain import current
from ens10.models.statistical.base import (
    StatisticalMethod,
    nothing_collected,
    require_same_grid,
)
from ens10.models.statistical.crps_terms import FamilyName, check_family, is_bounded
from ens10.models.statistical.harmonics import annual_cycle, check_harmonics
from ens10.models.statistical.newton import Floats
from ens10.models.statistical.seasonal_fit import Choice, SeasonalFit, choose_ridge
from ens10.models.statistical.spool import Spool, in_parallel


class SeasonalEMOS(StatisticalMethod):
    """EMOS for exchangeable members at each grid point, with an annual cycle, of least mean CRPS.

    Location m + a(t) + b(t) (m - centre) and squared scale c(t)^2 + d(t)^2 var, with ensemble
    mean m and variance var, and a, b, log c, log d sums of harmonics of the year (Gneiting et al.
    2005, doi:10.1175/MWR2904.1). The predictors are standardised at each point (as in Dabernig et
    al. 2017, doi:10.1002/qj.2975), one set of coefficients is fitted to all points, and those of
    each point are drawn to it by a ridge (`ens10.models.statistical.seasonal_regression`).
    Points with fewer than three valid dates keep mean and spread of the raw ensemble.

    Training batches are kept in a temporary file, 12 bytes for each date and point; main memory
    holds a few blocks of points, which are fitted in parallel.

    Args:
        harmonics: H of the annual cycle of the four coefficients; 0 for none.
        family: of the distribution.
        lower: lower bound of truncated and censored families, target units.
        upper: upper bound.
        strength: number of dates that the common coefficients count for at each point; None
            chooses it on the training dates, and whether it is ten times that number for the
            cycles: each year (or fifth of the years) is left out in turn and predicted from the
            others. Dates within 366 days are left out in five blocks of consecutive dates, with
            five days between them and the dates that are fitted to; a fit without annual cycles
            (`chosen_strength[1]` infinite) is among the choices then. It is chosen with normal
            distributions, which are fitted faster than the other families.

    Raises:
        ArgumentError: negative harmonics or strength, bounds that are not in order, or of a family
            without; no strength, and too few training dates to leave some out.
        UnknownNameError: another family.
    """

    def __init__(
        self,
        harmonics: int = 1,
        family: FamilyName = "normal",
        lower: float = -math.inf,
        upper: float = math.inf,
        strength: float | None = None,
    ) -> None:
        super().__init__()
        check_harmonics(harmonics)
        check_family(family)
        _check_bounds(family, lower, upper)
        if strength is not None and not strength >= 0:
            raise ArgumentError(
                "strength", f"{strength} is not 0 or more", "Give a number of dates"
            )
        self.harmonics, self.family, self.strength = harmonics, family, strength
        self.lower, self.upper = lower, upper
        self.coefficients: Tensor
        self.centre: Tensor
        self.floor: Tensor
        self.chosen_strength: Tensor
        self.register_buffer("coefficients", torch.zeros(0, 0, 0, 0))
        self.register_buffer("centre", torch.zeros(0, 0))
        self.register_buffer("floor", torch.zeros(0, 0))
        self.register_buffer("chosen_strength", torch.full((2,), math.nan))
        self._spool: Spool | None = None

    @property
    def fitted_parameters(self) -> int:
        """Coefficients a, b, log c, log d with their cycles at all points."""
        return self.coefficients.numel()

    def collect(self, batch: Batch) -> None:
        """Writes mean, deviation and truth to the temporary file."""
        if self._spool is None:
            self._spool = Spool()
        fields = [batch["raw_mean"], batch["raw_std"], batch["target"]]
        self._spool.append(fields, batch["weights"], batch["dates"])

    def solve(self) -> None:
        """Fits the common coefficients, chooses the strength and fits each point."""
        if self._spool is None:
            raise nothing_collected(self)
        spool = self._spool
        ridge = self._ridge(spool)
        harmonics = self.harmonics if ridge.cycles else 0
        fit = SeasonalFit(spool, self.family, harmonics, (self.lower, self.upper))
        prior = fit.common()

        def of_block(points: slice) -> Floats:
            return fit.physical(points, prior, ridge)

        columns = in_parallel(of_block, spool.blocks()).T.reshape(-1, *spool.area.shape)
        # float32 keeps the digits: all but the centre are corrections to the raw ensemble
        made = torch.from_numpy(np.ascontiguousarray(columns)).to(self.coefficients)
        parts = made[:-2].reshape(4, -1, *spool.area.shape)
        self.coefficients = parts.new_zeros(4, 1 + 2 * self.harmonics, *spool.area.shape)
        self.coefficients[:, : parts.shape[1]] = parts
        self.centre, self.floor = made[-2].clone(), made[-1].clone()
        ratio = ridge.ratio if ridge.cycles or not self.harmonics else math.inf
        # of constants, in dates; times that of cycles, infinite if there are none
        self.chosen_strength.copy_(torch.tensor([ridge.strength, ratio]))
        self.solved.fill_(True)
        self._spool = None

    def _ridge(self, spool: Spool) -> Choice:
        if self.strength is not None:
            return Choice(self.strength)
        return choose_ridge(spool, self.harmonics)

    def forward(self, batch: Batch) -> Distribution:
        """Forecast of the family with location and scale (N, H, W); NaN where the raw one is."""
        self._require_solved()
        require_same_grid(self, self.centre, batch)
        maps = (self.coefficients, self.centre, self.floor)
        coefficients, centre, floor = map(current().part, maps)
        cycle = annual_cycle(batch["dates"], self.harmonics).to(coefficients)
        a, b, c, d = torch.einsum("nk,qkhw->qnhw", cycle, coefficients).unbind(0)
        mean, std = batch["raw_mean"], batch["raw_std"]
        mu = mean + (a + b * (mean - centre))
        sigma = torch.sqrt((2 * c).exp() + (d.exp() * std).square() + floor.square())
        if self.family == "normal":
            return Normal(mu, sigma, positive=True)
        return location_scale(self.family, mu, sigma, self.lower, self.upper)


def _check_bounds(family: str, lower: float, upper: float) -> None:
    if is_bounded(family):
        if not lower < upper:
            raise ArgumentError("lower", f"{lower} is not below upper, {upper}")
        if math.isinf(lower) and math.isinf(upper):
            raise ArgumentError("lower", f"{family} has no bound", "Give lower, upper or both")
    elif not (math.isinf(lower) and math.isinf(upper)):
        raise ArgumentError("lower", f"{family} takes no bounds", f"Choose truncated_{family}")
