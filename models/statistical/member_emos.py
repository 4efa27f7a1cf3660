"""EMOS with a weight for each member by its number, as in the ENS-10 paper."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Normal
from ens10.models.statistical.base import SpooledMethod, members_of
from ens10.models.statistical.newton import Floats, minimise
from ens10.models.statistical.regression import BlockSum, Regression, sum_of_exponentials
from ens10.models.statistical.score_terms import score_of
from ens10.models.statistical.spool import Blocks, Spool
from ens10.models.statistical.standardise import Samples, Units


class MemberEMOS(SpooledMethod):
    """N(a + sum of w_i x_i, c + d std), one set of coefficients for the globe.

    The EMOS of Ashkboos et al. (2022, arXiv 2206.14786), 13 coefficients for 10 members and 8 for
    5, solved for the least mean CRPS with c and d not below 0. The members of ENS-10 are
    exchangeable, so that differences of their weights are noise: use `EMOS` instead, except to
    reproduce the paper.

    Training batches are kept in a temporary file, 4 (M + 2) bytes for each date and point; main
    memory holds a few blocks of points.
    """

    takes_new_points = True

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

    def _fields(self, batch: Batch) -> list[Tensor]:
        return [batch["target"], batch["raw_std"], members_of(self, batch)]

    def _fit(self, spool: Spool) -> dict[str, Floats]:
        def read(points: slice) -> tuple[Samples, Floats]:
            data = spool.read(points)
            valid = np.isfinite(data).all(0)
            w = spool.area.reshape(-1)[points, None] * valid
            truth, std, *members = np.where(valid, data, 0.0).reshape(len(data), 1, -1)
            mean = np.mean(members, 0)
            return Samples(truth - mean, mean, std, w.reshape(1, -1)), np.array(members)

        blocks = Blocks([partial(read, p) for p in spool.blocks(spool.fields)])
        units = Units.of(blocks.map(lambda block: block[0]))

        def regression(block: tuple[Samples, Floats]) -> Regression:
            samples, members = block
            u, s = (samples.mean - units.centre) / units.width, samples.spread / units.spread
            away = (members[:-1] - members[-1]) / units.spread
            y, w = samples.error / units.scale, samples.w / units.weight
            return Regression(
                score_of("normal"), sum_of_exponentials, y, w, (1.0, u, *away), (1.0, s)
            )

        # the raw mean, with half of the error's variance in each of c and d
        start = np.zeros((1, spool.fields - 2 + 3))
        start[:, -2:] = 0.5 * np.log(0.5)
        theta = minimise(start, BlockSum(blocks.map(regression)))[0]
        free, (c, d) = theta[2:-2], np.exp(theta[-2:])
        scale, width, spread = (x[0, 0] for x in (units.scale, units.width, units.spread))
        return {
            "bias": theta[0] * scale,
            "slope": theta[1] * scale / width,
            "centre": units.centre[0, 0],
            "c": c * scale,
            "d": d * scale / spread,
            "tilt": np.append(free, -free.sum()) * (scale / spread),
        }

    def forward(self, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W); NaN where the raw ensemble is.

        Raises:
            ArgumentError: no members, or another number than the fit's.
        """
        self._require_solved()
        members = members_of(self, batch)
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
