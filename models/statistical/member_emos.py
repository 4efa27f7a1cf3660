"""EMOS with a weight for each member by its number, as in the ENS-10 paper."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Normal
from ens10.models.statistical.base import StatisticalMethod, no_members, nothing_collected
from ens10.models.statistical.crps_terms import crps_terms
from ens10.models.statistical.newton import Evaluation, Floats, minimise
from ens10.models.statistical.spool import Spool, map_blocks


class MemberEMOS(StatisticalMethod):
    """N(a + sum of w_i x_i, c + d std), one set of coefficients for the globe.

    The EMOS of Ashkboos et al. (2022, arXiv 2206.14786), 13 coefficients for 10 members and 8 for
    5, solved for the least mean CRPS with c and d not below 0. The members of ENS-10 are
    exchangeable, so that differences of their weights are noise: use `EMOS` instead, except to
    reproduce the paper.

    Training batches are kept in a temporary file, 4 (M + 2) bytes for each date and point; main
    memory holds a few blocks of points.
    """

    def __init__(self) -> None:
        super().__init__()
        # mu = mean + bias + slope (mean - centre) + sum of tilt_i x_i, tilts that sum to 0
        for name in ("bias", "slope", "centre", "c", "d"):
            self.register_buffer(name, torch.zeros(()))
        self.register_buffer("tilt", torch.zeros(0))
        self.bias: Tensor
        self.slope: Tensor
        self.centre: Tensor
        self.c: Tensor
        self.d: Tensor
        self.tilt: Tensor
        self._spool: Spool | None = None

    @property
    def a(self) -> Tensor:
        """Intercept of the mean, target units, float64."""
        return self.bias.double() - self.slope.double() * self.centre.double()

    @property
    def w(self) -> Tensor:
        """Weight of each member, (M,), float64."""
        return self.tilt.double() + (1 + self.slope.double()) / max(1, len(self.tilt))

    @property
    def fitted_parameters(self) -> int:
        """A weight for each member, a, c and d."""
        return len(self.tilt) + 3

    def collect(self, batch: Batch) -> None:
        """Write members, deviation and truth to the temporary file.

        Raises:
            ArgumentError: the batch has no members, or another number than those before.
        """
        if "members" not in batch:
            raise no_members(self)
        if self._spool is None:
            self._spool = Spool()
        fields = [batch["target"], batch["raw_std"], batch["members"]]
        self._spool.append(fields, batch["weights"], batch["dates"])

    def solve(self) -> None:
        """Fit all points together."""
        if self._spool is None:
            raise nothing_collected(self)
        problem = _GlobalProblem(self._spool, _Units())
        problem.units = problem.standard_units()
        theta = minimise(problem.start(), problem)[0]
        units, free = problem.units, theta[2:-2]
        tilt = np.append(free, -free.sum()) * (units.error / units.spread)
        c, d = np.exp(theta[-2:]) * units.error
        coefficients = {
            "bias": theta[0] * units.error,
            "slope": theta[1] * units.error / units.width,
            "centre": units.centre,
            "c": c,
            "d": d / units.spread,
            "tilt": tilt,
        }
        for name, value in coefficients.items():
            setattr(self, name, torch.as_tensor(value).to(self.bias))
        self.solved.fill_(True)
        self._spool = None

    def forward(self, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W); NaN where the raw ensemble is.

        Raises:
            ArgumentError: no members, or another number than the fit's.
        """
        self._require_solved()
        if "members" not in batch:
            raise no_members(self)
        members = batch["members"]
        if members.shape[1] != len(self.tilt):
            raise ArgumentError(
                "members",
                f"the batch has {members.shape[1]}, but this EMOS was fitted to "
                f"{len(self.tilt)} and has a weight for each",
                "Fit it on ensembles of this size, or use EMOS, which accepts any size",
            )
        mean = members.mean(1)
        tilted = torch.einsum("m,nmhw->nhw", self.tilt, members - mean.unsqueeze(1))
        mu = mean + (self.bias + self.slope * (mean - self.centre) + tilted)
        return Normal(mu, self.c + self.d * batch["raw_std"])


@dataclass
class _Units:
    """Centre and width of the ensemble mean, size of its error, mean deviation of members."""

    centre: float = 0.0
    width: float = 1.0
    error: float = 1.0
    spread: float = 1.0


@dataclass
class _GlobalProblem:
    """The mean CRPS over all points and dates as a function of the coefficients.

    theta (1, M + 3) is bias, slope, M - 1 tilts, log c and log d.

    Args:
        spool: truth, deviation and members.
        units: units of the coefficients.
    """

    spool: Spool
    units: _Units

    def select(self, mask: npt.NDArray[np.bool_]) -> Self:  # noqa: ARG002
        """Return the problem itself: there is only one."""
        return self

    def start(self) -> Floats:
        """Return the start: the raw mean, with half of the error's variance in each of c and d."""
        theta = np.zeros((1, self.spool.fields - 2 + 3))
        theta[:, -2:] = 0.5 * math.log(0.5)
        return theta

    def standard_units(self) -> _Units:
        """Return the moments of the training data that serve as units."""
        total, m, mm, e, ee, s = self._sum(self._moment_sums)
        total = max(total, 1e-300)
        centre, bias = m / total, e / total
        width = math.sqrt(max(mm / total - centre**2, 0.0))
        error = math.sqrt(max(ee / total - bias**2, 1e-12 * bias**2)) or 1.0
        return _Units(centre, width or 1.0, error, s / total or 1.0)

    def evaluate(self, theta: Floats) -> Evaluation:
        """Return mean CRPS, gradient and Hessian at theta (1, M + 3)."""
        sums = self._sum(lambda points: self._score_sums(theta[0], points))
        sums = sums / max(sums[-1], 1e-300)
        size = theta.shape[1]
        hessian = sums[1 + size : -1].reshape(1, size, size)
        return sums[:1], sums[None, 1 : 1 + size], hessian

    def _sum(self, function: Callable[[slice], Floats]) -> Floats:
        blocks = self.spool.blocks(self.spool.fields)
        return np.asarray(np.sum(map_blocks(function, blocks), axis=0))

    def _read(self, points: slice) -> tuple[Floats, Floats, Floats, Floats]:
        """Read truth, deviation, members and weights, one row for all samples."""
        data = self.spool.read(points)
        valid = np.isfinite(data).all(0)
        w = self.spool.area.reshape(-1)[points, None] * valid
        flat = np.where(valid, data, 0.0).reshape(len(data), -1)
        return flat[0], flat[1], flat[2:], w.reshape(-1)

    def _moment_sums(self, points: slice) -> Floats:
        y, s, members, w = self._read(points)
        mean = members.mean(0)
        error = y - mean
        return np.array([(w * x).sum() for x in (1.0, mean, mean**2, error, error**2, s)])

    def _score_sums(self, theta: Floats, points: slice) -> Floats:
        y, s, members, w = self._read(points)
        units, mean = self.units, members.mean(0)
        away = (members - members[-1])[:-1] / units.spread
        rows = np.concatenate(
            [np.ones_like(y)[None], (mean - units.centre)[None] / units.width, away]
        )
        c, d = np.exp(np.minimum(theta[-2:], 50.0))
        slopes = np.stack([np.full_like(y, c), d * s / units.spread])
        sigma = slopes.sum(0) + 1e-6
        t = crps_terms("normal", theta[:-2] @ rows, sigma, (y - mean) / units.error, None)
        gradient = np.concatenate([rows @ (w * t.by_mu), slopes @ (w * t.by_sigma)])
        cross = (rows * (w * t.mu_sigma)) @ slopes.T
        corner = (slopes * (w * t.sigma_sigma)) @ slopes.T
        corner += np.diag(slopes @ (w * t.by_sigma))
        upper = np.concatenate([(rows * (w * t.mu_mu)) @ rows.T, cross], 1)
        hessian = np.concatenate([upper, np.concatenate([cross.T, corner], 1)])
        return np.concatenate([[(w * t.value).sum()], gradient, hessian.reshape(-1), [w.sum()]])
