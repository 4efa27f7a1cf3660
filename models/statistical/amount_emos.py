"""EMOS of amounts that cannot be below 0, such as precipitation, in families with a shape.

At each point and date, with ensemble mean m, variance v and share q of members above a threshold,
in units of the point's mean amount,

    location = m + a + b u + e h,    scale^2 = exp(2 c) + exp(2 d) v' + exp(2 g) m',    third f,

where u and h are m and q standardised over the dates, and v' and m' have mean 1. Location and scale
are mean and deviation before censoring (`ens10.metrics.distributions.amounts`). All coefficients
may follow the year, and are shrunk towards those of all points together.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions.amounts import AmountFamily, amount, check_amount_family
from ens10.metrics.distributions.base import ClosedForm
from ens10.models.domain import current
from ens10.models.statistical.base import (
    StatisticalMethod,
    no_members,
    nothing_collected,
    require_same_grid,
)
from ens10.models.statistical.harmonics import annual_cycle, check_harmonics
from ens10.models.statistical.newton import Evaluation, Floats, minimise
from ens10.models.statistical.seasonal_fit import PooledProblem
from ens10.models.statistical.spool import Points, Spool, in_parallel

_COMMON_SAMPLES = 1 << 15  # that the common coefficients are fitted to, at 16 points at least
_FEWEST_DATES = 10
_STEP = 1e-4  # of the differences that give second derivatives, relative to the scale
_MOST_STEPS = 15  # of Newton's method at a point, which starts near the minimum
_LARGEST_LOG = 20.0
_COEFFICIENTS, _CONSTANTS = 7, 7
_KIND = (0, 0, 0, 1, 1, 1, 2)  # of each coefficient: location, log scale, third


@dataclass
class _Predictors:
    """Standardised predictors, arrays of one shape.

    Args:
        start: location without correction.
        u: ensemble mean.
        h: share of wet members.
        v: ensemble variance.
        m: ensemble mean as part of the variance.
    """

    start: Tensor
    u: Tensor
    h: Tensor
    v: Tensor
    m: Tensor

    @classmethod
    def of(cls, raw: tuple[Tensor, Tensor, Tensor], constants: Tensor) -> Self:
        """Return the predictors of mean, deviation and share of wet members.

        Args:
            raw: these three, (..., points or fields).
            constants: (7, points or fields): unit, centre and width of the mean, of the share,
                mean variance, mean of the mean, the last two over the unit.
        """
        mean, std, wet = raw
        unit, centre, width, share, share_width, variance, level = constants
        over = mean / unit
        return cls(
            over,
            (mean - centre) / width,
            (wet - share) / share_width,
            (std / unit) ** 2 / variance,
            over.clamp(min=0) / level,
        )

    def select(self, mask: Tensor) -> "_Predictors":
        """Return the predictors of the points for which `mask` (P,) is True."""
        return _Predictors(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))

    def location_and_scale(self, eta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return location, log scale and the shares of the scale's three terms.

        Args:
            eta: (7, ...), the coefficients at each date.
        """
        a, b, e, c, d, g, _ = eta
        parts = torch.stack([torch.ones_like(self.v), self.v, self.m])
        logs = 2 * torch.stack([c, d, g]).clamp(-_LARGEST_LOG, _LARGEST_LOG)
        terms = logs.exp() * parts
        total = terms.sum(0)
        return self.start + a + b * self.u + e * self.h, 0.5 * total.log(), terms / total


@dataclass
class _AmountProblems:
    """Regression problems of P points with N dates; arrays (P, N) unless stated otherwise.

    Args:
        family: name of the distribution.
        cycle: (N, K), the harmonics at the dates.
        x: predictors.
        y: truth over the point's unit.
        w: weights; those of a point sum to 1, or all are 0.
        prior: (P, 7 K), centre of the ridge.
        strength: (P, 7 K), strength of the ridge, as a fraction of the point's dates.
    """

    family: AmountFamily
    cycle: Floats
    x: _Predictors
    y: Floats
    w: Floats
    prior: Floats
    strength: Floats

    def select(self, mask: npt.NDArray[np.bool_]) -> "_AmountProblems":
        """Return the problems of the points for which `mask` (P,) is True."""
        parts = {k: getattr(self, k)[mask] for k in ("y", "w", "prior", "strength")}
        return replace(self, x=self.x.select(torch.from_numpy(mask)), **parts)

    def evaluate(self, theta: Floats) -> Evaluation:
        """Return mean CRPS plus penalty with gradient and Hessian in theta (P, 7 K)."""
        value, gradient, hessian = self.mean_crps(theta)
        off = theta - self.prior
        value = value + 0.5 * (self.strength * off**2).sum(1)
        index = np.arange(theta.shape[1])
        hessian[:, index, index] += self.strength
        return value, gradient + self.strength * off, hessian

    def mean_crps(self, theta: Floats) -> Evaluation:
        """Return the mean CRPS alone, with gradient and Hessian."""
        size = self.cycle.shape[1]
        eta = theta.reshape(len(theta), _COEFFICIENTS, size) @ self.cycle.T
        eta_ = torch.from_numpy(np.ascontiguousarray(eta.swapaxes(0, 1)))
        location, log_scale, shares = self.x.location_and_scale(eta_)
        args = [location, log_scale, eta_[-1]]
        value, slopes = self._slopes(args, score=True)
        steps = [_STEP * log_scale.exp(), *[torch.full_like(log_scale, _STEP)] * 2]
        second = []
        for n, step in enumerate(steps):
            new_slopes = self._slopes([p + step if n == k else p for k, p in enumerate(args)])[1]
            second.append([(m - b) / step.numpy() for m, b in zip(new_slopes, slopes, strict=True)])
        share = shares.numpy()
        rows = [1.0, self.x.u.numpy(), self.x.h.numpy(), *share, 1.0]
        gradient = [(self.w * slopes[k] * r) @ self.cycle for k, r in zip(_KIND, rows, strict=True)]
        products = (self.cycle[:, :, None] * self.cycle[:, None]).reshape(len(self.cycle), -1)
        hessian = np.empty((len(theta), _COEFFICIENTS, size, _COEFFICIENTS, size))
        for i in range(_COEFFICIENTS):
            for j in range(i, _COEFFICIENTS):
                k, m = _KIND[i], _KIND[j]
                local = 0.5 * (second[k][m] + second[m][k]) * rows[i] * rows[j]
                if k == m == 1:  # of the log scale by the logarithms of its terms
                    local = local + 2 * slopes[1] * (
                        share[i - 3] * (i == j) - share[i - 3] * share[j - 3]
                    )
                block = ((self.w * local) @ products).reshape(-1, size, size)
                hessian[:, i, :, j], hessian[:, j, :, i] = block, block
        total = (self.w * value).sum(1)
        return (
            total,
            np.concatenate(gradient, 1),
            hessian.reshape(len(theta), -1, _COEFFICIENTS * size),
        )

    def _slopes(self, args: list[Tensor], score: bool = False) -> tuple[Floats, list[Floats]]:
        """Return the CRPS (empty unless `score`) and its slopes by location, log scale, third."""
        points = [p.detach().requires_grad_() for p in args]
        forecast = amount(self.family, points[0], points[1].exp(), points[2])
        kind, parameters = type(forecast), list(forecast.values_by_name.values())
        arrays = np.broadcast_arrays(
            *(p.detach().numpy() if isinstance(p, Tensor) else np.float64(p) for p in parameters),
            self.y,
        )
        formula = kind.formula("crps")
        value = formula.apply_to_numpy(formula.value, *arrays) if score else np.zeros(0)
        partials = formula.apply_to_numpy(formula.partials, *arrays)
        pairs = [
            (p, torch.from_numpy(np.ascontiguousarray(by)))
            for p, by in zip(parameters, partials, strict=False)
            if isinstance(p, Tensor) and p.requires_grad
        ]
        outputs, slopes = zip(*pairs, strict=True)
        gradients = torch.autograd.grad(outputs, points, slopes, allow_unused=True)
        return value, [np.zeros_like(self.y) if g is None else g.numpy() for g in gradients]


class AmountEMOS(StatisticalMethod):
    """EMOS of amounts of 0 or more at each grid point, with an annual cycle, of least mean CRPS.

    For precipitation with a censored, shifted gamma distribution (Scheuerer and Hamill 2015,
    doi:10.1175/MWR-D-15-0061.1; Baran and Nemoda 2016, doi:10.1002/env.2391) or a censored extreme
    value distribution (Scheuerer 2014, doi:10.1002/qj.2183), and for wind speed with a truncated
    one. Predictors of the location are mean and share of wet members, of the squared scale the
    variance and the mean, since the error of precipitation grows with its amount (see the module's
    text). Points with fewer than ten valid dates keep mean and spread of the raw ensemble.

    Training batches are kept in a temporary file, 16 bytes for each date and point; main memory
    holds a few blocks of points, which are fitted in parallel.

    Args:
        family: "csgd", "censored_gev", or a truncated or censored normal or logistic.
        harmonics: number of harmonics of the coefficients; 0 for none.
        threshold: value above which a member counts as wet, target units.
        strength: strength of the ridge: number of dates that the common coefficients count for at
            each point.

    Raises:
        ArgumentError: negative harmonics, strength or threshold; batches without members.
        UnknownNameError: another family.
    """

    may_be_nan = ("constants",)

    def __init__(
        self,
        family: AmountFamily = "csgd",
        harmonics: int = 0,
        threshold: float = 0.0,
        strength: float = 10.0,
    ) -> None:
        super().__init__()
        check_harmonics(harmonics)
        check_amount_family(family)
        for name, value in (("strength", strength), ("threshold", threshold)):
            if not value >= 0:
                raise ArgumentError(name, f"{value} is not 0 or more")
        self.family, self.harmonics = family, harmonics
        self.threshold, self.strength = threshold, strength
        self.coefficients: Tensor
        self.constants: Tensor
        self.register_buffer("coefficients", torch.zeros(_COEFFICIENTS, 1 + 2 * harmonics, 0, 0))
        self.register_buffer("constants", torch.zeros(_CONSTANTS, 0, 0))
        self._spool: Spool | None = None

    @property
    def fitted_parameters(self) -> int:
        """Number of coefficients: seven and their annual cycles, at each point."""
        return self.coefficients.numel()

    def _raw(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean, deviation and share of wet members, (N, H, W)."""
        if "members" not in batch:
            raise no_members(self)
        members: Tensor = batch["members"]
        wet = (members > self.threshold).to(members.dtype).mean(1)
        return batch["raw_mean"], batch["raw_std"], wet

    def collect(self, batch: Batch) -> None:
        """Write mean, deviation, share of wet members and truth to the temporary file."""
        if self._spool is None:
            self._spool = Spool()
        self._spool.append([*self._raw(batch), batch["target"]], batch["weights"], batch["dates"])

    def solve(self) -> None:
        """Fit the common coefficients, then each point."""
        if self._spool is None:
            raise nothing_collected(self)
        spool = self._spool
        fit = _AmountFit(spool, self.family, self.harmonics, self.strength)
        prior = fit.fit_common()
        rows = in_parallel(lambda points: fit.fit_points(points, prior), spool.blocks(4))
        maps = torch.from_numpy(np.ascontiguousarray(rows.T)).to(self.coefficients)
        maps = maps.reshape(-1, *spool.area.shape)
        split = len(maps) - _CONSTANTS
        self.coefficients = maps[:split].reshape(_COEFFICIENTS, -1, *spool.area.shape).clone()
        self.constants = maps[split:].clone()
        self.solved.fill_(True)
        self._spool = None

    def forward(self, batch: Batch) -> ClosedForm:
        """Return the forecast, parameters (N, H, W); NaN where the raw ensemble is."""
        self._require_solved()
        require_same_grid(self, self.constants[0], batch)
        coefficients, constants = map(current().of_samples, (self.coefficients, self.constants))
        cycle = annual_cycle(batch["dates"], self.harmonics).to(coefficients)
        eta = torch.einsum("nk,qknhw->qnhw", cycle, coefficients)
        x = _Predictors.of(self._raw(batch), constants)
        location, log_scale, _ = x.location_and_scale(eta)
        unit = constants[0]
        return amount(self.family, location * unit, log_scale.exp() * unit, eta[-1], unit)


class _AmountFit:
    """Fits of `AmountEMOS` to one training set."""

    def __init__(self, spool: Spool, family: AmountFamily, harmonics: int, strength: float) -> None:
        self.spool, self.family, self.strength = spool, family, strength
        self.cycle: Floats = annual_cycle(torch.from_numpy(spool.dates), harmonics).numpy()

    def fit_common(self) -> Floats:
        """Fit the common coefficients, (7 K,), at a sample of points."""
        points = self.spool.some_points(max(16, _COMMON_SAMPLES // len(self.spool.dates)))
        size = self.cycle.shape[1]
        start = np.zeros((_COEFFICIENTS, size))
        start[3:6, 0], start[6, 0] = 0.5 * np.log(0.3), -1.5 if self.family == "csgd" else 0.0
        problem, enough, _ = self._problem(points, start.reshape(-1), 0.0)
        area = self.spool.area.reshape(-1)[points] * enough
        if not area.any():
            return start.reshape(-1)
        pooled_problem = PooledProblem(problem, area / area.sum())
        # weak, since a coefficient without effect would wander
        first: Floats = minimise(start.reshape(1, -1), pooled_problem)[0]
        return first

    def fit_points(self, points: Points, prior: Floats) -> Floats:
        """Fit some points: coefficients and constants, (P, 7 K + 7)."""
        problem, enough, constants = self._problem(points, prior, self.strength)
        theta = minimise(problem.prior, problem, _MOST_STEPS)
        size = self.cycle.shape[1]
        raw = np.zeros((_COEFFICIENTS, size))
        raw[3, 0] = raw[5, 0] = -_LARGEST_LOG / 2  # scale: the raw deviation alone
        raw[6, 0] = -_LARGEST_LOG / 2 if self.family == "csgd" else 0.0
        theta[~enough] = raw.reshape(-1)
        constants[:, ~enough] = np.array([1.0, 0.0, np.inf, 0.0, np.inf, 1.0, 1.0])[:, None]
        return np.concatenate([theta, constants.T], 1)

    def _problem(
        self, points: Points, prior: Floats, strength: float
    ) -> tuple[_AmountProblems, npt.NDArray[np.bool_], Floats]:
        """Return the problems, a mask of points with enough dates, and the constants (7, P)."""
        data = self.spool.read(points)
        valid = np.isfinite(data).all(0)
        mean, std, wet, truth = (np.where(valid, x, 0.0) for x in data)
        count = valid.sum(1, keepdims=True)
        w = valid / np.maximum(count, 1)

        def average(x: Floats) -> Floats:
            return np.asarray((w * x).sum(1, keepdims=True))

        centre, share = average(mean), average(wet)
        unit = np.maximum(centre, average(truth))
        least = 1e-3 * float(np.median(unit[unit > 0])) if (unit > 0).any() else 1.0
        unit = np.maximum(unit, least)
        width = np.sqrt(average((mean - centre) ** 2))
        share_width = np.sqrt(average((wet - share) ** 2))
        width = np.where(width <= 1e-6 * unit, np.inf, width)
        share_width = np.where(share_width <= 1e-6, np.inf, share_width)
        variance = np.maximum(average((std / unit) ** 2), 1e-6)
        level = np.maximum(centre / unit, 1e-3)
        parts = [unit, centre, width, share, share_width, variance, level]
        constants = torch.from_numpy(np.stack(parts))
        raw = [torch.from_numpy(np.ascontiguousarray(x)) for x in (mean, std, wet)]
        x = _Predictors.of((raw[0], raw[1], raw[2]), constants)
        penalty = strength / np.maximum(count, 1) * np.ones_like(prior)
        problem = _AmountProblems(
            self.family, self.cycle, x, truth / unit, w, np.tile(prior, (len(w), 1)), penalty
        )
        return problem, count[:, 0] >= _FEWEST_DATES, constants[..., 0].numpy().copy()
