"""EMOS: a normal distribution with mean and variance linear in those of the ensemble."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ens10.loader.batch import Batch
from ens10.models.predictive import Normal
from ens10.models.statistical.base import (
    StatisticalMethod,
    nothing_collected,
    require_same_grid,
)
from ens10.models.statistical.emos_fit import fit
from ens10.models.statistical.normal_regression import Block

_CHUNK = 1 << 18  # samples at a time: some 15 float64 temporaries of 2 MB, which stay in the cache


class EMOS(StatisticalMethod):
    """Ensemble model output statistics, N(a + b mean, c^2 + d^2 var), of least mean CRPS.

    Gneiting et al. (2005), doi:10.1175/MWR2904.1, for exchangeable members. Global: one set of
    coefficients from all points, weighted by the batch's weights. Local: one set per grid point.
    Points (or a whole fit) with fewer than three valid dates keep the raw ensemble: a = c = 0,
    b = d = 1.

    Until it is solved it keeps 12 bytes for each date and grid point in main memory; solving
    takes some 30 MB more for local fits, and 32 bytes per date and point more for a global one.

    Args:
        local: one fit per grid point instead of one for all.
    """

    def __init__(self, local: bool = False) -> None:
        super().__init__()
        self.local = local
        # mu = mean + bias + slope (mean - centre): float32 would lose a + b mean for Z500
        for name in ("bias", "slope", "centre", "c", "d"):
            self.register_buffer(name, torch.zeros(0, 0))
        self.bias: Tensor
        self.slope: Tensor
        self.centre: Tensor
        self.c: Tensor
        self.d: Tensor
        self._dates: list[Tensor] = []
        self._area: Tensor | None = None

    @property
    def fitted_parameters(self) -> int:
        """Four for each fit: a, b, c, d."""
        return 4 * self.bias.numel()

    @property
    def a(self) -> Tensor:
        """Intercept of the mean, target units, (H, W), or (1, 1) if global; float64."""
        return self.bias.double() - self.slope.double() * self.centre.double()

    @property
    def b(self) -> Tensor:
        """Slope of the mean, (H, W), or (1, 1) if global; float64."""
        return 1 + self.slope.double()

    def collect(self, batch: Batch) -> None:
        """Keeps mean, deviation and truth of the batch; NaN where the weight is 0."""
        weights = batch["weights"].detach().cpu()
        fields = [batch[key].detach().cpu() for key in ("raw_mean", "raw_std", "target")]
        kept = torch.stack(fields, 1).to(torch.float32)
        # where() makes a new array: the loader may write the next batch into the old one
        self._dates.append(torch.where(weights.unsqueeze(1) > 0, kept, torch.nan))
        area = weights.amax(0).double()
        self._area = area if self._area is None else torch.maximum(self._area, area)

    def solve(self) -> None:
        """Fits the coefficients: all points at once, in chunks that bound the memory."""
        if self._area is None:
            raise nothing_collected(self)
        shape = self._area.shape if self.local else torch.Size((1, 1))
        fits = [fit(blocks) for blocks in self._problems()]
        columns = torch.cat(fits).unbind(1)
        for name, column in zip(("bias", "slope", "centre", "c", "d"), columns, strict=True):
            setattr(self, name, column.reshape(shape).to(self.bias))
        self.solved.fill_(True)
        self._dates, self._area = [], None

    def forward(self, batch: Batch) -> Normal:
        """Normal with mu and sigma (N, H, W); NaN where the raw ensemble is."""
        self._require_solved()
        if self.local:
            require_same_grid(self, self.bias, batch)
        mean, std = batch["raw_mean"], batch["raw_std"]
        mu = mean + (self.bias + self.slope * (mean - self.centre))
        return Normal(mu, torch.hypot(self.c.expand_as(std), self.d * std))

    def _problems(self) -> Iterator[list[Block]]:
        """The fits, as blocks of truth, mean, variance and weight (problems, samples)."""
        area = self._area
        if area is None:
            return
        flat = [date.flatten(2) for date in self._dates]
        count = sum(len(date) for date in flat)
        width = max(1, _CHUNK // count)
        chunks = [slice(i, i + width) for i in range(0, area.numel(), width)]
        blocks = (self._block(flat, area.flatten(), chunk) for chunk in chunks)
        if self.local:
            yield from ([block] for block in blocks)
        else:
            yield [_as_one(block) for block in blocks]

    @staticmethod
    def _block(flat: list[Tensor], area: Tensor, points: slice) -> Block:
        """Truth, mean and variance of some points, in physical units."""
        data = torch.cat([date[:, :, points] for date in flat]).double()
        mean, std, truth = data.permute(1, 2, 0).contiguous().unbind(0)
        weights = area[points, None] * data.isfinite().all(1).T
        fill = weights == 0
        truth, mean, std = (x.masked_fill(fill, 0) for x in (truth, mean, std))
        return Block(truth, mean, std.square(), weights)


def _as_one(block: Block) -> Block:
    """All problems of a block as one."""
    return Block(*(x.reshape(1, -1) for x in (block.r, block.u, block.v, block.w)))
