"""Regression problems with many predictors, one for each grid point or one for all points."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ens10.models.statistical.advection import Advection
from ens10.models.statistical.harmonics import annual_cycle
from ens10.models.statistical.newton import Floats
from ens10.models.statistical.spool import Points, Spool

FEWEST_DATES = 10  # of a point; with fewer it keeps the raw ensemble
SMALLEST_STD = 0.01  # of the mean: lower limit of a deviation before its logarithm is taken
TINY = 1e-30  # smallest limit, whose logarithm is finite in float32
_FIRST_FEATURE = 3  # among the fields of the spool
_SAME = 1e-6  # float32 data: what varies by less than this share of its size is constant


@dataclass(frozen=True)
class Problem:
    """The samples of one regression, standardised by its training samples.

    Args:
        x: predictors, (k, n): first 1, then of mean 0 and variance 1, or 0 if they are constant.
        r: response, of mean 0 and variance 1, (n,).
        w: weights, which sum to 1, (n,).
        left_out: predictors, response and weights of left-out samples.
        centre: means of the k - 1 predictors.
        width: their standard deviations; infinite for constant ones.
        shift: mean of the response, target units.
        scale: its standard deviation.
        floor: lower limit of the raw deviation.
        area: weight of the problem among others.
    """

    x: Floats
    r: Floats
    w: Floats
    left_out: tuple[Floats, Floats, Floats]
    centre: Floats
    width: Floats
    shift: float
    scale: float
    floor: float
    area: float

    def physical(self, theta: Floats) -> Floats:
        """Convert coefficients (2, k) from standardised variables to physical units."""
        by = np.stack([theta[0, 1:] * self.scale, theta[1, 1:]]) / self.width
        first = np.array([self.shift + self.scale * theta[0, 0], np.log(self.scale) + theta[1, 0]])
        return np.concatenate([(first - by @ self.centre)[:, None], by], 1)


def raw_coefficients(predictors: int) -> Floats:
    """Return coefficients (2, 1 + predictors) of the raw ensemble: no change, sigma = s."""
    same = np.zeros((2, 1 + predictors))
    same[1, -1] = 1.0
    return same


class Design:
    """Predictors of each date: features, raw mean, harmonics of the year, log raw deviation.

    The spool has the fields truth, raw mean, raw deviation and features, and those of the raw mean
    around each point if there is advection.

    Args:
        spool: fields of the training dates.
        harmonics: H.
        local: True for a problem for each point; otherwise one for all points.
        advection: computes predictors from these fields, which count as features.
    """

    def __init__(
        self, spool: Spool, harmonics: int, local: bool, advection: Advection | None = None
    ) -> None:
        self.spool, self.local, self.advection = spool, local, advection
        self.dates = spool.dates
        cycle = annual_cycle(torch.from_numpy(self.dates), harmonics).numpy()
        self.cycle: Floats = np.ascontiguousarray(cycle.T[1:])
        self.features = spool.fields - _FIRST_FEATURE + (2 * advection.size if advection else 0)
        self.size = self.features + 1 + len(self.cycle) + 1  # number of predictors

    def read(self, points: Points) -> tuple[Floats, Floats]:
        """Read the fields (F, P, N) and weights (P,) of some points."""
        data = self.spool.read(points)
        if self.advection is not None:
            data = self.advection.expand(data, points, self.dates, _FIRST_FEATURE)
        return data, self.spool.area.reshape(-1)[points]

    def problems(
        self, data: Floats, area: Floats, training: npt.NDArray[np.bool_] | None = None
    ) -> list[Problem | None]:
        """Return the regression problem of each point, None where there are too few samples.

        Args:
            data: fields of the points, as `read` returns them.
            area: their weights.
            training: (N,) mask of the training dates; the others are left out. None for all dates.
        """
        if not self.local:
            tiled = np.tile(self.cycle, data.shape[1])
            dates = None if training is None else np.tile(training, data.shape[1])
            weights = np.repeat(area, data.shape[2])
            return [self._problem(data.reshape(len(data), -1), tiled, weights, dates)]
        return [
            self._problem(data[:, i], self.cycle, np.full(data.shape[2], area[i]), training)
            for i in range(data.shape[1])
        ]

    def _problem(
        self,
        data: Floats,
        cycle: Floats,
        weights: Floats,
        training: npt.NDArray[np.bool_] | None,
    ) -> Problem | None:
        valid = np.isfinite(data).all(0) & (weights > 0)
        fit_dates = valid if training is None else valid & training
        if fit_dates.sum() < FEWEST_DATES:
            return None
        w = weights[fit_dates] / weights[fit_dates].sum()
        truth, mean, std, features = data[0], data[1], data[2], data[_FIRST_FEATURE:]
        floor = max(SMALLEST_STD * float(w @ std[fit_dates]), TINY)
        x = np.concatenate([features, mean[None], cycle, np.log(np.maximum(std, floor))[None]])
        error = truth - mean
        shift = float(w @ error[fit_dates])
        scale = float(np.sqrt(w @ (error[fit_dates] - shift) ** 2))
        scale = max(scale, _SAME * (abs(shift) + _SAME * abs(float(w @ mean[fit_dates]))), TINY)
        centre = x[:, fit_dates] @ w
        width = np.sqrt((x[:, fit_dates] - centre[:, None]) ** 2 @ w)
        width = np.where(width <= _SAME * (1 + np.abs(centre)), np.inf, width)

        def standard(samples: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
            rows = (x[:, samples] - centre[:, None]) / width[:, None]
            ones = np.ones((1, rows.shape[1]))
            return np.concatenate([ones, rows]), (error[samples] - shift) / scale

        left_out = valid & ~fit_dates
        left_out_samples = (*standard(left_out), weights[left_out])
        area = float(weights.max(initial=0.0))
        return Problem(
            *standard(fit_dates), w, left_out_samples, centre, width, shift, scale, floor, area
        )


def pooled(problems: list[Problem]) -> tuple[Floats, Floats, Floats] | None:
    """Merge the samples of all problems: predictors, response, weights; None without problems."""
    if not problems:
        return None
    total = sum(problem.area for problem in problems)
    w = np.concatenate([problem.w * (problem.area / total) for problem in problems])
    x = np.concatenate([problem.x for problem in problems], 1)
    return x, np.concatenate([problem.r for problem in problems]), w
