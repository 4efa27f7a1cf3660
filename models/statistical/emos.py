"""EMOS: a normal distribution with mean and variance linear in those of the ensemble.

The fits of P grid points are independent problems that are solved at once, in standardised units;
all their arrays are float64, (P, 1) or (P, K).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ens10.loader.batch import Batch
from ens10.metrics.distributions import Normal
from ens10.models.domain import current
from ens10.models.statistical.base import (
    Criterion,
    StatisticalMethod,
    check_criterion,
    nothing_collected,
    require_same_grid,
)
from ens10.models.statistical.newton import Floats
from ens10.models.statistical.normal_regression import Block, Samples, minimise
from ens10.models.statistical.spool import Spool, in_parallel

_FEWEST_DATES = 3  # a line through two points leaves no residual for the spread
_SMALLEST_SIGMA = 1e-4  # the solver's floor, in its units (the root of its variance floor)


@dataclass
class _Scaling:
    """Constants of the standardisation, (P, 1) each.

    Args:
        error: mean error of the ensemble mean.
        centre: mean of the ensemble mean.
        width: its standard deviation; infinite if it is nearly constant.
        variance: mean ensemble variance; infinite if it is nearly 0.
        size: smallest residual that is not rounding, the lower limit of the solver's unit.
    """

    error: Floats
    centre: Floats
    width: Floats
    variance: Floats
    size: Floats


def fit(samples: Samples) -> Floats:
    """Return the EMOS coefficients of least mean score.

    Args:
        samples: r truth, u ensemble mean, v ensemble variance, w weights that need not sum to 1.

    Returns:
        (P, 5): bias, slope, centre, c, d of mu = mean + bias + slope (mean - centre) and
        sigma = sqrt(c^2 + d^2 var). Problems with fewer than three samples of positive weight get
        0, 0, 0, 0, 1: the raw ensemble.
    """
    count = samples.sum(lambda b: (b.w > 0).sum(1, keepdims=True))
    standard, scaling = _standardise(samples)
    start, scale = _start(standard, scaling)
    theta = minimise(start, standard.map(lambda b: Block(b.r / scale, b.u, b.v, b.w)))
    coefficients = _to_physical(theta, scale, scaling)
    return np.where(count >= _FEWEST_DATES, coefficients, [0.0, 0.0, 0.0, 0.0, 1.0])


def _means(samples: Samples, *functions: Callable[[Block], Floats]) -> list[Floats]:
    """Return weighted means over the samples of all blocks, (P, 1) each, in one pass."""
    sums = samples.sum(lambda block: np.stack([block.mean(one(block)) for one in functions]))
    return list(sums)


def _standardise(samples: Samples) -> tuple[Samples, _Scaling]:
    """Standardise: error centred; ensemble mean centred, of variance 1; variance of mean 1."""
    weight = np.maximum(samples.sum(lambda b: b.w.sum(1, keepdims=True)), 1e-300)
    errors = samples.map(lambda b: Block(b.r - b.u, b.u, b.v, b.w / weight))
    centre, variance, error, square = _means(
        errors, lambda b: b.u, lambda b: b.v, lambda b: b.r, lambda b: b.r**2
    )
    width = np.sqrt(_means(errors, lambda b: (b.u - centre) ** 2)[0])
    size = np.sqrt(square)
    # a nearly constant mean determines no slope, a spread of 0 no factor: both predictors are 0
    width = np.where(width <= 1e-9 * (np.abs(centre) + size), np.inf, width)
    variance = np.where(variance <= 1e-12 * square, np.inf, variance)
    standard = errors.map(lambda b: Block(b.r - error, (b.u - centre) / width, b.v / variance, b.w))
    # float32 data: an error below a millionth of the values themselves is rounding
    size = 1e-6 * (size + 1e-6 * np.abs(centre))
    return standard, _Scaling(error, centre, width, variance, np.maximum(size, 1e-30))


def _start(samples: Samples, scaling: _Scaling) -> tuple[Floats, Floats]:
    """Regress by least squares the error on the mean, and its square on the variance.

    Returns:
        The solver's start (P, 4) and the root-mean-square of the residual (P, 1), its unit.
    """
    slope = _means(samples, lambda b: b.r * b.u)[0]
    residual = samples.map(lambda b: Block(b.r - slope * b.u, b.u, b.v, b.w))
    scale = np.maximum(np.sqrt(_means(residual, lambda b: b.r**2)[0]), scaling.size)
    share, spread = _means(
        residual, lambda b: (b.r / scale) ** 2 * (b.v - 1), lambda b: (b.v - 1) ** 2
    )
    # inside (0, 1): a gamma or delta of 0 would never leave 0
    share = np.clip(share / np.maximum(spread, 1e-12), 0.05, 0.95)
    share = np.where(np.isinf(scaling.variance), 0.0, share)
    start = [np.zeros_like(slope), slope / scale, np.sqrt(1 - share), np.sqrt(share)]
    return np.concatenate(start, 1), scale


def _to_physical(theta: Floats, scale: Floats, scaling: _Scaling) -> Floats:
    """Convert the solver's alpha, beta, gamma, delta to bias, slope, centre, c, d (columns)."""
    alpha, beta, gamma, delta = ((theta * scale)[:, i : i + 1] for i in range(4))
    c = np.hypot(gamma, _SMALLEST_SIGMA * scale)
    columns = [scaling.error + alpha, beta / scaling.width, scaling.centre, c]
    return np.concatenate([*columns, delta / np.sqrt(scaling.variance)], 1)


class EMOS(StatisticalMethod):
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
        # mu = mean + bias + slope (mean - centre): a + b mean would cancel in float32 for Z500
        for name in ("bias", "slope", "centre", "c", "d"):
            self.register_buffer(name, torch.zeros(0, 0))
        self.bias: Tensor
        self.slope: Tensor
        self.centre: Tensor
        self.c: Tensor
        self.d: Tensor
        self._spool: Spool | None = None

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
        """Write truth, mean and deviation to the temporary file."""
        if self._spool is None:
            self._spool = Spool()
        fields = [batch["target"], batch["raw_mean"], batch["raw_std"]]
        self._spool.append(fields, batch["weights"], batch["dates"])

    def solve(self) -> None:
        """Fit the coefficients, in blocks of points."""
        if self._spool is None:
            raise nothing_collected(self)
        spool, likelihood = self._spool, self.criterion == "likelihood"
        if self.local:
            shape = spool.area.shape
            rows = in_parallel(
                lambda p: fit(Samples([lambda: _read_block(spool, p)], likelihood)), spool.blocks()
            )
        else:
            shape = (1, 1)
            blocks = spool.blocks()
            makers = [lambda p=p: _merge_points(_read_block(spool, p)) for p in blocks]
            rows = fit(Samples(makers, likelihood))
        columns = np.ascontiguousarray(rows.T).reshape(-1, *shape)
        for name, column in zip(("bias", "slope", "centre", "c", "d"), columns, strict=True):
            setattr(self, name, torch.from_numpy(column).to(self.bias))
        self.solved.fill_(True)
        self._spool = None

    def forward(self, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W); NaN where the raw ensemble is."""
        self._require_solved()
        if self.local:
            require_same_grid(self, self.bias, batch)
        mean, std = batch["raw_mean"], batch["raw_std"]
        maps = (self.bias, self.slope, self.centre, self.c, self.d)
        bias, slope, centre, c, d = map(current().of_samples, maps)
        mu = mean + (bias + slope * (mean - centre))
        return Normal(mu, torch.hypot(c.expand_as(std), d * std))


def _read_block(spool: Spool, points: slice) -> Block:
    """Read truth, mean, variance and weight of some points, one row for each."""
    data = spool.read(points)
    valid = np.isfinite(data).all(0)
    weights: Floats = spool.area.reshape(-1)[points, None] * valid
    truth, mean, std = np.where(weights > 0, data, 0.0)
    return Block(truth, mean, std**2, weights)


def _merge_points(block: Block) -> Block:
    """Merge all points of a block into one problem."""
    return Block(*(x.reshape(1, -1) for x in (block.r, block.u, block.v, block.w)))
