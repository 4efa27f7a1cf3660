"""EMOS at each grid point with an annual cycle, shrunk towards common coefficients."""

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
from ens10.models.statistical.seasonal_fit import Ridge, SeasonalFit, choose_ridge
from ens10.models.statistical.spool import Spool, in_parallel


class SeasonalEMOS(StatisticalMethod):
    """EMOS for exchangeable members at each grid point, with an annual cycle, of least mean CRPS.

    Location m + a(t) + b(t) (m - centre) and squared scale c(t)^2 + d(t)^2 var, with ensemble mean
    m and variance var, and a, b, log c, log d sums of harmonics of the year (Gneiting et al. 2005,
    doi:10.1175/MWR2904.1). The predictors are standardised at each point (as in Dabernig et al.
    2017, doi:10.1002/qj.2975), one set of coefficients is fitted to all points, and those of each
    point are shrunk towards it by a ridge (`ens10.models.statistical.seasonal_fit`). Points
    with fewer than three valid dates keep mean and spread of the raw ensemble.

    Training batches are kept in a temporary file, 12 bytes for each date and point; main memory
    holds a few blocks of points, which are fitted in parallel.

    Args:
        harmonics: number H of harmonics of the four coefficients; 0 for none.
        family: family of the distribution, such as "normal".
        lower: lower bound of truncated and censored families, target units.
        upper: upper bound, target units.
        strength: strength of the ridge: number of dates that the common coefficients count for at
            each point. None chooses it, and a factor of 1 or 10 for the cycles, by cross-validation
            on the training dates: each year (or fifth of the years) is left out in turn. Dates
            within 366 days are left out in five blocks of consecutive dates, five days apart from
            the dates of the fit; a fit without annual cycles (`chosen_strength[1]` infinite) is
            then a choice too. Cross-validation uses normal distributions, which are fastest to fit.

    Raises:
        ArgumentError: negative harmonics or strength, bounds that are not in order, or of a family
            without; no strength, and too few training dates to leave some out.
        UnknownNameError: another family.
    """

    may_be_nan = ("chosen_strength",)
    may_be_infinite = ("coefficients",)  # log c of a point that keeps the raw ensemble

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
                "strength", f"{strength} is not 0 or more", "Choose a number of dates"
            )
        self.harmonics, self.family, self.strength = harmonics, family, strength
        self.lower, self.upper = lower, upper
        self.coefficients: Tensor
        self.centre: Tensor
        self.floor: Tensor
        self.chosen_strength: Tensor
        self.register_buffer("coefficients", torch.zeros(4, 1 + 2 * harmonics, 0, 0))
        self.register_buffer("centre", torch.zeros(0, 0))
        self.register_buffer("floor", torch.zeros(0, 0))
        self.register_buffer("chosen_strength", torch.full((2,), math.nan))
        self._spool: Spool | None = None

    @property
    def fitted_parameters(self) -> int:
        """Coefficients a, b, log c, log d with their cycles at all points."""
        return self.coefficients.numel()

    def collect(self, batch: Batch) -> None:
        """Write mean, deviation and truth to the temporary file."""
        if self._spool is None:
            self._spool = Spool()
        fields = [batch["raw_mean"], batch["raw_std"], batch["target"]]
        self._spool.append(fields, batch["weights"], batch["dates"])

    def solve(self) -> None:
        """Fit the common coefficients, choose the ridge and fit each point."""
        if self._spool is None:
            raise nothing_collected(self)
        spool = self._spool
        ridge = self._choose_ridge(spool)
        harmonics = self.harmonics if ridge.cycles else 0
        fit = SeasonalFit(spool, self.family, harmonics, (self.lower, self.upper))
        prior = fit.fit_common()

        def of_block(points: slice) -> Floats:
            return fit.fit_points(points, prior, ridge)

        columns = in_parallel(of_block, spool.blocks()).T.reshape(-1, *spool.area.shape)
        # float32 keeps the digits: all but the centre are corrections to the raw ensemble
        parameters = torch.from_numpy(np.ascontiguousarray(columns)).to(self.coefficients)
        parts = parameters[:-2].reshape(4, -1, *spool.area.shape)
        self.coefficients = parts.new_zeros(4, 1 + 2 * self.harmonics, *spool.area.shape)
        self.coefficients[:, : parts.shape[1]] = parts
        self.centre, self.floor = parameters[-2].clone(), parameters[-1].clone()
        ratio = ridge.ratio if ridge.cycles or not self.harmonics else math.inf
        # of constants, in dates; times that of cycles, infinite if there are none
        self.chosen_strength.copy_(torch.tensor([ridge.strength, ratio]))
        self.solved.fill_(True)
        self._spool = None

    def _choose_ridge(self, spool: Spool) -> Ridge:
        if self.strength is not None:
            return Ridge(self.strength)
        return choose_ridge(spool, self.harmonics)

    def forward(self, batch: Batch) -> Distribution:
        """Return the forecast, location and scale (N, H, W); NaN where the raw ensemble is."""
        self._require_solved()
        require_same_grid(self, self.centre, batch)
        maps = (self.coefficients, self.centre, self.floor)
        coefficients, centre, floor = map(current().of_samples, maps)
        cycle = annual_cycle(batch["dates"], self.harmonics).to(coefficients)
        a, b, c, d = torch.einsum("nk,qknhw->qnhw", cycle, coefficients).unbind(0)
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
            raise ArgumentError("lower", f"{family} has no bound", "Pass lower, upper or both")
    elif not (math.isinf(lower) and math.isinf(upper)):
        raise ArgumentError("lower", f"{family} takes no bounds", f"Choose truncated_{family}")
