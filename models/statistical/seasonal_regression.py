"""Regressions of least mean CRPS whose coefficients follow the year, for many points at once.

At each point and date, in standardised units,

    mu = a(t) + b(t) u,    sigma^2 = c(t)^2 + d(t)^2 v + 1e-8,

where a, b, log c and log d are sums of K harmonics (harmonics of c itself would allow sign changes,
and so a second minimum). The objective is the weighted mean CRPS plus strength / (4 n) |theta -
prior|^2 with n dates: the curvature of the CRPS of a standard normal is about a half, so that the
prior counts for as many dates as `strength` says.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from ens10.models.statistical.crps_terms import Terms, crps_terms
from ens10.models.statistical.newton import Evaluation, Floats, minimise

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

    def select(self, chosen: npt.NDArray[np.bool_]) -> Self:
        """Return the problem of the chosen points."""
        fields = ("r", "u", "v", "w", "prior", "strength")
        parts = {name: getattr(self, name)[chosen] for name in fields}
        bounds = self.bounds and (self.bounds[0][chosen], self.bounds[1][chosen])
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


@dataclass
class Pooled:
    """All points of a problem with the same coefficients.

    Args:
        points: the problem.
        share: (P,) weight of each point, which sum to 1.
    """

    points: SeasonalProblems
    share: Floats

    def evaluate(self, theta: Floats) -> Evaluation:
        """Return the weighted mean over the points, for one theta (1, 4 K)."""
        parts = self.points.mean_crps(np.repeat(theta, len(self.share), 0))
        value, gradient, hessian = (np.tensordot(self.share, part, 1)[None] for part in parts)
        return value, gradient, hessian

    def select(self, chosen: npt.NDArray[np.bool_]) -> Self:  # noqa: ARG002
        """Return the problem itself: there is only one."""
        return self


def pooled_fit(problem: SeasonalProblems, share: Floats) -> Floats:
    """Fit the coefficients of least CRPS that all points have in common, (4 K,)."""
    start = np.zeros((1, 4, problem.cycle.shape[1]))
    start[0, 2:, 0] = 0.5 * np.log(0.5)
    total = max(float(share.sum()), 1e-300)
    fitted: Floats = minimise(start.reshape(1, -1), Pooled(problem, share / total))[0]
    return fitted


def point_fits(problem: SeasonalProblems) -> Floats:
    """Fit the coefficients of each point, starting at the prior, (P, 4 K)."""
    return minimise(problem.prior, problem)
