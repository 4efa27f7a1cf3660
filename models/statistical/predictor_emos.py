"""EMOS with any number of predictors, by ridge regression or by gradient boosting."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Normal
from ens10.models.domain import current
from ens10.models.statistical.advection import Advection, Neighbours
from ens10.models.statistical.base import (
    Criterion,
    SpooledMethod,
    check_criterion,
    check_not_negative,
    require_same_grid,
)
from ens10.models.statistical.folds import left_out_folds
from ens10.models.statistical.harmonics import annual_cycle, check_harmonics
from ens10.models.statistical.log_linear_loops import boost, mean_score, no_samples, ridge_fit
from ens10.models.statistical.newton import Floats
from ens10.models.statistical.predictors import TINY, Design, Problem, pooled, raw_coefficients
from ens10.models.statistical.spool import Points, Spool
from ens10.protocol import check_known

RESULT_VERSION = 1  # raise it when results change
_COLLINEAR = 1e-6  # penalty of common coefficients: the raw mean is a feature, too
_COMMON_SAMPLES = 1 << 18  # that common coefficients are fitted to, at 16 points at least
_CHOICE_SAMPLES = 1 << 14  # that strength and number of steps are chosen at
_LARGEST = math.log(10.0)  # of a log scale, beyond the largest of the training
_PER_DATE = 2  # blocks of points are this much smaller than those of methods with few fields
_STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # in dates
_FEATURE_FACTORS = (1.0, 10.0, 100.0)  # times the strength of the others
_SCALE_FACTORS = (
    10.0,
    1.0,
)  # times the strength of the location; the first while others are chosen
# expected curvature of a sample's score by location and log scale, for sigma = 1
_CURVATURE = {
    "likelihood": (1.0, 2.0),
    "crps": (1 / math.sqrt(math.pi), 0.5 / math.sqrt(math.pi)),
}

Fit = tuple[Problem | None, Floats | None]


class _PredictorEMOS(SpooledMethod):
    """Normal with location and log scale linear in the features of the batch.

    A feature far outside its training range, such as rain at a place that was dry, would make the
    exponential of the log scale absurd: a scale is at most ten times the largest of the training.
    """

    def __init__(
        self,
        local: bool,
        harmonics: int,
        criterion: Criterion,
        advection: bool = False,
        neighbours: bool = False,
    ) -> None:
        super().__init__()
        if advection and neighbours:
            reason = "the neighbours include the gradient of an advection"
            raise ArgumentError("advection", reason, "Set one of advection and neighbours to false")
        self.advection = Neighbours() if neighbours else Advection() if advection else None
        check_harmonics(harmonics)
        check_criterion(criterion)
        self.local, self.harmonics, self.criterion = local, harmonics, criterion
        self.location: Tensor
        self.log_scale: Tensor
        self.floor: Tensor
        self.limit: Tensor  # of the log scale
        self.register_buffer("location", torch.zeros(0, 0, 0))
        self.register_buffer("log_scale", torch.zeros(0, 0, 0))
        self.register_buffer("floor", torch.zeros(0, 0))
        self.register_buffer("limit", torch.zeros(0, 0))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        if (floor := state_dict.get(f"{prefix}floor")) is not None:  # fits had no limit before
            state_dict.setdefault(f"{prefix}limit", torch.full_like(floor, torch.inf))
        super()._load_from_state_dict(state_dict, prefix, *args)

    @property
    def fitted_parameters(self) -> int:
        """Number of coefficients of location and log scale, those that are 0 included."""
        return self.location.numel() + self.log_scale.numel()

    @property
    def _likelihood(self) -> bool:
        return self.criterion == "likelihood"

    def _fields(self, batch: Batch) -> list[Tensor]:
        around = [] if self.advection is None else [self.advection.collect(batch)]
        own = [batch["target"], batch["raw_mean"], batch["raw_std"]]
        return [*own, self._features(batch), *around]

    def _features(self, batch: Batch) -> Tensor:
        features: Tensor = batch["features"]
        if features.ndim != batch["raw_mean"].ndim + 1:
            raise ArgumentError(
                "features",
                f"{type(self).__name__} takes mean and deviation of the inputs, not their members",
                "Use the batch layout of fields",
            )
        return features if self.advection is None else self.advection.features(batch)

    def _fit(self, spool: Spool) -> dict[str, Tensor | Floats]:
        if self.advection is not None:
            self.advection.solve()
        design = Design(spool, self.harmonics, self.local, self.advection)
        self._prepare(design)
        if self.local:
            maps = spool.maps(lambda points: self._fit_rows(design, points), _PER_DATE)
        else:
            rows = self._fit_rows(design, sample_of(spool, _COMMON_SAMPLES))
            maps = rows.reshape(-1, 1, 1)
        # float32 keeps the digits: features are normalised, and mu is a correction to the mean
        location, log_scale = np.split(maps[:-2], 2)
        last = {"floor": maps[-2], "limit": maps[-1]}
        return {"location": location, "log_scale": log_scale, **last}

    def _fit_rows(self, design: Design, points: Points) -> Floats:
        """Fit some points: coefficients of location and log scale, floor and limit of the scale.

        Returns:
            A row for each problem.
        """
        data, area = design.read(points)
        same = np.concatenate([raw_coefficients(design.size).reshape(-1), [TINY, np.inf]])
        rows = []
        for problem, theta in self._fit_problems(design, data, area):
            if problem is None or theta is None:
                rows.append(same)
            else:
                physical = problem.physical(theta).reshape(-1)
                largest = (theta[1] @ problem.x).max() + math.log(problem.scale)
                rows.append(np.concatenate([physical, [problem.floor, largest + _LARGEST]]))
        return np.array(rows)

    @abstractmethod
    def _prepare(self, design: Design) -> None:
        """Compute the settings that all fits share: penalty and prior, or number of steps."""

    @abstractmethod
    def _fit_problems(self, design: Design, data: Floats, area: Floats) -> list[Fit]:
        """Fit some points: return their problems and standardised coefficients, (2, k)."""

    def forward(self, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W); NaN where the raw ensemble is."""
        self._require_solved()
        if self.local:
            require_same_grid(self, self.floor, batch)
        features = self._features(batch)
        if self.advection is not None:
            features = torch.cat([features, self.advection(batch)], 1)
        maps = (self.location, self.log_scale, self.floor, self.limit)
        location, log_scale, floor, limit = map(current().of_samples, maps)
        count, extras = features.shape[1], 0 if self.advection is None else 3 * self.advection.size
        fitted_count = len(location) - 2 * self.harmonics - 3
        if count != fitted_count:
            raise ArgumentError(
                "inputs",
                f"the batch has {count - extras} features, but {type(self).__name__} was fitted to "
                f"{fitted_count - extras}",
                "Use the same inputs as in the fit",
            )
        cycle = annual_cycle(batch["dates"], self.harmonics).to(location)
        mean, std = batch["raw_mean"], batch["raw_std"]
        log_std = torch.log(torch.maximum(std, floor.expand_as(std)))

        def linear(by: Tensor) -> Tensor:
            total = torch.einsum("nk,knhw->nhw", cycle[:, 1:], by[2 + count : -1])
            total = total + (features * by[1 : 1 + count].transpose(0, 1)).sum(1)
            total = total + by[0] + by[1 + count] * mean + by[-1] * log_std
            changes: Tensor = total + 0 * std  # NaN where the raw ensemble is
            return changes

        scale = torch.minimum(linear(log_scale), limit).exp()
        return Normal(mean + linear(location), scale, positive=True)


class RidgeEMOS(_PredictorEMOS):
    """EMOS with auxiliary predictors and a log link for the scale, fitted with a ridge penalty.

    mu = m + a + sum_j b_j x_j and log sigma = c + sum_j d_j x_j, with ensemble mean m. The
    predictors x are the features of the batch (mean and deviation of each input, and the extras),
    m, harmonics of the year and the logarithm of the target's raw deviation. They are
    standardised; constant ones have no effect. The penalty draws the coefficients of each point to
    those of least mean score at all points, as `SeasonalEMOS` does; of a global fit, to 0. It may
    be stronger for the features than for the other predictors, since many features explain noise.
    Nonhomogeneous regression with a log link: Messner et al. (2017),
    doi:10.1175/MWR-D-16-0088.1. Points with fewer than ten valid dates keep the raw ensemble. With
    the target as the only input, no harmonics and no penalty there are eight coefficients, as the
    location also depends on the spread and the scale on the mean; EMOS has four.

    Training batches are kept in a temporary file, 4 (C + 3) bytes for each date and point with C
    features; blocks of points are fitted in parallel.

    After the fit, `chosen_strength` has the strengths of the other predictors and of the features,
    in dates, and the factor of the coefficients of the scale.

    Args:
        local: one fit per grid point instead of one for all.
        harmonics: number of annual harmonics among the predictors.
        criterion: "likelihood" or "crps", the mean score that is minimised.
        strength: strength of the penalty: number of dates that the common coefficients count for.
            None chooses it, a factor of 1, 10 or 100 for the coefficients of the features, and one
            of 1 or 10 for those of the scale, by the score of left-out dates at some points, as in
            `SeasonalEMOS`.
        advection: True for further predictors: the gradient of the ensemble mean and its products
            with the wind, which predict the error of a displaced forecast; see `Advection`. They
            are penalised as features are.
        neighbours: True for a regression on neighbours: the predictors of `Neighbours` in place of
            the features.

    Raises:
        ArgumentError: negative harmonics or strength; batches of features of members.
        UnknownNameError: another criterion.

    Examples:
        >>> import torch
        >>> from ens10.models.statistical import RidgeEMOS
        >>> g = torch.Generator().manual_seed(0)
        >>> wind = torch.randn(200, 1, 1, 1, generator=g)
        >>> batch = {"features": wind, "raw_mean": torch.full((200, 1, 1), 280.0),
        ...          "raw_std": torch.rand(200, 1, 1, generator=g) + 0.5,
        ...          "weights": torch.ones(200, 1, 1), "dates": torch.arange(200) * 86400 * 5}
        >>> noise = torch.randn(200, 1, 1, generator=g)
        >>> batch["target"] = 280 + 2 * wind[:, 0] + 0.1 * noise
        >>> emos = RidgeEMOS(harmonics=0, strength=1)
        >>> emos.collect(batch)
        >>> emos.solve()
        >>> round(emos.location[1].item(), 1)  # the coefficient of the wind
        2.0
    """

    may_be_nan = ("chosen_strength",)
    may_be_infinite = ("limit",)

    def __init__(
        self,
        local: bool = True,
        harmonics: int = 1,
        criterion: Criterion = "likelihood",
        strength: float | None = None,
        advection: bool = False,
        neighbours: bool = False,
    ) -> None:
        super().__init__(local, harmonics, criterion, advection, neighbours)
        check_not_negative("strength", strength)
        self.strength = strength
        self.chosen_strength: Tensor
        self.register_buffer("chosen_strength", torch.full((3,), math.nan))
        self._prior: Floats = np.zeros((2, 0))

    def _prepare(self, design: Design) -> None:
        strength = self.strength
        strengths = self._choose(design) if strength is None else (strength, strength, 1.0)
        self.chosen_strength.copy_(torch.tensor(strengths))
        self._prior = np.zeros((2, 1 + design.size))
        if self.local:
            points = sample_of(design.spool, _COMMON_SAMPLES)
            # the problems are freed before the fit, which needs their merged samples only
            pool = pooled([p for p in design.problems(*design.read(points)) if p is not None])
            self._prior = self._fit_common(pool)

    def _fit_problems(self, design: Design, data: Floats, area: Floats) -> list[Fit]:
        penalty = self._penalty(design, *self.chosen_strength.tolist())
        return [
            (p, None if p is None else self._fit_ridge(p, self._prior, penalty, self._prior))
            for p in design.problems(data, area)
        ]

    def _penalty(self, design: Design, base: float, features: float, of_scale: float) -> Floats:
        """Return the ridge of each coefficient of location and scale, in dates, (2, k)."""
        strengths = np.full(1 + design.size, base)
        strengths[1 : 1 + design.features] = features
        by_location, by_scale = _CURVATURE[self.criterion]
        penalty: Floats = np.stack([by_location * strengths, by_scale * of_scale * strengths])
        if not self.local:
            penalty[:, 0] = 0.0  # nothing to draw the constants to
        return penalty

    def _fit_common(self, samples: tuple[Floats, Floats, Floats] | None) -> Floats:
        """Fit one set of standardised coefficients to pooled samples; zero if there are none."""
        if samples is None:
            return self._prior
        x, r, w = samples
        none = np.zeros((2, len(x)))
        theta: Floats = ridge_fit(self._likelihood, x, r, w, none, none + _COLLINEAR, none)
        return theta

    def _fit_ridge(self, problem: Problem, prior: Floats, penalty: Floats, start: Floats) -> Floats:
        x, r, w = problem.x, problem.r, problem.w
        theta: Floats = ridge_fit(self._likelihood, x, r, w, prior, penalty / r.size, start)
        return theta

    def _choose(self, design: Design) -> tuple[float, float, float]:
        """Choose strengths, then the factor for the scale, by cross-validation at some points."""
        folds = []
        for problems in left_out_problems(design):
            prior = (
                self._fit_common(pooled(problems)) if self.local else np.zeros((2, 1 + design.size))
            )
            folds.append((problems, prior))
        before, after = _SCALE_FACTORS
        pairs = [
            (s, s * factor) for s in reversed(_STRENGTHS) for factor in reversed(_FEATURE_FACTORS)
        ]
        choices = [(*pair, before) for pair in pairs]
        totals = self._left_out_scores(design, folds, choices)
        best = int(np.argmin(totals))
        other = (*pairs[best], after)
        worse = self._left_out_scores(design, folds, [other])[0] >= totals[best]
        return choices[best] if worse else other

    def _left_out_scores(
        self,
        design: Design,
        folds: list[tuple[list[Problem], Floats]],
        choices: list[tuple[float, float, float]],
    ) -> Floats:
        penalties = [self._penalty(design, *choice) for choice in choices]
        totals = np.zeros(len(choices))
        for problems, prior in folds:
            for problem in problems:
                start = prior
                for n, penalty in enumerate(penalties):
                    start = self._fit_ridge(problem, prior, penalty, start)
                    x, r, w = problem.left_out
                    totals[n] += mean_score(self._likelihood, r, w, start[0] @ x, start[1] @ x)
        return totals


class BoostedEMOS(_PredictorEMOS):
    """EMOS with auxiliary predictors and a log link for the scale, fitted by gradient boosting.

    Nonhomogeneous boosting of Messner et al. (2017), doi:10.1175/MWR-D-16-0088.1: from the raw mean
    plus its bias with a constant scale, each step changes the one coefficient, of the location or
    of the log scale, that lowers the score most, by a fraction of its least-squares value. The
    number of steps is that of the lowest score of left-out dates, so predictors that do not help
    are never selected. Model and predictors are those of `RidgeEMOS`. Points with fewer than ten
    valid dates keep the raw ensemble.

    Args:
        local: one fit per grid point instead of one for all.
        harmonics: number of annual harmonics among the predictors.
        criterion: "likelihood", as published, or "crps", the mean score that is minimised.
        rate: fraction of the least-squares coefficient, in (0, 1].
        steps: largest number of steps.
        stop: "point" chooses the number of steps at each point, as published for each station;
            "common" one for all, at some points; "none" takes all steps.
        advection: True for the gradient of the ensemble mean and its products with the wind as
            further predictors; see `Advection`.

    Raises:
        ArgumentError: negative harmonics, rate or steps out of range; batches of features of
            members.
        UnknownNameError: another criterion or stop.
    """

    may_be_nan = ("chosen_steps",)
    may_be_infinite = ("limit",)

    def __init__(
        self,
        local: bool = True,
        harmonics: int = 1,
        criterion: Criterion = "likelihood",
        rate: float = 0.1,
        steps: int = 500,
        stop: Literal["common", "point", "none"] = "common",
        advection: bool = False,
    ) -> None:
        super().__init__(local, harmonics, criterion, advection)
        if not 0 < rate <= 1:
            raise ArgumentError("rate", f"{rate} is not in (0, 1]", "Choose such as 0.1")
        if steps < 1:
            raise ArgumentError("steps", f"{steps} is not 1 or more", "Choose such as 500")
        check_known("stop", stop, ("common", "point", "none"))
        self.rate, self.steps, self.stop = rate, steps, stop
        self.chosen_steps: Tensor  # the largest allowed number if it is chosen at each point
        self.register_buffer("chosen_steps", torch.full((), math.nan))
        self._steps = steps

    def _prepare(self, design: Design) -> None:
        self._steps = self.steps
        if self.stop == "common" or (self.stop == "point" and not self.local):
            totals = np.zeros(self.steps + 1)
            for problems in left_out_problems(design):
                for problem in problems:
                    totals += self._boost(problem, self.steps, problem.left_out)[1]
            self._steps = int(np.argmin(totals))
        self.chosen_steps.fill_(self._steps)

    def _fit_problems(self, design: Design, data: Floats, area: Floats) -> list[Fit]:
        problems = design.problems(data, area)
        steps = np.full(len(problems), self._steps)
        if self.stop == "point" and self.local:
            totals = np.zeros((len(problems), self.steps + 1))
            for fold in left_out_folds(design.dates):
                for n, problem in enumerate(design.problems(data, area, fold.training)):
                    if problem is not None:
                        totals[n] += self._boost(problem, self.steps, problem.left_out)[1]
            steps = totals.argmin(1)
        return [
            (p, None if p is None else self._boost(p, n, no_samples(len(p.x)))[0])
            for p, n in zip(problems, steps.tolist(), strict=True)
        ]

    def _boost(
        self, problem: Problem, steps: int, left_out_samples: tuple[Floats, Floats, Floats]
    ) -> tuple[Floats, Floats]:
        x, r, w = problem.x, problem.r, problem.w
        theta, path = boost(self._likelihood, x, r, w, self.rate, steps, *left_out_samples)
        return theta, path


def sample_of(spool: Spool, samples: int) -> Points:
    """Return a random sample of at least 16 points, with about `samples` dates in total."""
    return spool.some_points(max(16, samples // len(spool.dates)))


def left_out_problems(design: Design) -> Iterator[list[Problem]]:
    """Yield for each cross-validation fold the problems of a sample of points."""
    data, area = design.read(sample_of(design.spool, _CHOICE_SAMPLES))
    for fold in left_out_folds(design.dates):
        problems = design.problems(data, area, fold.training)
        yield [problem for problem in problems if problem is not None]
