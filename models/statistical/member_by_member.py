"""Member-by-member correction: shift the mean and scale the spread of the members."""

from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ens10.errors import UnknownNameError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Ensemble
from ens10.models.statistical.base import (
    SpooledMethod,
    members_of,
    require_same_grid,
)
from ens10.models.statistical.newton import Evaluation, Floats, minimise
from ens10.models.statistical.spool import Blocks, Spool
from ens10.models.statistical.standardise import Samples, Units

FitEstimator = Literal["plain", "fair"]
_FEWEST_DATES = 3
_COEFFICIENTS = ("bias", "slope", "centre", "gamma")
_SMOOTHING = (0.3, 0.1, 0.03, 0.01)  # one after the other, each starts where the last ended


class MemberByMember(SpooledMethod):
    """x' = alpha + beta mean + gamma (x - mean) at each grid point, of least ensemble CRPS.

    Van Schaeybroeck and Vannitsem (2015), doi:10.1002/qj.2397. The CRPS is convex in the three
    coefficients; its absolute value |z| is taken as sqrt(z^2 + e^2) with e a hundredth of the
    error's deviation, which makes Newton's method work and moves the minimum by less than what
    the dates determine. Points with fewer than three valid dates keep the raw members.

    "fair" scores the distribution that members are drawn from. It assumes independent members,
    which scaling about their own mean violates (Roberts 2026). For normal errors and a = (M - 1) /
    M, the deviation of M members over the error of their mean is 1 / sqrt(a (2 a - 1)) with "fair"
    and 1 / sqrt(2 - a) with "plain", and should be sqrt(M / (M + 1)), as with "plain": the spread
    of 10 members becomes 24 % too large with "fair". Check the spread-error ratio, also for other
    ensemble sizes. Ensembles of any size can be corrected.

    Training batches are kept in a temporary file, 4 (M + 1) bytes for each date and point; main
    memory holds a few blocks of points, which are fitted in parallel.

    Args:
        estimator: estimator of the CRPS in fit and forecast, "plain" or "fair".

    Raises:
        UnknownNameError: another estimator.
    """

    def __init__(self, estimator: FitEstimator = "plain") -> None:
        super().__init__()
        if estimator not in get_args(FitEstimator):
            raise UnknownNameError("estimator", estimator, get_args(FitEstimator))
        self.estimator = estimator
        # x' = x + bias + slope (mean - centre) + (gamma - 1) (x - mean): digits of Z500 are kept
        for name in _COEFFICIENTS:
            self.register_buffer(name, torch.zeros(0, 0))
        self.bias: Tensor
        self.slope: Tensor
        self.centre: Tensor
        self.gamma: Tensor

    @property
    def alpha(self) -> Tensor:
        """Intercept, target units, (H, W), float64."""
        return self.bias.double() - self.slope.double() * self.centre.double()

    @property
    def beta(self) -> Tensor:
        """Factor of the ensemble mean, (H, W), float64."""
        return 1 + self.slope.double()

    @property
    def fitted_parameters(self) -> int:
        """Three at each point."""
        return 3 * self.bias.numel()

    def _fields(self, batch: Batch) -> list[Tensor]:
        return [batch["target"], members_of(self, batch)]

    def _fit(self, spool: Spool) -> dict[str, Floats]:
        members = spool.fields - 1

        def of_block(points: slice) -> Floats:
            data = spool.read(points)  # in few wide pieces, of which a tenth is fitted at once
            width = max(1, data.shape[1] // members)
            pieces = [data[:, i : i + width] for i in range(0, data.shape[1], width)]
            return np.concatenate([fit(piece, self.estimator == "fair") for piece in pieces])

        return dict(zip(_COEFFICIENTS, spool.maps(of_block), strict=True))

    def forward(self, batch: Batch) -> Ensemble:
        """Return the corrected members, (N, M, H, W).

        Raises:
            ArgumentError: the batch has no members.
        """
        self._require_solved()
        require_same_grid(self, self.bias, batch)
        members = members_of(self, batch)
        mean = members.mean(1, keepdim=True)
        corrected_mean = mean + (self.bias + self.slope * (mean - self.centre))
        return Ensemble(corrected_mean + self.gamma * (members - mean), self.estimator)


def fit(data: Floats, fair: bool) -> Floats:
    """Fit bias, slope, centre and gamma (P, 4) to truth and members (1 + M, P, N)."""
    valid = np.isfinite(data).all(0)
    truth, members = (np.where(valid, part, 0.0) for part in (data[0], data[1:]))
    mean = members.mean(0)
    away = members - mean
    w = np.asarray(valid, np.float64)
    samples = Samples(truth - mean, mean, (away**2).mean(0), w)
    units = Units.of(Blocks([lambda: samples]))
    scale, spread = units.scale, np.sqrt(units.spread)
    error, centred = (samples.error - units.bias) / scale, (mean - units.centre) / units.width
    unit = away / spread
    half = _half_difference(unit, fair)
    problem = MemberProblems(error, centred, unit, half, samples.w / units.weight, 0.0)
    theta = np.tile([0.0, 0.0, 1.0], (len(truth), 1))
    theta[:, 2:] = np.where(np.isinf(spread), 0.0, spread / scale)
    for smoothing in _SMOOTHING:
        problem.smoothing = smoothing
        theta = minimise(theta, problem)
    alpha, beta, gamma = (theta[:, i : i + 1] * scale for i in range(3))
    gamma = np.where(np.isinf(spread), 1.0, gamma / spread)
    coefficients = np.concatenate([units.bias + alpha, beta / units.width, units.centre, gamma], 1)
    return np.where(units.count >= _FEWEST_DATES, coefficients, [0.0, 0.0, 0.0, 1.0])


def _half_difference(members: Floats, fair: bool) -> Floats:
    """Return half the mean difference of two members (M, P, N): of M^2 pairs, or of M (M - 1)."""
    size = len(members)
    rank = np.arange(1, size + 1) * 2.0 - size - 1
    pairs = size * (size - 1) if fair and size > 1 else size**2
    return np.asarray(np.tensordot(rank, np.sort(members, axis=0), 1) / pairs)


@dataclass
class MemberProblems:
    """The mean CRPS of P points with smoothed |z|, as a function of alpha, beta and gamma.

    Args:
        y: (P, N) truth.
        u: (P, N) ensemble mean.
        e: (M, P, N) members less their mean.
        half: (P, N) half the mean difference of two members.
        w: (P, N) weights.
        smoothing: e of sqrt(z^2 + e^2).
    """

    y: Floats
    u: Floats
    e: Floats
    half: Floats
    w: Floats
    smoothing: float

    def select(self, mask: npt.NDArray[np.bool_]) -> Self:
        """Return the problems of the points for which `mask` (P,) is True."""
        parts = {name: getattr(self, name)[mask] for name in ("y", "u", "half", "w")}
        return replace(self, e=self.e[:, mask], **parts)

    def evaluate(self, theta: Floats) -> Evaluation:
        """Return mean CRPS, gradient and Hessian at theta (P, 3)."""
        alpha, beta, gamma = (theta[:, i, None] for i in range(3))
        z = self.y - alpha - beta * self.u - gamma * self.e
        size = np.sqrt(z**2 + self.smoothing**2)
        w, members = self.w, len(self.e)
        value = (w * (size.mean(0) - gamma * self.half)).sum(1)
        slope = -z / size / members
        flat = slope.sum(0)
        by_gamma = (slope * self.e).sum(0) - self.half
        gradient = np.stack([(w * s).sum(1) for s in (flat, flat * self.u, by_gamma)], 1)
        bend = self.smoothing**2 / size**3 / members
        zero, one, two = bend.sum(0), (bend * self.e).sum(0), (bend * self.e**2).sum(0)
        parts = [zero, zero * self.u, one, zero * self.u**2, one * self.u, two]
        sums = np.stack([(w * part).sum(1) for part in parts], 1)
        hessian = sums[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(-1, 3, 3)
        return value, gradient, hessian
