"""Fits of seasonal EMOS: least mean CRPS, with coefficients that follow the year.

At each point and date, in standardised units,

    mu = a(t) + b(t) u,    sigma^2 = c(t)^2 + d(t)^2 v + 1e-8,

where a, b, log c and log d are sums of K harmonics (harmonics of c itself would allow sign changes,
and so a second minimum). The objective is the weighted mean CRPS plus strength / (4 n) |theta -
prior|^2 with n dates: the curvature of the CRPS of a standard normal is about a half, so that the
prior counts for as many dates as `strength` says. Many points are solved at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import torch

from ens10.errors import ArgumentError
from ens10.models.statistical.crps_terms import Terms, crps_terms, is_bounded
from ens10.models.statistical.harmonics import annual_cycle
from ens10.models.statistical.newton import Evaluation, Floats, minimise
from ens10.models.statistical.spool import Points, Spool

VARIANCE_FLOOR = 1e-8
_LARGEST_LOG = 50.0  # no step of the search overflows
_PAIRS = [(i, j) for i in range(4) for j in range(i, 4)]


@dataclass
class SeasonalProblems:
    """Regression problems of P points with N dates; arrays (P, N) unless stated otherwise.

    Args:
        family: name of the distribution.
        cycle: (N, K), the harmonics at the dates.
        r: predictand.
        u: predictor of its location.
        v: predictor of its squared scale.
        w: weights; those of a point sum to 1, or all are 0.
        bounds: lower and upper, of bounded families.
        prior: (P, 4 K), centre of the ridge.
        strength: (P, 4 K), strength of the ridge, as a fraction of the point's dates.
    """

    family: str
    cycle: Floats
    r: Floats
    u: Floats
    v: Floats
    w: Floats
    bounds: tuple[Floats, Floats] | None
    prior: Floats
    strength: Floats

    def select(self, mask: npt.NDArray[np.bool_]) -> Self:
        """Return the problems of the points for which `mask` (P,) is True."""
        fields = ("r", "u", "v", "w", "prior", "strength")
        parts = {name: getattr(self, name)[mask] for name in fields}
        bounds = self.bounds and (self.bounds[0][mask], self.bounds[1][mask])
        return replace(self, bounds=bounds, **parts)

    def evaluate(self, theta: Floats) -> Evaluation:
        """Return mean CRPS plus penalty with gradient and Hessian in theta (P, 4 K)."""
        value, gradient, hessian = self.mean_crps(theta)
        off = theta - self.prior
        pull = 0.5 * self.strength
        value = value + 0.5 * (pull * off**2).sum(1)
        index = np.arange(theta.shape[1])
        hessian[:, index, index] += pull
        return value, gradient + pull * off, hessian

    def mean_crps(self, theta: Floats) -> Evaluation:
        """Return the mean CRPS alone, with gradient and Hessian."""
        terms, slopes, sigma = self._terms(theta)
        w = self.w
        by = [w * terms.by_mu, w * terms.by_mu * self.u]
        by += [w * terms.by_sigma * s for s in slopes]
        size = self.cycle.shape[1]
        gradient = np.concatenate([part @ self.cycle for part in by], 1)
        products = (self.cycle[:, :, None] * self.cycle[:, None]).reshape(len(self.cycle), -1)
        hessian = np.empty((len(theta), 4, size, 4, size))
        # [1, u] are the derivatives of mu by a and b, slopes those of sigma by log c and log d
        rows = [np.ones_like(sigma), self.u, *slopes]
        bend = terms.by_sigma / sigma
        bends = {
            (2, 2): slopes[0] * (2 * sigma - slopes[0]),
            (3, 3): slopes[1] * (2 * sigma - slopes[1]),
            (2, 3): -slopes[0] * slopes[1],
        }
        for i, j in _PAIRS:
            second = (terms.mu_mu, terms.mu_sigma, terms.sigma_sigma)[(i > 1) + (j > 1)]
            local = second * rows[i] * rows[j]
            if (i, j) in bends:
                local = local + bend * bends[i, j]
            block = ((w * local) @ products).reshape(-1, size, size)
            hessian[:, i, :, j], hessian[:, j, :, i] = block, block
        return (w * terms.value).sum(1), gradient, hessian.reshape(len(theta), 4 * size, -1)

    def _terms(self, theta: Floats) -> tuple[Terms, list[Floats], Floats]:
        """Return CRPS terms, derivatives of sigma by log c and log d, and sigma."""
        parts = theta.reshape(len(theta), 4, -1) @ self.cycle.T
        a, b = parts[:, 0], parts[:, 1]
        c, d = np.exp(2 * np.minimum(parts[:, 2:], _LARGEST_LOG)).swapaxes(0, 1)
        sigma = np.sqrt(c + d * self.v + VARIANCE_FLOOR)
        terms = crps_terms(self.family, a + b * self.u, sigma, self.r, self.bounds)
        return terms, [c / sigma, d * self.v / sigma], sigma


class PointScores(Protocol):
    """Mean scores of P points."""

    def mean_crps(self, theta: Floats) -> Evaluation:
        """Return the mean CRPS of each point, with gradient and Hessian."""


@dataclass
class PooledProblem:
    """One problem: the coefficients that all points have in common.

    Args:
        points: scores of the P points.
        share: (P,) weight of each point, which sum to 1.
    """

    points: PointScores
    share: Floats

    def evaluate(self, theta: Floats) -> Evaluation:
        """Return the weighted mean over the points, for one theta (1, 4 K)."""
        parts = self.points.mean_crps(np.repeat(theta, len(self.share), 0))
        value, gradient, hessian = (np.tensordot(self.share, part, 1)[None] for part in parts)
        return value, gradient, hessian

    def select(self, mask: npt.NDArray[np.bool_]) -> Self:  # noqa: ARG002
        """Return the problem itself: there is only one."""
        return self


def pooled_fit(problem: SeasonalProblems, share: Floats) -> Floats:
    """Fit the coefficients of least CRPS that all points have in common, (4 K,)."""
    start = np.zeros((1, 4, problem.cycle.shape[1]))
    start[0, 2:, 0] = 0.5 * np.log(0.5)
    total = max(float(share.sum()), 1e-300)
    coefficients: Floats = minimise(start.reshape(1, -1), PooledProblem(problem, share / total))[0]
    return coefficients


def point_fits(problem: SeasonalProblems) -> Floats:
    """Fit the coefficients of each point, starting at the prior, (P, 4 K)."""
    return minimise(problem.prior, problem)


_FEWEST_DATES = 3  # a line through two points leaves no residual for the spread
_COMMON_SAMPLES = 1 << 18  # that the few common coefficients are fitted to, at 16 points at least
_CHOICE_SAMPLES = 1 << 16  # that the strength is chosen at
_STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # in dates
_RATIOS = (1.0, 10.0)  # an annual cycle may differ much less between points than the mean does
_FOLDS = 5
_ONE_YEAR = 366 * 86400  # seconds from first to last date up to which blocks are left out
_GAP = 5 * 86400  # seconds around a block left out: the weather of nearby dates is much the same
_FEWEST_TRAINING_DATES = 8  # beside a block left out


@dataclass
class StandardisedData:
    """Data of P points, (P, N), and the constants of their standardisation, (P, 1).

    r = (truth - mean) / scale, u = (mean - centre) / width, v = var / variance.
    """

    r: Floats
    u: Floats
    v: Floats
    w: Floats
    count: Floats
    scale: Floats
    centre: Floats
    width: Floats
    variance: Floats
    bounds: tuple[Floats, Floats] | None


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


@dataclass(frozen=True)
class Fold:
    """A cross-validation fold: masks of training dates and of left-out dates, (N,) each."""

    training: npt.NDArray[np.bool_]
    left_out: npt.NDArray[np.bool_]


class SeasonalFit:
    """Fits of seasonal EMOS to one training set.

    Args:
        spool: mean, deviation and truth.
        family: name of the distribution.
        harmonics: H.
        bounds: lower and upper, target units.
    """

    def __init__(
        self, spool: Spool, family: str, harmonics: int, bounds: tuple[float, float]
    ) -> None:
        self.spool, self.family, self.bounds = spool, family, bounds
        self.dates = spool.dates
        self.cycle: Floats = annual_cycle(torch.from_numpy(self.dates), harmonics).numpy()

    def fit_common(self, dates: npt.NDArray[np.bool_] | None = None) -> Floats:
        """Fit common coefficients, (4 K,), to all points, or to a sample if there are many."""
        points = self.spool.some_points(self._sample_size(_COMMON_SAMPLES))
        return self._fit_common(self.spool.read(points), points, dates)

    def _fit_common(
        self, data: Floats, points: npt.NDArray[np.int64], dates: npt.NDArray[np.bool_] | None
    ) -> Floats:
        standard = self._standardise(data, dates)
        area = self.spool.area.reshape(-1)[points]
        enough = standard.count[:, 0] >= _FEWEST_DATES
        size = 4 * self.cycle.shape[1]
        problem = self._problem(standard, np.zeros((len(points), size)), Ridge(0.0))
        if not enough.any():
            return np.zeros(size)
        return pooled_fit(problem, area * enough)

    def left_out_scores(self, folds: Sequence[Fold]) -> tuple[list[Ridge], Floats]:
        """Return the total CRPS of left-out dates at a sample of points, for each ridge."""
        points = self.spool.some_points(self._sample_size(_CHOICE_SAMPLES))
        data = self.spool.read(points)
        cycles = self.cycle.shape[1] > 1
        choices = [Ridge(s, r, cycles) for s in _STRENGTHS for r in (_RATIOS if cycles else (1.0,))]
        totals = np.zeros(len(choices))
        for fold in folds:
            totals += self._scores(data, points, fold, choices)
        return choices, totals

    def _scores(
        self,
        data: Floats,
        points: npt.NDArray[np.int64],
        fold: Fold,
        choices: Sequence[Ridge],
    ) -> Floats:
        """Return the CRPS of left-out dates in units of each point's error, for all ridges."""
        prior = self._fit_common(data, points, fold.training)
        standard = self._standardise(data, fold.training)
        left_out = fold.left_out * np.isfinite(data).all(0)
        area = self.spool.area.reshape(-1)[points, None] * (standard.count >= _FEWEST_DATES)
        scores = []
        for choice in choices:
            problem = self._problem(standard, np.tile(prior, (len(points), 1)), choice)
            theta = point_fits(problem)
            problem.w = area * left_out
            scores.append(problem.mean_crps(theta)[0].sum())
        return np.array(scores)

    def fit_points(self, points: Points, prior: Floats, ridge: Ridge) -> Floats:
        """Fit some points: a, b, log c, log d (K each), centre and floor, (P, 4 K + 2)."""
        standard = self._standardise(self.spool.read(points), None)
        start = np.tile(prior, (len(standard.r), 1))
        theta = point_fits(self._problem(standard, start, ridge))
        parts = theta.reshape(len(theta), 4, -1).copy()
        parts[:, 0] *= standard.scale
        parts[:, 1] *= standard.scale / standard.width
        parts[:, 2:, 0] += np.log(standard.scale)
        parts[:, 3, 0] -= 0.5 * np.log(standard.variance[:, 0])
        few = standard.count[:, 0] < _FEWEST_DATES
        parts[few] = 0
        parts[few, 2, 0] = -np.inf
        parts[few, 3, 0] = math.log(math.sqrt(3) / math.pi) if "logistic" in self.family else 0.0
        floor = math.sqrt(VARIANCE_FLOOR) * standard.scale
        floor[few] = 0
        return np.concatenate([parts.reshape(len(theta), -1), standard.centre, floor], 1)

    def _sample_size(self, samples: int) -> int:
        return max(16, samples // len(self.dates))

    def _standardise(self, data: Floats, dates: npt.NDArray[np.bool_] | None) -> StandardisedData:
        """Standardise by the valid dates among `dates`; other dates get weight 0."""
        mean, std, truth = data
        valid = np.isfinite(data).all(0)
        mean, std, truth = (np.where(valid, x, 0.0) for x in (mean, std, truth))
        valid_dates = valid if dates is None else valid & dates
        count = valid_dates.sum(1, keepdims=True).astype(np.float64)
        w = valid_dates / np.maximum(count, 1)

        def average(x: Floats) -> Floats:
            return np.asarray((w * x).sum(1, keepdims=True))

        error = truth - mean
        bias, centre = average(error), average(mean)
        scale, width = (np.sqrt(average(x**2)) for x in (error - bias, mean - centre))
        variance = average(std**2)
        # float32 data: what is below a millionth of the values themselves is rounding
        size = np.maximum(1e-6 * (np.abs(bias) + 1e-6 * np.abs(centre)), 1e-30)
        scale = np.maximum(scale, size)
        still = width <= 1e-9 * (np.abs(centre) + scale)
        width = np.where(still, np.inf, width)
        variance = np.where(variance <= 1e-12 * scale**2, np.inf, variance)
        bounds = None
        if is_bounded(self.family):
            lower, upper = ((bound - mean) / scale for bound in self.bounds)
            bounds = lower, upper
        u, v = (mean - centre) / width, std**2 / variance
        return StandardisedData(
            error / scale, u, v, w, count, scale, centre, width, variance, bounds
        )

    def _problem(self, s: StandardisedData, prior: Floats, ridge: Ridge) -> SeasonalProblems:
        """Return the regression problems of all points with this ridge."""
        of_cycle = np.full(self.cycle.shape[1], ridge.strength * ridge.ratio)
        of_cycle[0] = ridge.strength
        share = np.tile(of_cycle, 4) / np.maximum(s.count, 1)
        return SeasonalProblems(self.family, self.cycle, s.r, s.u, s.v, s.w, s.bounds, prior, share)


def choose_ridge(spool: Spool, harmonics: int) -> Ridge:
    """Choose the ridge by the CRPS of left-out training dates, with normal distributions.

    Data of one year cannot determine an annual cycle, and one fitted to a part of the year may be
    far off in the next months: there a fit without cycles is among the choices.

    Args:
        spool: mean, deviation and truth.
        harmonics: H of the annual cycles.

    Raises:
        ArgumentError: too few dates to leave some out.
    """
    folds = left_out_folds(spool.dates)
    harmonic_counts = {harmonics} if _several_years(spool.dates) else {harmonics, 0}
    choices: list[Ridge] = []
    totals: list[float] = []
    for count in sorted(harmonic_counts, reverse=True):
        fit = SeasonalFit(spool, "normal", count, (-math.inf, math.inf))
        fit_choices, fit_scores = fit.left_out_scores(folds)
        choices, totals = [*choices, *fit_choices], [*totals, *fit_scores]
    return choices[int(np.argmin(totals))]


def _several_years(dates: npt.NDArray[np.int64]) -> bool:
    return int(np.ptp(dates)) > _ONE_YEAR


def left_out_folds(dates: npt.NDArray[np.int64]) -> list[Fold]:
    """Return cross-validation folds: training dates and left-out dates of each.

    Dates of several years: each year is left out, or each of five groups of years. Dates within
    366 days: five blocks of consecutive dates, of which each is left out, and the dates up to five
    days before and after it are left out of the training set too.

    Args:
        dates: (N,), seconds since 1970, in any order; a date may occur several times.

    Raises:
        ArgumentError: within 366 days, fewer than eight dates remain beside a block.
    """
    if _several_years(dates):
        years = dates.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64)
        rank = np.unique(years, return_inverse=True)[1].reshape(-1) % _FOLDS
        return [Fold(rank != fold, rank == fold) for fold in range(int(rank.max()) + 1)]
    distinct = np.unique(dates)
    if distinct.size < _FOLDS + _FEWEST_TRAINING_DATES:
        raise _too_few_dates(distinct.size)
    folds = []
    for block in np.array_split(distinct, _FOLDS):
        left_out = (dates >= block[0]) & (dates <= block[-1])
        training = (dates < block[0] - _GAP) | (dates > block[-1] + _GAP)
        if np.unique(dates[training]).size < _FEWEST_TRAINING_DATES:
            raise _too_few_dates(distinct.size)
        folds.append(Fold(training, left_out))
    return folds


def _too_few_dates(dates: int) -> ArgumentError:
    return ArgumentError(
        "strength",
        f"{dates} training dates within one year are too few to choose it by dates left out",
        "Set strength to a number of dates, such as 100, or use more training dates",
    )
