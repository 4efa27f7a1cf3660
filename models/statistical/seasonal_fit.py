"""From the training dates to standardised problems of seasonal EMOS, and back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ens10.models.statistical.crps_terms import is_bounded
from ens10.models.statistical.harmonics import annual_cycle
from ens10.models.statistical.newton import Floats
from ens10.models.statistical.seasonal_regression import (
    VARIANCE_FLOOR,
    SeasonalProblems,
    point_fits,
    pooled_fit,
)
from ens10.models.statistical.spool import Points, Spool

_FEWEST_DATES = 3  # a line through two points leaves no residual to learn a spread from
_COMMON_SAMPLES = 1 << 18  # that the few common coefficients are fitted to, at 16 points at least
_CHOICE_SAMPLES = 1 << 16  # that the strength is chosen at
_STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # in dates
_RATIOS = (1.0, 10.0)  # an annual cycle may differ much less between points than the mean does
_ONE_YEAR_STRENGTH = 100.0  # where there is no year to leave out
_FOLDS = 5


@dataclass
class Standardised:
    """Data of P points, (P, N), and how they were standardised, (P, 1).

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


class SeasonalFit:
    """The fits of one training set.

    Args:
        spool: mean, deviation and truth.
        family: of the distribution.
        harmonics: H.
        bounds: lower and upper, target units.
    """

    def __init__(
        self, spool: Spool, family: str, harmonics: int, bounds: tuple[float, float]
    ) -> None:
        self.spool, self.family, self.bounds = spool, family, bounds
        self.dates = spool.dates
        self.cycle: Floats = annual_cycle(torch.from_numpy(self.dates), harmonics).numpy()

    def common(self, dates: npt.NDArray[np.bool_] | None = None) -> Floats:
        """Coefficients fitted to all points (a sample of them if they are many), (4 K,)."""
        points = self.spool.some_points(self._count(_COMMON_SAMPLES))
        return self._common(self.spool.read(points), points, dates)

    def _common(
        self, data: Floats, points: npt.NDArray[np.int64], dates: npt.NDArray[np.bool_] | None
    ) -> Floats:
        standard = self._standardise(data, dates)
        area = self.spool.area.reshape(-1)[points]
        enough = standard.count[:, 0] >= _FEWEST_DATES
        size = 4 * self.cycle.shape[1]
        problem = self._problem(standard, np.zeros((len(points), size)), (0.0, 1.0))
        if not enough.any():
            return np.zeros(size)
        return pooled_fit(problem, area * enough)

    def choose_strength(self) -> tuple[float, float]:
        """Strength and ratio of least CRPS of years that are left out, at a sample of points."""
        folds = _folds(self.dates)
        if folds.max() == 0:
            return _ONE_YEAR_STRENGTH, 1.0
        points = self.spool.some_points(self._count(_CHOICE_SAMPLES))
        data = self.spool.read(points)
        ratios = _RATIOS if self.cycle.shape[1] > 1 else (1.0,)
        choices = [(strength, ratio) for strength in _STRENGTHS for ratio in ratios]
        totals = np.zeros(len(choices))
        for fold in range(folds.max() + 1):
            totals += self._scores(data, points, folds != fold, choices)
        return choices[int(np.argmin(totals))]

    def _scores(
        self,
        data: Floats,
        points: npt.NDArray[np.int64],
        training: npt.NDArray[np.bool_],
        choices: Sequence[tuple[float, float]],
    ) -> Floats:
        """CRPS of the dates left out in units of each point's error, for all choices."""
        prior = self._common(data, points, training)
        standard = self._standardise(data, training)
        left_out = ~training * np.isfinite(data).all(0)
        area = self.spool.area.reshape(-1)[points, None] * (standard.count >= _FEWEST_DATES)
        scores = []
        for choice in choices:
            problem = self._problem(standard, np.tile(prior, (len(points), 1)), choice)
            theta = point_fits(problem)
            problem.w = area * left_out
            scores.append(problem.mean_crps(theta)[0].sum())
        return np.array(scores)

    def physical(self, points: Points, prior: Floats, strength: tuple[float, float]) -> Floats:
        """Fits a block: a, b, log c, log d (K each), centre and floor, (P, 4 K + 2)."""
        standard = self._standardise(self.spool.read(points), None)
        start = np.tile(prior, (len(standard.r), 1))
        theta = point_fits(self._problem(standard, start, strength))
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

    def _count(self, samples: int) -> int:
        return max(16, samples // len(self.dates))

    def _standardise(self, data: Floats, dates: npt.NDArray[np.bool_] | None) -> Standardised:
        """Standardised by the valid dates among those given; the others have weight 0."""
        mean, std, truth = data
        valid = np.isfinite(data).all(0)
        mean, std, truth = (np.where(valid, x, 0.0) for x in (mean, std, truth))
        used = valid if dates is None else valid & dates
        count = used.sum(1, keepdims=True).astype(np.float64)
        w = used / np.maximum(count, 1)

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
        return Standardised(error / scale, u, v, w, count, scale, centre, width, variance, bounds)

    def _problem(
        self, s: Standardised, prior: Floats, strength: tuple[float, float]
    ) -> SeasonalProblems:
        """With a strength in dates, and how much more of it cycles have than constants."""
        of_cycle = np.full(self.cycle.shape[1], strength[0] * strength[1])
        of_cycle[0] = strength[0]
        share = np.tile(of_cycle, 4) / np.maximum(s.count, 1)
        return SeasonalProblems(self.family, self.cycle, s.r, s.u, s.v, s.w, s.bounds, prior, share)


def _folds(dates: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number of the fold of each date: its year, or one of five groups of years."""
    years = dates.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64)
    rank = np.unique(years, return_inverse=True)[1].reshape(-1)
    return np.asarray(rank % _FOLDS, np.int64)
