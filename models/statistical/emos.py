"""EMOS: a normal distribution with mean and variance linear in those of the ensemble."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from ens10.loader.batch import Batch
from ens10.metrics.distributions import Normal
from ens10.models.domain import current
from ens10.models.statistical.base import (
    Criterion,
    SpooledMethod,
    check_criterion,
    require_same_grid,
)
from ens10.models.statistical.newton import Floats, minimise
from ens10.models.statistical.regression import (
    VARIANCE_FLOOR,
    BlockSum,
    Regression,
    root_of_squares,
)
from ens10.models.statistical.score_terms import score_of
from ens10.models.statistical.spool import Blocks, Spool
from ens10.models.statistical.standardise import Samples, Units

_FEWEST_DATES = 3  # a line through two points leaves no residual for the spread
_COEFFICIENTS = ("bias", "slope", "centre", "c", "d")


def fit(blocks: Blocks[Samples], criterion: Criterion = "crps") -> Floats:
    """Return the EMOS coefficients of least mean score.

    The model is fitted in standardised form: with `unit` the standard deviation of the residual of
    a least-squares line and the other constants those of `Units`,

        (truth - mean - bias) / unit ~ N(alpha + beta u, gamma^2 + delta^2 v + 1e-8),
        u = (mean - centre) / width,    v = var / spread.

    The search starts at this line, where gamma^2 + delta^2 = 1, with delta^2 from the regression
    of the squared residual on v - 1.

    Args:
        blocks: samples of P problems, in blocks.
        criterion: score to minimise.

    Returns:
        (P, 5): bias, slope, centre, c, d of mu = mean + bias + slope (mean - centre) and
        sigma = sqrt(c^2 + d^2 var). Problems with fewer than three samples of positive weight get
        0, 0, 0, 0, 1: the raw ensemble.
    """
    units = Units.of(blocks)
    line = units.slope * units.scale
    unit = units.scale * np.sqrt(np.clip(1 - units.slope**2, 1e-12, None))

    def regression(s: Samples) -> Regression:
        u, v = (s.mean - units.centre) / units.width, s.spread / units.spread
        y, w = (s.error - units.bias) / unit, s.w / units.weight
        return Regression(score_of("normal", criterion), root_of_squares, y, w, (1.0, u), (1.0, v))

    def sums_for_delta2(r: Regression) -> Floats:
        residual2, v_change = (r.y - line / unit * r.location[1]) ** 2, r.scale[1] - 1.0
        terms = (residual2 * v_change, v_change**2)
        return np.stack([(r.w * term).sum(1, keepdims=True) for term in terms])

    problems = blocks.map(regression)
    product, square = problems.sum(sums_for_delta2)
    # inside (0, 1): a gamma or delta of 0 would never leave 0
    delta2 = np.clip(product / np.maximum(square, 1e-12), 0.05, 0.95)
    delta2 = np.where(np.isinf(units.spread), 0.0, delta2)
    start = [np.zeros_like(line), line / unit, np.sqrt(1 - delta2), np.sqrt(delta2)]
    theta = minimise(np.concatenate(start, 1), BlockSum(problems))
    alpha, beta, gamma, delta = (theta[:, i : i + 1] * unit for i in range(4))
    c = np.hypot(gamma, np.sqrt(VARIANCE_FLOOR) * unit)
    columns = [units.bias + alpha, beta / units.width, units.centre, c]
    coefficients = np.concatenate([*columns, np.abs(delta) / np.sqrt(units.spread)], 1)
    return np.where(units.count >= _FEWEST_DATES, coefficients, [0.0, 0.0, 0.0, 0.0, 1.0])


class EMOS(SpooledMethod):
    """Ensemble model output statistics, N(a + b mean, c^2 + d^2 var), of least mean CRPS.

    Gneiting et al. (2005), doi:10.1175/MWR2904.1, for exchangeable members; fitted by maximum
    likelihood instead if `criterion` says so. Global: one set of
    coefficients from all points, weighted by the batch's weights. Local: one set per grid point.
    Points (or a whole fit) with fewer than three valid dates keep the raw ensemble: a = c = 0,
    b = d = 1.

    Training batches are stored in a temporary file, 12 bytes per date and point; main memory holds
    a few blocks of points, which are fitted in parallel.

    Args:
        local: one fit per grid point instead of one for all.
        criterion: "crps" or "likelihood", the mean score that is minimised.

    Raises:
        UnknownNameError: another criterion.

    Examples:
        >>> import torch
        >>> from ens10.models.statistical import EMOS
        >>> mean = torch.linspace(270, 290, 40).reshape(40, 1, 1)  # 40 dates at one point
        >>> noise = torch.tensor([1.0, -1.0]).repeat(20).reshape(40, 1, 1)
        >>> batch = {"raw_mean": mean, "raw_std": torch.ones(40, 1, 1), "target": mean + 2 + noise,
        ...          "weights": torch.ones(40, 1, 1), "dates": torch.arange(40) * 86400}
        >>> emos = EMOS()
        >>> emos.collect(batch)
        >>> emos.solve()
        >>> round((emos(batch).mu - mean).mean().item(), 1)  # the bias of 2 K is corrected
        2.0
    """

    def __init__(self, local: bool = False, criterion: Criterion = "crps") -> None:
        super().__init__()
        check_criterion(criterion)
        self.local, self.criterion = local, criterion
        self.takes_new_points = not local
        # mu = mean + bias + slope (mean - centre): a + b mean would cancel in float32 for Z500
        for name in _COEFFICIENTS:
            self.register_buffer(name, torch.zeros(0, 0))
        self.bias: Tensor
        self.slope: Tensor
        self.centre: Tensor
        self.c: Tensor
        self.d: Tensor

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

    def _fields(self, batch: Batch) -> list[Tensor]:
        return [batch["target"], batch["raw_mean"], batch["raw_std"]]

    def _fit(self, spool: Spool) -> dict[str, Floats]:
        def samples(points: slice) -> Samples:
            area = spool.area.reshape(-1)[points, None]
            return Samples.of(spool.read(points), area, merge=not self.local)

        if self.local:
            maps = spool.maps(lambda p: fit(Blocks([lambda: samples(p)]), self.criterion))
        else:
            blocks = Blocks([partial(samples, p) for p in spool.blocks()])
            maps = fit(blocks, self.criterion).reshape(-1, 1, 1)
        return dict(zip(_COEFFICIENTS, maps, strict=True))

    def forward(self, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W); NaN where the raw ensemble is."""
        self._require_solved()
        if self.local:
            require_same_grid(self, self.bias, batch)
        mean, std = batch["raw_mean"], batch["raw_std"]
        maps = [getattr(self, name) for name in _COEFFICIENTS]
        bias, slope, centre, c, d = map(current().of_samples, maps)
        mu = mean + (bias + slope * (mean - centre))
        return Normal(mu, torch.hypot(c.expand_as(std), d * std))
