"""EMOS at each grid point with an annual cycle, shrunk towards common coefficients."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ens10.loader.batch import Batch
from ens10.metrics.distributions import FAMILIES, Distribution, Normal
from ens10.metrics.distributions.registry import location_scale
from ens10.models.domain import current
from ens10.models.statistical.base import SpooledMethod, check_not_negative, require_same_grid
from ens10.models.statistical.folds import Fold, left_out_folds, several_years
from ens10.models.statistical.harmonics import annual_cycle, check_harmonics
from ens10.models.statistical.newton import Floats, minimise
from ens10.models.statistical.regression import (
    VARIANCE_FLOOR,
    Regression,
    fit_together,
    root_of_exponentials,
)
from ens10.models.statistical.score_terms import (
    FamilyName,
    check_bounds,
    check_family,
    score_of,
)
from ens10.models.statistical.spool import Blocks, Points, Spool
from ens10.models.statistical.standardise import Samples, Units

_LINK = root_of_exponentials(50.0, VARIANCE_FLOOR)
_CURVATURE = 0.5  # of the CRPS of a standard normal, about
_FEWEST_DATES = 3  # a line through two points leaves no residual for the spread
_COMMON_SAMPLES = 1 << 18  # that the few common coefficients are fitted to, at 16 points at least
_CHOICE_SAMPLES = 1 << 16  # that the strength is chosen at
_STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # in dates
_RATIOS = (1.0, 10.0)  # an annual cycle may differ much less between points than the mean does


class SeasonalEMOS(SpooledMethod):
    """EMOS for exchangeable members at each grid point, with an annual cycle, of least mean CRPS.

    Location m + a(t) + b(t) (m - centre) and squared scale c(t)^2 + d(t)^2 var, with ensemble mean
    m and variance var, and a, b, log c, log d sums of harmonics of the year (Gneiting et al. 2005,
    doi:10.1175/MWR2904.1). The predictors are standardised at each point (as in Dabernig et al.
    2017, doi:10.1002/qj.2975), one set of coefficients is fitted to all points, and those of each
    point are shrunk towards it by a ridge (see `SeasonalFit`). Points
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
        check_bounds(family, lower, upper)
        check_not_negative("strength", strength)
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

    @property
    def fitted_parameters(self) -> int:
        """Coefficients a, b, log c, log d with their cycles at all points."""
        return self.coefficients.numel()

    def _fields(self, batch: Batch) -> list[Tensor]:
        return [batch["target"], batch["raw_mean"], batch["raw_std"]]

    def _fit(self, spool: Spool) -> dict[str, Tensor | Floats]:
        if self.strength is None:
            ridge = choose_ridge(spool, self.harmonics)
        else:
            ridge = Ridge(self.strength)
        harmonics = self.harmonics if ridge.cycles else 0
        fit = SeasonalFit(spool, self.family, harmonics, (self.lower, self.upper))
        prior = fit.fit_common()
        maps = spool.maps(lambda points: fit.fit_points(points, prior, ridge))
        # float32 keeps the digits: all but the centre are corrections to the raw ensemble
        coefficients = np.zeros((4, 1 + 2 * self.harmonics, *maps.shape[1:]))
        coefficients[:, : 1 + 2 * harmonics] = maps[:-2].reshape(4, -1, *maps.shape[1:])
        ratio = ridge.ratio if ridge.cycles or not self.harmonics else math.inf
        return {
            "coefficients": coefficients,
            "centre": maps[-2],
            "floor": maps[-1],
            # of constants, in dates; times that of cycles, infinite if there are none
            "chosen_strength": torch.tensor([ridge.strength, ratio]),
        }

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


@dataclass(frozen=True)
class Ridge:
    """Strength of the ridge penalty on the difference from the common coefficients.

    Args:
        strength: in dates, of the constants.
        ratio: strength of the annual cycles over that of the constants.
        cycles: False for a fit without annual cycles.
    """

    strength: float
    ratio: float = 1.0
    cycles: bool = True


class SeasonalFit:
    """Fits of seasonal EMOS to one training set.

    In standardised units, sigma^2 = c(t)^2 + d(t)^2 v + 1e-8, where log c and log d are sums of
    harmonics: harmonics of c itself would allow sign changes, and so a second minimum. With n dates
    the penalty is strength / (2 n) |theta - prior|^2 times the curvature of the CRPS of a standard
    normal, so that the prior counts for as many dates as `strength` says.

    Args:
        spool: truth, mean and deviation.
        family: name of the distribution.
        harmonics: H.
        bounds: lower and upper, target units.
    """

    def __init__(
        self, spool: Spool, family: str, harmonics: int, bounds: tuple[float, float]
    ) -> None:
        self.spool, self.bounds = spool, bounds if FAMILIES[family].bounds else ()
        self.score, self.deviation = score_of(family), 1 / FAMILIES[family].unit_scale
        self.harmonics = harmonics
        self.cycle: Floats = annual_cycle(torch.from_numpy(spool.dates), harmonics).numpy()

    def fit_common(self) -> Floats:
        """Fit common coefficients, (4 K,), to all points, or to a sample if there are many."""
        points = self.spool.some_points(self._sample_size(_COMMON_SAMPLES))
        return self._fit_common(points, *self._problem(self.spool.read(points)))

    def _fit_common(self, points: Points, problem: Regression, units: Units) -> Floats:
        start = np.zeros((4, self.cycle.shape[1]))
        start[2:, 0] = 0.5 * np.log(0.5)
        weights = self.spool.area.reshape(-1)[points] * (units.count[:, 0] >= _FEWEST_DATES)
        return fit_together(problem, start.reshape(-1), weights)

    def left_out_scores(self, folds: Sequence[Fold]) -> tuple[list[Ridge], Floats]:
        """Return the total CRPS of left-out dates at a sample of points, for each ridge."""
        points = self.spool.some_points(self._sample_size(_CHOICE_SAMPLES))
        data = self.spool.read(points)
        ratios = _RATIOS if self.harmonics else (1.0,)
        choices = [Ridge(s, ratio, self.harmonics > 0) for s in _STRENGTHS for ratio in ratios]
        scores = [self._scores(data, points, fold, choices) for fold in folds]
        return choices, np.sum(scores, axis=0)

    def _scores(self, data: Floats, points: Points, fold: Fold, choices: Sequence[Ridge]) -> Floats:
        """Return the CRPS of left-out dates in units of each point's error, for all ridges."""
        problem, units = self._problem(data, fold.training)
        prior = self._fit_common(points, problem, units)
        left_out = fold.left_out * np.isfinite(data).all(0)
        area = self.spool.area.reshape(-1)[points, None] * (units.count >= _FEWEST_DATES)
        scores = []
        for choice in choices:
            theta = self._shrunk(problem, units, prior, choice)
            scores.append(replace(problem, w=area * left_out).mean_score(theta)[0].sum())
        return np.array(scores)

    def fit_points(self, points: Points, prior: Floats, ridge: Ridge) -> Floats:
        """Fit some points: a, b, log c, log d (K each), centre and floor, (P, 4 K + 2)."""
        problem, units = self._problem(self.spool.read(points))
        theta = self._shrunk(problem, units, prior, ridge)
        parts = theta.reshape(len(theta), 4, -1).copy()
        parts[:, 0] *= units.scale
        parts[:, 1] *= units.scale / units.width
        parts[:, 2:, 0] += np.log(units.scale)
        parts[:, 3, 0] -= 0.5 * np.log(units.spread[:, 0])
        few = units.count[:, 0] < _FEWEST_DATES
        parts[few] = 0
        parts[few, 2, 0] = -np.inf
        parts[few, 3, 0] = -math.log(self.deviation)
        floor = math.sqrt(VARIANCE_FLOOR) * units.scale
        floor[few] = 0
        return np.concatenate([parts.reshape(len(theta), -1), units.centre, floor], 1)

    def _shrunk(self, problem: Regression, units: Units, prior: Floats, ridge: Ridge) -> Floats:
        """Fit each point, with this ridge towards the common coefficients, (P, 4 K)."""
        strength = np.full((4, self.cycle.shape[1]), ridge.strength * ridge.ratio)
        strength[:, 0] = ridge.strength
        penalty = _CURVATURE * strength.reshape(-1) / np.maximum(units.count, 1)
        start = np.tile(prior, (len(penalty), 1))
        return minimise(start, replace(problem, prior=start, penalty=penalty))

    def _sample_size(self, samples: int) -> int:
        return max(16, samples // len(self.cycle))

    def _problem(
        self, data: Floats, dates: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Regression, Units]:
        """Return the problems of points, standardised by `dates`; others get weight 0."""
        samples = Samples.of(data, np.ones(data.shape[2], bool) if dates is None else dates)
        units = Units.of(Blocks([lambda: samples]))
        return Regression(
            self.score,
            _LINK,
            samples.error / units.scale,
            samples.w / units.weight,
            (1.0, (samples.mean - units.centre) / units.width),
            (1.0, samples.spread / units.spread),
            bounds=[(bound - samples.mean) / units.scale for bound in self.bounds],
            cycle=self.cycle if self.harmonics else None,
        ), units


def choose_ridge(spool: Spool, harmonics: int) -> Ridge:
    """Choose the ridge by the CRPS of left-out training dates, with normal distributions.

    Data of one year cannot determine an annual cycle, and one fitted to a part of the year may be
    far off in the next months: there a fit without cycles is among the choices.

    Args:
        spool: truth, mean and deviation.
        harmonics: H of the annual cycles.

    Raises:
        ArgumentError: too few dates to leave some out.
    """
    folds = left_out_folds(spool.dates)
    harmonic_counts = {harmonics} if several_years(spool.dates) else {harmonics, 0}
    choices: list[Ridge] = []
    totals: list[float] = []
    for count in sorted(harmonic_counts, reverse=True):
        fit = SeasonalFit(spool, "normal", count, (-math.inf, math.inf))
        fit_choices, fit_scores = fit.left_out_scores(folds)
        choices, totals = [*choices, *fit_choices], [*totals, *fit_scores]
    return choices[int(np.argmin(totals))]
